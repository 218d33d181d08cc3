#pragma once

#include <cstdint>

#include "worker/client/run_spec.h"

namespace regatta {

// The learning rate of optimizer step `step` (from 0) of `planned_steps`: rises linearly from 0
// over the warm-up, then stays or falls linearly to 0 (transformers'
// get_linear_schedule_with_warmup). Pure.
[[nodiscard]] double LearningRate(const RunSpec::OptimizerChoice& choice, int64_t step,
                                  int64_t planned_steps);

}  // namespace regatta
