#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "strategies/plan/pipeline/simulate.h"

namespace regatta {

// How long actions took on this rank, by kind and stage: the latest of them.
class ActionTimes {
 public:
  using Values = std::vector<std::pair<std::string, double>>;

  void Add(const Action& action, double wall_seconds, double cpu_seconds);
  // By the clock and of this thread's processor time, the medians: "stage_0_forward_wall_seconds".
  [[nodiscard]] Values Medians() const;
  // Of processor time. A whole backward counts as that of inputs.
  [[nodiscard]] StageCosts CostsOf(int stage) const;

 private:
  struct Samples {
    std::vector<double> wall;
    std::vector<double> cpu;
    size_t next = 0;  // place to write to, once all are taken
  };
  std::map<std::pair<ActionKind, int>, Samples> samples_;
};

// 0 where there are none.
[[nodiscard]] double Median(std::vector<double> values);

}  // namespace regatta
