#include "worker/shapes/config_reader.h"

#include <cmath>

namespace regatta {
namespace {

constexpr int64_t kMaxSize = int64_t{1} << 32;  // no dimension of a real model comes near

}  // namespace

std::string ReadIntegers(const nlohmann::json& config, const std::vector<ConfigInteger>& keys) {
  for (const ConfigInteger& key : keys) {
    const auto found = config.find(key.name);
    if (!key.required && (found == config.end() || found->is_null())) continue;
    if (found == config.end()) return std::string("model config lacks '") + key.name + "'";
    if (!found->is_number_integer() || *found < key.least || *found > kMaxSize) {
      return std::string("model config: ") + key.name + " is " + found->dump() +
             "; an integer of at least " + std::to_string(key.least) + " is right";
    }
    *key.to = found->get<int64_t>();
  }
  return "";
}

std::string CheckConstants(const nlohmann::json& config, const std::vector<ConfigConstant>& keys) {
  for (const ConfigConstant& key : keys) {
    const auto found = config.find(key.name);
    if (found == config.end() || *found == key.built) continue;
    return std::string("model config: ") + key.name + " is " + found->dump() + "; only " +
           key.built.dump() + " is built";
  }
  return "";
}

std::string ReadPositive(const nlohmann::json& config, const char* name, double* to) {
  const auto found = config.find(name);
  if (found == config.end() || found->is_null()) return "";
  if (!found->is_number() || !std::isfinite(found->get<double>()) || found->get<double>() <= 0) {
    return std::string("model config: ") + name + " is " + found->dump() +
           "; a number above 0 is right";
  }
  *to = found->get<double>();
  return "";
}

std::string ReadProbability(const nlohmann::json& config, const char* name, double* to) {
  const auto found = config.find(name);
  if (found == config.end() || found->is_null()) return "";
  if (!found->is_number() || !(found->get<double>() >= 0 && found->get<double>() < 1)) {
    return std::string("model config: ") + name + " is " + found->dump() +
           "; a probability from 0 to below 1 is right";
  }
  *to = found->get<double>();
  return "";
}

std::string ReadLabels(const nlohmann::json& config, int64_t* to) {
  *to = 2;
  if (const auto labels = config.find("num_labels"); labels != config.end()) {
    *to = labels->is_number_integer() ? labels->get<int64_t>() : -1;
  } else if (const auto names = config.find("id2label");
             names != config.end() && names->is_object()) {
    *to = static_cast<int64_t>(names->size());
  }
  return *to < 2 ? "model config: num_labels must be at least 2" : "";
}

}  // namespace regatta
