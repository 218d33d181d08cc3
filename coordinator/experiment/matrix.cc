#include "coordinator/experiment/matrix.h"

#include <absl/strings/str_cat.h>

namespace regatta {

absl::StatusOr<std::vector<Combination>> ExpandMatrix(const std::vector<Axis>& axes,
                                                      int64_t max_runs) {
  int64_t count = 1;
  for (const Axis& axis : axes) {
    const auto size = static_cast<int64_t>(axis.values.size());
    if (size > max_runs / count) {
      return absl::InvalidArgumentError(
          absl::StrCat("the matrix has more than ", max_runs, " combinations (limits.max_runs)"));
    }
    count *= size;
  }
  std::vector<Combination> combinations(static_cast<size_t>(count));
  size_t repeat = combinations.size();
  for (const Axis& axis : axes) {
    repeat /= axis.values.size();
    for (size_t i = 0; i < combinations.size(); ++i) {
      combinations[i].emplace_back(axis.key, axis.values[i / repeat % axis.values.size()]);
    }
  }
  return combinations;
}

std::string CombinationName(const Combination& combination) {
  std::string name;
  for (const auto& [key, value] : combination) {
    const YamlNode* own_name = value.Find("name");
    const bool only_name = own_name != nullptr && value.entries.size() == 1;
    absl::StrAppend(&name, name.empty() ? "" : " ", key, "=",
                    only_name ? own_name->text : OneLine(value));
  }
  return name;
}

}  // namespace regatta
