#include "worker/shapes/model_shapes.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "strategies/plan/suggest.h"
#include "worker/shapes/distilbert_shapes.h"
#include "worker/shapes/llama_shapes.h"

namespace regatta {
namespace {

// The two functions of a row from a config's reader and the shapes it leads to.
template <auto kRead>
std::string Check(const nlohmann::json& config) {
  const auto parsed = kRead(config);
  const std::string* error = std::get_if<std::string>(&parsed);
  return error == nullptr ? "" : *error;
}
template <auto kRead, auto kShapes>
std::vector<ParameterShape> Shapes(const nlohmann::json& config) {
  return kShapes(std::get<0>(kRead(config)));
}

template <auto kRead, auto kActivations>
std::vector<BlockActivations> Activations(const nlohmann::json& config, int64_t rows,
                                          int64_t length) {
  return kActivations(std::get<0>(kRead(config)), rows, length);
}

std::string ShapeText(const std::vector<int64_t>& shape) { return nlohmann::json(shape).dump(); }

}  // namespace

const std::vector<ModelKind>& ModelKinds() {
  static const std::vector<ModelKind> kinds = {
      {"distilbert",
       "dim",
       {"dim", "n_heads", "n_layers", "hidden_dim", "vocab_size", "pad_token_id",
        "max_position_embeddings", "num_labels", "activation", "sinusoidal_pos_embds", "dropout",
        "attention_dropout", "seq_classif_dropout"},
       Check<ReadDistilBertConfig>,
       Shapes<ReadDistilBertConfig, DistilBertShapes>,
       Activations<ReadDistilBertConfig, DistilBertActivations>},
      {"llama",
       "hidden_size",
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "vocab_size", "pad_token_id", "max_position_embeddings",
        "num_labels", "rope_theta", "rms_norm_eps", "hidden_act", "tie_word_embeddings",
        "attention_dropout"},
       Check<ReadLlamaConfig>,
       Shapes<ReadLlamaConfig, LlamaShapes>,
       Activations<ReadLlamaConfig, LlamaActivations>},
  };
  return kinds;
}

const ModelKind* FindModelKind(const nlohmann::json& config) {
  const auto type = config.find("model_type");
  if (type == config.end()) return nullptr;
  for (const ModelKind& kind : ModelKinds()) {
    if (*type == kind.model_type) return &kind;
  }
  return nullptr;
}

std::vector<ParameterSize> ParameterSizes(const nlohmann::json& config) {
  std::vector<ParameterSize> sizes;
  for (const ParameterShape& shape : FindModelKind(config)->shapes(config)) {
    sizes.push_back({shape.Elements(), shape.shape[0], {shape.block}});
  }
  return sizes;
}

std::string CheckModelConfig(const nlohmann::json& config) {
  if (const ModelKind* kind = FindModelKind(config); kind != nullptr) return kind->check(config);
  std::vector<std::string> built;
  std::string list;
  for (const ModelKind& kind : ModelKinds()) {
    built.emplace_back(kind.model_type);
    list += (list.empty() ? "" : ", ") + built.back();
  }
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) {
    return "model config lacks 'model_type'; built: " + list;
  }
  const std::string name = type->get<std::string>();
  return "model_type '" + name + "' is not built" + SuggestName(name, built);
}

const SafetensorsFile::Entry& FindStored(const SafetensorsFile& file, const ParameterShape& shape) {
  const bool tied = !shape.tied_to.empty() && !file.Entries().contains(shape.name) &&
                    file.Entries().contains(shape.tied_to);
  const SafetensorsFile::Entry& entry = file.Get(tied ? shape.tied_to : shape.name);
  const std::string tensor = file.Path() + ": tensor '" + shape.name + "'";
  if (entry.shape != shape.shape) {
    throw std::runtime_error(tensor + " has shape " + ShapeText(entry.shape) +
                             "; config.json says " + ShapeText(shape.shape));
  }
  if (entry.dtype != "F32" && entry.dtype != "BF16" && entry.dtype != "F16") {
    throw std::runtime_error(tensor + " is " + entry.dtype + "; F32, BF16 and F16 are read");
  }
  return entry;
}

std::vector<std::string> CheckModelFolder(const std::string& folder) {
  std::ifstream config_file(folder + "/config.json");
  if (!config_file) return {folder + "/config.json cannot be read"};
  const nlohmann::json config = nlohmann::json::parse(config_file, nullptr, false);
  if (!config.is_object()) return {folder + "/config.json is not a JSON object"};
  if (std::string error = CheckModelConfig(config); !error.empty()) {
    return {folder + "/config.json: " + error};
  }
  const std::string weights = folder + "/model.safetensors";
  if (!std::filesystem::exists(weights)) {
    return {std::filesystem::exists(weights + ".index.json")
                ? folder +
                      " holds a checkpoint in several files, which is not built; one "
                      "model.safetensors is right"
                : weights + " is missing"};
  }
  std::vector<std::string> errors;
  try {
    const SafetensorsFile file(weights);
    for (const ParameterShape& shape : FindModelKind(config)->shapes(config)) {
      try {
        (void)FindStored(file, shape);
      } catch (const std::exception& e) {
        errors.emplace_back(e.what());
      }
    }
  } catch (const std::exception& e) {
    errors.emplace_back(e.what());
  }
  return errors;
}

}  // namespace regatta
