#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "strategies/collectives/collectives.h"
#include "strategies/observation.h"
#include "strategies/strategy.h"
#include "worker/client/coordinator_client.h"

namespace regatta {

// Steps at the beginning that speeds leave out: first-call work of kernels and connections.
inline constexpr int64_t kWarmupSteps = 2;

// What is known of one finished step.
struct StepStats {
  bool disturbed = false;  // by the profiler: no measure of speed
  double step_seconds = 0;
  double data_seconds = 0;
  double learning_rate = 0;
  LossSum loss;
  int64_t real_tokens = 0;
  int64_t padded_tokens = 0;
  Observation observation;
};

// Collects a rank's numbers: samples a step, and the summary at the end.
class Recorder {
 public:
  using Values = std::vector<std::pair<std::string, double>>;

  // `world` null: one rank. What it carried before the first step is not counted.
  explicit Recorder(const Collectives* world = nullptr);

  void EndStep(const StepStats& stats);
  // Records not handed out yet.
  [[nodiscard]] std::vector<StepRecord> TakeRecords();
  // Names as coordinator/summary.cc combines them.
  [[nodiscard]] Values Summarize() const;

 private:
  void PutTraffic(Values& values) const;
  // What is known of a step's memory, phase by phase.
  void PutPeaks(const Observation& seen, Values& values);

  const Collectives* const world_;
  TrafficByKind counted_at_start_;
  TrafficByKind counted_after_warm_up_;
  TrafficByKind counted_after_last_;  // step; saving and evaluating gather too
  int64_t steps_ = 0;
  std::vector<StepRecord> records_;
  std::vector<double> measured_seconds_;  // without warm-up
  int64_t measured_tokens_ = 0;
  int64_t measured_rows_ = 0;
  LossSum last_loss_;
  Observation last_observation_;
  std::map<std::string, int64_t> peaks_;  // by phase, of all steps; of any phase after warm-up
};

// The value below which a share of the sorted values lies, by the nearest rank; 0 where there are
// none. Pure.
[[nodiscard]] double Percentile(std::vector<double> values, double share);

}  // namespace regatta
