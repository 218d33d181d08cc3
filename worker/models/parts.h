#pragma once

#include <utility>
#include <vector>

#include "strategies/layers.h"
#include "strategies/model.h"
#include "strategies/weights.h"
#include "worker/shapes/parameter_shape.h"

namespace regatta {

// Hands out a model's parameters in registration order, each once, to the blocks that own them;
// they have no memory yet. And numbers the places where elements are dropped.
class Parts {
 public:
  Parts(std::vector<ParameterShape> shapes, at::Device device)
      : shapes_(std::move(shapes)), device_(device) {}

  NamedTensor Take() {
    const ParameterShape& shape = shapes_.at(next_++);
    return {shape.name, MakeShell(shape.shape, device_).set_requires_grad(true)};
  }

  DropoutSite TakeSite(double probability) { return {next_site_++, probability}; }

 private:
  const std::vector<ParameterShape> shapes_;
  const at::Device device_;
  size_t next_ = 0;
  int64_t next_site_ = 0;
};

}  // namespace regatta
