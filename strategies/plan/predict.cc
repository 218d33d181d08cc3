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
  auto known = std::find_if(prediction.calls.begin(), prediction.calls.end(),
                            [&](const PredictedCalls& of) { return of.kind == kind; });
  if (known == prediction.calls.end()) known = prediction.calls.insert(known, {kind});
  known->calls += calls;
  known->payload_bytes += payload;
  prediction.calls_per_step += calls;
  prediction.payload_bytes_per_step += payload;
  prediction.sent_bytes_per_step += SentBytes(kind, payload, ranks);
}

// Of all-reduces, in the order in which they start.
std::vector<int64_t> BucketBytes(const DataParallelPlan& how, const std::vector<int64_t>& bytes,
                                 int64_t accumulation) {
  const auto order =
      accumulation < how.flushes_below ? BucketOrder::kRegistration : BucketOrder::kReversed;
  std::vector<int64_t> buckets;
  for (const std::vector<size_t>& members :
       AssignBuckets(bytes, how.bucket_bytes,
                     how.native ? how.first_bucket_bytes : how.bucket_bytes, order)) {
    int64_t& bucket = buckets.emplace_back();
    for (const size_t i : members) bucket += bytes[i];
  }
  return buckets;
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
  const auto count = static_cast<int64_t>(bytes.size());
  if (how.gradients_to_owners) {
    AddCalls(prediction, "reduce_scatter", count, inputs.ranks * total, inputs.ranks);
  } else {
    prediction.bucket_bytes = BucketBytes(how, bytes, inputs.accumulation);
    AddCalls(prediction, "all_reduce", std::ssize(prediction.bucket_bytes),
             how.compression == Compression::kNone ? total : total / 2, inputs.ranks);
  }
  if (how.owners == Owners::kNone) return prediction;
  AddCalls(prediction, "broadcast", count, total, inputs.ranks);
  int64_t owned = 0;
  const std::vector<int> owners = AssignOwners(how.owners, bytes, inputs.ranks);
  for (size_t p = 0; p < bytes.size(); ++p) {
    if (owners[p] == inputs.rank) owned += bytes[p];
  }
  prediction.optimizer_bytes = inputs.optimizer_tensors * owned;
  if (how.parameters_of_owners) prediction.parameter_bytes = owned;
  if (!how.gradients_to_owners) return prediction;
  prediction.gradient_bytes = owned;
  if (inputs.clips) AddCalls(prediction, "all_reduce", 1, sizeof(double), inputs.ranks);
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
  const int64_t calls = inputs.accumulation * ChunksWithRows(plan, rows);
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
  prediction.bucket_bytes = BucketBytes(kReplicaReduction, bytes, 1);
  AddCalls(prediction, "all_reduce", std::ssize(prediction.bucket_bytes), prediction.gradient_bytes,
           plan.replicas);
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

namespace {

// A program is of all ranks, and takes longer to make than all else that is predicted.
void CountTransfers(const PipelinePlan& plan, int64_t accumulation,
                    std::vector<Prediction>& ranks) {
  const auto program = PlanProgram(plan.policy, plan.shape, plan.waits_at_once, plan.fusing);
  const auto* actions = std::get_if<Program>(&program);
  for (size_t rank = 0; actions != nullptr && rank < ranks.size(); ++rank) {
    ranks[rank].transfer_batches =
        accumulation * CountBatches((*actions)[rank % actions->size()], plan.fusing, plan.shape);
  }
}

}  // namespace

std::vector<Prediction> PredictRanks(const StrategyPlan& plan, PredictionInputs inputs) {
  std::vector<Prediction> ranks;
  for (inputs.rank = 0; inputs.rank < inputs.ranks; ++inputs.rank) {
    ranks.push_back(Predict(plan, inputs));
  }
  if (plan.pipeline) CountTransfers(*plan.pipeline, inputs.accumulation, ranks);
  return ranks;
}

Prediction MostOf(const std::vector<Prediction>& ranks) {
  if (ranks.empty()) return {};
  Prediction run = *std::max_element(
      ranks.begin(), ranks.end(),
      [](const Prediction& a, const Prediction& b) { return a.StateBytes() < b.StateBytes(); });
  run.sent_bytes_per_step = 0;
  for (const Prediction& rank : ranks) {
    run.calls_per_step = std::max(run.calls_per_step, rank.calls_per_step);
    run.payload_bytes_per_step = std::max(run.payload_bytes_per_step, rank.payload_bytes_per_step);
    run.sent_bytes_per_step += rank.sent_bytes_per_step;
  }
  run.sent_bytes_per_step /= static_cast<double>(ranks.size());
  return run;
}

}  // namespace regatta
