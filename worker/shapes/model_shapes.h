#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

namespace regatta {

// How the fixture recipe draws a tensor (tests/data/README.md): uniform in [-amplitude, amplitude),
// plus offset.
enum class Initial { kMatrix, kEmbedding, kBias, kNormWeight, kNormBias };

// One parameter of a model, in the order in which `transformers` registers it.
struct ParameterShape {
  std::string name;  // as in model.safetensors
  std::vector<int64_t> shape;
  Initial initial = Initial::kMatrix;
};

// DistilBertForSequenceClassification (transformers, models/distilbert/modeling_distilbert.py).
struct DistilBertConfig {
  int64_t dim = 0;
  int64_t heads = 0;
  int64_t layers = 0;
  int64_t hidden_dim = 0;
  int64_t vocab_size = 0;
  int64_t max_positions = 0;
  int64_t pad_id = 0;
  int64_t labels = 0;
};

// Reads config.json's keys. On error: a sentence naming the key and what would be right.
[[nodiscard]] std::variant<DistilBertConfig, std::string> ReadDistilBertConfig(
    const nlohmann::json& config);

[[nodiscard]] std::vector<ParameterShape> DistilBertShapes(const DistilBertConfig& config);

// Checks that the config describes a model that regatta builds; the sentence, or empty when it
// does.
[[nodiscard]] std::string CheckModelConfig(const nlohmann::json& config);

}  // namespace regatta
