#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "strategies/strategy.h"
#include "worker/client/run_spec.h"
#include "worker/data/loader.h"
#include "worker/metrics/recorder.h"
#include "worker/profiler.h"

namespace regatta {

// How the run's ranks train. Throws the sentence where they cannot.
[[nodiscard]] StrategyPlan PlanOf(const RunSpec& spec);

// The ranks of one pipeline work on the same rows, all others on their own.
[[nodiscard]] RowShare ShareOf(const StrategyPlan& plan, int rank, int ranks);

// What the loop works with; owned by the caller.
struct TrainingParts {
  const RunSpec& spec;
  Loader& loader;
  Strategy& strategy;
  Observation& observation;
  Recorder& recorder;
  StepProfiler& profiler;
  std::function<void(int64_t step)> after_step;          // may be empty
  std::function<void(const TraceFile& file)> new_trace;  // may be empty where nothing is profiled
  std::function<void()> await_device;  // until it has done all it was told; may be empty
};

// The training loop: no branch on a strategy, a model or a backend.
ToldAtEnd Train(const TrainingParts& parts);

// Every batch once; sums of this rank.
[[nodiscard]] Evaluation EvaluateAll(Strategy& strategy, const std::vector<Batch>& batches);

}  // namespace regatta
