#pragma once

#include <chrono>
#include <cstdint>

namespace regatta {

using Instant = std::chrono::steady_clock::time_point;

// Time for the loop; tests own theirs.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant Now() = 0;         // monotonic: durations and deadlines
  virtual int64_t UnixMicros() = 0;  // UTC: what is stored
};

class SystemClock : public Clock {
 public:
  Instant Now() override { return std::chrono::steady_clock::now(); }
  int64_t UnixMicros() override {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
};

[[nodiscard]] inline Instant AddSeconds(Instant from, double seconds) {
  return from +
         std::chrono::duration_cast<Instant::duration>(std::chrono::duration<double>(seconds));
}

[[nodiscard]] inline double SecondsBetween(Instant from, Instant to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace regatta
