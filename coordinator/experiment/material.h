#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/experiment/yaml_tree.h"
#include "regatta/v1/spec.pb.h"
#include "strategies/plan/slices.h"

namespace regatta {

// A model that an experiment names: its spec, what must be prepared first, and the sizes of its
// parameters where they are known.
struct ResolvedModel {
  v1::ModelSpec spec;
  // Word for `regatta prepare`; then config and parameters are empty, or as the experiment states.
  std::string to_prepare;
  nlohmann::json config;
  std::vector<ParameterSize> parameters;
};

// Where names lead. The errors are sentences without place.
struct MaterialPlace {
  std::string folder;    // absolute; relative paths of the experiment start here
  std::string material;  // absolute; prepared models and data sets
};

// `model` is a prepared name, a hub id (org/name, org/name@revision), a path that begins with . or
// /, or a map with config.json's keys: of an inline model ({name: llama, ...}), or of one of those
// ({name: org/name, model_type: llama, ...}), which must have them. Returns what is wrong, or an
// empty string.
[[nodiscard]] std::string ResolveModel(const YamlNode& model, const MaterialPlace& place,
                                       ResolvedModel* resolved);

// Files of a data set as prepared for a model, or the word that prepares them.
struct ResolvedDataset {
  std::string train_file;
  std::string eval_file;
  std::string to_prepare;
};
[[nodiscard]] std::string ResolveDataset(const std::string& name, const v1::ModelSpec& model,
                                         const MaterialPlace& place, ResolvedDataset* resolved);

// Completes the spec of a run whose material has been prepared since it was resolved. Returns what
// is wrong with the material, or an empty string.
[[nodiscard]] std::string TakePrepared(v1::RunSpec* spec);

// What `regatta prepare` makes by a name of its own.
[[nodiscard]] const std::vector<std::string>& NamedModels();
[[nodiscard]] const std::vector<std::string>& NamedDatasets();

}  // namespace regatta
