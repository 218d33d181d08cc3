#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/run.h"

namespace regatta {

// Why the coordinator ended an attempt that had not ended by itself.
enum class StopCause {
  kNone,
  kRankFailed,
  kJoinTimeout,
  kCancelled,
  kTimeLimit,
  kSpawn,
  kDaemonStop
};

// What is known of one rank when its attempt is over.
struct RankFate {
  bool joined = false;
  bool finished = false;  // sent its result
  bool finished_ok = false;
  int announced_exit_code = 0;     // with its result
  std::string sentence;            // its own words where it failed, else the last line of its log
  int64_t oom_kills = 0;           // of its processes, by the system's out-of-memory killer
  int64_t stuck_pid = 0;           // it was killed and does not end; 0: no such thing
  std::optional<int> wait_status;  // raw, as wait(2) gave it
  bool killed = false;             // ended after the coordinator had it signalled
  int bad_news_order = 0;  // 1 for the first rank that was seen to fail, then 2, ...; 0: never
};

struct AttemptFate {
  std::vector<RankFate> ranks;
  StopCause stop = StopCause::kNone;
  std::string stop_sentence;
};

struct Outcome {
  RunState state = RunState::kFailed;
  std::string reason;    // one word for machines
  std::string sentence;  // for people; names the first failing rank
  int failed_rank = -1;  // that one; -1: none
};

// Whether this rank did all it should: a good result and exit code 0.
[[nodiscard]] bool RankSucceeded(const RankFate& rank);

// "exited with code 3", "was killed by signal 11 (Segmentation fault)", ...
[[nodiscard]] std::string DescribeExit(const RankFate& rank);

// The only place where an attempt's outcome is decided. Pure.
[[nodiscard]] Outcome DecideOutcome(const AttemptFate& fate);

}  // namespace regatta
