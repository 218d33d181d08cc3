#include "worker/shapes/distilbert_shapes.h"

#include "worker/shapes/config_reader.h"

namespace regatta {

std::variant<DistilBertConfig, std::string> ReadDistilBertConfig(const nlohmann::json& config) {
  DistilBertConfig c;
  std::string error = ReadIntegers(config, {{"dim", &c.dim, 1},
                                            {"n_heads", &c.heads, 1},
                                            {"n_layers", &c.layers, 1},
                                            {"hidden_dim", &c.hidden_dim, 1},
                                            {"vocab_size", &c.vocab_size, 1},
                                            {"max_position_embeddings", &c.max_positions, 1},
                                            {"pad_token_id", &c.pad_id, 0, false}});
  if (!error.empty()) return error;
  if (c.dim % c.heads != 0) {
    return "model config: dim " + std::to_string(c.dim) + " does not divide into " +
           std::to_string(c.heads) + " heads";
  }
  if (c.pad_id >= c.vocab_size) {
    return "model config: pad_token_id " + std::to_string(c.pad_id) +
           " is outside the vocabulary of " + std::to_string(c.vocab_size);
  }
  error = CheckConstants(config, {{"activation", "gelu"}, {"sinusoidal_pos_embds", false}});
  if (error.empty()) error = ReadProbability(config, "dropout", &c.dropout);
  if (error.empty()) error = ReadProbability(config, "attention_dropout", &c.attention_dropout);
  if (error.empty()) error = ReadProbability(config, "seq_classif_dropout", &c.head_dropout);
  if (error.empty()) error = ReadLabels(config, &c.labels);
  if (!error.empty()) return error;
  return c;
}

std::vector<ParameterShape> DistilBertShapes(const DistilBertConfig& c) {
  std::vector<ParameterShape> shapes;
  size_t block = 0;
  const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
    shapes.push_back({name + ".weight", {out, in}, Initial::kMatrix, "", block});
    shapes.push_back({name + ".bias", {out}, Initial::kBias, "", block});
  };
  const auto norm = [&](const std::string& name) {
    shapes.push_back({name + ".weight", {c.dim}, Initial::kNormWeight, "", block});
    shapes.push_back({name + ".bias", {c.dim}, Initial::kNormBias, "", block});
  };
  const std::string embeddings = "distilbert.embeddings.";
  shapes.push_back(
      {embeddings + "word_embeddings.weight", {c.vocab_size, c.dim}, Initial::kEmbedding});
  shapes.push_back(
      {embeddings + "position_embeddings.weight", {c.max_positions, c.dim}, Initial::kEmbedding});
  norm(embeddings + "LayerNorm");
  for (int64_t i = 0; i < c.layers; ++i) {
    ++block;
    const std::string layer = "distilbert.transformer.layer." + std::to_string(i) + ".";
    for (const char* part : {"q_lin", "k_lin", "v_lin", "out_lin"}) {
      linear(layer + "attention." + part, c.dim, c.dim);
    }
    norm(layer + "sa_layer_norm");
    linear(layer + "ffn.lin1", c.hidden_dim, c.dim);
    linear(layer + "ffn.lin2", c.dim, c.hidden_dim);
    norm(layer + "output_layer_norm");
  }
  ++block;
  linear("pre_classifier", c.dim, c.dim);
  linear("classifier", c.labels, c.dim);
  return shapes;
}

// Floats a token. A layer saves its input, queries, keys, values and what attention gives, the sums
// before both norms and the first norm's output (8 of `dim`); both sides of GELU; and what
// attention and norms keep of their rows.
std::vector<BlockActivations> DistilBertActivations(const DistilBertConfig& c, int64_t rows,
                                                    int64_t length) {
  const int64_t bytes = 4 * rows * length;
  std::vector<BlockActivations> blocks = {{bytes * (c.dim + 4), bytes * c.dim, 0}};
  for (int64_t i = 0; i < c.layers; ++i) {
    blocks.push_back({bytes * (8 * c.dim + 2 * c.hidden_dim + c.heads + 4), bytes * 2 * c.dim,
                      bytes * c.hidden_dim});
  }
  blocks.push_back({4 * rows * 4 * c.dim, bytes * c.dim, bytes * c.dim});
  return blocks;
}

}  // namespace regatta
