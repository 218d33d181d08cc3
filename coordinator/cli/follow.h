#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/cli/session.h"

namespace regatta {

enum class Interrupt { kDetach, kCancel };  // what Ctrl-C does while following

struct FollowOptions {
  std::vector<int64_t> runs;
  bool show_progress = true;
  Interrupt on_interrupt = Interrupt::kDetach;
  std::optional<double> timeout_seconds;
};

// Follows the runs until all have ended, with a progress bar on a terminal, else a line a change,
// on stderr. Returns the client's exit code: by the worst outcome, kClientStillRunning after the
// time or a detaching Ctrl-C.
[[nodiscard]] absl::StatusOr<int> FollowRuns(Session& session, const FollowOptions& options);

// 10 before 12 before 11; 13 where one has not ended; 0 where all succeeded or were skipped. Pure.
[[nodiscard]] int OutcomeExitCode(const std::vector<std::string>& states);

}  // namespace regatta
