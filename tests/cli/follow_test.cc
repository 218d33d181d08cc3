#include "coordinator/cli/follow.h"

#include <gtest/gtest.h>

namespace regatta {
namespace {

TEST(FollowTest, TheWorstOutcomeIsTheExitCode) {
  EXPECT_EQ(OutcomeExitCode({"SUCCEEDED", "SKIPPED"}), 0);
  EXPECT_EQ(OutcomeExitCode({"CANCELLED", "TIMED_OUT", "FAILED"}), 10);
  EXPECT_EQ(OutcomeExitCode({"CANCELLED", "TIMED_OUT"}), 12);
  EXPECT_EQ(OutcomeExitCode({"SUCCEEDED", "CANCELLED"}), 11);
  EXPECT_EQ(OutcomeExitCode({"SUCCEEDED", "RUNNING"}), 13);
}

}  // namespace
}  // namespace regatta
