#include "strategies/plan/predict.h"

#include "strategies/plan/buckets.h"

namespace regatta {

int64_t SentBytes(std::string_view kind, int64_t payload, int ranks) {
  if (ranks <= 1) return 0;
  const int64_t others = ranks - 1;
  if (kind == "all_reduce") return 2 * payload * others / ranks;
  if (kind == "all_gather") return payload * others;
  if (kind == "send") return payload;
  if (kind == "receive") return 0;
  return payload * others / ranks;  // broadcast, reduce_scatter
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

}  // namespace

Prediction Predict(const StrategyPlan& plan, const PredictionInputs& inputs) {
  return plan.sharded ? PredictSharded(*plan.sharded, inputs)
                      : PredictDataParallel(plan.data_parallel, inputs);
}

}  // namespace regatta
