#pragma once

#include <memory>
#include <vector>

#include "strategies/collectives/collectives.h"
#include "strategies/model.h"
#include "strategies/plan/strategy_table.h"

namespace regatta {

// Turns the local gradients of all ranks into their mean. Armed before the last backward of a step,
// finished after it.
class GradReducer {
 public:
  virtual ~GradReducer() = default;
  virtual void Arm() = 0;
  // Afterwards every gradient is the sum over ranks divided by their number.
  virtual void Finish() = 0;
};

// `world` may be null only where the plan communicates nothing.
[[nodiscard]] std::unique_ptr<GradReducer> MakeGradReducer(const DataParallelPlan& plan,
                                                           std::vector<NamedTensor> parameters,
                                                           Collectives* world);

}  // namespace regatta
