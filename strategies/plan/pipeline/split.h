#pragma once

#include <string>
#include <variant>
#include <vector>

#include "strategies/plan/slices.h"

namespace regatta {

// How a model's blocks are cut into stages.
enum class SplitKind {
  kEven,          // as many layers each as possible, early stages one more
  kByParameters,  // so that the largest stage is smallest
  kByTime,        // so that the slowest stage is fastest; the ranks measure it
  kAtCutPoints    // where the experiment says
};

struct SplitPlan {
  SplitKind kind = SplitKind::kEven;
  std::vector<int> cut_points = {};  // the first block of each stage after the first
};

// Parameters of each block.
[[nodiscard]] std::vector<double> BlockElements(const std::vector<ParameterSize>& parameters);

// The stage of a block, by the first block of each stage.
[[nodiscard]] int StageOf(const std::vector<int>& first_blocks, size_t block);

// The first block of each stage, of blocks with these costs: parameters, or seconds under kByTime;
// what they are does not count under kEven and kAtCutPoints. The first block, an embedding, and the
// last, a head, come on top of the layers that kEven counts. The sentence says why it cannot be
// done, and what is nearest to it.
[[nodiscard]] std::variant<std::vector<int>, std::string> SplitBlocks(
    const SplitPlan& plan, const std::vector<double>& block_costs, int stages);

}  // namespace regatta
