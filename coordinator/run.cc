#include "coordinator/run.h"

#include <array>
#include <utility>

namespace regatta {
namespace {

constexpr std::array<std::pair<RunState, const char*>, 9> kNames = {{
    {RunState::kPending, "PENDING"},
    {RunState::kStarting, "STARTING"},
    {RunState::kRunning, "RUNNING"},
    {RunState::kStopping, "STOPPING"},
    {RunState::kSucceeded, "SUCCEEDED"},
    {RunState::kFailed, "FAILED"},
    {RunState::kCancelled, "CANCELLED"},
    {RunState::kTimedOut, "TIMED_OUT"},
    {RunState::kSkipped, "SKIPPED"},
}};

}  // namespace

const char* StateName(RunState state) {
  for (const auto& [known, name] : kNames) {
    if (known == state) return name;
  }
  return "";
}

std::optional<RunState> ParseState(std::string_view name) {
  for (const auto& [state, known] : kNames) {
    if (name == known) return state;
  }
  return std::nullopt;
}

bool IsTerminal(RunState state) { return state >= RunState::kSucceeded; }

bool CanMove(RunState from, RunState to) {
  switch (from) {
    case RunState::kPending:
      return to == RunState::kStarting || (IsTerminal(to) && to != RunState::kSucceeded);
    case RunState::kStarting:
      return to == RunState::kRunning || to == RunState::kStopping ||
             (IsTerminal(to) && to != RunState::kSkipped);
    case RunState::kRunning:
      return to == RunState::kStopping || (IsTerminal(to) && to != RunState::kSkipped);
    case RunState::kStopping:
      return IsTerminal(to) && to != RunState::kSkipped;
    default:
      return false;
  }
}

}  // namespace regatta
