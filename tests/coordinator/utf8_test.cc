#include "coordinator/utf8.h"

#include <gtest/gtest.h>

namespace regatta {
namespace {

TEST(Utf8Test, WellFormedTextIsKept) {
  for (const std::string text :
       {"", "plain", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xEF\xBF\xBD"}) {
    EXPECT_EQ(ReplaceInvalidUtf8(text), text);
  }
  EXPECT_EQ(ReplaceInvalidUtf8(std::string("a\0b", 3)), std::string("a\0b", 3));
}

TEST(Utf8Test, EveryBadByteIsReplaced) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(ReplaceInvalidUtf8("\xFFhalf \xC3"), bad + "half " + bad);
  EXPECT_EQ(ReplaceInvalidUtf8("\xC0\xAF"), bad + bad) << "overlong";
  EXPECT_EQ(ReplaceInvalidUtf8("\xED\xA0\x80"), bad + bad + bad) << "surrogate";
  EXPECT_EQ(ReplaceInvalidUtf8("\xF5\x80\x80\x80"), bad + bad + bad + bad) << "beyond Unicode";
  EXPECT_EQ(ReplaceInvalidUtf8("\xE2\x82"), bad + bad) << "cut off";
}

}  // namespace
}  // namespace regatta
