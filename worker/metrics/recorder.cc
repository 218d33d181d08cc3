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

void Recorder::EndStep(const StepStats& stats) {
  const auto rows = static_cast<double>(stats.loss.rows);
  const Observation& seen = stats.observation;
  records_.push_back({steps_,
                      {{"step_seconds", stats.step_seconds},
                       {"data_seconds", stats.data_seconds},
                       {"forward_seconds", seen.forward_seconds},
                       {"backward_seconds", seen.backward_seconds},
                       {"exposed_communication_seconds", seen.exposed_communication_seconds},
                       {"optimizer_seconds", seen.optimizer_seconds},
                       {"learning_rate", stats.learning_rate},
                       {"loss_sum", stats.loss.sum},
                       {"rows", rows},
                       {"tokens", static_cast<double>(stats.real_tokens)},
                       {"padded_tokens", static_cast<double>(stats.padded_tokens)}}});
  if (steps_ >= kWarmupSteps) {
    measured_seconds_.push_back(stats.step_seconds);
    measured_tokens_ += stats.real_tokens;
    measured_rows_ += stats.loss.rows;
  }
  last_loss_ = stats.loss;
  last_observation_ = seen;
  ++steps_;
}

std::vector<StepRecord> Recorder::TakeRecords() { return std::exchange(records_, {}); }

Recorder::Values Recorder::Summarize(const Collectives* world) const {
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
  Traffic all;
  if (world != nullptr) {
    for (const auto& [kind, traffic] : world->Counted()) {
      values.emplace_back(kind + "_calls", number(traffic.calls));
      values.emplace_back(kind + "_bytes", number(traffic.bytes));
      all.calls += traffic.calls;
      all.bytes += traffic.bytes;
    }
  }
  if (steps_ > 0) {
    values.emplace_back("collective_calls_per_step", number(all.calls) / number(steps_));
    values.emplace_back("collective_bytes_per_step", number(all.bytes) / number(steps_));
  }
  return values;
}

}  // namespace regatta
