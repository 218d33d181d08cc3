#include "coordinator/run.h"

#include <gtest/gtest.h>

namespace regatta {
namespace {

constexpr RunState kAll[] = {RunState::kPending,   RunState::kStarting,  RunState::kRunning,
                             RunState::kStopping,  RunState::kSucceeded, RunState::kFailed,
                             RunState::kCancelled, RunState::kTimedOut,  RunState::kSkipped};

TEST(RunTest, TerminalStatesAreFinal) {
  for (const RunState from : kAll) {
    for (const RunState to : kAll) {
      EXPECT_FALSE(IsTerminal(from) && CanMove(from, to))
          << StateName(from) << " " << StateName(to);
    }
  }
}

TEST(RunTest, NothingMovesBackToPendingOrSkipsTheQueue) {
  for (const RunState from : kAll) EXPECT_FALSE(CanMove(from, RunState::kPending));
  EXPECT_FALSE(CanMove(RunState::kPending, RunState::kRunning));
  EXPECT_FALSE(CanMove(RunState::kPending, RunState::kSucceeded));
  EXPECT_TRUE(CanMove(RunState::kPending, RunState::kCancelled));
  EXPECT_FALSE(CanMove(RunState::kRunning, RunState::kSkipped));
}

TEST(RunTest, NamesReadBack) {
  for (const RunState state : kAll) EXPECT_EQ(ParseState(StateName(state)), state);
  EXPECT_FALSE(ParseState("DONE").has_value());
}

}  // namespace
}  // namespace regatta
