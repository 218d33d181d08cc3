#include "coordinator/state_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/testing/temporary_folder.h"

namespace regatta {
namespace {

using testing::HasSubstr;

TEST(StateFolderTest, OneOwnerAtATime) {
  TemporaryFolder folder;
  auto first = StateFolder::Claim(folder.Path() + "/state");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(std::string(StateFolder::Claim(folder.Path() + "/state").status().message()),
              HasSubstr("belongs to a running regattad (pid " + std::to_string(getpid())));
  first->reset();
  EXPECT_TRUE(StateFolder::Claim(folder.Path() + "/state").ok());
}

TEST(StateFolderTest, NetworkFileSystemsAreKnown) {
  EXPECT_EQ(NetworkFileSystem(0x6969), "NFS");
  EXPECT_EQ(NetworkFileSystem(0xFF534D42), "CIFS");
  EXPECT_EQ(NetworkFileSystem(0xEF53), "") << "ext4";
}

TEST(StateFolderTest, ClientsFindTheAddressWhileItLasts) {
  TemporaryFolder folder;
  auto state = StateFolder::Claim(folder.Path());
  EXPECT_EQ(FindDaemon(folder.Path()).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE((*state)->PublishAddress().ok());
  EXPECT_EQ(*FindDaemon(folder.Path()), "unix:" + folder.Path() + "/socket");
  state->reset();
  EXPECT_THAT(std::string(FindDaemon(folder.Path()).status().message()),
              HasSubstr("start one: regattad --state"));
}

TEST(StateFolderTest, ALongPathGetsAShortSocket) {
  TemporaryFolder folder;
  auto state = StateFolder::Claim(folder.Path() + "/" + std::string(120, 'x'));
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_LT((*state)->SocketAddress().size(), 108u);
}

TEST(StateFolderTest, AFolderThatCannotBeMadeIsNamed) {
  TemporaryFolder folder;
  folder.Write("file", "");
  EXPECT_THAT(std::string(StateFolder::Claim(folder.Path() + "/file/state").status().message()),
              HasSubstr("file/state"));
}

}  // namespace
}  // namespace regatta
