#include "worker/models/distilbert.h"

#include <limits>

namespace regatta {
namespace {

constexpr double kNormEps = 1e-12;
constexpr int64_t kNoPadding = -1;

struct Dense {
  NamedTensor weight;
  NamedTensor bias;
  at::Tensor operator()(const at::Tensor& x, const Batch& batch) const {
    return Linear(x, weight.tensor, bias.tensor, batch);
  }
};

struct Norm {
  NamedTensor weight;
  NamedTensor bias;
  at::Tensor operator()(const at::Tensor& x, const Batch& batch) const {
    return LayerNorm(x, weight.tensor, bias.tensor, kNormEps, batch);
  }
};

// A weight and the bias after it.
template <typename Part>
Part TakePart(Parts& parts) {
  NamedTensor weight = parts.Take();
  return {std::move(weight), parts.Take()};
}

class Embeddings : public Block {
 public:
  Embeddings(Parts& parts, const DistilBertConfig& config)
      : words_(parts.Take()),
        positions_(parts.Take()),
        norm_(TakePart<Norm>(parts)),
        pad_id_(config.pad_id),
        dropout_(parts.TakeSite(config.dropout)) {}

  at::Tensor Forward(const at::Tensor&, const Batch& batch) override {
    const int64_t length = batch.ids.size(1);
    TORCH_CHECK(length <= positions_.tensor.size(0), "a row of ", length,
                " tokens is longer than the model's ", positions_.tensor.size(0),
                " positions; set dataset.max_length");
    const at::Tensor words = Embedding(words_.tensor, batch.ids, pad_id_, batch);
    const at::Tensor positions = Embedding(
        positions_.tensor, at::arange(length, batch.ids.options()).unsqueeze(0), kNoPadding, batch);
    return Dropout(norm_(words + positions, batch), dropout_, batch);
  }

  std::vector<NamedTensor> Parameters() const override {
    return {words_, positions_, norm_.weight, norm_.bias};
  }

 private:
  const NamedTensor words_;
  const NamedTensor positions_;
  const Norm norm_;
  const int64_t pad_id_;
  const DropoutSite dropout_;
};

class Layer : public Block {
 public:
  Layer(Parts& parts, const DistilBertConfig& config)
      : query_(TakePart<Dense>(parts)),
        key_(TakePart<Dense>(parts)),
        value_(TakePart<Dense>(parts)),
        out_(TakePart<Dense>(parts)),
        attention_norm_(TakePart<Norm>(parts)),
        wide_(TakePart<Dense>(parts)),
        narrow_(TakePart<Dense>(parts)),
        output_norm_(TakePart<Norm>(parts)),
        heads_(config.heads),
        attention_dropout_(parts.TakeSite(config.attention_dropout)),
        dropout_(parts.TakeSite(config.dropout)) {}

  at::Tensor Forward(const at::Tensor& x, const Batch& batch) override {
    const int64_t rows = x.size(0);
    const int64_t length = x.size(1);
    const int64_t dim = x.size(2);
    const auto split = [&](const at::Tensor& t) {
      return t.view({rows, length, heads_, dim / heads_}).transpose(1, 2);
    };
    const at::Tensor attended =
        Attention(split(query_(x, batch)), split(key_(x, batch)), split(value_(x, batch)),
                  batch.attention_bias, /*causal=*/false, attention_dropout_, batch)
            .transpose(1, 2)
            .reshape({rows, length, dim});
    const at::Tensor y = attention_norm_(out_(attended, batch) + x, batch);
    const at::Tensor z = Dropout(narrow_(at::gelu(wide_(y, batch)), batch), dropout_, batch);
    return output_norm_(z + y, batch);
  }

  std::vector<NamedTensor> Parameters() const override {
    std::vector<NamedTensor> all;
    for (const Dense* linear : {&query_, &key_, &value_, &out_}) Put(*linear, all);
    Put(attention_norm_, all);
    Put(wide_, all);
    Put(narrow_, all);
    Put(output_norm_, all);
    return all;
  }

 private:
  template <typename Part>
  static void Put(const Part& part, std::vector<NamedTensor>& all) {
    all.push_back(part.weight);
    all.push_back(part.bias);
  }

  const Dense query_;
  const Dense key_;
  const Dense value_;
  const Dense out_;
  const Norm attention_norm_;
  const Dense wide_;
  const Dense narrow_;
  const Norm output_norm_;
  const int64_t heads_;
  const DropoutSite attention_dropout_;
  const DropoutSite dropout_;
};

// The first token's hidden state, through a ReLU layer to the logits.
class Head : public Block {
 public:
  Head(Parts& parts, const DistilBertConfig& config)
      : pre_classifier_(TakePart<Dense>(parts)),
        classifier_(TakePart<Dense>(parts)),
        dropout_(parts.TakeSite(config.head_dropout)) {}

  at::Tensor Forward(const at::Tensor& x, const Batch& batch) override {
    const at::Tensor y = at::relu(pre_classifier_(x.select(1, 0), batch));
    return classifier_(Dropout(y, dropout_, batch), batch);
  }

  std::vector<NamedTensor> Parameters() const override {
    return {pre_classifier_.weight, pre_classifier_.bias, classifier_.weight, classifier_.bias};
  }

 private:
  const Dense pre_classifier_;
  const Dense classifier_;
  const DropoutSite dropout_;
};

// As transformers does it: no bias at all where no row is padded (another kernel), else the
// smallest float at padded keys, the same for every query.
void PrepareBatch(Batch& batch) {
  const int64_t rows = batch.ids.size(0);
  const int64_t length = batch.ids.size(1);
  if (batch.real_tokens == rows * length) return;
  const at::Tensor padded =
      at::arange(length, batch.ids.options()).unsqueeze(0).ge(batch.lengths.unsqueeze(1));
  batch.attention_bias = at::zeros({rows, length}, batch.ids.options().dtype(at::kFloat))
                             .masked_fill_(padded, std::numeric_limits<float>::lowest())
                             .view({rows, 1, 1, length})
                             .expand({rows, 1, length, length});
}

}  // namespace

Model MakeDistilBert(const DistilBertConfig& config, at::Device device) {
  Parts parts(DistilBertShapes(config), device);
  Model model;
  model.width = config.dim;
  model.prepare = PrepareBatch;
  model.blocks.push_back(std::make_unique<Embeddings>(parts, config));
  for (int64_t i = 0; i < config.layers; ++i)
    model.blocks.push_back(std::make_unique<Layer>(parts, config));
  model.blocks.push_back(std::make_unique<Head>(parts, config));
  return model;
}

}  // namespace regatta
