#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "strategies/model.h"

namespace regatta {

[[nodiscard]] inline std::vector<at::Tensor> TensorsOf(const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& parameter : parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

// As the optimizer sees them: undefined where a parameter has none.
[[nodiscard]] inline std::vector<at::Tensor> GradientsOf(
    const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

[[nodiscard]] inline int64_t BytesOf(const std::vector<NamedTensor>& parameters) {
  int64_t bytes = 0;
  for (const NamedTensor& parameter : parameters) {
    bytes += static_cast<int64_t>(parameter.tensor.nbytes());
  }
  return bytes;
}

}  // namespace regatta
