#include "worker/trainer.h"

#include "worker/learning_rate.h"

namespace regatta {

StrategyPlan PlanOf(const RunSpec& spec) {
  auto plan = ParseStrategy(spec.strategy.name, spec.strategy.params,
                            {.ranks = spec.ranks,
                             .replicas = spec.data_parallel,
                             .batch_rows = spec.batch_size,
                             .micro_batches = spec.micro_batches,
                             .accumulation = spec.gradient_accumulation,
                             .original = spec.original});
  if (const auto* error = std::get_if<PlanError>(&plan)) TORCH_CHECK(false, error->sentence);
  return std::get<StrategyPlan>(std::move(plan));
}

RowShare ShareOf(const StrategyPlan& plan, int rank, int ranks) {
  const int shares = RowShares(plan, ranks);
  return {rank / (ranks / shares), shares};
}

ToldAtEnd Train(const TrainingParts& parts) {
  const int64_t planned = parts.loader.PlannedSteps();
  for (int64_t step = 0; step < planned; ++step) {
    StepStats stats;
    parts.profiler.BeginStep(step);
    stats.disturbed = parts.profiler.Disturbs();
    stats.learning_rate = LearningRate(parts.spec.optimizer, step, planned);
    {
      const ScopedSeconds whole(stats.step_seconds);
      std::vector<Batch> batches;
      {
        const ScopedSeconds scope(stats.data_seconds);
        batches = parts.loader.NextStep();
      }
      stats.loss = parts.strategy.ComputeGradients(batches);
      parts.strategy.ApplyGradients(stats.learning_rate);
      if (parts.await_device) parts.await_device();
      // The ranks of a pipeline all have the batch: the one that tells of its loss counts it.
      if (stats.loss.rows == 0) batches.clear();
      for (const Batch& batch : batches) {
        stats.real_tokens += batch.real_tokens;
        stats.padded_tokens += batch.Rows() == 0 ? 0 : batch.ids.numel();
      }
    }
    if (const auto file = parts.profiler.EndStep()) parts.new_trace(*file);
    stats.observation = parts.observation;
    parts.observation.forward_seconds = parts.observation.backward_seconds = 0;
    parts.observation.exposed_communication_seconds = parts.observation.optimizer_seconds = 0;
    parts.observation.forward_peak_bytes = parts.observation.backward_peak_bytes = 0;
    parts.observation.optimizer_peak_bytes = 0;
    parts.observation.gradient_norm = 0;
    parts.observation.launched_early = 0;
    parts.recorder.EndStep(stats);
    if (parts.after_step) parts.after_step(step);
  }
  ToldAtEnd told = parts.strategy.Drain();
  if (const auto file = parts.profiler.Close()) parts.new_trace(*file);
  return told;
}

Evaluation EvaluateAll(Strategy& strategy, const std::vector<Batch>& batches) {
  Evaluation total;
  for (const Batch& batch : batches) {
    const Evaluation part = strategy.Evaluate(batch);
    total.loss_sum += part.loss_sum;
    total.correct += part.correct;
    total.rows += part.rows;
  }
  return total;
}

}  // namespace regatta
