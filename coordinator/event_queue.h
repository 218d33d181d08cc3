#pragma once

#include <condition_variable>
#include <optional>
#include <utility>
#include <vector>

#include "coordinator/clock.h"
#include "coordinator/event.h"
#include "coordinator/mutex.h"

namespace regatta {

// The only door into the loop. Any thread posts; one thread takes.
class EventQueue {
 public:
  void Post(Event event) {
    {
      MutexLock lock(mutex_);
      events_.push_back(std::move(event));
    }
    wake_.notify_one();
  }

  // All waiting events in order; waits for the first one, or until the deadline (then it may be
  // empty).
  [[nodiscard]] std::vector<Event> Take(std::optional<Instant> deadline) {
    MutexLock lock(mutex_);
    while (events_.empty()) {
      if (!deadline) {
        wake_.wait(mutex_);
      } else if (wake_.wait_until(mutex_, *deadline) == std::cv_status::timeout) {
        break;
      }
    }
    return std::exchange(events_, {});
  }

 private:
  Mutex mutex_;
  std::condition_variable_any wake_;
  std::vector<Event> events_ REGATTA_GUARDED_BY(mutex_);
};

}  // namespace regatta
