#include "coordinator/scheduler.h"

#include <gtest/gtest.h>

namespace regatta {
namespace {

using Runs = std::vector<int64_t>;

TEST(SchedulerTest, StartsInOrderWhileSlotsLast) {
  EXPECT_EQ(ChooseStarts({4, {{0, 10, {{1, 2}, {2, 2}, {3, 2}}}}}), (Runs{1, 2}));
}

TEST(SchedulerTest, MaxParallelCountsRunningRuns) {
  EXPECT_EQ(ChooseStarts({100, {{1, 2, {{1, 1}, {2, 1}}}}}), (Runs{1}));
  EXPECT_EQ(ChooseStarts({100, {{2, 2, {{1, 1}}}}}), Runs{});
}

TEST(SchedulerTest, OldestRunOfAllExperimentsGoesFirst) {
  EXPECT_EQ(ChooseStarts({3, {{0, 5, {{4, 1}, {5, 1}}}, {0, 5, {{2, 1}, {6, 1}}}}}),
            (Runs{2, 4, 5}));
}

TEST(SchedulerTest, AWideRunIsNotStarvedByNarrowYoungerOnes) {
  EXPECT_EQ(ChooseStarts({3, {{0, 5, {{1, 4}, {2, 1}}}}}), Runs{});
  EXPECT_EQ(ChooseStarts({3, {{0, 5, {{1, 4}}}, {0, 5, {{2, 1}}}}}), Runs{});
}

TEST(SchedulerTest, AGpuServesOneRun) {
  const QueuedExperiment two_at_once = {0, 5, {{1, 2, 2}, {2, 1, 0}, {3, 1, 1}}};
  EXPECT_EQ(ChooseStarts({8, {two_at_once}, 3}), (Runs{1, 2, 3}));
  EXPECT_EQ(ChooseStarts({8, {two_at_once}, 2}), (Runs{1, 2}));
  EXPECT_EQ(ChooseStarts({8, {two_at_once}, 1}), Runs{});
}

TEST(SchedulerTest, NothingToDo) { EXPECT_EQ(ChooseStarts({3, {}}), Runs{}); }

}  // namespace
}  // namespace regatta
