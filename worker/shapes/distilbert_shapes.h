#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "strategies/plan/memory.h"
#include "worker/shapes/parameter_shape.h"

namespace regatta {

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
  double dropout = 0.1;  // of the embedding and of each layer's last sum
  double attention_dropout = 0.1;
  double head_dropout = 0.2;  // seq_classif_dropout
};

// Reads config.json's keys. On error: a sentence naming the key and what would be right.
[[nodiscard]] std::variant<DistilBertConfig, std::string> ReadDistilBertConfig(
    const nlohmann::json& config);

[[nodiscard]] std::vector<ParameterShape> DistilBertShapes(const DistilBertConfig& config);

// Of fp32 training as LibTorch 2.11 saves tensors for backward, seen in the allocator's counts.
[[nodiscard]] std::vector<BlockActivations> DistilBertActivations(const DistilBertConfig& config,
                                                                  int64_t rows, int64_t length);

}  // namespace regatta
