#include "worker/models/llama.h"

#include <limits>

namespace regatta {
namespace {

struct Norm {
  NamedTensor weight;
  double eps;
  at::Tensor operator()(const at::Tensor& x, const Batch& batch) const {
    return RmsNorm(x, weight.tensor, eps, batch);
  }
};

at::Tensor Project(const at::Tensor& x, const NamedTensor& weight, const Batch& batch) {
  return Linear(x, weight.tensor, std::nullopt, batch);
}

// cos and sin of position times frequency, [length, head_dim], for the half-split layout: dimension
// i turns with dimension i + head_dim / 2. Made once for the longest row seen; all layers share it.
// One thread.
class Rotary {
 public:
  Rotary(const LlamaConfig& config, at::Device device)
      : frequencies_(at::pow(config.rope_theta, at::arange(0, config.head_dim, 2, at::kFloat) /
                                                    static_cast<double>(config.head_dim))
                         .reciprocal()
                         .to(device)) {}

  // x: [rows, heads, length, head_dim]
  at::Tensor Turn(const at::Tensor& x) {
    const int64_t length = x.size(2);
    if (!cos_.defined() || cos_.size(0) < length) Grow(length);
    const std::vector<at::Tensor> halves = x.chunk(2, -1);
    const at::Tensor turned = at::cat({-halves[1], halves[0]}, -1);
    return x * cos_.narrow(0, 0, length) + turned * sin_.narrow(0, 0, length);
  }

 private:
  void Grow(int64_t length) {
    const at::NoGradGuard no_grad;
    const at::Tensor angles = at::outer(at::arange(length, frequencies_.options()), frequencies_);
    const at::Tensor both = at::cat({angles, angles}, -1);
    cos_ = both.cos();
    sin_ = both.sin();
  }

  const at::Tensor frequencies_;
  at::Tensor cos_;
  at::Tensor sin_;
};

class Words : public Block {
 public:
  Words(Parts& parts, const LlamaConfig& config)
      : words_(parts.Take()), pad_id_(config.pad_id), max_positions_(config.max_positions) {}

  at::Tensor Forward(const at::Tensor&, const Batch& batch) override {
    TORCH_CHECK(batch.ids.size(1) <= max_positions_, "a row of ", batch.ids.size(1),
                " tokens is longer than the model's ", max_positions_,
                " positions; set dataset.max_length");
    return Embedding(words_.tensor, batch.ids, pad_id_, batch);
  }

  std::vector<NamedTensor> Parameters() const override { return {words_}; }

 private:
  const NamedTensor words_;
  const int64_t pad_id_;
  const int64_t max_positions_;
};

class Layer : public Block {
 public:
  Layer(Parts& parts, const LlamaConfig& config, std::shared_ptr<Rotary> rotary)
      : query_(parts.Take()),
        key_(parts.Take()),
        value_(parts.Take()),
        out_(parts.Take()),
        gate_(parts.Take()),
        up_(parts.Take()),
        down_(parts.Take()),
        input_norm_{parts.Take(), config.norm_eps},
        attention_norm_{parts.Take(), config.norm_eps},
        config_(config),
        rotary_(std::move(rotary)),
        dropout_(parts.TakeSite(config.attention_dropout)) {}

  at::Tensor Forward(const at::Tensor& x, const Batch& batch) override {
    const at::Tensor y = x + Attend(input_norm_(x, batch), batch);
    const at::Tensor normed = attention_norm_(y, batch);
    return y + Project(at::silu(Project(normed, gate_, batch)) * Project(normed, up_, batch), down_,
                       batch);
  }

  std::vector<NamedTensor> Parameters() const override {
    return {
        query_, key_, value_, out_, gate_, up_, down_, input_norm_.weight, attention_norm_.weight};
  }

 private:
  at::Tensor Attend(const at::Tensor& x, const Batch& batch) {
    const int64_t rows = x.size(0);
    const int64_t length = x.size(1);
    const auto split = [&](const NamedTensor& weight, int64_t heads) {
      return Project(x, weight, batch)
          .view({rows, length, heads, config_.head_dim})
          .transpose(1, 2);
    };
    const at::Tensor query = rotary_->Turn(split(query_, config_.heads));
    at::Tensor key = rotary_->Turn(split(key_, config_.kv_heads));
    at::Tensor value = split(value_, config_.kv_heads);
    // As transformers does it: a mask and repeated heads where a row is padded, or elements are
    // dropped, else the kernel's own causal form.
    const bool padded = batch.attention_bias.defined();
    if (padded || batch.dropout) {
      key = RepeatHeads(key);
      value = RepeatHeads(value);
    }
    return Project(Attention(query, key, value, batch.attention_bias, !padded, dropout_, batch)
                       .transpose(1, 2)
                       .reshape({rows, length, config_.heads * config_.head_dim}),
                   out_, batch);
  }

  at::Tensor RepeatHeads(const at::Tensor& x) const {
    const int64_t times = config_.heads / config_.kv_heads;
    if (times == 1) return x;
    return x.unsqueeze(2)
        .expand({x.size(0), x.size(1), times, x.size(2), x.size(3)})
        .reshape({x.size(0), config_.heads, x.size(2), x.size(3)});
  }

  const NamedTensor query_;
  const NamedTensor key_;
  const NamedTensor value_;
  const NamedTensor out_;
  const NamedTensor gate_;
  const NamedTensor up_;
  const NamedTensor down_;
  const Norm input_norm_;
  const Norm attention_norm_;
  const LlamaConfig config_;
  const std::shared_ptr<Rotary> rotary_;
  const DropoutSite dropout_;
};

// Norm and score of the pooled positions alone: the others' logits are never used.
class Head : public Block {
 public:
  Head(Parts& parts, const LlamaConfig& config)
      : norm_{parts.Take(), config.norm_eps}, score_(parts.Take()), pad_id_(config.pad_id) {}

  at::Tensor Forward(const at::Tensor& x, const Batch& batch) override {
    const at::Tensor positions = at::arange(batch.ids.size(1), batch.ids.options());
    const at::Tensor last = (positions * batch.ids.ne(pad_id_)).argmax(1);
    return Project(norm_(x.index({at::arange(x.size(0), batch.ids.options()), last}), batch),
                   score_, batch);
  }

  std::vector<NamedTensor> Parameters() const override { return {norm_.weight, score_}; }

 private:
  const Norm norm_;
  const NamedTensor score_;
  const int64_t pad_id_;
};

// Causal, and blind to padded keys: 0 where a query may look, minus infinity where not,
// [rows, 1, length, length]. Undefined where no row is padded.
void PrepareBatch(Batch& batch) {
  const int64_t rows = batch.ids.size(0);
  const int64_t length = batch.ids.size(1);
  if (batch.real_tokens == rows * length) return;
  const at::Tensor positions = at::arange(length, batch.ids.options());
  const at::Tensor hidden = positions.view({1, 1, length}).gt(positions.view({1, length, 1})) |
                            positions.view({1, 1, length}).ge(batch.lengths.view({rows, 1, 1}));
  batch.attention_bias = at::zeros({rows, length, length}, batch.ids.options().dtype(at::kFloat))
                             .masked_fill_(hidden, -std::numeric_limits<float>::infinity())
                             .unsqueeze(1);
}

}  // namespace

Model MakeLlama(const LlamaConfig& config, at::Device device) {
  Parts parts(LlamaShapes(config), device);
  const auto rotary = std::make_shared<Rotary>(config, device);
  Model model;
  model.width = config.hidden_size;
  model.prepare = PrepareBatch;
  model.blocks.push_back(std::make_unique<Words>(parts, config));
  for (int64_t i = 0; i < config.layers; ++i) {
    model.blocks.push_back(std::make_unique<Layer>(parts, config, rotary));
  }
  model.blocks.push_back(std::make_unique<Head>(parts, config));
  return model;
}

}  // namespace regatta
