#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace regatta {

// What a run takes while it lasts.
struct QueuedRun {
  int64_t run = 0;
  int ranks = 1;  // a slot each
  int gpus = 0;
};

// One experiment as the scheduler sees it.
struct QueuedExperiment {
  int64_t running = 0;  // runs that hold slots
  int64_t max_parallel = 1;
  std::vector<QueuedRun> pending;  // in order; as many as may start
};

struct QueueSnapshot {
  int free_slots = 0;
  std::vector<QueuedExperiment> experiments;
  int free_gpus = 0;
};

// The runs to start now, in order: the oldest run of all experiments that are below their own
// limit, as long as it fits. A run that does not fit yet holds back younger ones, so that wide runs
// are not starved. Pure.
[[nodiscard]] std::vector<int64_t> ChooseStarts(const QueueSnapshot& snapshot);

}  // namespace regatta
