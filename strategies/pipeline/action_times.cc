#include "strategies/pipeline/action_times.h"

#include <algorithm>

namespace regatta {
namespace {

constexpr size_t kKept = 1024;

const char* NameOf(ActionKind kind) {
  if (kind == ActionKind::kForward) return "forward";
  return kind == ActionKind::kBackwardWeight ? "backward_weight" : "backward";
}

}  // namespace

void Latest::Add(double value) {
  if (values_.size() < kKept) return values_.push_back(value);
  values_[next_] = value;
  next_ = (next_ + 1) % kKept;
}

double Latest::Median() const {
  if (values_.empty()) return 0;
  std::vector<double> values = values_;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void ActionTimes::Add(const Action& action, double wall_seconds, double cpu_seconds) {
  Times& times = times_[{action.kind, action.stage}];
  times.wall.Add(wall_seconds);
  times.cpu.Add(cpu_seconds);
  busy_since_ += wall_seconds;
}

void ActionTimes::EndStep(double wall_seconds) {
  steps_.Add(wall_seconds);
  busy_.Add(std::exchange(busy_since_, 0));
}

ActionTimes::Values ActionTimes::Medians() const {
  Values values;
  for (const auto& [key, times] : times_) {
    const std::string name = "stage_" + std::to_string(key.second) + "_" + NameOf(key.first);
    values.emplace_back(name + "_wall_seconds", times.wall.Median());
    values.emplace_back(name + "_cpu_seconds", times.cpu.Median());
  }
  return values;
}

StageCosts ActionTimes::CostsOf(int stage) const {
  StageCosts costs{0, 0, 0};
  for (const auto& [key, times] : times_) {
    if (key.second != stage) continue;
    double& cost = key.first == ActionKind::kForward          ? costs.forward
                   : key.first == ActionKind::kBackwardWeight ? costs.backward_weight
                                                              : costs.backward_input;
    cost = times.cpu.Median();
  }
  return costs;
}

}  // namespace regatta
