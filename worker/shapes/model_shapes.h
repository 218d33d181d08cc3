#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "strategies/plan/memory.h"
#include "strategies/plan/slices.h"
#include "worker/shapes/parameter_shape.h"
#include "worker/shapes/safetensors.h"

namespace regatta {

// One kind of model that regatta builds, by config.json's model_type.
struct ModelKind {
  const char* model_type;
  const char* width_key;  // of the extent of what one block hands to the next
  // The keys of config.json that an inline model of an experiment may set.
  std::vector<std::string> keys;
  // What is wrong with the config: a sentence naming the key, or empty.
  std::string (*check)(const nlohmann::json& config);
  // All parameters with the classification head, in registration order; of a config that passed.
  std::vector<ParameterShape> (*shapes)(const nlohmann::json& config);
  // What its blocks need for so many rows of so many tokens.
  std::vector<BlockActivations> (*activations)(const nlohmann::json& config, int64_t rows,
                                               int64_t length);
};

// Without LibTorch: what the daemon predicts from is what the rank builds.
[[nodiscard]] const std::vector<ModelKind>& ModelKinds();

// The kind of a config, or null where its model_type is missing or not built.
[[nodiscard]] const ModelKind* FindModelKind(const nlohmann::json& config);

// What plans must know of the parameters; of a config that passed.
[[nodiscard]] std::vector<ParameterSize> ParameterSizes(const nlohmann::json& config);

// Checks that the config describes a model that regatta builds; the sentence, or empty when it
// does.
[[nodiscard]] std::string CheckModelConfig(const nlohmann::json& config);

// The stored tensor of a parameter: under its own name or the one it is tied to. Throws a sentence
// where it is missing or has another shape or a type that is not read.
[[nodiscard]] const SafetensorsFile::Entry& FindStored(const SafetensorsFile& file,
                                                       const ParameterShape& shape);

// Every reason why a model folder (config.json, model.safetensors) cannot be trained; empty when it
// can.
[[nodiscard]] std::vector<std::string> CheckModelFolder(const std::string& folder);

}  // namespace regatta
