#include "worker/chaos/fault.h"

#include <gtest/gtest.h>

namespace regatta {
namespace {

using Kind = FaultAction::Kind;

TEST(FaultTest, ReadsEveryWord) {
  struct Case {
    const char* text;
    Kind kind;
    double number;
  };
  const Case cases[] = {{"exit 0", Kind::kExit, 0},
                        {"exit 255", Kind::kExit, 255},
                        {"signal 11", Kind::kSignal, 11},
                        {"hang", Kind::kHang, 0},
                        {"ignore_term", Kind::kIgnoreTerm, 0},
                        {"stop", Kind::kStop, 0},
                        {"setsid_child", Kind::kSetsidChild, 0},
                        {"slow 1.5s", Kind::kSlow, 1.5},
                        {"slow 20ms", Kind::kSlow, 0.02},
                        {"slow 2m", Kind::kSlow, 120},
                        {"allocate 512MiB", Kind::kAllocate, 512.0 * (1 << 20)}};
  for (const Case& c : cases) {
    const auto action = ParseFault(c.text);
    ASSERT_TRUE(action) << c.text;
    EXPECT_EQ(action->kind, c.kind) << c.text;
    EXPECT_DOUBLE_EQ(action->number, c.number) << c.text;
  }
}

TEST(FaultTest, RefusesWhatIsNoFault) {
  for (const char* text : {"", "exit", "exit ", "exit 256", "exit -1", "exit 1.5", "exit 3 ",
                           "signal 0", "signal 65", "hang 3", "slow 5", "slow s", "slow nans",
                           "allocate 5", "allocate -1MiB", "explode", "Exit 3"}) {
    EXPECT_FALSE(ParseFault(text)) << text;
  }
}

TEST(FaultTest, OnlyTheRanksOwnFaultsOfTheMomentHappen) {
  const Chaos chaos({{1, 3, "exit 7"}, {0, 4, "exit 8"}}, 0);
  chaos.At(3);
  EXPECT_EXIT(chaos.At(4), testing::ExitedWithCode(8), "");
  EXPECT_EXIT(Chaos({{0, kAfterFinish, "signal 9"}}, 0).At(kAfterFinish),
              testing::KilledBySignal(9), "");
}

}  // namespace
}  // namespace regatta
