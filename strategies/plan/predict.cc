#include "strategies/plan/predict.h"

#include <algorithm>
#include <utility>

#include "strategies/plan/buckets.h"

namespace regatta {

double SentBytes(std::string_view kind, int64_t payload, int ranks) {
  if (ranks <= 1 || kind == "receive") return 0;
  const auto bytes = static_cast<double>(payload);
  const double others = ranks - 1;
  if (kind == "send") return bytes;
  if (kind == "all_gather") return bytes * others;
  return (kind == "all_reduce" ? 2 : 1) * bytes * others / ranks;  // or broadcast, reduce_scatter
}

namespace {

void AddCalls(Prediction& prediction, std::string_view kind, int64_t calls, int64_t payload,
              int ranks) {
  prediction.calls_per_step += calls;
  prediction.payload_bytes_per_step += payload;
  prediction.sent_bytes_per_step += SentBytes(kind, payload, ranks);
}

Prediction PredictDataParallel(const DataParallelPlan& how, const PredictionInputs& inputs) {
  std::vector<int64_t> bytes;
  int64_t total = 0;
  for (const ParameterSize& parameter : inputs.parameters) {
    bytes.push_back(4 * parameter.elements);
    total += bytes.back();
  }
  Prediction prediction{.parameter_bytes = total,
                        .gradient_bytes = total,
                        .optimizer_bytes = inputs.optimizer_tensors * total};
  if (!how.reduces || inputs.ranks == 1) return prediction;
  const auto buckets = AssignBuckets(bytes, how.bucket_bytes,
                                     how.native ? how.first_bucket_bytes : how.bucket_bytes);
  AddCalls(prediction, "all_reduce", static_cast<int64_t>(buckets.size()),
           how.compression == Compression::kNone ? total : total / 2, inputs.ranks);
  if (!how.owners_update) return prediction;
  AddCalls(prediction, "broadcast", static_cast<int64_t>(bytes.size()), total, inputs.ranks);
  prediction.optimizer_bytes = 0;
  const std::vector<int> owners = AssignOwners(bytes, inputs.ranks);
  for (size_t p = 0; p < bytes.size(); ++p) {
    if (owners[p] == inputs.rank) prediction.optimizer_bytes += inputs.optimizer_tensors * bytes[p];
  }
  return prediction;
}

Prediction PredictSharded(const ShardedPlan& plan, const PredictionInputs& inputs) {
  int64_t owned = 0;  // bytes of this rank's slices
  int64_t whole = 0;  // of all units
  Prediction prediction;
  const int64_t k = inputs.accumulation;
  const int64_t gathers = !plan.parameters_sharded ? 1 : plan.reshard_after_forward ? 2 * k : k;
  const int64_t reductions =
      plan.gradients_sharded && plan.accumulate == Accumulate::kSharded ? k : 1;
  for (const UnitBytes& unit :
       MeasureUnits(plan.unit, plan.slices, inputs.parameters, inputs.ranks)) {
    whole += unit.flat;
    owned += unit.of_rank[static_cast<size_t>(inputs.rank)];
    if (inputs.ranks == 1) continue;
    AddCalls(prediction, "all_gather", gathers, gathers * unit.slice, inputs.ranks);
    AddCalls(prediction, plan.emulated_reduce_scatter ? "all_reduce" : "reduce_scatter", reductions,
             reductions * unit.slice * inputs.ranks, inputs.ranks);
  }
  if (inputs.clips && inputs.ranks > 1) {
    AddCalls(prediction, "all_reduce", 1, sizeof(double), inputs.ranks);
  }
  prediction.parameter_bytes = plan.parameters_sharded ? owned : whole;
  prediction.gradient_bytes = plan.AddsWholeGradients(k) ? whole : owned;
  prediction.optimizer_bytes = inputs.optimizer_tensors * owned;
  return prediction;
}

// Bytes of the parameters of each of a rank's stages, one after another.
std::vector<int64_t> BytesOfStages(const PipelineShape& shape, const std::vector<int>& firsts,
                                   int rank, const std::vector<ParameterSize>& parameters) {
  std::vector<int64_t> bytes;
  for (const ParameterSize& parameter : parameters) {
    const int stage = StageOf(firsts, parameter.blocks.at(0));
    if (shape.RankOf(stage) == rank) bytes.push_back(4 * parameter.elements);
  }
  return bytes;
}

Prediction PredictPipeline(const PipelinePlan& plan, const PredictionInputs& inputs) {
  const PipelineShape& shape = plan.shape;
  const auto firsts = PredictStages(plan, inputs.parameters);
  if (!firsts) return {};
  const int rank = inputs.rank % shape.ranks;
  Prediction prediction;
  const std::vector<int64_t> bytes = BytesOfStages(shape, *firsts, rank, inputs.parameters);
  for (const int64_t of_parameter : bytes) prediction.parameter_bytes += of_parameter;
  prediction.gradient_bytes = prediction.parameter_bytes;
  prediction.optimizer_bytes = inputs.optimizer_tensors * prediction.parameter_bytes;
  prediction.knows_traffic = inputs.padded_length > 0;
  const int64_t replica = inputs.rank / shape.ranks;
  const int64_t rows =
      inputs.batch_rows / plan.replicas + (replica < inputs.batch_rows % plan.replicas ? 1 : 0);
  const int64_t calls = inputs.accumulation * std::min<int64_t>(shape.micro_batches, rows);
  const int64_t payload =
      inputs.accumulation * rows * inputs.padded_length * inputs.width * int64_t{sizeof(float)};
  for (int stage = rank; stage < shape.Stages(); stage += shape.ranks) {
    for (const bool boundary : {stage > 0, stage + 1 < shape.Stages()}) {
      if (!boundary) continue;
      AddCalls(prediction, "send", calls, payload, inputs.ranks);
      AddCalls(prediction, "receive", calls, payload, inputs.ranks);
    }
  }
  if (inputs.clips) AddCalls(prediction, "all_reduce", 1, sizeof(double), inputs.ranks);
  if (plan.replicas == 1) return prediction;
  const int64_t bucket = kReplicaReduction.bucket_bytes;
  AddCalls(prediction, "all_reduce",
           static_cast<int64_t>(AssignBuckets(bytes, bucket, bucket).size()),
           prediction.gradient_bytes, plan.replicas);
  return prediction;
}

}  // namespace

std::optional<std::vector<int>> PredictStages(const PipelinePlan& plan,
                                              const std::vector<ParameterSize>& parameters) {
  if (plan.split.kind == SplitKind::kByTime) return {};
  auto split = SplitBlocks(plan.split, BlockElements(parameters), plan.shape.Stages());
  auto* firsts = std::get_if<std::vector<int>>(&split);
  return firsts == nullptr ? std::nullopt : std::optional(std::move(*firsts));
}

Prediction Predict(const StrategyPlan& plan, const PredictionInputs& inputs) {
  if (plan.pipeline) return PredictPipeline(*plan.pipeline, inputs);
  return plan.sharded ? PredictSharded(*plan.sharded, inputs)
                      : PredictDataParallel(plan.data_parallel, inputs);
}

Prediction PredictRun(const StrategyPlan& plan, PredictionInputs inputs) {
  inputs.rank = 0;
  Prediction run = Predict(plan, inputs);
  if (!plan.pipeline) return run;  // slices differ by less than a parameter, rank 0 has most
  double sent = run.sent_bytes_per_step;
  for (inputs.rank = 1; inputs.rank < plan.pipeline->shape.ranks; ++inputs.rank) {
    const Prediction rank = Predict(plan, inputs);
    if (rank.parameter_bytes > run.parameter_bytes) {
      run.parameter_bytes = rank.parameter_bytes;
      run.gradient_bytes = rank.gradient_bytes;
      run.optimizer_bytes = rank.optimizer_bytes;
    }
    run.calls_per_step = std::max(run.calls_per_step, rank.calls_per_step);
    run.payload_bytes_per_step = std::max(run.payload_bytes_per_step, rank.payload_bytes_per_step);
    sent += rank.sent_bytes_per_step;
  }
  run.sent_bytes_per_step = sent / plan.pipeline->shape.ranks;
  return run;
}

}  // namespace regatta
