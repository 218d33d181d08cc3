#include "coordinator/log_retention.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "coordinator/log_file.h"
#include "tests/testing/temporary_folder.h"

namespace regatta {
namespace {

constexpr int64_t kSecond = 1000000;

std::vector<std::string> Names(const std::vector<KeptLogs>& logs) {
  std::vector<std::string> names;
  for (const KeptLogs& kept : logs) names.push_back(kept.folder);
  return names;
}

TEST(LogRetentionTest, AgeAndSizeDecideAndTheOldestGoFirst) {
  const std::vector<KeptLogs> kept = {
      {"middle", 50 * kSecond, 10}, {"new", 90 * kSecond, 10}, {"old", 10 * kSecond, 10}};
  const int64_t now = 100 * kSecond;
  const auto expired = [&](RetentionLimits limits) {
    return Names(ChooseExpired(kept, limits, now));
  };
  using Folders = std::vector<std::string>;
  EXPECT_EQ(expired({}), Folders());
  EXPECT_EQ(expired({.max_age_seconds = 60}), Folders({"old"}));
  EXPECT_EQ(expired({.max_age_seconds = 10}), Folders({"middle", "old"})) << "not over 10 s";
  EXPECT_EQ(expired({.max_bytes = 20}), Folders({"old"}));
  EXPECT_EQ(expired({.max_bytes = 19}), Folders({"middle", "old"}));
  EXPECT_EQ(expired({.max_age_seconds = 60, .max_bytes = 10}), Folders({"middle", "old"}));
}

TEST(LogRetentionTest, LogsOfEndedAttemptsGoAndTheReaderIsTold) {
  TemporaryFolder folder;
  for (const char* run : {"1", "2"}) {
    const std::string attempt = std::string("runs/") + run + "/attempt_1/";
    for (const char* name : {"rank_0.log", "rank_1.log", "rank_0.log.times", "supervisor.log"}) {
      folder.Write(attempt + name, "text\n");
    }
    folder.Write(attempt + "exits", "exit 0 0 0 0\n");
  }
  const auto is_live = [](AttemptKey key) { return key.run == 2; };
  EXPECT_EQ(RemoveExpiredLogs(folder.Path(), {.max_bytes = 1}, is_live), 20);
  EXPECT_EQ(RemoveExpiredLogs(folder.Path(), {.max_bytes = 1}, is_live), 0) << "a second time";
  EXPECT_TRUE(ReadLogChunk(folder.Path(), {.run = 2}).ok()) << "it is under way";
  const std::string message(ReadLogChunk(folder.Path(), {.run = 1}).status().message());
  EXPECT_NE(message.find("the logs of run 1, attempt 1 were removed on 20"), std::string::npos)
      << message;
  EXPECT_TRUE(std::filesystem::exists(folder.Path() + "/runs/1/attempt_1/exits"));
}

}  // namespace
}  // namespace regatta
