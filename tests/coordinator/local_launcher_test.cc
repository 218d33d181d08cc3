#include "coordinator/launcher/local.h"

#include "coordinator/launcher/rank_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <sstream>

#include "coordinator/core_pool.h"
#include "coordinator/launcher/identity.h"
#include "tests/testing/temporary_folder.h"

namespace regatta {
namespace {

using testing::HasSubstr;

// Gangs of shell scripts under the real supervisor.
class LocalLauncherTest : public testing::Test {
 protected:
  // `script` is what every rank runs.
  void Launch(const std::string& script, int ranks, int grace_ms = 500, int give_up_ms = 10000,
              std::vector<std::vector<int>> cores = {}) {
    const std::string worker = folder_.Write("worker.sh", "#!/bin/sh\n" + script);
    chmod(worker.c_str(), 0755);
    auto launcher = LocalLauncher::Make(
        {.supervisor_program = REGATTA_BINARIES "/test_supervisor",
         .worker_program = worker,
         .coordinator_address = "unix:/none",
         .grace_ms = grace_ms,
         .give_up_ms = give_up_ms},
        {.spawned = [this](int64_t, int, int, int64_t pid) { Say("spawned", pid); },
         .exited =
             [this](int64_t, int, const RankExit& exit) {
               const int status = exit.wait_status;
               std::ostringstream text;
               text << "exit " << exit.rank << " " << (WIFSIGNALED(status) ? "signal " : "code ")
                    << (WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status))
                    << (exit.killed ? " killed" : "") << (exit.last_lines.empty() ? "" : ": ")
                    << exit.last_lines;
               Say(text.str(), 0);
             },
         .stuck = [this](int64_t, int, int rank,
                         int64_t) { Say("stuck " + std::to_string(rank), 0); },
         .unstuck = [this](int64_t, int, int rank) { Say("unstuck " + std::to_string(rank), 0); },
         .gone = [this](int64_t, int) { Say("gone", 0); }});
    ASSERT_TRUE(launcher.ok()) << launcher.status();
    launcher_ = *std::move(launcher);
    std::filesystem::create_directories(folder_.Path() + "/attempt");
    LaunchRequest request{7, 1, ranks, 1, folder_.Path() + "/attempt", "secret"};
    request.cores = std::move(cores);
    ASSERT_TRUE(launcher_->Start(request).ok());
  }

  void Say(const std::string& what, int64_t pid) {
    std::lock_guard lock(mutex_);
    if (pid != 0) pids_.push_back(static_cast<pid_t>(pid));
    if (pid == 0) said_.push_back(what);
    wake_.notify_all();
  }
  void WaitFor(const std::function<bool()>& ready) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(wake_.wait_for(lock, std::chrono::seconds(20), ready));
  }
  void WaitUntilGone() {
    WaitFor([&] { return !said_.empty() && said_.back() == "gone"; });
  }

  // What the launcher's thread has told so far.
  std::vector<std::string> Said() {
    std::lock_guard lock(mutex_);
    return said_;
  }
  std::vector<pid_t> Pids() {
    std::lock_guard lock(mutex_);
    return pids_;
  }

  TemporaryFolder folder_;
  std::unique_ptr<LocalLauncher> launcher_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::string> said_;
  std::vector<pid_t> pids_;
};

TEST_F(LocalLauncherTest, EveryExitIsToldRawWithItsLastWords) {
  Launch("echo first; echo \"rank $RANK of $WORLD_SIZE says no\"; exit $((RANK * 3))\n", 2);
  WaitUntilGone();
  EXPECT_THAT(Said(), testing::UnorderedElementsAre(
                          "exit 0 code 0", "exit 1 code 3: first\nrank 1 of 2 says no", "gone"));
}

TEST_F(LocalLauncherTest, StopEndsRanksThatIgnoreTermAndWhatTheyStarted) {
  Launch("trap '' TERM; setsid sh -c 'trap \"\" TERM HUP; echo $$ > \"" + folder_.Path() +
             "/grandchild\"; while :; do sleep 1; done' &\necho up; while :; do sleep 1; done\n",
         1, 100);
  const std::string log = folder_.Path() + "/attempt/rank_0.log";
  pid_t grandchild = 0;
  while (grandchild == 0) std::ifstream(folder_.Path() + "/grandchild") >> grandchild;
  launcher_->Stop(7, 1);
  launcher_->Stop(7, 1);
  launcher_->Stop(8, 1);
  WaitUntilGone();
  EXPECT_THAT(Said(), testing::ElementsAre("exit 0 signal 9 killed: up", "gone"));
  EXPECT_EQ(kill(grandchild, 0), -1) << "a process of the run is left";
}

TEST_F(LocalLauncherTest, RanksDieWithTheirSupervisorAndTheLossIsSeen) {
  Launch("exec sleep 1000\n", 2);
  WaitFor([&] { return pids_.size() == 2; });
  std::string identity;
  std::getline(std::ifstream(folder_.Path() + "/attempt/supervisor"), identity);
  kill(std::stoi(identity), SIGKILL);
  WaitUntilGone();
  EXPECT_THAT(Said(), testing::ElementsAre("gone"));
  // Their end follows by PR_SET_PDEATHSIG; init reaps them.
  for (const pid_t pid : Pids()) {
    while (!ProcessIdentity(pid).empty()) {
      std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
      std::string text;
      std::getline(stat, text);
      if (text.find(") Z ") != std::string::npos) break;
      std::this_thread::yield();
    }
  }
}

// A rank that a debugger holds is not seen to end, whoever kills it.
TEST_F(LocalLauncherTest, ARankThatDoesNotEndIsGivenUpAndWatched) {
  Launch("while :; do sleep 1; done\n", 1, 50, 200);
  WaitFor([&] { return pids_.size() == 1; });
  if (ptrace(PTRACE_SEIZE, Pids()[0], nullptr, nullptr) != 0) {
    launcher_->Stop(7, 1);
    WaitUntilGone();
    GTEST_SKIP() << "this user may not trace processes here";
  }
  launcher_->Stop(7, 1);
  WaitFor([&] { return std::count(said_.begin(), said_.end(), "gone") == 1; });
  EXPECT_EQ(Said()[0], "stuck 0");
  while (waitpid(Pids()[0], nullptr, __WALL) != Pids()[0]) {
  }
  WaitFor([&] { return std::count(said_.begin(), said_.end(), "unstuck 0") == 1; });
}

TEST_F(LocalLauncherTest, RanksRunOnTheCoresThatTheyWereGiven) {
  const int core = MachineCores().back().id;
  Launch("exec sleep 1000\n", 1, 500, 10000, {{core}});
  WaitFor([&] { return pids_.size() == 1; });
  cpu_set_t set;
  do {
    CPU_ZERO(&set);
    ASSERT_EQ(sched_getaffinity(Pids()[0], sizeof(set), &set), 0);
  } while (CPU_COUNT(&set) != 1 && MachineCores().size() > 1);
  EXPECT_TRUE(CPU_ISSET(core, &set));
  launcher_->Stop(7, 1);
  WaitUntilGone();
}

TEST_F(LocalLauncherTest, ALeftoverOfACrashedDaemonIsEnded) {
  Launch("exec sleep 1000\n", 2);
  WaitFor([&] { return pids_.size() == 2; });
  ASSERT_TRUE(LocalLauncher::EndLeftover(folder_.Path() + "/attempt", 20).ok());
  WaitUntilGone();
  for (const pid_t pid : Pids()) EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_TRUE(LocalLauncher::EndLeftover(folder_.Path() + "/attempt", 20).ok())
      << "a second time, nothing is there";
}

TEST_F(LocalLauncherTest, AForeignProcessWithTheSamePidIsNotTouched) {
  folder_.Write("old/supervisor", std::to_string(getpid()) + " 1 other-boot\n");
  EXPECT_TRUE(LocalLauncher::EndLeftover(folder_.Path() + "/old", 1).ok());
}

TEST_F(LocalLauncherTest, AWorkerThatCannotBeRunIsSaidAtOnce) {
  const auto launcher = LocalLauncher::Make(
      {.supervisor_program = "", .worker_program = "/nowhere/worker", .coordinator_address = ""},
      {});
  EXPECT_THAT(std::string(launcher.status().message()),
              HasSubstr("'/nowhere/worker' cannot be run"));
}

TEST(RankEnvironmentTest, NamesAreTorchruns) {
  const auto env = RankEnvironment(
      {.run = 5, .attempt = 2, .ranks = 4, .threads_per_rank = 3, .folder = "", .token = "s"}, 1,
      "unix:/x");
  EXPECT_EQ(env.at("RANK"), "1");
  EXPECT_EQ(env.at("WORLD_SIZE"), "4");
  EXPECT_EQ(env.at("LOCAL_RANK"), "1");
  EXPECT_EQ(env.at("OMP_NUM_THREADS"), "3");
  EXPECT_EQ(env.at("REGATTA_RUN"), "5");
}

}  // namespace
}  // namespace regatta
