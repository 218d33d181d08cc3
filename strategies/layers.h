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

// One place in a model where elements are dropped with a probability; each has its own number.
struct DropoutSite {
  int64_t number = 0;
  double probability = 0;
};

// Sets elements to zero with the site's probability and scales the others by 1 / (1 - probability)
// where the batch drops; else `x` itself. Which ones are dropped is a hash of seed, step, site, row
// and the element's place in it, whatever the batch, its padding, the rank or the stage. x: [rows,
// dim], [rows, length, dim] or [rows, heads, length, length].
[[nodiscard]] at::Tensor Dropout(const at::Tensor& x, const DropoutSite& site, const Batch& batch);

// Softmax(query key^T / sqrt(head_dim) + bias) value, [rows, heads, length, head_dim]; `causal`: a
// query sees no later key (then without bias). Where the batch drops, in its explicit form.
[[nodiscard]] at::Tensor Attention(const at::Tensor& query, const at::Tensor& key,
                                   const at::Tensor& value, const at::Tensor& bias, bool causal,
                                   const DropoutSite& site, const Batch& batch);

}  // namespace regatta
