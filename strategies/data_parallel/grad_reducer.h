#pragma once

#include <memory>
#include <vector>

#include "strategies/collectives/collectives.h"
#include "strategies/model.h"
#include "strategies/plan/strategy_table.h"

namespace regatta {

// What a step's reduction tells about itself.
struct Reduction {
  double waited_in_backward_seconds = 0;  // for collectives, while backward stood still
  int64_t launched_early = 0;  // all-reduces launched before backward had made its last gradient
};

// Turns the local gradients of all ranks into their mean. In each step: Begin, on all ranks, with
// the number of its batches; Arm before the last backward that this rank makes (never on a rank
// without rows); Finish.
class GradReducer {
 public:
  virtual ~GradReducer() = default;
  virtual void Begin(size_t /*batches*/) {}
  virtual void Arm() = 0;
  // Afterwards every gradient is the sum over ranks divided by their number, or is gone where
  // another rank owns it. Throws, naming the parameter, where the armed backward did not produce
  // its gradient.
  virtual Reduction Finish() = 0;
};

// `owners` of parameters, where a plan's gradients go to them. `world` may be null where there is
// one rank.
[[nodiscard]] std::unique_ptr<GradReducer> MakeGradReducer(const DataParallelPlan& plan,
                                                           std::vector<NamedTensor> parameters,
                                                           const std::vector<int>& owners,
                                                           Collectives* world);

}  // namespace regatta
