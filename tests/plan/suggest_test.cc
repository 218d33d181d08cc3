#include "strategies/plan/suggest.h"

#include <gtest/gtest.h>

namespace regatta {
namespace {

TEST(SuggestTest, FindsTheNameOneSlipAway) {
  EXPECT_EQ(NearestName("zreo1", {"zero1", "zero2", "simple_ddp"}), "zero1");
  EXPECT_EQ(NearestName("modle", {"model", "dataset"}), "model");
}

TEST(SuggestTest, SuggestsNothingFarAway) {
  EXPECT_EQ(NearestName("pipeline", {"single", "simple_ddp"}), "");
}

TEST(SuggestTest, ListsAllNamesWhereNoneIsNear) {
  EXPECT_EQ(SuggestName("xyz", {"single", "simple_ddp"}), "; known: single, simple_ddp");
  EXPECT_EQ(SuggestName("singel", {"single", "simple_ddp"}), "; did you mean 'single'?");
}

TEST(SuggestTest, EmptyNameAndEmptyTable) {
  EXPECT_EQ(NearestName("", {"single"}), "");
  EXPECT_EQ(NearestName("single", {}), "");
}

}  // namespace
}  // namespace regatta
