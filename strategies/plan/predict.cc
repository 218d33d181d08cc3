#include "strategies/plan/predict.h"

#include "strategies/plan/buckets.h"

namespace regatta {

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
  const auto buckets = AssignBuckets(bytes, plan.data_parallel.bucket_bytes);
  prediction.calls_per_step = static_cast<int64_t>(buckets.size());
  prediction.payload_bytes_per_step = total;
  prediction.sent_bytes_per_step = 2 * total * (inputs.ranks - 1) / inputs.ranks;
  return prediction;
}

}  // namespace regatta
