#pragma once

#include <chrono>
#include <cstdint>

namespace regatta {

// What a strategy tells about itself while it works. Times add up until the reader sets them to
// zero; bytes are of this rank and hold after the step.
struct Observation {
  double forward_seconds = 0;
  double backward_seconds = 0;
  double exposed_communication_seconds = 0;  // time in which this rank only waited for collectives
  double optimizer_seconds = 0;
  double gradient_norm = 0;    // of the whole mean gradient, before clipping; 0 where none is asked
  int64_t launched_early = 0;  // collectives of the step launched before backward's last gradient
  int64_t parameter_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;
};

// Adds the time of a scope to a sum.
class ScopedSeconds {
 public:
  explicit ScopedSeconds(double& sum) : sum_(sum), start_(std::chrono::steady_clock::now()) {}
  ~ScopedSeconds() {
    sum_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  ScopedSeconds(const ScopedSeconds&) = delete;
  ScopedSeconds& operator=(const ScopedSeconds&) = delete;

 private:
  double& sum_;
  const std::chrono::steady_clock::time_point start_;
};

}  // namespace regatta
