#include "strategies/plan/pipeline/bubble.h"

namespace regatta {

Bubble ExplainBubble(const Program& program, const PipelineShape& shape, const SeenPipeline& seen) {
  const auto count = static_cast<double>(seen.stages.size());
  StageCosts mean{0, 0, 0};
  for (const StageCosts& stage : seen.stages) {
    mean.forward += stage.forward / count;
    mean.backward_input += stage.backward_input / count;
    mean.backward_weight += stage.backward_weight / count;
  }
  const auto share = [&](const std::vector<StageCosts>& stages, double transfer) {
    return Simulate(program, shape, {stages, transfer}).BubbleFraction();
  };
  Bubble bubble;
  const double all = seen.step * static_cast<double>(shape.ranks);
  bubble.measured = all > 0 ? 1 - seen.busy / all : 0;
  bubble.program = share(std::vector<StageCosts>(seen.stages.size(), mean), 0);
  const double unequal = share(seen.stages, 0);
  bubble.imbalance = unequal - bubble.program;
  bubble.transfer = share(seen.stages, seen.transfer) - unequal;
  bubble.rest = bubble.measured - bubble.program - bubble.imbalance - bubble.transfer;
  return bubble;
}

}  // namespace regatta
