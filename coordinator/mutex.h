#pragma once

#include <condition_variable>
#include <mutex>

// Clang's thread-safety analysis over the standard mutex (the thread sanitizer knows that one).
#if defined(__clang__)
#define REGATTA_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define REGATTA_THREAD_ANNOTATION(x)
#endif
#define REGATTA_GUARDED_BY(x) REGATTA_THREAD_ANNOTATION(guarded_by(x))
#define REGATTA_REQUIRES(x) REGATTA_THREAD_ANNOTATION(requires_capability(x))

namespace regatta {

class REGATTA_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() REGATTA_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() REGATTA_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

// Holds the mutex for a scope; a std::condition_variable_any waits on it.
class REGATTA_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) REGATTA_THREAD_ANNOTATION(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() REGATTA_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace regatta
