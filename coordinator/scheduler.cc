#include "coordinator/scheduler.h"

namespace regatta {

std::vector<int64_t> ChooseStarts(const QueueSnapshot& snapshot) {
  std::vector<int64_t> starts;
  std::vector<std::size_t> started(snapshot.experiments.size());
  int free_slots = snapshot.free_slots;
  int free_gpus = snapshot.free_gpus;
  for (;;) {
    std::size_t oldest = snapshot.experiments.size();
    for (std::size_t i = 0; i < snapshot.experiments.size(); ++i) {
      const QueuedExperiment& experiment = snapshot.experiments[i];
      if (started[i] == experiment.pending.size() ||
          experiment.running + static_cast<int64_t>(started[i]) >= experiment.max_parallel) {
        continue;
      }
      if (oldest == snapshot.experiments.size() ||
          experiment.pending[started[i]].run <
              snapshot.experiments[oldest].pending[started[oldest]].run) {
        oldest = i;
      }
    }
    if (oldest == snapshot.experiments.size()) return starts;
    const QueuedRun& next = snapshot.experiments[oldest].pending[started[oldest]];
    if (next.ranks > free_slots || next.gpus > free_gpus) return starts;
    free_slots -= next.ranks;
    free_gpus -= next.gpus;
    ++started[oldest];
    starts.push_back(next.run);
  }
}

}  // namespace regatta
