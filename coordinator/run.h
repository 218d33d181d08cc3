#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace regatta {

// States of a run. Terminal states are final.
//
//   PENDING ─► STARTING ─► RUNNING ─► STOPPING ─► SUCCEEDED | FAILED | CANCELLED | TIMED_OUT
//      │          │           └──────────────────►    (a gang that ended by itself skips STOPPING)
//      │          └─► STOPPING or a terminal state
//      └─► CANCELLED | SKIPPED | TIMED_OUT (in the queue) | FAILED (no material)
enum class RunState {
  kPending,
  kStarting,  // spawned, ranks join
  kRunning,
  kStopping,
  kSucceeded,
  kFailed,
  kCancelled,
  kTimedOut,
  kSkipped
};

[[nodiscard]] const char* StateName(RunState state);
[[nodiscard]] std::optional<RunState> ParseState(std::string_view name);
[[nodiscard]] bool IsTerminal(RunState state);
[[nodiscard]] bool CanMove(RunState from, RunState to);

// Names one try of a run everywhere: in the rendezvous, in events, towards the launcher.
struct AttemptKey {
  long run = 0;
  int attempt = 0;
  auto operator<=>(const AttemptKey&) const = default;
};

}  // namespace regatta
