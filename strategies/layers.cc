#include "strategies/layers.h"

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace regatta {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::Variable;
using torch::autograd::variable_list;

void AddTo(at::Tensor weight, const at::Tensor& gradient) {
  at::Tensor& sum = weight.mutable_grad();
  if (sum.defined()) {
    sum.add_(gradient);
  } else {
    sum = gradient;
  }
}

DeferredGradients& QueueOf(AutogradContext* context) {
  return *reinterpret_cast<DeferredGradients*>(context->saved_data["queue"].toInt());
}

void SetQueue(AutogradContext* context, DeferredGradients* queue) {
  context->saved_data["queue"] = reinterpret_cast<int64_t>(queue);
}

// Weights are inputs of these functions, so that a stage whose input takes no gradient is gone
// through all the same, but what they return for them is undefined.
struct LinearLater : Function<LinearLater> {
  static at::Tensor forward(AutogradContext* context, const Variable& x, const Variable& weight,
                            const std::optional<at::Tensor>& bias, DeferredGradients* queue) {
    SetQueue(context, queue);
    context->save_for_backward({x, weight, bias.value_or(at::Tensor())});
    return at::linear(x, weight, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& gradient = gradients[0];
    QueueOf(context).Add([x = saved[0].detach(), weight = saved[1], bias = saved[2], gradient] {
      const at::Tensor rows = gradient.reshape({-1, gradient.size(-1)});
      AddTo(weight, rows.t().mm(x.reshape({-1, x.size(-1)})));
      if (bias.defined()) AddTo(bias, rows.sum(0));
    });
    const bool needed = context->needs_input_grad(0);
    return {needed ? gradient.matmul(saved[1].detach()) : at::Tensor(), {}, {}, {}};
  }
};

struct LayerNormLater : Function<LayerNormLater> {
  static at::Tensor forward(AutogradContext* context, const Variable& x, const Variable& weight,
                            const Variable& bias, double eps, DeferredGradients* queue) {
    SetQueue(context, queue);
    auto [y, mean, rstd] = at::native_layer_norm(x, weight.sizes(), weight, bias, eps);
    context->save_for_backward({x, weight, bias, mean, rstd});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const auto parts = [gradient = gradients[0], x = saved[0].detach(), weight = saved[1],
                        bias = saved[2], mean = saved[3],
                        rstd = saved[4]](std::array<bool, 3> which) {
      return at::native_layer_norm_backward(gradient, x, weight.sizes(), mean, rstd,
                                            weight.detach(), bias.detach(), which);
    };
    QueueOf(context).Add([parts, weight = saved[1], bias = saved[2]] {
      const auto [none, of_weight, of_bias] = parts({false, true, true});
      AddTo(weight, of_weight);
      AddTo(bias, of_bias);
    });
    return {std::get<0>(parts({true, false, false})), {}, {}, {}, {}};
  }
};

// y = w x / rms(x) (Zhang and Sennrich 2019).
struct RmsNormLater : Function<RmsNormLater> {
  static at::Tensor forward(AutogradContext* context, const Variable& x, const Variable& weight,
                            double eps, DeferredGradients* queue) {
    SetQueue(context, queue);
    const at::Tensor rstd = (x.square().mean(-1, /*keepdim=*/true) + eps).rsqrt();
    context->save_for_backward({x, weight, rstd});
    return x * rstd * weight;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& gradient = gradients[0];
    const at::Tensor normed = saved[0].detach() * saved[2];
    QueueOf(context).Add([gradient, normed, weight = saved[1]] {
      AddTo(weight, (gradient * normed).reshape({-1, gradient.size(-1)}).sum(0));
    });
    const at::Tensor of_normed = gradient * saved[1].detach();
    const at::Tensor along = (of_normed * normed).mean(-1, /*keepdim=*/true);
    return {saved[2] * (of_normed - normed * along), {}, {}, {}};
  }
};

struct EmbeddingLater : Function<EmbeddingLater> {
  static at::Tensor forward(AutogradContext* context, const Variable& weight, const at::Tensor& ids,
                            int64_t pad_id, DeferredGradients* queue) {
    SetQueue(context, queue);
    context->saved_data["pad_id"] = pad_id;
    context->save_for_backward({weight, ids});
    return at::embedding(weight, ids, pad_id);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    QueueOf(context).Add([gradient = gradients[0], weight = saved[0], ids = saved[1],
                          pad_id = context->saved_data["pad_id"].toInt()] {
      AddTo(weight, at::embedding_dense_backward(gradient, ids, weight.size(0), pad_id,
                                                 /*scale_grad_by_freq=*/false));
    });
    return {{}, {}, {}, {}};
  }
};

}  // namespace

void DeferredGradients::Make() {
  const at::NoGradGuard no_grad;
  for (std::function<void()>& make : std::exchange(makers_, {})) std::exchange(make, {})();
}

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias, const Batch& batch) {
  if (batch.deferred == nullptr) return at::linear(x, weight, bias);
  return LinearLater::apply(x, weight, bias, batch.deferred);
}

at::Tensor LayerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double eps, const Batch& batch) {
  if (batch.deferred == nullptr) return at::layer_norm(x, weight.sizes(), weight, bias, eps);
  return LayerNormLater::apply(x, weight, bias, eps, batch.deferred);
}

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps, const Batch& batch) {
  if (batch.deferred == nullptr) return at::rms_norm(x, weight.sizes(), weight, eps);
  return RmsNormLater::apply(x, weight, eps, batch.deferred);
}

at::Tensor Embedding(const at::Tensor& weight, const at::Tensor& ids, int64_t pad_id,
                     const Batch& batch) {
  if (batch.deferred == nullptr) return at::embedding(weight, ids, pad_id);
  return EmbeddingLater::apply(weight, ids, pad_id, batch.deferred);
}

}  // namespace regatta
