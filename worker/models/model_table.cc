#include "worker/models/model_table.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "worker/models/compute.h"
#include "worker/models/distilbert.h"
#include "worker/models/fixture_recipe.h"
#include "worker/models/llama.h"
#include "worker/shapes/model_shapes.h"
#include "worker/shapes/safetensors.h"

namespace regatta {
namespace {

using ShapesByName = std::map<std::string, ParameterShape>;

WeightReader FromRecipe(ShapesByName shapes) {
  return [shapes = std::move(shapes)](const std::string& name, int64_t begin, int64_t end,
                                      float* to) { FillByRecipe(shapes.at(name), begin, end, to); };
}

// Copied, not mapped for good: parameters are written to, and kernels want aligned rows.
WeightReader FromFile(const std::string& path, const ShapesByName& shapes) {
  const auto file = std::make_shared<const SafetensorsFile>(path);
  std::map<std::string, const SafetensorsFile::Entry*> entries;
  for (const auto& [name, shape] : shapes) entries[name] = &FindStored(*file, shape);
  return [file, entries = std::move(entries)](const std::string& name, int64_t begin, int64_t end,
                                              float* to) {
    const SafetensorsFile::Entry& entry = *entries.at(name);
    const auto type = entry.dtype == "F32"   ? at::kFloat
                      : entry.dtype == "F16" ? at::kHalf
                                             : at::kBFloat16;
    const auto* from = entry.data + static_cast<size_t>(begin) * c10::elementSize(type);
    at::from_blob(to, {end - begin}, at::kFloat)
        .copy_(at::from_blob(const_cast<std::byte*>(from), {end - begin}, type));
    file->Release(entry);
  };
}

BuiltModel BuildDistilBert(const nlohmann::json& config, at::Device device) {
  const auto c = std::get<DistilBertConfig>(ReadDistilBertConfig(config));
  return {MakeDistilBert(c, device), {c.vocab_size, c.labels, c.max_positions, c.pad_id}};
}

BuiltModel BuildLlama(const nlohmann::json& config, at::Device device) {
  const auto c = std::get<LlamaConfig>(ReadLlamaConfig(config));
  return {MakeLlama(c, device), {c.vocab_size, c.labels, c.max_positions, c.pad_id}};
}

// Of configs that passed CheckModelConfig.
struct ModelRow {
  const char* model_type;
  BuiltModel (*build)(const nlohmann::json& config, at::Device device);
};
constexpr ModelRow kModels[] = {{"distilbert", BuildDistilBert}, {"llama", BuildLlama}};

}  // namespace

BuiltModel BuildModel(const decltype(RunSpec::model)& spec, at::Device device) {
  const nlohmann::json config = nlohmann::json::parse(spec.config_json);
  const std::string error = CheckModelConfig(config);
  TORCH_CHECK(error.empty(), error);
  for (const ModelRow& row : kModels) {
    if (config["model_type"] != row.model_type) continue;
    BuiltModel built = row.build(config, device);
    ShapesByName shapes;
    for (ParameterShape& shape : FindModelKind(config)->shapes(config)) {
      std::string name = shape.name;
      shapes.emplace(std::move(name), std::move(shape));
    }
    built.model.read_weights = spec.pretrained
                                   ? FromFile(spec.folder + "/model.safetensors", shapes)
                                   : FromRecipe(std::move(shapes));
    return built;
  }
  TORCH_CHECK(false, "model_type ", config["model_type"].dump(),
              " passed its check but has no row in the model table");
}

BuiltModel BuildModel(const RunSpec& spec, at::Device device) {
  BuiltModel built = BuildModel(spec.model, device);
  if (spec.precision == "bf16_mixed") ComputeInBf16(built.model);
  if (spec.recompute) RecomputeLayers(built.model);
  return built;
}

}  // namespace regatta
