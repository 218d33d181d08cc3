#include "coordinator/experiment/resolve_run.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "coordinator/experiment/run_keys.h"
#include "strategies/plan/strategy_table.h"
#include "strategies/plan/suggest.h"
#include "worker/shapes/model_shapes.h"

namespace regatta {
namespace {

using Kind = YamlNode::Kind;

// ---- names that lead to files ----

std::string Absolute(const std::string& path, const Surroundings& surroundings) {
  return (std::filesystem::path(surroundings.folder) / path).lexically_normal().string();
}

nlohmann::json ScalarToJson(const YamlNode& node) {
  int64_t integer = 0;
  double number = 0;
  if (node.text == "true" || node.text == "false") return node.text == "true";
  if (absl::SimpleAtoi(node.text, &integer)) return integer;
  if (absl::SimpleAtod(node.text, &number)) return number;
  return node.text;
}

// {name: distilbert, dim: 64, ...} with config.json's own keys.
std::string ReadInlineModel(const YamlNode& model, v1::ModelSpec* spec) {
  const YamlNode* name = model.Find("name");
  if (name == nullptr || name->kind != Kind::kScalar) return "run.model lacks 'name'";
  nlohmann::json config = {{"model_type", name->text}};
  const ModelKind* kind = FindModelKind(config);
  if (kind == nullptr) return CheckModelConfig(config);
  std::vector<std::string> known = kind->keys;
  known.emplace_back("name");
  for (const auto& [key, value] : model.entries) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return absl::StrCat("unknown key 'run.model.", key, "'", SuggestName(key, known));
    }
    if (value.kind != Kind::kScalar) {
      return absl::StrCat("run.model.", key, " is '", OneLine(value), "'; one value is right");
    }
    if (key != "name") config[key] = ScalarToJson(value);
  }
  spec->set_name(name->text);
  spec->set_config_json(config.dump());
  return "";
}

std::string ReadModelFolder(const std::string& name, const Surroundings& surroundings,
                            v1::ModelSpec* spec) {
  const bool is_path = name.starts_with("/") || name.starts_with(".");
  if (!is_path && name.find('/') != std::string::npos) {
    return absl::StrCat("run.model '", name,
                        "': models of a hub are not built yet; name a "
                        "prepared model, or a folder as ./",
                        name);
  }
  const std::string folder = is_path ? Absolute(name, surroundings)
                                     : absl::StrCat(surroundings.material, "/models/", name);
  std::ifstream file(folder + "/config.json");
  if (!file) {
    return is_path ? absl::StrCat("run.model '", name, "': ", folder, "/config.json cannot be read")
                   : absl::StrCat("run.model '", name, "' is not prepared (no ", folder,
                                  "/config.json); run: regatta prepare ", name);
  }
  const nlohmann::json config = nlohmann::json::parse(file, nullptr, false);
  if (config.is_discarded() || !config.is_object()) {
    return absl::StrCat(folder, "/config.json is not a JSON object");
  }
  if (!std::filesystem::exists(folder + "/model.safetensors")) {
    return absl::StrCat("run.model '", name, "': ", folder, "/model.safetensors is missing");
  }
  spec->set_name(is_path ? std::filesystem::path(folder).filename().string() : name);
  spec->set_folder(folder);
  spec->set_config_json(config.dump());
  return "";
}

std::string ReadModel(const Surroundings& surroundings, RunDraft& draft) {
  v1::ModelSpec* spec = draft.spec.mutable_model();
  const bool is_inline = draft.model.kind == Kind::kMap;
  std::string wrong = is_inline ? ReadInlineModel(draft.model, spec)
                                : ReadModelFolder(draft.model.text, surroundings, spec);
  if (!wrong.empty()) return wrong;
  if (is_inline && draft.pretrained.value_or(false)) {
    return "run.weights is 'pretrained', but an inline model has no weights; random is right";
  }
  spec->set_pretrained(draft.pretrained.value_or(!is_inline));
  return CheckModelConfig(nlohmann::json::parse(spec->config_json()));
}

std::string ReadDatasetKey(const std::string& key, const YamlNode& value, v1::DatasetSpec* spec,
                           int64_t* rows) {
  int64_t number = 0;
  if (key == "stream" && value.kind == Kind::kScalar) {
    spec->set_stream(value.text);
    return "";
  }
  if (key == "eval_rows" && (value.text == "all" || value.text == "none")) {
    spec->set_eval_rows(value.text == "all" ? -1 : 0);
    return "";
  }
  if (!ReadInteger(value, 1, &number)) {
    return absl::StrCat("run.dataset.", key, " is '", OneLine(value),
                        "'; an integer of at least 1 is right",
                        key == "eval_rows" ? ", or all, or none" : "");
  }
  if (key == "max_length") spec->set_max_length(number);
  if (key == "train_rows") spec->set_train_rows(number);
  if (key == "eval_rows") spec->set_eval_rows(number);
  if (key == "rows") *rows = number;
  return "";
}

std::string FinishSynthetic(int64_t rows, v1::DatasetSpec* spec) {
  if (rows == 0 || spec->max_length() < 4) {
    return "run.dataset synthetic needs rows of at least 1 and max_length of at least 4";
  }
  if (spec->train_rows() != 0) return "run.dataset synthetic has 'rows', not 'train_rows'";
  spec->set_train_rows(rows);
  if (spec->eval_rows() < 0) spec->set_eval_rows(std::max<int64_t>(1, rows / 2));
  if (spec->stream().empty()) spec->set_stream("synthetic");
  return "";
}

std::string FinishPrepared(const std::string& model, const Surroundings& surroundings,
                           v1::DatasetSpec* spec) {
  if (!spec->stream().empty()) return "run.dataset.stream belongs to a synthetic dataset";
  const bool is_path = spec->name().starts_with("/") || spec->name().starts_with(".");
  const std::string folder =
      is_path ? Absolute(spec->name(), surroundings)
              : absl::StrCat(surroundings.material, "/data/", spec->name(), "/", model);
  spec->set_train_file(folder + "/train.safetensors");
  spec->set_eval_file(folder + "/eval.safetensors");
  for (const std::string& file : {spec->train_file(), spec->eval_file()}) {
    if (std::filesystem::exists(file)) continue;
    return absl::StrCat("run.dataset '", spec->name(), "' is not prepared for model '", model,
                        "' (no ", file, ")",
                        is_path ? "" : absl::StrCat("; run: regatta prepare ", spec->name()));
  }
  return "";
}

std::string ReadDataset(const Surroundings& surroundings, RunDraft& draft) {
  static const std::vector<std::string> known = {"name",      "max_length", "train_rows",
                                                 "eval_rows", "rows",       "stream"};
  v1::DatasetSpec* spec = draft.spec.mutable_dataset();
  spec->set_eval_rows(-1);
  int64_t rows = 0;
  if (draft.dataset.kind == Kind::kScalar) spec->set_name(draft.dataset.text);
  for (const auto& [key, value] : draft.dataset.entries) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return absl::StrCat("unknown key 'run.dataset.", key, "'", SuggestName(key, known));
    }
    if (key == "name") {
      spec->set_name(value.text);
    } else if (std::string wrong = ReadDatasetKey(key, value, spec, &rows); !wrong.empty()) {
      return wrong;
    }
  }
  if (spec->name().empty()) return "run.dataset lacks 'name'";
  if (spec->name() == "synthetic") return FinishSynthetic(rows, spec);
  if (rows != 0) return "run.dataset.rows belongs to a synthetic dataset; train_rows is right";
  return FinishPrepared(draft.spec.model().name(), surroundings, spec);
}

// ---- what only the whole run can tell ----

std::string FinishBatch(bool epochs_written, RunDraft& draft) {
  v1::RunSpec& spec = draft.spec;
  if (draft.batch_size && draft.batch_size_per_rank) {
    return "run sets both batch_size and batch_size_per_rank; one of them is right";
  }
  if (draft.batch_size_per_rank &&
      *draft.batch_size_per_rank > std::numeric_limits<int64_t>::max() / spec.ranks()) {
    return "run.batch_size_per_rank is too large";
  }
  spec.set_batch_size(draft.batch_size_per_rank ? *draft.batch_size_per_rank * spec.ranks()
                                                : draft.batch_size.value_or(16));
  if (spec.batch_size() < spec.ranks()) {
    return absl::StrCat("run.batch_size ", spec.batch_size(), " leaves some of the ", spec.ranks(),
                        " ranks without a row; at least one row a rank is right");
  }
  if (spec.steps() != 0 && !epochs_written) spec.set_epochs(0);
  return "";
}

std::string CheckStrategy(const v1::RunSpec& spec) {
  StrategyParams params;
  for (const v1::Param& param : spec.strategy().params()) {
    params.emplace_back(param.name(), param.text());
  }
  const auto plan = ParseStrategy(spec.strategy().name(), params, {.ranks = spec.ranks()});
  const PlanError* error = std::get_if<PlanError>(&plan);
  return error == nullptr ? "" : error->sentence;
}

// The value at a dotted path of the table; only `optimizer` is nested.
const YamlNode* FindPath(const YamlNode& run, std::string_view path) {
  const size_t dot = path.find('.');
  const YamlNode* child = run.Find(std::string(path.substr(0, dot)));
  if (child == nullptr || dot == std::string_view::npos) return child;
  const std::string leaf(path.substr(dot + 1));
  // `optimizer: sgd` is short for {name: sgd}.
  if (child->kind == Kind::kScalar) return leaf == "name" ? child : nullptr;
  return child->Find(leaf);
}

absl::Status CheckRunKeys(const YamlNode& map, const std::string& prefix,
                          const std::string& file_name) {
  std::vector<std::string> names;
  for (const RunKey& key : RunKeys()) {
    std::string path(key.path);
    if (!path.starts_with(prefix)) continue;
    path = path.substr(prefix.size());
    names.push_back(path.substr(0, path.find('.')));
  }
  for (const auto& [key, value] : map.entries) {
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      return ErrorAt(file_name, value,
                     absl::StrCat("unknown key 'run.", prefix, key, "'", SuggestName(key, names)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::RunSpec> ResolveRun(const YamlNode& run, const Surroundings& surroundings) {
  const std::string& file_name = surroundings.file_name;
  if (run.kind != Kind::kMap)
    return ErrorAt(file_name, run, "run must be a map of keys and values");
  if (absl::Status status = CheckRunKeys(run, "", file_name); !status.ok()) return status;
  if (const YamlNode* optimizer = run.Find("optimizer"); optimizer != nullptr) {
    if (absl::Status status = CheckRunKeys(*optimizer, "optimizer.", file_name); !status.ok()) {
      return status;
    }
  }
  RunDraft draft;
  for (const RunKey& key : RunKeys()) {
    const YamlNode* written = FindPath(run, key.path);
    if (written != nullptr && key.read == nullptr) {
      return ErrorAt(file_name, *written, absl::StrCat("run.", key.path, ": not built yet"));
    }
    if (written == nullptr && *key.default_text == '\0') continue;
    absl::StatusOr<YamlNode> fallback;
    if (written == nullptr) {
      fallback = ParseYaml(key.default_text, "default");
      if (!fallback.ok()) return fallback.status();
      written = &*fallback;
    }
    std::string wrong = key.read(*written, draft);
    if (wrong.empty()) continue;
    if (wrong == kNotRight) {
      wrong = absl::StrCat("is '", OneLine(*written), "'; ", key.right, " is right");
    }
    return ErrorAt(file_name, *written, absl::StrCat("run.", key.path, " ", wrong));
  }
  draft.spec.set_threads_per_rank(
      draft.threads_per_rank.value_or(std::max(1, surroundings.cores / draft.spec.ranks())));
  const auto check = [&](const char* key, const std::string& wrong) {
    const YamlNode* node = run.Find(key);
    return wrong.empty() ? absl::OkStatus()
                         : ErrorAt(file_name, node == nullptr ? run : *node, wrong);
  };
  absl::Status status = check("batch_size", FinishBatch(run.Find("epochs") != nullptr, draft));
  if (status.ok()) status = check("strategy", CheckStrategy(draft.spec));
  if (status.ok()) status = check("model", ReadModel(surroundings, draft));
  if (status.ok()) status = check("dataset", ReadDataset(surroundings, draft));
  if (!status.ok()) return status;
  return draft.spec;
}

}  // namespace regatta
