#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

namespace regatta {

using Instant = std::chrono::steady_clock::time_point;

template <typename Point>
[[nodiscard]] int64_t MicrosOf(Point point) {
  return std::chrono::duration_cast<std::chrono::microseconds>(point.time_since_epoch()).count();
}

// UTC as the system's clock has it at this moment.
[[nodiscard]] inline int64_t SystemUnixMicros() {
  return MicrosOf(std::chrono::system_clock::now());
}

// Time for the loop; tests own theirs.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant Now() = 0;         // monotonic: durations and deadlines
  virtual int64_t UnixMicros() = 0;  // UTC: what is stored
};

// UTC that never goes back: where the system's clock is set back, it goes on at the monotonic
// clock's pace; a clock set forward is followed.
class UnixTime {
 public:
  // Both in microseconds, read at the same moment.
  int64_t Read(int64_t system, int64_t monotonic) {
    const int64_t expected = last_ + (monotonic - last_monotonic_);
    behind_ = has_last_ ? expected - system : 0;
    last_ = has_last_ && expected > system ? expected : system;
    last_monotonic_ = monotonic;
    has_last_ = true;
    return last_;
  }
  // How far the system's clock was behind at the last reading; not positive: not at all.
  [[nodiscard]] int64_t SystemIsBehind() const { return behind_; }

 private:
  bool has_last_ = false;
  int64_t last_ = 0;
  int64_t last_monotonic_ = 0;
  int64_t behind_ = 0;
};

// One thread.
class SystemClock : public Clock {
 public:
  // `set_back` is told once how many seconds the system's clock was set back.
  explicit SystemClock(std::function<void(double seconds)> set_back = nullptr)
      : set_back_(std::move(set_back)) {}
  Instant Now() override { return std::chrono::steady_clock::now(); }
  int64_t UnixMicros() override {
    const int64_t now = time_.Read(SystemUnixMicros(), MicrosOf(std::chrono::steady_clock::now()));
    constexpr int64_t kNoise = 1000000;
    if (time_.SystemIsBehind() > kNoise && set_back_ != nullptr) {
      std::exchange(set_back_, nullptr)(static_cast<double>(time_.SystemIsBehind()) / 1e6);
    }
    return now;
  }

 private:
  std::function<void(double)> set_back_;
  UnixTime time_;
};

[[nodiscard]] inline Instant AddSeconds(Instant from, double seconds) {
  return from +
         std::chrono::duration_cast<Instant::duration>(std::chrono::duration<double>(seconds));
}

[[nodiscard]] inline double SecondsBetween(Instant from, Instant to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace regatta
