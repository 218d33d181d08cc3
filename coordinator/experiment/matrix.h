#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <utility>
#include <vector>

#include "coordinator/experiment/yaml_tree.h"

namespace regatta {

// One axis of a matrix: a dotted key of `run` and its values.
struct Axis {
  std::string key;
  std::vector<YamlNode> values;
};

// One combination: a value for every axis, in axis order.
using Combination = std::vector<std::pair<std::string, YamlNode>>;

// All combinations, the last axis fastest; one empty combination where there is no axis. Refuses
// more than `max_runs` before it allocates any.
[[nodiscard]] absl::StatusOr<std::vector<Combination>> ExpandMatrix(const std::vector<Axis>& axes,
                                                                    int64_t max_runs);

// "strategy=simple_ddp ranks=2": only the axes, so that names stay short.
[[nodiscard]] std::string CombinationName(const Combination& combination);

}  // namespace regatta
