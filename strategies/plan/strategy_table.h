#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace regatta {

// When and how the data-parallel class reduces gradients.
enum class GradSync {
  kNone,              // no communication: the one-process reference
  kEachAfterBackward  // after backward, one all-reduce a parameter, waited for at once
};

struct DataParallelPlan {
  GradSync grad_sync = GradSync::kNone;
};

// What `ParseStrategy` found good: built into a Strategy later, on the ranks.
struct StrategyPlan {
  std::string name;
  DataParallelPlan data_parallel;
};

// What the checks of a row may look at.
struct RunShape {
  int ranks = 1;
};

// Parameters as the experiment writes them, sorted by name.
using StrategyParams = std::vector<std::pair<std::string, std::string>>;

// Why a strategy, its parameters or its shape is refused: one sentence.
struct PlanError {
  std::string sentence;
};

// One row of the table. `origin` says whose implementation runs: "libtorch" (the library's own
// object), "after PyTorch" (the same algorithm, our code) or "regatta".
struct StrategyRow {
  std::string_view name;
  std::string_view family;
  std::string_view origin;
  std::string_view summary;
  std::string_view source;  // paper or file that describes the method
  DataParallelPlan data_parallel;
  int max_ranks;  // 0: any number
};

// The rows in the order of the documentation. The only place where a strategy is registered.
[[nodiscard]] const std::vector<StrategyRow>& StrategyTable();

// Checks name, parameters and shape now, so that a bad run is refused before anything is queued.
[[nodiscard]] std::variant<StrategyPlan, PlanError> ParseStrategy(const std::string& name,
                                                                  const StrategyParams& params,
                                                                  const RunShape& shape);

}  // namespace regatta
