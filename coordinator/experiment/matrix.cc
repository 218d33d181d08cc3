#include "coordinator/experiment/matrix.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <limits>
#include <set>

#include "coordinator/experiment/values.h"
#include "strategies/plan/suggest.h"

namespace regatta {
namespace {

using Kind = YamlNode::Kind;

// The list below `key`, each item a map with at least one entry; empty where the key is absent.
absl::StatusOr<std::vector<const YamlNode*>> ReadMaps(const YamlNode& top, const std::string& key,
                                                      const char* example,
                                                      const std::string& file_name) {
  std::vector<const YamlNode*> maps;
  const YamlNode* list = top.Find(key);
  if (list == nullptr) return maps;
  if (list->kind != Kind::kList) {
    return ErrorAt(file_name, *list,
                   absl::StrCat(key, " is '", OneLine(*list), "'; a list of maps is right"));
  }
  for (const YamlNode& item : list->items) {
    if (item.kind != Kind::kMap || item.entries.empty()) {
      return ErrorAt(
          file_name, item,
          absl::StrCat(key, " lists '", OneLine(item), "'; a map is right, such as ", example));
    }
    maps.push_back(&item);
  }
  return maps;
}

absl::StatusOr<std::vector<Assignment>> ReadAssignments(const YamlNode& map,
                                                        const std::string& file_name) {
  std::vector<Assignment> set;
  for (const auto& [key, value] : map.entries) {
    if (absl::Status status = CheckKey("run." + key, value, file_name); !status.ok()) return status;
    set.push_back({key, &value});
  }
  return set;
}

absl::StatusOr<Axis> ReadAxis(const std::string& where, const std::string& key,
                              const YamlNode& values, const std::string& file_name) {
  if (absl::Status status = CheckKey("run." + key, values, file_name); !status.ok()) return status;
  if (values.kind != Kind::kList || values.items.empty()) {
    return ErrorAt(file_name, values,
                   absl::StrCat(where, ".", key, " is '", OneLine(values),
                                "'; a list with at least one value is right"));
  }
  Axis axis{{key}, {}};
  for (const YamlNode& value : values.items) axis.values.push_back({&value});
  return axis;
}

absl::Status ReadMatrixAxes(const YamlNode& top, const std::string& file_name, MatrixPlan* plan) {
  const YamlNode* map = top.Find("matrix");
  if (map == nullptr) return absl::OkStatus();
  if (map->kind != Kind::kMap) {
    return ErrorAt(file_name, *map,
                   absl::StrCat("matrix is '", OneLine(*map),
                                "'; a map from a key of run to a list of values is right"));
  }
  for (const auto& [key, values] : map->entries) {
    absl::StatusOr<Axis> axis = ReadAxis("matrix", key, values, file_name);
    if (!axis.ok()) return axis.status();
    std::set<std::string> seen;
    for (const YamlNode& value : values.items) {
      if (seen.insert(OneLine(value)).second) continue;
      return ErrorAt(file_name, value,
                     absl::StrCat("matrix.", key, " lists '", OneLine(value), "' twice"));
    }
    plan->axes.push_back(*std::move(axis));
  }
  return absl::OkStatus();
}

absl::Status ReadZips(const YamlNode& top, const std::string& file_name, MatrixPlan* plan) {
  const auto maps = ReadMaps(top, "zip", "{model: [a, b], batch_size: [8, 4]}", file_name);
  if (!maps.ok()) return maps.status();
  for (const YamlNode* map : *maps) {
    Axis together;
    for (const auto& [key, values] : map->entries) {
      const absl::StatusOr<Axis> axis = ReadAxis("zip", key, values, file_name);
      if (!axis.ok()) return axis.status();
      if (together.keys.empty()) together.values.resize(axis->values.size());
      if (axis->values.size() != together.values.size()) {
        return ErrorAt(file_name, values,
                       absl::StrCat("zip.", key, " has ", axis->values.size(), " values and zip.",
                                    std::string(together.keys[0]), " has ", together.values.size(),
                                    "; equally many are right"));
      }
      together.keys.push_back(key);
      for (size_t i = 0; i < axis->values.size(); ++i) {
        together.values[i].push_back(axis->values[i][0]);
      }
    }
    plan->axes.push_back(std::move(together));
  }
  return absl::OkStatus();
}

absl::Status CheckAxesDiffer(const YamlNode& top, const MatrixPlan& plan,
                             const std::string& file_name) {
  std::set<std::string_view> seen;
  for (const Axis& axis : plan.axes) {
    for (size_t k = 0; k < axis.keys.size(); ++k) {
      if (seen.insert(axis.keys[k]).second) continue;
      const YamlNode* place = top.Find("zip");
      return ErrorAt(file_name, place == nullptr ? top : *axis.values[0][k],
                     absl::StrCat("'", std::string(axis.keys[k]),
                                  "' is an axis twice; once in matrix or zip is right"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Rule> ReadRule(const YamlNode& map, const std::string& what,
                              const std::string& file_name) {
  Rule rule{&map, {}};
  for (const auto& [key, pattern] : map.entries) {
    if (std::string wrong = CheckPattern(pattern); !wrong.empty()) {
      return ErrorAt(file_name, pattern, absl::StrCat(what, ": ", key, " ", wrong));
    }
    rule.patterns.push_back({key, &pattern});
  }
  return rule;
}

absl::Status ReadExcludes(const YamlNode& top, const std::string& file_name, MatrixPlan* plan) {
  const auto maps = ReadMaps(top, "exclude", "{strategy: simple_ddp, ranks: \"<2\"}", file_name);
  if (!maps.ok()) return maps.status();
  std::vector<std::string> axes;
  for (const Axis& axis : plan->axes) axes.insert(axes.end(), axis.keys.begin(), axis.keys.end());
  for (const YamlNode* map : *maps) {
    absl::StatusOr<Rule> rule = ReadRule(*map, "exclude", file_name);
    if (!rule.ok()) return rule.status();
    for (const Assignment& pattern : rule->patterns) {
      if (std::find(axes.begin(), axes.end(), pattern.key) != axes.end()) continue;
      return ErrorAt(file_name, *pattern.value,
                     absl::StrCat("exclude names '", std::string(pattern.key),
                                  "', which is no axis of matrix or zip",
                                  SuggestName(std::string(pattern.key), axes)));
    }
    plan->excludes.push_back(*std::move(rule));
  }
  return absl::OkStatus();
}

absl::Status ReadIncludes(const YamlNode& top, const std::string& file_name, MatrixPlan* plan) {
  const auto maps = ReadMaps(top, "include", "{strategy: single, ranks: 1}", file_name);
  if (!maps.ok()) return maps.status();
  for (const YamlNode* map : *maps) {
    absl::StatusOr<std::vector<Assignment>> row = ReadAssignments(*map, file_name);
    if (!row.ok()) return row.status();
    plan->includes.push_back(*std::move(row));
  }
  return absl::OkStatus();
}

absl::Status ReadOverrides(const YamlNode& top, const std::string& file_name, MatrixPlan* plan) {
  const char* example = "{match: {strategy: simple_ddp}, set: {batch_size: 8}}";
  const auto maps = ReadMaps(top, "overrides", example, file_name);
  if (!maps.ok()) return maps.status();
  for (const YamlNode* map : *maps) {
    const YamlNode* match = map->Find("match");
    const YamlNode* set = map->Find("set");
    if (match == nullptr || set == nullptr || map->entries.size() != 2 ||
        match->kind != Kind::kMap || set->kind != Kind::kMap || set->entries.empty()) {
      return ErrorAt(file_name, *map,
                     absl::StrCat("overrides lists '", OneLine(*map),
                                  "'; match and set are right, such as ", example));
    }
    absl::StatusOr<Rule> rule = ReadRule(*match, "overrides", file_name);
    if (!rule.ok()) return rule.status();
    for (const Assignment& pattern : rule->patterns) {
      const std::string key = absl::StrCat("run.", std::string(pattern.key));
      if (absl::Status s = CheckKey(key, *pattern.value, file_name); !s.ok()) return s;
    }
    absl::StatusOr<std::vector<Assignment>> changes = ReadAssignments(*set, file_name);
    if (!changes.ok()) return changes.status();
    plan->overrides.push_back({*std::move(rule), *std::move(changes)});
  }
  return absl::OkStatus();
}

// ---- expansion ----

absl::StatusOr<int64_t> CountCombinations(const MatrixPlan& plan, int64_t repeats,
                                          int64_t max_runs) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  int64_t count = 1;
  bool exact = true;
  for (const Axis& axis : plan.axes) {
    const auto size = static_cast<int64_t>(axis.values.size());
    exact = exact && count <= kMost / size;
    count = exact ? count * size : kMost;
  }
  const auto includes = static_cast<int64_t>(plan.includes.size());
  // The bound counts what excludes may still drop: a matrix is never built to find out.
  if (exact && count <= max_runs && (count + includes) <= max_runs / repeats) return count;
  return absl::InvalidArgumentError(
      absl::StrCat("the matrix has ", exact ? absl::StrCat(count) : "over 10^18", " combinations",
                   includes > 0 ? absl::StrCat(" and ", includes, " included runs") : "",
                   repeats > 1 ? absl::StrCat(", ", repeats, " times each") : "",
                   "; limits.max_runs is ", max_runs));
}

// For each exclude and axis: which of the axis's values its patterns match.
class ExcludeTable {
 public:
  explicit ExcludeTable(const MatrixPlan& plan) {
    for (const Rule& rule : plan.excludes) {
      std::vector<std::vector<bool>>& by_axis = matches_.emplace_back();
      for (const Axis& axis : plan.axes) by_axis.push_back(MatchAxis(rule, axis));
    }
  }
  bool Matches(size_t rule, const std::vector<size_t>& chosen) const {
    for (size_t a = 0; a < chosen.size(); ++a) {
      if (!matches_[rule][a][chosen[a]]) return false;
    }
    return true;
  }

 private:
  static std::vector<bool> MatchAxis(const Rule& rule, const Axis& axis) {
    std::vector<bool> matches(axis.values.size(), true);
    for (size_t i = 0; i < axis.values.size(); ++i) {
      for (size_t k = 0; k < axis.keys.size(); ++k) {
        for (const Assignment& pattern : rule.patterns) {
          if (pattern.key != axis.keys[k]) continue;
          matches[i] = matches[i] && regatta::Matches(*pattern.value, *axis.values[i][k]);
        }
      }
    }
    return matches;
  }

  std::vector<std::vector<std::vector<bool>>> matches_;  // rule, axis, value
};

bool MatchesRow(const Rule& rule, const std::vector<Assignment>& set, const ValueOfRun& value_of) {
  return std::all_of(rule.patterns.begin(), rule.patterns.end(), [&](const Assignment& pattern) {
    const YamlNode* value = value_of(set, std::string(pattern.key));
    return value != nullptr && Matches(*pattern.value, *value);
  });
}

}  // namespace

absl::StatusOr<MatrixPlan> ReadMatrix(const YamlNode& top, const std::string& file_name) {
  MatrixPlan plan;
  absl::Status status = ReadMatrixAxes(top, file_name, &plan);
  if (status.ok()) status = ReadZips(top, file_name, &plan);
  if (status.ok()) status = CheckAxesDiffer(top, plan, file_name);
  if (status.ok()) status = ReadExcludes(top, file_name, &plan);
  if (status.ok()) status = ReadIncludes(top, file_name, &plan);
  if (status.ok()) status = ReadOverrides(top, file_name, &plan);
  if (!status.ok()) return status;
  return plan;
}

absl::StatusOr<Expansion> ExpandMatrix(const MatrixPlan& plan, int64_t repeats, int64_t max_runs,
                                       const ValueOfRun& value_of) {
  const absl::StatusOr<int64_t> count = CountCombinations(plan, repeats, max_runs);
  if (!count.ok()) return count.status();
  Expansion expansion;
  expansion.excluded.resize(plan.excludes.size());
  expansion.overridden.resize(plan.overrides.size());
  const ExcludeTable excludes(plan);
  std::vector<size_t> chosen(plan.axes.size());
  for (int64_t i = 0; i < *count; ++i) {
    bool dropped = false;
    for (size_t rule = 0; rule < plan.excludes.size(); ++rule) {
      if (!excludes.Matches(rule, chosen)) continue;
      ++expansion.excluded[rule];
      dropped = true;
    }
    if (!dropped) {
      MatrixRow& row = expansion.rows.emplace_back();
      for (size_t a = 0; a < chosen.size(); ++a) {
        const Axis& axis = plan.axes[a];
        for (size_t k = 0; k < axis.keys.size(); ++k) {
          row.set.push_back({axis.keys[k], axis.values[chosen[a]][k]});
        }
      }
    }
    for (size_t a = chosen.size(); a-- > 0;) {  // the last axis turns fastest
      if (++chosen[a] < plan.axes[a].values.size()) break;
      chosen[a] = 0;
    }
  }
  for (const std::vector<Assignment>& include : plan.includes) expansion.rows.push_back({include});
  for (MatrixRow& row : expansion.rows) {
    row.swept = row.set.size();
    for (size_t i = 0; i < plan.overrides.size(); ++i) {
      if (!MatchesRow(plan.overrides[i].match, row.set, value_of)) continue;
      ++expansion.overridden[i];
      const std::vector<Assignment>& set = plan.overrides[i].set;
      row.set.insert(row.set.end(), set.begin(), set.end());
    }
  }
  return expansion;
}

std::string RowName(const MatrixRow& row) {
  std::string name;
  for (size_t i = 0; i < row.swept; ++i) {
    absl::StrAppend(&name, name.empty() ? "" : " ", std::string(row.set[i].key), "=",
                    ShortText(*row.set[i].value));
  }
  return name;
}

}  // namespace regatta
