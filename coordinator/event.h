#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/experiment/experiment.h"
#include "coordinator/launcher/launcher.h"
#include "coordinator/run.h"
#include "coordinator/store/changes.h"

namespace regatta {

// ---- Everything that can happen to the loop ----

// From the client; `reply` is called once, on the loop thread, when the change is on disk.
struct Submitted {
  Experiment experiment;
  std::string token;
  struct Ids {
    int64_t experiment = 0;
    std::vector<int64_t> runs;
  };
  std::function<void(absl::StatusOr<Ids>)> reply;
};
struct CancelWanted {
  std::vector<int64_t> runs;
  std::vector<int64_t> experiments;
  struct Counts {
    int64_t cancelled = 0;
    int64_t already_ended = 0;
  };
  std::function<void(absl::StatusOr<Counts>)> reply;
};
struct AwaitWanted {  // answered at the first commit after `after_commit`, or at the deadline
  int64_t after_commit;
  double timeout_seconds;
  std::function<void(int64_t commit)> reply;
};

// From ranks, through the rendezvous, which has checked who calls.
struct RankJoined {
  AttemptKey key;
  int rank;
  NamedTexts facts;
};
struct AllJoined {
  AttemptKey key;
};
struct RankReported {
  AttemptKey key;
  int rank;
  int64_t planned_steps;
  std::vector<std::pair<int64_t, NamedNumbers>> steps;
  std::vector<Trace> traces;
};
struct RankFinished {
  AttemptKey key;
  int rank;
  bool ok;
  std::string sentence;
  int exit_code;  // announced
  NamedNumbers values;
  NamedTexts facts;
  std::function<void()> reply;
};

// From the launcher.
struct RankSpawned {
  AttemptKey key;
  int rank;
  int64_t pid;
};
struct RankExited {
  AttemptKey key;
  RankExit exit;
};
struct RankStuck {  // it was killed and does not end
  AttemptKey key;
  int rank;
  int64_t pid;
};
struct RankUnstuck {  // it has ended after all, before or after its gang counted as gone
  AttemptKey key;
  int rank;
};
struct GangGone {  // the supervisor has ended; every exit it saw was told before
  AttemptKey key;
  absl::Status status;  // not ok: it never started
};

// From the preparer.
struct Prepared {
  std::string word;
  absl::Status status;
};

// From the writer.
struct Committed {
  int64_t batch;
  absl::Status status;
};

// From main.
struct ShutdownWanted {};

using Event = std::variant<Submitted, CancelWanted, AwaitWanted, RankJoined, AllJoined,
                           RankReported, RankFinished, RankSpawned, RankExited, RankStuck,
                           RankUnstuck, GangGone, Prepared, Committed, ShutdownWanted>;

}  // namespace regatta
