#include "strategies/layers.h"

#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
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

WeightGradients& QueueOf(AutogradContext* context) {
  return *reinterpret_cast<WeightGradients*>(context->saved_data["queue"].toInt());
}

void SetQueue(AutogradContext* context, WeightGradients* queue) {
  context->saved_data["queue"] = reinterpret_cast<int64_t>(queue);
}

// Weights are inputs of these functions, so that a stage whose input takes no gradient is gone
// through all the same, but what they return for them is undefined.
struct LinearLater : Function<LinearLater> {
  static at::Tensor forward(AutogradContext* context, const Variable& x, const Variable& weight,
                            const std::optional<at::Tensor>& bias, WeightGradients* queue) {
    SetQueue(context, queue);
    context->save_for_backward({x, weight, bias.value_or(at::Tensor())});
    return at::linear(x, weight, bias);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& gradient = gradients[0];
    QueueOf(context).Add([x = saved[0].detach(), weight = saved[1], bias = saved[2], gradient] {
      const at::Tensor rows = gradient.reshape({-1, gradient.size(-1)});
      const at::Tensor inputs = x.reshape({-1, x.size(-1)});
      if (weight.grad().defined()) {
        weight.grad().addmm_(rows.t(), inputs);
      } else {
        AddTo(weight, rows.t().mm(inputs));
      }
      if (bias.defined()) AddTo(bias, rows.sum(0));
    });
    const bool needed = context->needs_input_grad(0);
    return {needed ? gradient.matmul(saved[1].detach()) : at::Tensor(), {}, {}, {}};
  }
};

struct LayerNormLater : Function<LayerNormLater> {
  static at::Tensor forward(AutogradContext* context, const Variable& x, const Variable& weight,
                            const Variable& bias, double eps, WeightGradients* queue) {
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
    if (QueueOf(context).AtOnce()) {
      const auto [of_x, of_weight, of_bias] = parts({true, true, true});
      AddTo(saved[1], of_weight);
      AddTo(saved[2], of_bias);
      return {of_x, {}, {}, {}, {}};
    }
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
                            double eps, WeightGradients* queue) {
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
                            int64_t pad_id, WeightGradients* queue) {
    SetQueue(context, queue);
    context->saved_data["pad_id"] = pad_id;
    context->save_for_backward({weight, ids});
    return at::embedding(weight, ids, pad_id);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    QueueOf(context).Add([gradient = gradients[0], weight = saved[0], ids = saved[1],
                          pad_id = context->saved_data["pad_id"].toInt()] {
      if (!weight.grad().defined()) {
        return AddTo(weight, at::embedding_dense_backward(gradient, ids, weight.size(0), pad_id,
                                                          /*scale_grad_by_freq=*/false));
      }
      const at::Tensor real = ids.ne(pad_id);  // the other rows of a large table are not touched
      weight.grad().index_add_(0, ids.masked_select(real), gradient.index({real}));
    });
    return {{}, {}, {}, {}};
  }
};

// The finalizer of splitmix64 (Steele, Lea and Flood 2014): every bit of the result depends on
// every bit of `x`.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Of the n-th number of the stream `key`.
uint64_t Hash(uint64_t key, uint64_t n) { return Mix(key + (n + 1) * 0x9e3779b97f4a7c15); }

// 0 or the scale of what is kept, [rows, planes, lines, elements]. An element's number does not
// depend on the extents, which follow the padding of a batch.
at::Tensor MakeMask(at::IntArrayRef extents, const DropoutSite& site, const Batch& batch) {
  constexpr int kBits = 20;  // of a line's and an element's number
  const at::Tensor mask = at::empty(extents);
  const int64_t planes = extents[1];
  const int64_t lines = extents[2];
  const int64_t elements = extents[3];
  TORCH_CHECK(lines <= 1 << kBits && elements <= 1 << kBits, "dropout of ", extents,
              "; at most a million of lines and of elements are right");
  // 24 bits: as many as a float tells apart.
  const auto dropped = static_cast<uint64_t>(site.probability * (1 << 24));
  const auto kept = static_cast<float>(1 / (1 - site.probability));
  uint64_t of_site =
      Hash(static_cast<uint64_t>(batch.dropout->seed), static_cast<uint64_t>(batch.dropout->step));
  of_site = Hash(of_site, static_cast<uint64_t>(site.number));
  const auto* rows = batch.row_ids.const_data_ptr<int64_t>();
  float* to = mask.mutable_data_ptr<float>();
  for (int64_t row = 0; row < extents[0]; ++row) {
    const uint64_t of_row = Hash(of_site, static_cast<uint64_t>(rows[row]));
    for (int64_t plane = 0; plane < planes; ++plane) {
      for (int64_t line = 0; line < lines; ++line, to += elements) {
        const auto first = static_cast<uint64_t>((plane << kBits) + line) << kBits;
        for (int64_t i = 0; i < elements; ++i) {
          to[i] = Hash(of_row, first + static_cast<uint64_t>(i)) >> 40 < dropped ? 0 : kept;
        }
      }
    }
  }
  return mask;
}

}  // namespace

void WeightGradients::Add(std::function<void()> make) {
  if (AtOnce()) return make();
  makers_.push_back(std::move(make));
}

void WeightGradients::Make() {
  const at::NoGradGuard no_grad;
  for (std::function<void()>& make : std::exchange(makers_, {})) std::exchange(make, {})();
}

at::Tensor Linear(const at::Tensor& x, const at::Tensor& weight,
                  const std::optional<at::Tensor>& bias, const Batch& batch) {
  if (batch.weight_gradients == nullptr) return at::linear(x, weight, bias);
  return LinearLater::apply(x, weight, bias, batch.weight_gradients);
}

at::Tensor LayerNorm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     double eps, const Batch& batch) {
  if (batch.weight_gradients == nullptr)
    return at::layer_norm(x, weight.sizes(), weight, bias, eps);
  return LayerNormLater::apply(x, weight, bias, eps, batch.weight_gradients);
}

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps, const Batch& batch) {
  if (batch.weight_gradients == nullptr) return at::rms_norm(x, weight.sizes(), weight, eps);
  return RmsNormLater::apply(x, weight, eps, batch.weight_gradients);
}

at::Tensor Embedding(const at::Tensor& weight, const at::Tensor& ids, int64_t pad_id,
                     const Batch& batch) {
  if (batch.weight_gradients == nullptr) return at::embedding(weight, ids, pad_id);
  return EmbeddingLater::apply(weight, ids, pad_id, batch.weight_gradients);
}

at::Tensor Dropout(const at::Tensor& x, const DropoutSite& site, const Batch& batch) {
  if (!batch.dropout || site.probability == 0) return x;
  std::vector<int64_t> extents = x.sizes().vec();
  while (extents.size() < 4) extents.insert(extents.begin() + 1, 1);
  return x * MakeMask(extents, site, batch).view(x.sizes()).to(x.device());
}

at::Tensor Attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const at::Tensor& bias, bool causal, const DropoutSite& site,
                     const Batch& batch) {
  const std::optional<at::Tensor> mask = bias.defined() ? std::optional(bias) : std::nullopt;
  if (!batch.dropout || site.probability == 0) {
    return at::scaled_dot_product_attention(query, key, value, mask, 0.0, causal, {},
                                            /*enable_gqa=*/query.size(1) != key.size(1));
  }
  at::Tensor scores =
      at::matmul(query / std::sqrt(static_cast<double>(query.size(-1))), key.transpose(-2, -1));
  if (mask) scores = scores + *mask;
  if (causal) {
    const int64_t length = query.size(2);
    const at::Tensor later = at::ones({length, length}, query.options().dtype(at::kBool)).triu(1);
    scores = scores.masked_fill(later, -std::numeric_limits<float>::infinity());
  }
  return at::matmul(Dropout(scores.softmax(-1), site, batch), value);
}

}  // namespace regatta
