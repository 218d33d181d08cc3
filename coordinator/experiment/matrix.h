#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/experiment/resolve_run.h"
#include "coordinator/experiment/yaml_tree.h"

namespace regatta {

// One axis: a key of `run` with its values, or several keys that travel together. values[i] has the
// i-th value of every key.
struct Axis {
  std::vector<std::string_view> keys;
  std::vector<std::vector<const YamlNode*>> values;
};

// A map of keys and patterns, as `exclude` lists them and `match` of an override holds one. All
// must match.
struct Rule {
  const YamlNode* node = nullptr;  // for its place
  std::vector<Assignment> patterns;
};

struct Override {
  Rule match;
  std::vector<Assignment> set;
};

// matrix, zip, exclude, include and overrides of one file, checked. Points into the file's tree.
struct MatrixPlan {
  std::vector<Axis> axes;
  std::vector<Rule> excludes;
  std::vector<std::vector<Assignment>> includes;
  std::vector<Override> overrides;
};

// Reads and checks the five keys. INVALID_ARGUMENT with the place.
[[nodiscard]] absl::StatusOr<MatrixPlan> ReadMatrix(const YamlNode& top,
                                                    const std::string& file_name);

// One run of the expansion, before it is resolved.
struct MatrixRow {
  std::vector<Assignment> set;  // axes or include, then what overrides change
  size_t swept = 0;             // how many of `set` make the name
};

struct Expansion {
  std::vector<MatrixRow> rows;      // combinations, the last axis fastest, then includes
  std::vector<int64_t> excluded;    // combinations that each exclude matches, by exclude
  std::vector<int64_t> overridden;  // rows that each override changes
};

// The value of a run at a dotted key, for overrides; null where it has none.
using ValueOfRun =
    std::function<const YamlNode*(const std::vector<Assignment>& set, const std::string& key)>;

// Counts before it allocates: more than `max_runs` runs in all rounds is INVALID_ARGUMENT.
[[nodiscard]] absl::StatusOr<Expansion> ExpandMatrix(const MatrixPlan& plan, int64_t repeats,
                                                     int64_t max_runs, const ValueOfRun& value_of);

// "strategy=simple_ddp ranks=2": only what is swept, so that names stay short.
[[nodiscard]] std::string RowName(const MatrixRow& row);

}  // namespace regatta
