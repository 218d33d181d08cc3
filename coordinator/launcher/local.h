#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/launcher/launcher.h"
#include "coordinator/mutex.h"

namespace regatta {

struct LocalOptions {
  std::string supervisor_program;   // regattad itself
  std::string worker_program;       // what a rank runs
  std::string coordinator_address;  // where ranks call
  int grace_ms = 3000;              // between TERM and KILL
  int give_up_ms = 10000;           // after KILL: then a rank counts as stuck
};

// Gangs on this machine: one supervisor process each, watched by one thread (pidfds for its end,
// inotify for what it writes to FOLDER/exits).
class LocalLauncher : public Launcher {
 public:
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<LocalLauncher>> Make(LocalOptions options,
                                                                           LaunchListener listener);
  ~LocalLauncher() override;  // does not end gangs
  LocalLauncher(const LocalLauncher&) = delete;
  LocalLauncher& operator=(const LocalLauncher&) = delete;

  absl::Status Start(const LaunchRequest& request) override;
  void Stop(int64_t run, int attempt) override;

  // Ends a gang that an earlier daemon left, and waits for that, at most `seconds`; and whatever it
  // started that is still there.
  [[nodiscard]] static absl::Status EndLeftover(const std::string& folder, int seconds);

 private:
  struct Gang {
    int64_t run;
    int attempt;
    std::string folder;
    std::string token;
    pid_t supervisor;
    int pidfd;
    int watch;                              // inotify's
    size_t exits_read = 0;                  // bytes of FOLDER/exits already told
    std::map<int, std::string> stuck = {};  // ranks that do not end: their process's identity
  };
  struct StuckRank {
    int64_t run;
    int attempt;
    int rank;
  };

  LocalLauncher(LocalOptions options, LaunchListener listener);
  void Watch();
  Gang* FindGang(int watch);
  void ReadExits(Gang& gang);
  void EndGang(int pidfd);
  void WatchStuckRanks(const Gang& gang);
  void TellUnstuck(int pidfd);

  const LocalOptions options_;
  const LaunchListener listener_;
  int inotify_ = -1;
  int epoll_ = -1;
  int wake_ = -1;  // eventfd: the destructor's
  std::thread thread_;
  Mutex mutex_;
  std::map<int, Gang> gangs_ REGATTA_GUARDED_BY(mutex_);  // by pidfd
  std::map<int, StuckRank> stuck_;                        // by pidfd; the watching thread's
};

}  // namespace regatta
