#include "coordinator/core_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace regatta {
namespace {

using Cores = std::vector<std::vector<int>>;

// Two packages of two physical cores with two siblings, numbered as Linux does: siblings last.
std::vector<Core> TwoPackages() {
  std::vector<Core> cores;
  for (int id = 0; id < 8; ++id) cores.push_back({id, id / 2 % 2, id % 2});
  return cores;
}

TEST(CorePoolTest, RanksGetPhysicalCoresOfTheirOwnWhileThereAreEnough) {
  CorePool pool(TwoPackages());
  EXPECT_EQ(pool.Take(2, 2), (Cores{{0, 1}, {2, 3}}));
  EXPECT_EQ(pool.Take(2, 2), (Cores{{4, 5}, {6, 7}})) << "then siblings";
  EXPECT_EQ(pool.Take(1, 1), Cores()) << "then nothing";
}

TEST(CorePoolTest, ARankThatNeedsMoreThanPhysicalCoresKeepsSiblingsTogether) {
  CorePool pool(TwoPackages());
  EXPECT_EQ(pool.Take(4, 2), (Cores{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(CorePoolTest, WhatIsGivenBackCanBeTakenAgain) {
  CorePool pool({{0, 0, 0}, {1, 0, 1}});
  EXPECT_EQ(pool.Take(3, 1), Cores()) << "three ranks do not fit on two cores; nothing is taken";
  EXPECT_EQ(pool.Take(2, 1), (Cores{{0}, {1}}));
  EXPECT_EQ(pool.Take(1, 1), Cores());
  pool.GiveBack({1});
  EXPECT_EQ(pool.Take(1, 1), (Cores{{1}}));
}

TEST(CorePoolTest, TheMachinesCoresAreThoseThatThisProcessMayUse) {
  std::set<int> ids;
  for (const Core& core : MachineCores()) ids.insert(core.id);
  EXPECT_FALSE(ids.empty());
  EXPECT_EQ(ids.size(), MachineCores().size());
}

}  // namespace
}  // namespace regatta
