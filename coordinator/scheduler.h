#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace regatta {

// One experiment as the scheduler sees it.
struct QueuedExperiment {
  int64_t running = 0;  // runs that hold slots
  int64_t max_parallel = 1;
  std::vector<std::pair<int64_t, int>> pending;  // (run, ranks) in order; as many as may start
};

struct QueueSnapshot {
  int free_slots = 0;
  std::vector<QueuedExperiment> experiments;
};

// The runs to start now, in order: the oldest run of all experiments that are below their own
// limit, as long as it fits. A run that does not fit yet holds back younger ones, so that wide runs
// are not starved. Pure.
[[nodiscard]] std::vector<int64_t> ChooseStarts(const QueueSnapshot& snapshot);

}  // namespace regatta
