#pragma once

#include <string>
#include <vector>

namespace regatta {

// One logical core, as the system shows it.
struct Core {
  int id = 0;
  int package = 0;
  int physical = 0;  // of its package: siblings of one physical core share it
};

// Those that this process may run on.
[[nodiscard]] std::vector<Core> MachineCores();

// Hands cores to gangs, so that no two ranks share one. The loop's thread only.
class CorePool {
 public:
  explicit CorePool(std::vector<Core> cores);

  // Disjoint cores for each rank, `threads` of them, where enough are free; else nothing is taken
  // and the answer is empty. While one sibling of each physical core is enough, no physical core
  // serves two ranks; a rank's cores lie close together.
  [[nodiscard]] std::vector<std::vector<int>> Take(int ranks, int threads);
  void GiveBack(const std::vector<int>& cores);

  [[nodiscard]] int Size() const { return static_cast<int>(cores_.size()); }

 private:
  struct Slot {
    Core core;
    bool first_sibling = false;
    bool taken = false;
  };
  std::vector<Slot> cores_;  // by package, physical core, id
};

}  // namespace regatta
