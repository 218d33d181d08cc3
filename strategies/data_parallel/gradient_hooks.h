#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "strategies/model.h"

namespace regatta {

// Watches that backward makes the gradient of each parameter, exactly once, in the one backward of
// a step that counts. The only file that installs LibTorch's hooks. Hooks run on backward's thread,
// which on a CPU is the caller's.
class GradientHooks {
 public:
  // `ready` is called with a parameter's index once its gradient has been added up, in the backward
  // after Arm alone; it may be empty.
  GradientHooks(std::vector<NamedTensor> parameters, std::function<void(size_t)> ready);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  // The next backward is the one that counts.
  void Arm();
  // Throws, naming the parameter, where the armed backward left one out. Harmless when not armed.
  void Check();

  // Gradients that the armed backward has not made yet.
  [[nodiscard]] size_t Missing() const { return missing_; }
  // When the last one came.
  [[nodiscard]] std::chrono::steady_clock::time_point LastCame() const { return last_came_; }

 private:
  void OnGradient(size_t i);

  const std::vector<NamedTensor> parameters_;
  const std::function<void(size_t)> ready_;
  std::vector<bool> came_;  // by parameter
  size_t missing_ = 0;
  bool armed_ = false;
  std::chrono::steady_clock::time_point last_came_;
};

}  // namespace regatta
