#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "strategies/collectives/collectives.h"
#include "strategies/model.h"
#include "strategies/plan/strategy_table.h"

namespace regatta {

// Turns the local gradients of all ranks into their mean. Armed before the last backward that this
// rank makes in a step (never on a rank without rows), finished after it.
class GradReducer {
 public:
  virtual ~GradReducer() = default;
  virtual void Arm() = 0;
  // Afterwards every gradient is the sum over ranks divided by their number. Throws, naming the
  // parameter, where the armed backward did not produce its gradient.
  virtual void Finish() = 0;
};

// `world` may be null where there is one rank.
[[nodiscard]] std::unique_ptr<GradReducer> MakeGradReducer(const DataParallelPlan& plan,
                                                           std::vector<NamedTensor> parameters,
                                                           Collectives* world);

}  // namespace regatta
