#include "coordinator/clock.h"

#include <gtest/gtest.h>

namespace regatta {
namespace {

TEST(UnixTimeTest, GoesOnWhenTheSystemsClockIsSetBack) {
  UnixTime time;
  EXPECT_EQ(time.Read(1000, 10), 1000);
  EXPECT_EQ(time.Read(1100, 110), 1100);
  EXPECT_EQ(time.Read(400, 210), 1200) << "set back by 800: durations stay right";
  EXPECT_EQ(time.SystemIsBehind(), 800);
  EXPECT_EQ(time.Read(500, 310), 1300);
}

TEST(UnixTimeTest, FollowsAClockThatIsSetForward) {
  UnixTime time;
  EXPECT_EQ(time.Read(1000, 10), 1000);
  EXPECT_EQ(time.Read(5000, 20), 5000);
  EXPECT_EQ(time.Read(5010, 30), 5010);
  EXPECT_LE(time.SystemIsBehind(), 0);
}

}  // namespace
}  // namespace regatta
