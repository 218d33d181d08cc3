#pragma once

#include <string>
#include <vector>

#include "strategies/plan/strategy_table.h"

namespace regatta {

inline std::vector<StrategyRow> PipelineRows() {
  std::vector<StrategyRow> rows;
  for (const StrategyRow& row : StrategyTable()) {
    if (row.pipeline) rows.push_back(row);
  }
  return rows;
}

inline const SchedulePolicy& PolicyOf(const std::string& name) {
  return FindStrategy(name)->pipeline->policy;
}

}  // namespace regatta
