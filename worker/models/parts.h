#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "strategies/model.h"
#include "worker/shapes/parameter_shape.h"

namespace regatta {

// Where a model's parameters come from: a new fp32 tensor of the shape, which requires a gradient.
using TensorSource = std::function<at::Tensor(const ParameterShape&)>;

// Hands out a model's tensors in registration order, each once, to the blocks that own them.
class Parts {
 public:
  Parts(std::vector<ParameterShape> shapes, const TensorSource& source)
      : shapes_(std::move(shapes)), source_(source) {}

  NamedTensor Take() {
    const ParameterShape& shape = shapes_.at(next_++);
    return {shape.name, source_(shape)};
  }

 private:
  const std::vector<ParameterShape> shapes_;
  const TensorSource& source_;
  size_t next_ = 0;
};

}  // namespace regatta
