#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace regatta {

// One gang to start.
struct LaunchRequest {
  int64_t run = 0;
  int attempt = 0;
  int ranks = 1;
  int threads_per_rank = 1;
  std::string folder;                                   // absolute; exists; logs and exits go here
  std::string token;                                    // what the ranks show when they call
  std::map<std::string, std::string> environment = {};  // of every rank
  std::map<int, std::map<std::string, std::string>> rank_environment = {};  // of one rank alone
  std::map<std::string, std::string> secrets = {};  // the same, but never in a file of the run
  std::vector<std::vector<int>> cores = {};         // by rank: where it is pinned; empty: nowhere
};

// How one rank ended.
struct RankExit {
  int rank = 0;
  int wait_status = 0;    // raw, as wait(2) gave it
  bool killed = false;    // after the launcher had signalled it
  int64_t oom_kills = 0;  // processes of it that the out-of-memory killer took, where that is known
  std::string last_lines;  // the end of its log, where it did not exit well
};

// What a launcher tells. Called on the launcher's own thread, for one gang in order; Gone is the
// last, but for ranks that end only then.
struct LaunchListener {
  std::function<void(int64_t run, int attempt, int rank, int64_t pid)> spawned;
  std::function<void(int64_t run, int attempt, RankExit exit)> exited;
  // A rank was killed and does not end: told before Gone, and after it once it has ended.
  std::function<void(int64_t run, int attempt, int rank, int64_t pid)> stuck;
  std::function<void(int64_t run, int attempt, int rank)> unstuck;
  std::function<void(int64_t run, int attempt)> gone;
};

// Starts and ends gangs of rank processes.
class Launcher {
 public:
  virtual ~Launcher() = default;
  // On error nothing was started and the listener will not hear of this gang.
  [[nodiscard]] virtual absl::Status Start(const LaunchRequest& request) = 0;
  // Ends the gang: TERM, then KILL after the grace time. Harmless for one that is gone. Returns at
  // once.
  virtual void Stop(int64_t run, int attempt) = 0;
};

}  // namespace regatta
