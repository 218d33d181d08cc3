#include "worker/data/sampler.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <numeric>

namespace regatta {

std::vector<int64_t> GlobalOrder(const std::string& sampler, int64_t rows, int64_t seed,
                                 int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(rows));
  if (sampler == "sequential") {
    std::iota(order.begin(), order.end(), int64_t{0});
    return order;
  }
  TORCH_CHECK(sampler == "distributed" || sampler == "length_grouped", "sampler '", sampler,
              "' is unknown; distributed, sequential and length_grouped are built");
  const at::Generator generator =
      at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed + epoch));
  const at::Tensor permutation = at::randperm(rows, generator, at::kLong);
  std::copy_n(permutation.const_data_ptr<int64_t>(), rows, order.begin());
  return order;
}

std::vector<int64_t> GroupByLength(std::vector<int64_t> order, const std::vector<int64_t>& lengths,
                                   int64_t batch_size) {
  const auto rows = static_cast<int64_t>(order.size());
  const int64_t batches = std::clamp<int64_t>(rows / (batch_size * 4), 1, 50);
  const auto length = [&](int64_t row) { return lengths[static_cast<size_t>(row)]; };
  auto longest = order.begin();  // of the pieces' first rows
  for (int64_t start = 0; start < rows; start += batches * batch_size) {
    const auto first = order.begin() + start;
    const auto end = order.begin() + std::min(rows, start + batches * batch_size);
    std::stable_sort(first, end, [&](int64_t a, int64_t b) { return length(a) > length(b); });
    if (length(*first) > length(*longest)) longest = first;
  }
  if (rows > 0) std::swap(*order.begin(), *longest);
  return order;
}

std::vector<int64_t> RankRows(const std::vector<int64_t>& order, int64_t batch, int64_t batch_size,
                              int rank, int ranks) {
  const int64_t end = std::min(static_cast<int64_t>(order.size()), (batch + 1) * batch_size);
  std::vector<int64_t> rows;
  for (int64_t i = batch * batch_size + rank; i < end; i += ranks)
    rows.push_back(order[static_cast<size_t>(i)]);
  return rows;
}

}  // namespace regatta
