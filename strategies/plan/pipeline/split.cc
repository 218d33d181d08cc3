#include "strategies/plan/pipeline/split.h"

#include <algorithm>
#include <limits>
#include <set>

namespace regatta {
namespace {

std::string ListText(const std::vector<int>& values) {
  std::string text;
  for (const int value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return "[" + text + "]";
}

std::vector<int> SplitEvenly(int layers, int stages) {
  std::vector<int> firsts = {0};
  int block = 1;  // after the embedding
  for (int stage = 0; stage + 1 < stages; ++stage) {
    block += layers / stages + (stage < layers % stages ? 1 : 0);
    firsts.push_back(block);
  }
  return firsts;
}

// least[s][b]: the cost of the most expensive of s + 1 stages over the first b blocks, at best.
std::vector<int> SplitByCost(const std::vector<double>& costs, int stages) {
  const size_t blocks = costs.size();
  std::vector<double> until = {0};
  for (const double cost : costs) until.push_back(until.back() + cost);
  std::vector<std::vector<double>> least(static_cast<size_t>(stages), until);
  std::vector<std::vector<size_t>> last_first(least.size(), std::vector<size_t>(blocks + 1));
  for (size_t s = 1; s < least.size(); ++s) {
    for (size_t b = s + 1; b <= blocks; ++b) {
      least[s][b] = std::numeric_limits<double>::infinity();
      for (size_t first = s; first < b; ++first) {
        const double worst = std::max(least[s - 1][first], until[b] - until[first]);
        if (worst >= least[s][b]) continue;
        least[s][b] = worst;
        last_first[s][b] = first;
      }
    }
  }
  std::vector<int> firsts;
  size_t end = blocks;
  for (size_t s = least.size(); s-- > 0;) {
    end = last_first[s][end];
    firsts.push_back(static_cast<int>(end));
  }
  std::reverse(firsts.begin(), firsts.end());
  return firsts;
}

std::variant<std::vector<int>, std::string> SplitAt(const std::vector<int>& cut_points, int blocks,
                                                    int stages) {
  const std::string is = "split is " + ListText(cut_points) + "; ";
  if (static_cast<int>(cut_points.size()) != stages - 1) {
    return is + std::to_string(stages) + " stages have " + std::to_string(stages - 1) +
           " cut points, not " + std::to_string(cut_points.size());
  }
  const std::set<int> sorted(cut_points.begin(), cut_points.end());
  if (*sorted.begin() < 1 || *sorted.rbegin() >= blocks) {
    return is + "the model's " + std::to_string(blocks) +
           " blocks are cut before a block from 1 to " + std::to_string(blocks - 1);
  }
  const std::vector<int> right(sorted.begin(), sorted.end());
  if (right.size() != cut_points.size()) return is + "each cut point once is right";
  if (right != cut_points) return is + ListText(right) + " is right: cut points ascend";
  std::vector<int> firsts = {0};
  firsts.insert(firsts.end(), cut_points.begin(), cut_points.end());
  return firsts;
}

}  // namespace

std::vector<double> BlockElements(const std::vector<ParameterSize>& parameters) {
  std::vector<double> elements;
  for (const ParameterSize& parameter : parameters) {
    const size_t block = parameter.blocks.at(0);
    elements.resize(std::max(elements.size(), block + 1));
    elements[block] += static_cast<double>(parameter.elements);
  }
  return elements;
}

int StageOf(const std::vector<int>& first_blocks, size_t block) {
  const auto after =
      std::upper_bound(first_blocks.begin(), first_blocks.end(), static_cast<int>(block));
  return static_cast<int>(after - first_blocks.begin()) - 1;
}

std::variant<std::vector<int>, std::string> SplitBlocks(const SplitPlan& plan,
                                                        const std::vector<double>& block_costs,
                                                        int stages) {
  const int blocks = static_cast<int>(block_costs.size());
  const bool even = plan.kind == SplitKind::kEven;
  const int most = even ? blocks - 2 : blocks;
  if (stages > most) {
    return "a model of " + std::to_string(most) + (even ? " layers" : " blocks") +
           " cannot be cut into " + std::to_string(stages) + " stages; " + std::to_string(most) +
           " or fewer is right";
  }
  if (even) return SplitEvenly(blocks - 2, stages);
  if (plan.kind == SplitKind::kAtCutPoints) return SplitAt(plan.cut_points, blocks, stages);
  return SplitByCost(block_costs, stages);
}

}  // namespace regatta
