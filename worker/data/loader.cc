#include "worker/data/loader.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "strategies/collectives/agreement.h"
#include "worker/data/sampler.h"

namespace regatta {
namespace {

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

Batch Collate(const Shard& shard, const std::vector<int64_t>& rows, int64_t length,
              int64_t pad_id) {
  Batch batch;
  if (rows.empty()) return batch;
  int64_t longest = 0;
  for (const int64_t row : rows) longest = std::max(longest, shard.Length(row));
  TORCH_CHECK(length == 0 || longest <= length, "a row of ", longest,
              " tokens does not fit the fixed padding of ", length, "; set dataset.max_length");
  if (length == 0) length = longest;
  const auto count = static_cast<int64_t>(rows.size());
  batch.ids = at::full({count, length}, pad_id, at::kLong);
  batch.lengths = at::empty({count}, at::kLong);
  batch.labels = at::empty({count}, at::kLong);
  batch.row_ids = at::tensor(rows, at::kLong);
  auto* ids = batch.ids.data_ptr<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = rows[static_cast<size_t>(i)];
    const int64_t tokens = shard.Length(row);
    std::copy_n(shard.ids.begin() + shard.offsets[static_cast<size_t>(row)], tokens,
                ids + i * length);
    batch.lengths.data_ptr<int64_t>()[i] = tokens;
    batch.labels.data_ptr<int64_t>()[i] = shard.labels[static_cast<size_t>(row)];
    batch.real_tokens += tokens;
  }
  return batch;
}

Loader::Loader(const RunSpec& spec, Shard shard, int64_t pad_id, RowShare share, at::Device device)
    : spec_(spec), shard_(std::move(shard)), pad_id_(pad_id), share_(share), device_(device) {
  // The study's sampler gives each share equally many rows: the first ones come again at the end.
  rows_per_epoch_ = spec_.original ? DivideUp(shard_.Rows(), share_.of) * share_.of : shard_.Rows();
  batches_per_epoch_ = spec_.drop_last ? rows_per_epoch_ / spec_.batch_size
                                       : DivideUp(rows_per_epoch_, spec_.batch_size);
  for (int64_t row = 0; row < shard_.Rows(); ++row) lengths_.push_back(shard_.Length(row));
  TORCH_CHECK(batches_per_epoch_ > 0, "the training split has ", shard_.Rows(),
              " rows and drop_last leaves no batch of ", spec_.batch_size);
}

std::string Loader::Fingerprint() const {
  uint64_t hash = HashBytes(shard_.ids.data(), shard_.ids.size() * sizeof(shard_.ids[0]));
  hash ^= 3 * HashBytes(shard_.offsets.data(), shard_.offsets.size() * sizeof(shard_.offsets[0]));
  hash ^= 5 * HashBytes(shard_.labels.data(), shard_.labels.size() * sizeof(shard_.labels[0]));
  std::ostringstream text;
  text << shard_.Rows() << " rows with hash " << std::hex << hash;
  return text.str();
}

int64_t Loader::PlannedSteps() const {
  const int64_t by_epochs =
      spec_.epochs * DivideUp(batches_per_epoch_, spec_.gradient_accumulation);
  if (spec_.epochs == 0) return spec_.steps;
  return spec_.steps == 0 ? by_epochs : std::min(spec_.steps, by_epochs);
}

Batch Loader::Sample() const {
  std::vector<int64_t> rows(
      static_cast<size_t>(std::min(shard_.Rows(), DivideUp(spec_.batch_size, share_.of))));
  std::iota(rows.begin(), rows.end(), 0);
  Batch batch = Collate(shard_, rows, spec_.padded_length, pad_id_);
  batch.MoveTo(device_);
  return batch;
}

void Loader::StartEpoch() {
  // torch.utils.data.DistributedSampler's own seed is 0.
  order_ = GlobalOrder(spec_.sampler, shard_.Rows(), spec_.original ? 0 : spec_.seed, ++epoch_);
  if (spec_.sampler == "length_grouped") order_ = GroupByLength(order_, lengths_, spec_.batch_size);
  for (size_t i = 0; std::ssize(order_) < rows_per_epoch_; ++i) order_.push_back(order_[i]);
  next_batch_ = 0;
}

// So that the mean over shares is that over the step's rows: exactly 1 where all have equally many.
// In the study each batch counts the same, also where a step has fewer.
double Loader::LossWeight(int64_t rows, int64_t step_rows) const {
  return spec_.original ? 1.0 / static_cast<double>(spec_.gradient_accumulation)
                        : static_cast<double>(rows) * share_.of / static_cast<double>(step_rows);
}

std::vector<Batch> Loader::NextStep() {
  if (epoch_ < 0 || next_batch_ == batches_per_epoch_) {
    StartEpoch();
  }
  const int64_t end = std::min(batches_per_epoch_, next_batch_ + spec_.gradient_accumulation);
  const int64_t step_rows =
      std::min(rows_per_epoch_, end * spec_.batch_size) - next_batch_ * spec_.batch_size;
  std::vector<Batch> batches;
  for (; next_batch_ < end; ++next_batch_) {
    batches.push_back(
        Collate(shard_, RankRows(order_, next_batch_, spec_.batch_size, share_.index, share_.of),
                spec_.padded_length, pad_id_));
    batches.back().MoveTo(device_);
    batches.back().loss_weight = LossWeight(batches.back().Rows(), step_rows);
    if (spec_.dropout) batches.back().dropout = {spec_.seed, step_};
  }
  ++step_;
  return batches;
}

std::vector<Batch> EvaluationBatches(const Shard& shard, const EvaluationPlan& plan,
                                     RowShare share) {
  const int64_t most_rows = DivideUp(shard.Rows(), share.of);  // of the share that has most
  std::vector<Batch> batches;
  for (int64_t start = 0; start < most_rows; start += plan.batch_rows) {
    std::vector<int64_t> rows;
    for (int64_t i = start; i < std::min(start + plan.batch_rows, most_rows); ++i) {
      const int64_t row = i * share.of + share.index;
      if (row < shard.Rows() || plan.wraps) rows.push_back(row % shard.Rows());
    }
    batches.push_back(Collate(shard, rows, plan.padded_length, plan.pad_id));
    batches.back().MoveTo(plan.device);
  }
  return batches;
}

}  // namespace regatta
