#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace regatta {

// Updates the tensors it was made for from their gradients.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void Step(double learning_rate) = 0;
  // Of its state: tensors of at least one dimension.
  [[nodiscard]] virtual int64_t StateBytes() const = 0;
};

using OptimizerFactory =
    std::function<std::unique_ptr<Optimizer>(std::vector<at::Tensor> parameters)>;

}  // namespace regatta
