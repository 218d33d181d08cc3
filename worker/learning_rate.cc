#include "worker/learning_rate.h"

#include <algorithm>

namespace regatta {

double LearningRate(const RunSpec::OptimizerChoice& choice, int64_t step, int64_t planned_steps) {
  if (step < choice.warmup_steps) {
    return choice.learning_rate * static_cast<double>(step) /
           static_cast<double>(choice.warmup_steps);
  }
  if (choice.decay != "linear") return choice.learning_rate;
  const auto left = static_cast<double>(std::max<int64_t>(0, planned_steps - step));
  const auto whole = static_cast<double>(std::max<int64_t>(1, planned_steps - choice.warmup_steps));
  return choice.learning_rate * left / whole;
}

}  // namespace regatta
