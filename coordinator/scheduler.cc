#include "coordinator/scheduler.h"

namespace regatta {

std::vector<int64_t> ChooseStarts(const QueueSnapshot& snapshot) {
  std::vector<int64_t> starts;
  std::vector<std::size_t> started(snapshot.experiments.size());
  int free_slots = snapshot.free_slots;
  for (;;) {
    std::size_t oldest = snapshot.experiments.size();
    for (std::size_t i = 0; i < snapshot.experiments.size(); ++i) {
      const QueuedExperiment& experiment = snapshot.experiments[i];
      if (started[i] == experiment.pending.size() ||
          experiment.running + static_cast<int64_t>(started[i]) >= experiment.max_parallel) {
        continue;
      }
      if (oldest == snapshot.experiments.size() ||
          experiment.pending[started[i]].first <
              snapshot.experiments[oldest].pending[started[oldest]].first) {
        oldest = i;
      }
    }
    if (oldest == snapshot.experiments.size()) return starts;
    const auto& [run, ranks] = snapshot.experiments[oldest].pending[started[oldest]];
    if (ranks > free_slots) return starts;
    free_slots -= ranks;
    ++started[oldest];
    starts.push_back(run);
  }
}

}  // namespace regatta
