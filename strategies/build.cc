#include "strategies/data_parallel/data_parallel.h"
#include "strategies/data_parallel/grad_reducer.h"
#include "strategies/strategy.h"

namespace regatta {

std::unique_ptr<Strategy> BuildStrategy(const StrategyPlan& plan, StrategyInputs inputs) {
  std::unique_ptr<GradReducer> reducer =
      MakeGradReducer(plan.data_parallel, ParametersOf(inputs.model), inputs.world);
  return std::make_unique<DataParallel>(std::move(inputs), std::move(reducer));
}

}  // namespace regatta
