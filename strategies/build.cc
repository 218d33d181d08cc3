#include "strategies/data_parallel/data_parallel.h"
#include "strategies/pipeline/pipeline.h"
#include "strategies/sharded/sharded.h"
#include "strategies/strategy.h"
#include "strategies/weights.h"

namespace regatta {

std::unique_ptr<Collectives> MakeReplicaGroup(const StrategyPlan& plan, const Collectives* world) {
  if (!plan.pipeline || plan.pipeline->replicas == 1) return nullptr;
  const int ranks = plan.pipeline->shape.ranks;
  return std::make_unique<Collectives>(
      MakeGlooSubgroup(*world->Group(), "replicas of rank " + std::to_string(world->Rank() % ranks),
                       world->Rank() / ranks, plan.pipeline->replicas));
}

std::unique_ptr<Strategy> BuildStrategy(const StrategyPlan& plan, StrategyInputs inputs) {
  if (plan.sharded) return std::make_unique<Sharded>(plan.name, *plan.sharded, std::move(inputs));
  if (plan.pipeline) {
    PipelineInputs pipeline = PlanPipeline(*plan.pipeline, inputs);
    return std::make_unique<Pipeline>(std::move(pipeline), std::move(inputs));
  }
  LoadWeights(inputs.model);
  return std::make_unique<DataParallel>(plan.name, plan.data_parallel, std::move(inputs));
}

}  // namespace regatta
