#include "strategies/plan/strategy_table.h"

#include "strategies/plan/suggest.h"

namespace regatta {

const std::vector<StrategyRow>& StrategyTable() {
  static const std::vector<StrategyRow> table = {
      {.name = "single",
       .family = "reference",
       .origin = "regatta",
       .summary = "one rank, no communication: what every other row is compared with",
       .source = "",
       .data_parallel = {GradSync::kNone},
       .max_ranks = 1},
      {.name = "simple_ddp",
       .family = "data parallel",
       .origin = "regatta",
       .summary = "after backward, all-reduce each gradient and wait for it at once",
       .source = "llm-parallelism-pytorch, simple_ddp",
       .data_parallel = {GradSync::kEachAfterBackward},
       .max_ranks = 0},
  };
  return table;
}

std::variant<StrategyPlan, PlanError> ParseStrategy(const std::string& name,
                                                    const StrategyParams& params,
                                                    const RunShape& shape) {
  std::vector<std::string> names;
  for (const StrategyRow& row : StrategyTable()) {
    names.emplace_back(row.name);
    if (row.name != name) continue;
    if (!params.empty()) {
      return PlanError{"strategy '" + name + "' has no parameter '" + params.front().first +
                       "'; it has none"};
    }
    if (row.max_ranks != 0 && shape.ranks > row.max_ranks) {
      return PlanError{"strategy '" + name + "' runs on " + std::to_string(row.max_ranks) +
                       " rank, not on " + std::to_string(shape.ranks)};
    }
    return StrategyPlan{name, row.data_parallel};
  }
  return PlanError{"unknown strategy '" + name + "'" + SuggestName(name, names)};
}

}  // namespace regatta
