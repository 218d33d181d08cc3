#include "worker/shapes/llama_shapes.h"

#include "worker/shapes/config_reader.h"

namespace regatta {
namespace {

std::string CheckHeads(const LlamaConfig& c, bool head_dim_given) {
  if (!head_dim_given && c.hidden_size % c.heads != 0) {
    return "model config: hidden_size " + std::to_string(c.hidden_size) + " does not divide into " +
           std::to_string(c.heads) + " heads";
  }
  if (c.heads % c.kv_heads != 0) {
    return "model config: num_attention_heads " + std::to_string(c.heads) +
           " is no multiple of num_key_value_heads " + std::to_string(c.kv_heads);
  }
  if (c.head_dim % 2 != 0) {
    return "model config: head_dim " + std::to_string(c.head_dim) +
           " is odd; rotary embedding turns pairs";
  }
  return "";
}

// transformers 5 moves rope_theta into rope_parameters.
std::string ReadRope(const nlohmann::json& config, double* theta) {
  const auto parameters = config.find("rope_parameters");
  if (parameters == config.end() || !parameters->is_object()) {
    return ReadPositive(config, "rope_theta", theta);
  }
  const std::string error = CheckConstants(*parameters, {{"rope_type", "default"}});
  return error.empty() ? ReadPositive(*parameters, "rope_theta", theta) : error;
}

}  // namespace

std::variant<LlamaConfig, std::string> ReadLlamaConfig(const nlohmann::json& config) {
  LlamaConfig c;
  std::string error = ReadIntegers(config, {{"hidden_size", &c.hidden_size, 1},
                                            {"intermediate_size", &c.intermediate_size, 1},
                                            {"num_hidden_layers", &c.layers, 1},
                                            {"num_attention_heads", &c.heads, 1},
                                            {"vocab_size", &c.vocab_size, 1},
                                            {"max_position_embeddings", &c.max_positions, 1},
                                            {"pad_token_id", &c.pad_id, 0}});
  if (!error.empty()) return error;
  c.kv_heads = c.heads;
  c.head_dim = c.hidden_size / c.heads;
  error = ReadIntegers(config, {{"num_key_value_heads", &c.kv_heads, 1, false},
                                {"head_dim", &c.head_dim, 1, false}});
  const auto head_dim = config.find("head_dim");
  if (error.empty()) error = CheckHeads(c, head_dim != config.end() && !head_dim->is_null());
  if (error.empty()) error = ReadRope(config, &c.rope_theta);
  if (error.empty()) error = ReadPositive(config, "rms_norm_eps", &c.norm_eps);
  if (error.empty()) {
    error = CheckConstants(config, {{"hidden_act", "silu"},
                                    {"attention_bias", false},
                                    {"mlp_bias", false},
                                    {"rope_scaling", nullptr},
                                    {"rope_interleaved", false},
                                    {"is_llama_config", true}});
  }
  if (error.empty()) error = ReadProbability(config, "attention_dropout", &c.attention_dropout);
  if (error.empty()) error = ReadLabels(config, &c.labels);
  if (!error.empty()) return error;
  if (c.pad_id >= c.vocab_size) {
    return "model config: pad_token_id " + std::to_string(c.pad_id) +
           " is outside the vocabulary of " + std::to_string(c.vocab_size);
  }
  const auto tied = config.find("tie_word_embeddings");
  c.tied_embedding = tied != config.end() && *tied == true;
  return c;
}

std::vector<ParameterShape> LlamaShapes(const LlamaConfig& c) {
  std::vector<ParameterShape> shapes;
  size_t block = 0;
  const auto matrix = [&](const std::string& name, int64_t out, int64_t in) {
    shapes.push_back({name + ".weight", {out, in}, Initial::kMatrix, "", block});
  };
  const auto norm = [&](const std::string& name) {
    shapes.push_back({name + ".weight", {c.hidden_size}, Initial::kNormWeight, "", block});
  };
  shapes.push_back({"model.embed_tokens.weight",
                    {c.vocab_size, c.hidden_size},
                    Initial::kEmbedding,
                    c.tied_embedding ? "lm_head.weight" : ""});
  const int64_t query = c.heads * c.head_dim;
  const int64_t key_value = c.kv_heads * c.head_dim;
  for (int64_t i = 0; i < c.layers; ++i) {
    ++block;
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    matrix(layer + "self_attn.q_proj", query, c.hidden_size);
    matrix(layer + "self_attn.k_proj", key_value, c.hidden_size);
    matrix(layer + "self_attn.v_proj", key_value, c.hidden_size);
    matrix(layer + "self_attn.o_proj", c.hidden_size, query);
    matrix(layer + "mlp.gate_proj", c.intermediate_size, c.hidden_size);
    matrix(layer + "mlp.up_proj", c.intermediate_size, c.hidden_size);
    matrix(layer + "mlp.down_proj", c.hidden_size, c.intermediate_size);
    norm(layer + "input_layernorm");
    norm(layer + "post_attention_layernorm");
  }
  ++block;
  norm("model.norm");
  matrix("score", c.labels, c.hidden_size);
  return shapes;
}

// Floats a token, of rows that are padded: then there is a mask, and keys and values are repeated
// for the heads that share them.
std::vector<BlockActivations> LlamaActivations(const LlamaConfig& c, int64_t rows, int64_t length) {
  const int64_t bytes = 4 * rows * length;
  std::vector<BlockActivations> blocks = {{bytes * (length + 2), bytes * c.hidden_size, 0}};
  for (int64_t i = 0; i < c.layers; ++i) {
    blocks.push_back({bytes * (10 * c.hidden_size + 4 * c.intermediate_size + c.heads + 2),
                      bytes * 2 * c.hidden_size, bytes * (2 * c.intermediate_size + c.hidden_size),
                      bytes * 2 * c.hidden_size});  // what both norms make before they scale it
  }
  blocks.push_back({4 * rows * 4 * c.hidden_size, bytes * c.hidden_size, bytes * c.hidden_size});
  return blocks;
}

}  // namespace regatta
