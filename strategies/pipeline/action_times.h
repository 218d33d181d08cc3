#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "strategies/plan/pipeline/simulate.h"

namespace regatta {

// The latest of many numbers.
class Latest {
 public:
  void Add(double value);
  // 0 where there are none.
  [[nodiscard]] double Median() const;

 private:
  std::vector<double> values_;
  size_t next_ = 0;  // place to write to, once all are taken
};

// How long this rank's actions and steps took, in seconds.
class ActionTimes {
 public:
  using Values = std::vector<std::pair<std::string, double>>;

  void Add(const Action& action, double wall_seconds, double cpu_seconds);
  // Of all actions since the last one.
  void EndStep(double wall_seconds);

  // Medians by kind and stage, by the clock and of this thread's processor time:
  // "stage_0_forward_wall_seconds".
  [[nodiscard]] Values Medians() const;
  // Of processor time. A whole backward counts as that of inputs.
  [[nodiscard]] StageCosts CostsOf(int stage) const;
  [[nodiscard]] double StepSeconds() const { return steps_.Median(); }
  // In which actions worked, by the clock, a step.
  [[nodiscard]] double BusySeconds() const { return busy_.Median(); }

 private:
  struct Times {
    Latest wall;
    Latest cpu;
  };
  std::map<std::pair<ActionKind, int>, Times> times_;
  Latest steps_;
  Latest busy_;
  double busy_since_ = 0;
};

}  // namespace regatta
