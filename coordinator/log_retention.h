#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/run.h"

namespace regatta {

// How much of the logs of ended attempts is kept; 0: without limit.
struct RetentionLimits {
  double max_age_seconds = 0;
  int64_t max_bytes = 0;
};

// The logs of one ended attempt.
struct KeptLogs {
  std::string folder;
  int64_t ended_us = 0;  // UTC
  int64_t bytes = 0;
};

// Those to remove: what is older than the limit, then the oldest until the rest fits. Pure.
[[nodiscard]] std::vector<KeptLogs> ChooseExpired(std::vector<KeptLogs> kept,
                                                  const RetentionLimits& limits, int64_t now_us);

// Removes the logs of ended attempts below STATE/runs by these limits, once; what is left of an
// attempt then says so. `is_live` tells which attempts are under way. Returns the bytes removed.
int64_t RemoveExpiredLogs(const std::string& state_folder, const RetentionLimits& limits,
                          const std::function<bool(AttemptKey)>& is_live);

// Does so at once and every ten minutes, on a thread of its own, where there is a limit.
class LogRetention {
 public:
  LogRetention(std::string state_folder, RetentionLimits limits,
               std::function<bool(AttemptKey)> is_live);
  ~LogRetention();
  LogRetention(const LogRetention&) = delete;
  LogRetention& operator=(const LogRetention&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace regatta
