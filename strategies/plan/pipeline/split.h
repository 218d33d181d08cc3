#pragma once

#include <string>
#include <variant>
#include <vector>

namespace regatta {

// How a model's blocks are cut into stages.
enum class SplitKind {
  kEven,        // as many layers each as possible, early stages one more
  kByCost,      // so that the most expensive stage costs least
  kAtCutPoints  // where the experiment says
};

struct SplitPlan {
  SplitKind kind = SplitKind::kEven;
  std::vector<int> cut_points = {};  // the first block of each stage after the first
};

// The first block of each stage, of blocks with these costs (parameters, seconds; what they are
// counts only under kByCost). The first block, an embedding, and the last, a head, come on top of
// the layers that kEven counts. The sentence says why it cannot be done, and what is nearest to it.
[[nodiscard]] std::variant<std::vector<int>, std::string> SplitBlocks(
    const SplitPlan& plan, const std::vector<double>& block_costs, int stages);

}  // namespace regatta
