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

Prediction Predict(const StrategyPlan& plan, const PredictionInputs& inputs) {
  std::vector<int64_t> bytes;
  int64_t total = 0;
  for (const int64_t elements : inputs.elements) {
    bytes.push_back(4 * elements);
    total += bytes.back();
  }
  Prediction prediction{.parameter_bytes = total,
                        .gradient_bytes = total,
                        .optimizer_bytes = inputs.optimizer_tensors * total};
  if (!plan.data_parallel.reduces || inputs.ranks == 1) return prediction;
  const DataParallelPlan& how = plan.data_parallel;
  const auto buckets = AssignBuckets(bytes, how.bucket_bytes,
                                     how.native ? how.first_bucket_bytes : how.bucket_bytes);
  const int64_t payload = how.compression == Compression::kNone ? total : total / 2;
  prediction.calls_per_step = static_cast<int64_t>(buckets.size());
  prediction.payload_bytes_per_step = payload;
  prediction.sent_bytes_per_step = SentBytes("all_reduce", payload, inputs.ranks);
  return prediction;
}

}  // namespace regatta
