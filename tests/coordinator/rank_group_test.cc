#include "coordinator/launcher/rank_group.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "tests/testing/temporary_folder.h"

namespace regatta {
namespace {

std::string ReadText(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(RankGroupTest, FindsWhereGroupsCanBeMade) {
  const GroupParents two =
      FindGroupParents("cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev,noexec,relatime 0 0\n",
                       "0::/user.slice/user-1000.slice/session.scope\n");
  EXPECT_EQ(two.unified,
            (std::vector<std::string>{"/sys/fs/cgroup/user.slice/user-1000.slice/session.scope",
                                      "/sys/fs/cgroup/user.slice/user-1000.slice"}));
  EXPECT_EQ(two.memory, "");
  const GroupParents hybrid = FindGroupParents(
      "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n"
      "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n"
      "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n",
      "8:pids:/\n4:memory:/jobs/7\n0::/\n");
  EXPECT_EQ(hybrid.unified, (std::vector<std::string>{"/sys/fs/cgroup/unified"}));
  EXPECT_EQ(hybrid.memory, "/sys/fs/cgroup/memory/jobs/7");
  EXPECT_TRUE(FindGroupParents("", "").unified.empty());
  EXPECT_TRUE(FindGroupParents("proc /proc proc rw 0 0\nx\n", "nonsense\n::\n").memory.empty());
}

TEST(RankGroupTest, CountsOutOfMemoryKillsOfBothVersions) {
  TemporaryFolder folder;
  folder.Write("two/memory.events", "low 0\nhigh 0\nmax 4\noom 1\noom_kill 2\noom_group_kill 0\n");
  folder.Write("one/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
  EXPECT_EQ(RankGroup({folder.Path() + "/two"}).OomKills(), 2);
  EXPECT_EQ(RankGroup({folder.Path() + "/one"}).OomKills(), 3);
  EXPECT_EQ(RankGroup({folder.Path() + "/none"}).OomKills(), 0);
  EXPECT_EQ(RankGroup().OomKills(), 0);
}

// With the real file system, where this user may.
TEST(RankGroupTest, AGroupIsEnteredKilledAndRemoved) {
  const RankGroup group = RankGroup::Make(
      FindGroupParents(ReadText("/proc/self/mounts"), ReadText("/proc/self/cgroup")),
      "regatta-test-" + std::to_string(getpid()));
  if (group.Folders().empty()) GTEST_SKIP() << "this user may not make control groups here";
  const pid_t child = fork();
  if (child == 0) {
    if (!group.Enter()) _exit(1);
    for (;;) pause();
  }
  for (const std::string& folder : group.Folders()) {  // in all of them before any is removed
    while (ReadText(folder + "/cgroup.procs") != std::to_string(child) + "\n") {
      ASSERT_EQ(waitpid(child, nullptr, WNOHANG), 0) << "the child could not enter " << folder;
    }
  }
  EXPECT_FALSE(group.Remove()) << "somebody is in it";
  const bool can_kill = access((group.Folders()[0] + "/cgroup.kill").c_str(), W_OK) == 0;
  group.Kill();
  if (!can_kill) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, SIGKILL);
  while (!group.Remove()) {
  }
  EXPECT_NE(access(group.Folders()[0].c_str(), F_OK), 0);
}

}  // namespace
}  // namespace regatta
