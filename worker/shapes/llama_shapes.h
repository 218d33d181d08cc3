#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "strategies/plan/memory.h"
#include "worker/shapes/parameter_shape.h"

namespace regatta {

// LlamaForSequenceClassification (transformers, models/llama/modeling_llama.py): no biases, SiLU,
// plain rotary embedding.
struct LlamaConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // each serves heads / kv_heads query heads in a row
  int64_t head_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_positions = 0;
  int64_t pad_id = 0;  // also what pooling skips at a row's end
  int64_t labels = 0;
  double rope_theta = 10000;
  double norm_eps = 1e-6;
  double attention_dropout = 0;
  bool tied_embedding = false;  // the checkpoint's language-model head is the embedding
};

// Reads config.json's keys. On error: a sentence naming the key and what would be right.
[[nodiscard]] std::variant<LlamaConfig, std::string> ReadLlamaConfig(const nlohmann::json& config);

[[nodiscard]] std::vector<ParameterShape> LlamaShapes(const LlamaConfig& config);

// Of fp32 training as LibTorch 2.11 saves tensors for backward, seen in the allocator's counts.
[[nodiscard]] std::vector<BlockActivations> LlamaActivations(const LlamaConfig& config,
                                                             int64_t rows, int64_t length);

}  // namespace regatta
