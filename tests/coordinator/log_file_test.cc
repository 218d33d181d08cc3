#include "coordinator/log_file.h"

#include <gtest/gtest.h>

#include "tests/testing/temporary_folder.h"

namespace regatta {
namespace {

TEST(LogFileTest, ReadsPiecesFromTheFrontAndFromTheEnd) {
  TemporaryFolder folder;
  folder.Write("runs/3/attempt_1/rank_0.log", "old");
  folder.Write("runs/3/attempt_10/rank_0.log", std::string("half \xC3\0 byte\n", 13));
  const auto all = ReadLogChunk(folder.Path(), {3, 0, 0, 0});
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->data, std::string("half \xC3\0 byte\n", 13)) << "the latest attempt, every byte";
  EXPECT_EQ(all->next_offset, 13);
  EXPECT_EQ(ReadLogChunk(folder.Path(), {3, 0, 0, -5})->data, "byte\n");
  EXPECT_EQ(ReadLogChunk(folder.Path(), {3, 0, 0, -500})->data.size(), 13u);
  EXPECT_EQ(ReadLogChunk(folder.Path(), {3, 0, 0, 99})->data, "");
  EXPECT_EQ(ReadLogChunk(folder.Path(), {3, 1, 0, 0})->data, "old");
}

TEST(LogFileTest, SaysWhatIsMissing) {
  TemporaryFolder folder;
  EXPECT_EQ(ReadLogChunk(folder.Path(), {3, 0, 0, 0}).status().message(),
            "run 3 has no log: no attempt of it has started");
  folder.Write("runs/3/attempt_1/rank_0.log", "");
  EXPECT_EQ(ReadLogChunk(folder.Path(), {3, 0, 1, 0}).status().message(),
            "run 3 has no log of rank 1, attempt 1");
}

TEST(LogFileTest, ReadsFromAMomentOn) {
  TemporaryFolder folder;
  folder.Write("runs/1/attempt_1/rank_0.log", "one\ntwo\nthree\nfour\n");
  folder.Write("runs/1/attempt_1/rank_0.log.times", "100 4\n200 10\n300 19\n");
  const auto since = [&](int64_t moment) {
    return ReadLogChunk(folder.Path(), {.run = 1, .since_us = moment})->data;
  };
  EXPECT_EQ(since(50), "one\ntwo\nthree\nfour\n");
  EXPECT_EQ(since(100), "two\nthree\nfour\n");
  EXPECT_EQ(since(250), "three\nfour\n") << "the line that was half written then is shown whole";
  EXPECT_EQ(since(9999), "");
}

TEST(LogFileTest, LargeLogsComeInPieces) {
  TemporaryFolder folder;
  folder.Write("runs/1/attempt_1/rank_0.log", std::string(3 << 20, 'x'));
  int64_t offset = 0;
  int pieces = 0;
  for (;;) {
    const auto chunk = ReadLogChunk(folder.Path(), {1, 1, 0, offset});
    ASSERT_TRUE(chunk.ok());
    if (chunk->data.empty()) break;
    offset = chunk->next_offset;
    ++pieces;
  }
  EXPECT_EQ(offset, 3 << 20);
  EXPECT_EQ(pieces, 3);
}

}  // namespace
}  // namespace regatta
