#include "strategies/pipeline/action_times.h"

#include <algorithm>

namespace regatta {
namespace {

constexpr size_t kKept = 1024;  // of each kind and stage

const char* NameOf(ActionKind kind) {
  if (kind == ActionKind::kForward) return "forward";
  return kind == ActionKind::kBackwardWeight ? "backward_weight" : "backward";
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void ActionTimes::Add(const Action& action, double wall_seconds, double cpu_seconds) {
  Samples& samples = samples_[{action.kind, action.stage}];
  if (samples.wall.size() < kKept) {
    samples.wall.push_back(wall_seconds);
    samples.cpu.push_back(cpu_seconds);
    return;
  }
  samples.wall[samples.next] = wall_seconds;
  samples.cpu[samples.next] = cpu_seconds;
  samples.next = (samples.next + 1) % kKept;
}

ActionTimes::Values ActionTimes::Medians() const {
  Values values;
  for (const auto& [key, samples] : samples_) {
    const std::string name = "stage_" + std::to_string(key.second) + "_" + NameOf(key.first);
    values.emplace_back(name + "_wall_seconds", Median(samples.wall));
    values.emplace_back(name + "_cpu_seconds", Median(samples.cpu));
  }
  return values;
}

StageCosts ActionTimes::CostsOf(int stage) const {
  StageCosts costs{0, 0, 0};
  for (const auto& [key, samples] : samples_) {
    if (key.second != stage) continue;
    double& cost = key.first == ActionKind::kForward          ? costs.forward
                   : key.first == ActionKind::kBackwardWeight ? costs.backward_weight
                                                              : costs.backward_input;
    cost = Median(samples.cpu);
  }
  return costs;
}

}  // namespace regatta
