#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <optional>
#include <vector>

#include "strategies/model.h"

namespace regatta {

// Makes gradients of weights in backward's place, and adds them to those that are there without a
// tensor in between (autograd makes each anew, then adds it: twice the memory traffic). At once, or
// later; then it keeps what they are made of.
class WeightGradients {
 public:
  enum class When { kAtOnce, kLater };
  explicit WeightGradients(When when) : when_(when) {}

  [[nodiscard]] bool AtOnce() const { return when_ == When::kAtOnce; }
  void Add(std::function<void()> make);
  // Makes all that are left, in the order in which backward came to them, and frees what each
  // needed.
  void Make();

 private:
  const When when_;
  std::vector<std::function<void()>> makers_;
};

// Layers of a model. Where batch.weight_gradients is set, their backward makes the gradient of `x`
// alone and leaves those of weights to it; else they are ATen's own. Weights that they share with
// other functions, or that have hooks, are not for that.
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
