#include "coordinator/experiment/material.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "strategies/plan/suggest.h"
#include "worker/shapes/model_shapes.h"

namespace regatta {
namespace {

using Kind = YamlNode::Kind;

bool IsPath(const std::string& name) { return name.starts_with("/") || name.starts_with("."); }

std::string Absolute(const std::string& path, const MaterialPlace& place) {
  std::string absolute = (std::filesystem::path(place.folder) / path).lexically_normal().string();
  while (absolute.size() > 1 && absolute.ends_with("/")) absolute.pop_back();
  return absolute;
}

// org/name@revision as a folder's name.
std::string HubFolder(const std::string& id) {
  return absl::StrReplaceAll(id, {{"/", "--"}, {"@", "--"}});
}

bool IsHubId(const std::string& name) {
  const size_t slash = name.find('/');
  return slash != std::string::npos && slash != 0 &&
         name.find('/', slash + 1) == std::string::npos && slash + 1 != name.size() &&
         name.find("..") == std::string::npos;
}

nlohmann::json ScalarToJson(const YamlNode& node) {
  int64_t integer = 0;
  double number = 0;
  if (node.kind == Kind::kNull) return nullptr;
  if (node.text == "true" || node.text == "false") return node.text == "true";
  if (absl::SimpleAtoi(node.text, &integer)) return integer;
  if (absl::SimpleAtod(node.text, &number)) return number;
  return node.text;
}

void TakeConfig(const nlohmann::json& config, ResolvedModel* resolved) {
  resolved->spec.set_config_json(config.dump());
  resolved->config = config;
  resolved->parameters = ParameterSizes(config);
}

// What a map says beside `own` keys, as keys of config.json for a model of that kind.
std::string ReadConfig(const YamlNode& model, const std::string& model_type,
                       const std::vector<std::string>& own, nlohmann::json* config) {
  *config = {{"model_type", model_type}};
  const ModelKind* kind = FindModelKind(*config);
  if (kind == nullptr) return absl::StrCat("run.model: ", CheckModelConfig(*config));
  std::vector<std::string> known = kind->keys;
  known.insert(known.end(), own.begin(), own.end());
  for (const auto& [key, value] : model.entries) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return absl::StrCat("unknown key 'run.model.", key, "'", SuggestName(key, known));
    }
    if (value.kind != Kind::kScalar) {
      return absl::StrCat("run.model.", key, " is '", OneLine(value), "'; one value is right");
    }
    if (std::find(own.begin(), own.end(), key) == own.end()) (*config)[key] = ScalarToJson(value);
  }
  return kind->check(*config);
}

// {name: distilbert, dim: 64, ...} with config.json's own keys.
std::string ResolveInline(const YamlNode& model, const std::string& name, ResolvedModel* resolved) {
  nlohmann::json config;
  if (std::string wrong = ReadConfig(model, name, {"name"}, &config); !wrong.empty()) return wrong;
  resolved->spec.set_name(name);
  TakeConfig(config, resolved);
  return "";
}

// Where the model's own config says otherwise than what is stated of it: a sentence, or empty.
std::string Contradiction(const std::string& name, const nlohmann::json& stated,
                          const nlohmann::json& config) {
  for (const auto& [key, value] : stated.items()) {
    if (!config.contains(key) || config[key] == value) continue;
    return absl::StrCat("run.model '", name, "': ", key, " is stated as ", value.dump(), "; ",
                        config[key].dump(), ", as in its config.json, is right");
  }
  const auto elements = [](const nlohmann::json& of) {
    std::vector<int64_t> each;
    for (const ParameterSize& size : ParameterSizes(of)) each.push_back(size.elements);
    return each;
  };
  if (elements(stated) == elements(config)) return "";
  return absl::StrCat("run.model '", name,
                      "': what is stated gives other parameters than its config.json; the name "
                      "alone is right");
}

std::string UnknownName(const std::string& what, const std::string& name,
                        const std::vector<std::string>& named) {
  return absl::StrCat("run.", what, " '", name, "' is not prepared and not known",
                      SuggestName(name, named), "; a hub id is written org/name, a folder ./name");
}

std::string ResolveFolder(const std::string& name, const MaterialPlace& place,
                          ResolvedModel* resolved) {
  const bool is_path = IsPath(name);
  const std::string folder_name = HubFolder(name);
  const std::string folder =
      is_path ? Absolute(name, place) : absl::StrCat(place.material, "/models/", folder_name);
  resolved->spec.set_name(is_path ? std::filesystem::path(folder).filename().string() : name);
  resolved->spec.set_folder(folder);
  resolved->spec.set_pretrained(true);
  if (!is_path && !std::filesystem::exists(folder + "/manifest.json") &&
      !std::filesystem::exists(folder + "/config.json")) {
    const auto& named = NamedModels();
    const bool known = std::find(named.begin(), named.end(), name) != named.end();
    if (!known && !IsHubId(name)) return UnknownName("model", name, named);
    resolved->to_prepare = name;
    return "";
  }
  const std::vector<std::string> wrong = CheckModelFolder(folder);
  if (!wrong.empty()) {
    return absl::StrCat("run.model '", name, "': ", wrong[0],
                        wrong.size() > 1 ? absl::StrCat(" (and ", wrong.size() - 1,
                                                        " more: regatta models check ", folder, ")")
                                         : "");
  }
  TakeConfig(nlohmann::json::parse(std::ifstream(folder + "/config.json")), resolved);
  return "";
}

// {name: org/name, model_type: llama, hidden_size: 960, ...}: the model of that name, whose shape
// is known before it is there.
std::string ResolveStated(const YamlNode& model, const std::string& name, const std::string& type,
                          const MaterialPlace& place, ResolvedModel* resolved) {
  nlohmann::json stated;
  if (std::string wrong = ReadConfig(model, type, {"name", "model_type"}, &stated); !wrong.empty())
    return wrong;
  if (std::string wrong = ResolveFolder(name, place, resolved); !wrong.empty()) return wrong;
  if (resolved->to_prepare.empty()) return Contradiction(name, stated, resolved->config);
  TakeConfig(stated, resolved);
  return "";
}

// How `regatta prepare` is told about a model: as the experiment names it, paths made absolute.
std::string PrepareWord(const v1::ModelSpec& model, const MaterialPlace& place) {
  return model.folder().starts_with(place.material + "/models/") ? model.name() : model.folder();
}

}  // namespace

std::string ResolveModel(const YamlNode& model, const MaterialPlace& place,
                         ResolvedModel* resolved) {
  if (model.kind != Kind::kMap) return ResolveFolder(model.text, place, resolved);
  const YamlNode* name = model.Find("name");
  if (name == nullptr || name->kind != Kind::kScalar) return "run.model lacks 'name'";
  const YamlNode* type = model.Find("model_type");
  return type == nullptr ? ResolveInline(model, name->text, resolved)
                         : ResolveStated(model, name->text, type->text, place, resolved);
}

std::string ResolveDataset(const std::string& name, const v1::ModelSpec& model,
                           const MaterialPlace& place, ResolvedDataset* resolved) {
  const bool is_path = IsPath(name);
  const std::string folder = is_path ? Absolute(name, place)
                                     : absl::StrCat(place.material, "/data/", HubFolder(name), "/",
                                                    HubFolder(model.name()));
  resolved->train_file = folder + "/train.safetensors";
  resolved->eval_file = folder + "/eval.safetensors";
  if (!is_path && !std::filesystem::exists(folder)) {
    const auto& named = NamedDatasets();
    const bool known = std::find(named.begin(), named.end(), name) != named.end();
    if (!known && !IsHubId(name)) return UnknownName("dataset", name, named);
    if (model.folder().empty()) {
      return absl::StrCat("run.dataset '", name, "' needs a tokenizer, which the inline model '",
                          model.name(),
                          "' lacks; a synthetic dataset or a prepared model is right");
    }
    resolved->to_prepare = absl::StrCat(name, ":", PrepareWord(model, place));
    return "";
  }
  for (const std::string& file : {resolved->train_file, resolved->eval_file}) {
    if (std::filesystem::exists(file)) continue;
    return absl::StrCat("run.dataset '", name, "': ", file, " is missing",
                        is_path ? "; a folder of shards holds train.safetensors and "
                                  "eval.safetensors, and regatta prepare makes one from text files"
                                : absl::StrCat("; remove ", folder, " and prepare again"));
  }
  return "";
}

std::string TakePrepared(v1::RunSpec* spec) {
  spec->clear_to_prepare();
  if (!spec->model().folder().empty()) {
    const std::vector<std::string> wrong = CheckModelFolder(spec->model().folder());
    if (!wrong.empty()) return wrong[0];
    v1::ModelSpec& model = *spec->mutable_model();
    const auto config = nlohmann::json::parse(std::ifstream(model.folder() + "/config.json"));
    if (!model.config_json().empty()) {
      const auto stated = nlohmann::json::parse(model.config_json());
      if (std::string other = Contradiction(model.name(), stated, config); !other.empty())
        return other;
    }
    model.set_config_json(config.dump());
  }
  for (const std::string& file : {spec->dataset().train_file(), spec->dataset().eval_file()}) {
    if (!file.empty() && !std::filesystem::exists(file)) return file + " is missing";
  }
  return "";
}

const std::vector<std::string>& NamedModels() {
  static const std::vector<std::string> names = {"minilm-distil", "smollm2-135m"};
  return names;
}

const std::vector<std::string>& NamedDatasets() {
  static const std::vector<std::string> names = {"reviews", "reviews-subset", "reviews-long",
                                                 "yelp", "yelp-subset"};
  return names;
}

}  // namespace regatta
