#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <optional>
#include <vector>

#include "strategies/model.h"

namespace regatta {

// Gradients of weights that backward has left for later, with what they are made of.
class DeferredGradients {
 public:
  void Add(std::function<void()> make) { makers_.push_back(std::move(make)); }
  // Makes all, in the order in which backward came to them, and frees what each needed.
  void Make();

 private:
  std::vector<std::function<void()>> makers_;
};

// Layers of a model. Where batch.deferred is set, their backward makes the gradient of `x` alone
// and leaves those of weights there; else they are ATen's own.
[[nodiscard]] at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight,
                                const std::optional<at::Tensor>& bias, const Batch& batch);
[[nodiscard]] at::Tensor LayerNorm(const at::Tensor& x, const at::Tensor& weight,
                                   const at::Tensor& bias, double eps, const Batch& batch);
[[nodiscard]] at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps,
                                 const Batch& batch);
// Rows of `weight` by index; that of `pad_id` (-1: none) gets no gradient.
[[nodiscard]] at::Tensor Embedding(const at::Tensor& weight, const at::Tensor& ids, int64_t pad_id,
                                   const Batch& batch);

}  // namespace regatta
