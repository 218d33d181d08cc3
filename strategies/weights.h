#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

#include "strategies/model.h"

namespace regatta {

// A fp32 tensor that has a shape but no memory yet.
[[nodiscard]] at::Tensor MakeShell(at::IntArrayRef shape, at::Device device = at::kCPU);

// Whether the tensor's storage holds bytes.
[[nodiscard]] bool HasMemory(const at::Tensor& tensor);

// Gives the tensor's storage `bytes` of memory that was not written yet, whatever other tensors
// look into it; 0 takes it away. Reading a tensor without memory is a segmentation fault.
void SetMemory(const at::Tensor& tensor, size_t bytes);

// The initial values of a parameter's elements from `begin` on, in row-major order, as many as
// `to` has: contiguous, on any device.
void ReadWeights(const Model& model, const NamedTensor& parameter, int64_t begin,
                 const at::Tensor& to);

// Gives parameters their memory and their initial values: all of the model, or these of it.
void LoadWeights(const Model& model);
void LoadWeights(const Model& model, const std::vector<NamedTensor>& parameters);

}  // namespace regatta
