#include "worker/shapes/model_shapes.h"

#include "strategies/plan/suggest.h"

namespace regatta {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 32;  // no dimension of a real model comes near

struct IntegerKey {
  const char* name;
  int64_t* to;
  int64_t least;
};

// Reads `key` into `to`; returns what is wrong with it, or an empty string.
std::string ReadInteger(const nlohmann::json& config, const IntegerKey& key) {
  const auto found = config.find(key.name);
  if (found == config.end()) return std::string("model config lacks '") + key.name + "'";
  if (!found->is_number_integer() || *found < key.least || *found > kMaxSize) {
    return std::string("model config: ") + key.name + " is " + found->dump() +
           "; an integer of at least " + std::to_string(key.least) + " is right";
  }
  *key.to = found->get<int64_t>();
  return "";
}

int64_t CountLabels(const nlohmann::json& config) {
  if (const auto labels = config.find("num_labels"); labels != config.end()) {
    return labels->is_number_integer() ? labels->get<int64_t>() : -1;
  }
  const auto names = config.find("id2label");
  return names != config.end() && names->is_object() ? static_cast<int64_t>(names->size()) : 2;
}

}  // namespace

std::variant<DistilBertConfig, std::string> ReadDistilBertConfig(const nlohmann::json& config) {
  DistilBertConfig result;
  for (const IntegerKey& key :
       {IntegerKey{"dim", &result.dim, 1}, IntegerKey{"n_heads", &result.heads, 1},
        IntegerKey{"n_layers", &result.layers, 1}, IntegerKey{"hidden_dim", &result.hidden_dim, 1},
        IntegerKey{"vocab_size", &result.vocab_size, 1},
        IntegerKey{"max_position_embeddings", &result.max_positions, 1},
        IntegerKey{"pad_token_id", &result.pad_id, 0}}) {
    if (key.to == &result.pad_id && !config.contains(key.name))
      continue;  // 0 by default, as in transformers
    if (std::string error = ReadInteger(config, key); !error.empty()) return error;
  }
  if (result.dim % result.heads != 0) {
    return "model config: dim " + std::to_string(result.dim) + " does not divide into " +
           std::to_string(result.heads) + " heads";
  }
  if (result.pad_id >= result.vocab_size) {
    return "model config: pad_token_id " + std::to_string(result.pad_id) +
           " is outside the vocabulary of " + std::to_string(result.vocab_size);
  }
  if (const auto found = config.find("activation"); found != config.end() && *found != "gelu") {
    return "model config: activation is " + found->dump() + "; only \"gelu\" is built";
  }
  if (const auto found = config.find("sinusoidal_pos_embds");
      found != config.end() && *found != false) {
    return "model config: sinusoidal_pos_embds is " + found->dump() + "; only false is built";
  }
  result.labels = CountLabels(config);
  if (result.labels < 2) return "model config: num_labels must be at least 2";
  return result;
}

std::vector<ParameterShape> DistilBertShapes(const DistilBertConfig& c) {
  std::vector<ParameterShape> shapes;
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    shapes.push_back({name + ".weight", {out, in}, Initial::kMatrix});
    shapes.push_back({name + ".bias", {out}, Initial::kBias});
  };
  const auto norm = [&](const std::string& name) {
    shapes.push_back({name + ".weight", {c.dim}, Initial::kNormWeight});
    shapes.push_back({name + ".bias", {c.dim}, Initial::kNormBias});
  };
  const std::string embeddings = "distilbert.embeddings.";
  shapes.push_back(
      {embeddings + "word_embeddings.weight", {c.vocab_size, c.dim}, Initial::kEmbedding});
  shapes.push_back(
      {embeddings + "position_embeddings.weight", {c.max_positions, c.dim}, Initial::kEmbedding});
  norm(embeddings + "LayerNorm");
  for (int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = "distilbert.transformer.layer." + std::to_string(i) + ".";
    for (const char* part : {"q_lin", "k_lin", "v_lin", "out_lin"}) {
      linear(layer + "attention." + part, c.dim, c.dim);
    }
    norm(layer + "sa_layer_norm");
    linear(layer + "ffn.lin1", c.hidden_dim, c.dim);
    linear(layer + "ffn.lin2", c.dim, c.hidden_dim);
    norm(layer + "output_layer_norm");
  }
  linear("pre_classifier", c.dim, c.dim);
  linear("classifier", c.labels, c.dim);
  return shapes;
}

std::string CheckModelConfig(const nlohmann::json& config) {
  const std::vector<std::string> types = {"distilbert"};
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) {
    return "model config lacks 'model_type'; built: distilbert";
  }
  if (*type != types.front()) {
    const std::string name = type->get<std::string>();
    return "model_type '" + name + "' is not built" + SuggestName(name, types);
  }
  const auto parsed = ReadDistilBertConfig(config);
  const std::string* error = std::get_if<std::string>(&parsed);
  return error == nullptr ? "" : *error;
}

}  // namespace regatta
