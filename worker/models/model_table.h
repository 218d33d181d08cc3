#pragma once

#include <cstdint>
#include <string>

#include "strategies/model.h"
#include "worker/client/run_spec.h"

namespace regatta {

// What data must know of a model.
struct ModelLimits {
  int64_t vocab_size = 0;
  int64_t labels = 0;
  int64_t max_positions = 0;
  int64_t pad_id = 0;
};

struct BuiltModel {
  Model model;
  ModelLimits limits;
};

// Builds a model by its config's model_type, whose weights are read from its folder or made by the
// fixture recipe when a strategy loads them (LoadWeights, ReadWeights). Throws, as reading does,
// with a sentence naming file, tensor or key.
[[nodiscard]] BuiltModel BuildModel(const decltype(RunSpec::model)& spec,
                                    at::Device device = at::kCPU);

// The same, computing as the run says.
[[nodiscard]] BuiltModel BuildModel(const RunSpec& spec, at::Device device = at::kCPU);

}  // namespace regatta
