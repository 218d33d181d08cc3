#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <vector>

#include "strategies/model.h"
#include "strategies/plan/slices.h"

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

// All parameters with the blocks that use them.
[[nodiscard]] inline std::vector<ParameterSize> SizesOf(
    const Model& model, const std::vector<NamedTensor>& parameters) {
  std::map<at::TensorImpl*, size_t> index;
  std::vector<ParameterSize> sizes;
  for (const NamedTensor& parameter : parameters) {
    index[parameter.tensor.unsafeGetTensorImpl()] = sizes.size();
    sizes.push_back(
        {parameter.tensor.numel(), parameter.tensor.dim() == 0 ? 1 : parameter.tensor.size(0), {}});
  }
  for (size_t block = 0; block < model.blocks.size(); ++block) {
    for (const NamedTensor& parameter : model.blocks[block]->Parameters()) {
      sizes[index.at(parameter.tensor.unsafeGetTensorImpl())].blocks.push_back(block);
    }
  }
  return sizes;
}

[[nodiscard]] inline int64_t BytesOf(const std::vector<NamedTensor>& parameters) {
  int64_t bytes = 0;
  for (const NamedTensor& parameter : parameters) {
    bytes += static_cast<int64_t>(parameter.tensor.nbytes());
  }
  return bytes;
}

}  // namespace regatta
