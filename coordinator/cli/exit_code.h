#pragma once

#include <absl/status/status.h>

namespace regatta {

// What the client's exit code says; fixed by docs/design.md.
enum ClientExit : int {
  kClientOk = 0,
  kClientError = 1,
  kClientUsage = 2,
  kClientInvalid = 3,  // the experiment file is wrong
  kClientNoCoordinator = 4,
  kClientNotFound = 5,
  kClientRunFailed = 10,
  kClientRunCancelled = 11,
  kClientRunTimedOut = 12,
  kClientStillRunning = 13
};

[[nodiscard]] inline int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kClientOk;
    case absl::StatusCode::kUnavailable:
      return kClientNoCoordinator;
    case absl::StatusCode::kNotFound:
      return kClientNotFound;
    default:
      return kClientError;
  }
}

}  // namespace regatta
