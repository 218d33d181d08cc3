#include "coordinator/experiment/experiment.h"

#include <absl/strings/str_cat.h>

#include <set>

#include "coordinator/experiment/matrix.h"
#include "coordinator/experiment/run_keys.h"
#include "strategies/plan/suggest.h"

namespace regatta {
namespace {

struct KnownKey {
  const char* name;
  bool built;
};
constexpr KnownKey kTopKeys[] = {{"name", true},       {"description", true}, {"run", true},
                                 {"matrix", true},     {"limits", true},      {"labels", false},
                                 {"zip", false},       {"exclude", false},    {"include", true},
                                 {"overrides", false}, {"on_invalid", false}, {"repeats", false},
                                 {"cost", false},      {"on_finish", false},  {"on_failure", false},
                                 {"launcher", false},  {"chaos", false}};
constexpr KnownKey kLimitKeys[] = {
    {"max_parallel", true}, {"max_runs", true}, {"join_timeout", true},   {"max_restarts", false},
    {"fail_fast", false},   {"timeout", false}, {"stall_timeout", false}, {"queue_timeout", false}};

// Refuses keys of `map` that the table lacks, or has but does not build yet.
template <size_t kCount>
absl::Status CheckKeys(const YamlNode& map, const std::string& prefix,
                       const KnownKey (&known)[kCount], const std::string& file_name) {
  if (map.kind != YamlNode::Kind::kMap) {
    return ErrorAt(file_name, map,
                   absl::StrCat("'", OneLine(map), "' is not a map of keys and values"));
  }
  for (const auto& [key, value] : map.entries) {
    std::vector<std::string> names;
    const KnownKey* found = nullptr;
    for (const KnownKey& candidate : known) {
      names.emplace_back(candidate.name);
      if (key == candidate.name) found = &candidate;
    }
    if (found == nullptr) {
      return ErrorAt(file_name, value,
                     absl::StrCat("unknown key '", prefix, key, "'", SuggestName(key, names)));
    }
    if (!found->built) {
      return ErrorAt(file_name, value, absl::StrCat(prefix, key, ": not built yet"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadText(const YamlNode& top, const std::string& key,
                                     const std::string& file_name) {
  const YamlNode* node = top.Find(key);
  if (node == nullptr) return std::string();
  if (node->kind != YamlNode::Kind::kScalar || node->text.empty()) {
    return ErrorAt(file_name, *node,
                   absl::StrCat(key, " is '", OneLine(*node), "'; some text is right"));
  }
  return node->text;
}

absl::StatusOr<Limits> ReadLimits(const YamlNode& top, const std::string& file_name) {
  Limits limits;
  const YamlNode* map = top.Find("limits");
  if (map == nullptr) return limits;
  if (absl::Status status = CheckKeys(*map, "limits.", kLimitKeys, file_name); !status.ok()) {
    return status;
  }
  for (const auto& [key, value] : map->entries) {
    int64_t integer = 0;
    if (key == "join_timeout") {
      if (!ReadDuration(value, &limits.join_timeout_seconds)) {
        return ErrorAt(file_name, value,
                       absl::StrCat("limits.join_timeout is '", OneLine(value),
                                    "'; a duration with its unit is right, such as 60s"));
      }
      continue;
    }
    if (!ReadInteger(value, 1, &integer) || integer > 1000000) {
      return ErrorAt(file_name, value,
                     absl::StrCat("limits.", key, " is '", OneLine(value),
                                  "'; an integer from 1 to 1000000 is right"));
    }
    if (key == "max_parallel") limits.max_parallel = static_cast<int>(integer);
    if (key == "max_runs") limits.max_runs = integer;
  }
  return limits;
}

absl::StatusOr<std::vector<Axis>> ReadAxes(const YamlNode& top, const std::string& file_name) {
  std::vector<Axis> axes;
  const YamlNode* map = top.Find("matrix");
  if (map == nullptr) return axes;
  if (map->kind != YamlNode::Kind::kMap) {
    return ErrorAt(file_name, *map, "matrix must be a map from a key of run to a list of values");
  }
  for (const auto& [key, values] : map->entries) {
    if (values.kind != YamlNode::Kind::kList || values.items.empty()) {
      return ErrorAt(file_name, values,
                     absl::StrCat("matrix.", key, " is '", OneLine(values),
                                  "'; a list with at least one value is right"));
    }
    std::set<std::string> seen;
    for (const YamlNode& value : values.items) {
      if (!seen.insert(OneLine(value)).second) {
        return ErrorAt(file_name, value,
                       absl::StrCat("matrix.", key, " lists '", OneLine(value), "' twice"));
      }
    }
    axes.push_back({key, values.items});
  }
  return axes;
}

// The further rows below `include:`, each a map of dotted keys of run.
absl::StatusOr<std::vector<Combination>> ReadIncludes(const YamlNode& top,
                                                      const std::string& file_name) {
  std::vector<Combination> rows;
  const YamlNode* list = top.Find("include");
  if (list == nullptr) return rows;
  if (list->kind != YamlNode::Kind::kList) {
    return ErrorAt(file_name, *list,
                   absl::StrCat("include is '", OneLine(*list), "'; a list of maps is right"));
  }
  for (const YamlNode& row : list->items) {
    if (row.kind != YamlNode::Kind::kMap || row.entries.empty()) {
      return ErrorAt(file_name, row,
                     absl::StrCat("include lists '", OneLine(row),
                                  "'; a map of keys of run is right, such as {strategy: single}"));
    }
    rows.push_back(row.entries);
  }
  return rows;
}

// Sets a dotted key: `dataset.max_length` in {dataset: reviews} makes {dataset: {name: reviews,
// max_length: ...}}.
void SetPath(YamlNode* map, const std::string& path, const YamlNode& value) {
  const size_t dot = path.find('.');
  const std::string key = path.substr(0, dot);
  YamlNode* child = nullptr;
  for (auto& [name, node] : map->entries) {
    if (name == key) child = &node;
  }
  if (child == nullptr) child = &map->entries.emplace_back(key, YamlNode()).second;
  if (dot == std::string::npos) {
    *child = value;
    return;
  }
  if (child->kind == YamlNode::Kind::kScalar) {
    YamlNode named;
    named.entries.emplace_back("name", *child);
    *child = named;
  }
  child->kind = YamlNode::Kind::kMap;
  child->line = value.line;
  child->column = value.column;
  SetPath(child, path.substr(dot + 1), value);
}

}  // namespace

absl::StatusOr<Experiment> ParseExperiment(const std::string& text,
                                           const Surroundings& surroundings) {
  const std::string& file_name = surroundings.file_name;
  const absl::StatusOr<YamlNode> top = ParseYaml(text, file_name);
  if (!top.ok()) return top.status();
  if (absl::Status status = CheckKeys(*top, "", kTopKeys, file_name); !status.ok()) return status;

  Experiment experiment;
  experiment.text = text;
  const absl::StatusOr<std::string> name = ReadText(*top, "name", file_name);
  if (!name.ok()) return name.status();
  if (name->empty()) return ErrorAt(file_name, *top, "the experiment lacks 'name:'");
  experiment.name = *name;
  const absl::StatusOr<std::string> description = ReadText(*top, "description", file_name);
  if (!description.ok()) return description.status();
  experiment.description = *description;
  const absl::StatusOr<Limits> limits = ReadLimits(*top, file_name);
  if (!limits.ok()) return limits.status();
  experiment.limits = *limits;
  const absl::StatusOr<std::vector<Axis>> axes = ReadAxes(*top, file_name);
  if (!axes.ok()) return axes.status();
  const absl::StatusOr<std::vector<Combination>> includes = ReadIncludes(*top, file_name);
  if (!includes.ok()) return includes.status();
  absl::StatusOr<std::vector<Combination>> combinations =
      ExpandMatrix(*axes, experiment.limits.max_runs);
  if (!combinations.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": ", combinations.status().message()));
  }
  combinations->insert(combinations->end(), includes->begin(), includes->end());

  YamlNode base;
  base.kind = YamlNode::Kind::kMap;
  if (const YamlNode* run = top->Find("run"); run != nullptr) base = *run;
  for (const Combination& combination : *combinations) {
    YamlNode run = base;
    for (const auto& [key, value] : combination) SetPath(&run, key, value);
    absl::StatusOr<v1::RunSpec> spec = ResolveRun(run, surroundings);
    if (!spec.ok()) return spec.status();
    std::string run_name = CombinationName(combination);
    experiment.runs.push_back(
        {run_name.empty() ? experiment.name : std::move(run_name), *std::move(spec)});
  }
  return experiment;
}

}  // namespace regatta
