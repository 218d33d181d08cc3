#include "worker/metrics/recorder.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "worker/metrics/counting_allocator.h"
#include "worker/metrics/process.h"

namespace regatta {

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::clamp<size_t>(rank, 1, values.size()) - 1];
}

Recorder::Recorder(const Collectives* world) : world_(world) {
  if (world_ != nullptr) counted_at_start_ = world_->Counted();
}

void Recorder::EndStep(const StepStats& stats) {
  const auto rows = static_cast<double>(stats.loss.rows);
  const Observation& seen = stats.observation;
  records_.push_back({steps_,
                      {{"step_seconds", stats.step_seconds},
                       {"data_seconds", stats.data_seconds},
                       {"learning_rate", stats.learning_rate},
                       {"loss_sum", stats.loss.sum},
                       {"rows", rows},
                       {"tokens", static_cast<double>(stats.real_tokens)},
                       {"padded_tokens", static_cast<double>(stats.padded_tokens)}}});
  if (seen.times_parts) {
    const std::pair<const char*, double> parts[] = {
        {"forward_seconds", seen.forward_seconds},
        {"backward_seconds", seen.backward_seconds},
        {"exposed_communication_seconds", seen.exposed_communication_seconds},
        {"optimizer_seconds", seen.optimizer_seconds}};
    records_.back().values.insert(records_.back().values.end(), std::begin(parts), std::end(parts));
  }
  if (seen.gradient_norm > 0) {
    records_.back().values.emplace_back("gradient_norm", seen.gradient_norm);
  }
  if (world_ != nullptr) {
    records_.back().values.emplace_back("launched_early", static_cast<double>(seen.launched_early));
  }
  PutPeaks(seen, records_.back().values);
  if (steps_ >= kWarmupSteps && !stats.disturbed) {
    measured_seconds_.push_back(stats.step_seconds);
    measured_tokens_ += stats.real_tokens;
    measured_rows_ += stats.loss.rows;
  }
  last_loss_ = stats.loss;
  last_observation_ = seen;
  ++steps_;
  // A first step may do more than others: LibTorch's reducer builds its buckets anew after it.
  if (world_ != nullptr) counted_after_last_ = world_->Counted();
  if (steps_ == kWarmupSteps) counted_after_warm_up_ = counted_after_last_;
}

std::vector<StepRecord> Recorder::TakeRecords() { return std::exchange(records_, {}); }

Recorder::Values Recorder::Summarize() const {
  const auto number = [](auto value) { return static_cast<double>(value); };
  Values values = {{"steps", number(steps_)},
                   {"warmup_steps", number(std::min(steps_, kWarmupSteps))},
                   {"last_loss_sum", last_loss_.sum},
                   {"last_loss_rows", number(last_loss_.rows)},
                   {"peak_rss_bytes", number(PeakRssBytes())},
                   {"peak_tensor_bytes", number(PeakTensorBytes())},
                   {"parameter_bytes", number(last_observation_.parameter_bytes)},
                   {"gradient_bytes", number(last_observation_.gradient_bytes)},
                   {"optimizer_bytes", number(last_observation_.optimizer_bytes)}};
  if (!measured_seconds_.empty()) {  // too few steps give no speed, rather than a wrong one
    values.insert(values.end(),
                  {{"measured_steps", number(measured_seconds_.size())},
                   {"measured_seconds",
                    std::accumulate(measured_seconds_.begin(), measured_seconds_.end(), 0.0)},
                   {"measured_tokens", number(measured_tokens_)},
                   {"measured_rows", number(measured_rows_)},
                   {"step_seconds_median", Percentile(measured_seconds_, 0.5)},
                   {"step_seconds_p95", Percentile(measured_seconds_, 0.95)}});
  }
  for (const auto& [name, bytes] : peaks_) values.emplace_back(name, number(bytes));
  if (world_ != nullptr) PutTraffic(values);
  return values;
}

void Recorder::PutPeaks(const Observation& seen, Values& values) {
  const std::pair<const char*, int64_t> phases[] = {
      {"peak_forward_bytes", seen.forward_peak_bytes},
      {"peak_backward_bytes", seen.backward_peak_bytes},
      {"peak_optimizer_bytes", seen.optimizer_peak_bytes}};
  for (const auto& [name, bytes] : phases) {
    if (bytes == 0) continue;  // nobody counts
    values.emplace_back(name, static_cast<double>(bytes));
    for (const char* kept : {name, "peak_steady_bytes"}) {
      if (kept != name && steps_ < kWarmupSteps) continue;
      int64_t& most = peaks_[kept];
      most = std::max(most, bytes);
    }
  }
}

// A step's part of what collectives carried, without the warm-up where there are more steps.
void Recorder::PutTraffic(Values& values) const {
  if (steps_ == 0) return;
  const bool only_warm_up = steps_ <= kWarmupSteps;
  const TrafficByKind& earlier = only_warm_up ? counted_at_start_ : counted_after_warm_up_;
  const auto steps = static_cast<double>(only_warm_up ? steps_ : steps_ - kWarmupSteps);
  double calls = 0;
  double payload = 0;
  double sent = 0;
  for (const auto& [kind, traffic] : counted_after_last_) {
    Traffic since = traffic;
    if (const auto before = earlier.find(kind); before != earlier.end()) {
      since.calls -= before->second.calls;
      since.bytes -= before->second.bytes;
      since.sent -= before->second.sent;
    }
    values.emplace_back(kind + "_calls_per_step", static_cast<double>(since.calls) / steps);
    if (kind == kTransferBatch) continue;
    values.emplace_back(kind + "_bytes_per_step", static_cast<double>(since.bytes) / steps);
    calls += static_cast<double>(since.calls);
    payload += static_cast<double>(since.bytes);
    sent += since.sent;
  }
  values.emplace_back("calls_per_step", calls / steps);
  values.emplace_back("payload_bytes_per_step", payload / steps);
  values.emplace_back("bytes_sent_per_step", sent / steps);
}

}  // namespace regatta
