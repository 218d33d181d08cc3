#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace regatta {

// One integer of a config.json.
struct ConfigInteger {
  const char* name;
  int64_t* to;
  int64_t least;
  bool required = true;  // else `to` keeps its value where the key is absent or null
};

// A key that may be absent, but whose value changes the model in a way that is not built.
struct ConfigConstant {
  const char* name;
  nlohmann::json built;
};

// Each returns a sentence naming the key and what would be right, or an empty string.
[[nodiscard]] std::string ReadIntegers(const nlohmann::json& config,
                                       const std::vector<ConfigInteger>& keys);
[[nodiscard]] std::string CheckConstants(const nlohmann::json& config,
                                         const std::vector<ConfigConstant>& keys);
// Positive, finite; keeps `to` where the key is absent or null.
[[nodiscard]] std::string ReadPositive(const nlohmann::json& config, const char* name, double* to);
// From 0, below 1; keeps `to` where the key is absent or null.
[[nodiscard]] std::string ReadProbability(const nlohmann::json& config, const char* name,
                                          double* to);
// num_labels, else the entries of id2label, else 2 as in transformers; at least 2.
[[nodiscard]] std::string ReadLabels(const nlohmann::json& config, int64_t* to);

}  // namespace regatta
