#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace regatta {

// What a strategy tells about itself while it works. Times add up and peaks grow until the reader
// sets them to zero; other bytes are of this rank and hold after the step.
struct Observation {
  // The most bytes that tensors took since it was asked last; null: nobody counts.
  int64_t (*take_peak_bytes)() = nullptr;
  int64_t forward_peak_bytes = 0;
  int64_t backward_peak_bytes = 0;
  int64_t optimizer_peak_bytes = 0;

  // False where the caller only launches what a device does later: then times of a step's parts
  // mean nothing, and traces tell.
  bool times_parts = true;
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

// Processor time of the calling thread since it began.
inline double ThreadCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

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

// Adds the time of a phase, and keeps the most memory that it took.
class ScopedPhase {
 public:
  ScopedPhase(const Observation& observation, double& seconds, int64_t& peak_bytes)
      : take_peak_bytes_(observation.take_peak_bytes), peak_bytes_(peak_bytes), time_(seconds) {
    if (take_peak_bytes_ != nullptr) take_peak_bytes_();
  }
  ~ScopedPhase() {
    if (take_peak_bytes_ != nullptr) peak_bytes_ = std::max(peak_bytes_, take_peak_bytes_());
  }
  ScopedPhase(const ScopedPhase&) = delete;
  ScopedPhase& operator=(const ScopedPhase&) = delete;

 private:
  int64_t (*const take_peak_bytes_)();
  int64_t& peak_bytes_;
  const ScopedSeconds time_;
};

}  // namespace regatta
