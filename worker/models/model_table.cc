#include "worker/models/model_table.h"

#include <nlohmann/json.hpp>

#include "worker/models/distilbert.h"
#include "worker/models/fixture_recipe.h"
#include "worker/models/llama.h"
#include "worker/shapes/model_shapes.h"
#include "worker/shapes/safetensors.h"

namespace regatta {
namespace {

at::Tensor FromRecipe(const ParameterShape& shape) {
  at::Tensor tensor = at::empty(shape.shape, at::kFloat);
  FillByRecipe(shape, tensor.data_ptr<float>(), tensor.numel());
  return tensor.set_requires_grad(true);
}

// Copied, not mapped for good: parameters are written to, and kernels want aligned rows.
at::Tensor FromFile(const SafetensorsFile& file, const ParameterShape& shape) {
  const SafetensorsFile::Entry& entry = FindStored(file, shape);
  const auto type = entry.dtype == "F32"   ? at::kFloat
                    : entry.dtype == "F16" ? at::kHalf
                                           : at::kBFloat16;
  at::Tensor tensor = at::empty(shape.shape, at::kFloat);
  tensor.copy_(at::from_blob(const_cast<std::byte*>(entry.data), shape.shape, type));
  file.Release(entry);
  return tensor.set_requires_grad(true);
}

BuiltModel BuildDistilBert(const nlohmann::json& config, const TensorSource& source) {
  const auto c = std::get<DistilBertConfig>(ReadDistilBertConfig(config));
  return {MakeDistilBert(c, source), {c.vocab_size, c.labels, c.max_positions, c.pad_id}};
}

BuiltModel BuildLlama(const nlohmann::json& config, const TensorSource& source) {
  const auto c = std::get<LlamaConfig>(ReadLlamaConfig(config));
  return {MakeLlama(c, source), {c.vocab_size, c.labels, c.max_positions, c.pad_id}};
}

// Of configs that passed CheckModelConfig.
struct ModelRow {
  const char* model_type;
  BuiltModel (*build)(const nlohmann::json& config, const TensorSource& source);
};
constexpr ModelRow kModels[] = {{"distilbert", BuildDistilBert}, {"llama", BuildLlama}};

}  // namespace

BuiltModel BuildModel(const decltype(RunSpec::model)& spec) {
  const nlohmann::json config = nlohmann::json::parse(spec.config_json);
  const std::string error = CheckModelConfig(config);
  TORCH_CHECK(error.empty(), error);
  for (const ModelRow& row : kModels) {
    if (config["model_type"] != row.model_type) continue;
    if (!spec.pretrained) return row.build(config, FromRecipe);
    const SafetensorsFile file(spec.folder + "/model.safetensors");
    return row.build(config, [&](const ParameterShape& shape) { return FromFile(file, shape); });
  }
  TORCH_CHECK(false, "model_type ", config["model_type"].dump(),
              " passed its check but has no row in the model table");
}

}  // namespace regatta
