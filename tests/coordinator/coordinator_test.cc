#include "coordinator/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <numeric>
#include <thread>

#include "coordinator/store/writer.h"
#include "tests/testing/stored_run.h"
#include "tests/testing/temporary_folder.h"

namespace regatta {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class FakeClock : public Clock {
 public:
  Instant Now() override { return start_ + std::chrono::seconds(passed_seconds_); }
  int64_t UnixMicros() override { return 1000000; }
  void Pass(int seconds) { passed_seconds_ += seconds; }  // from any thread

 private:
  const Instant start_ = std::chrono::steady_clock::now();
  std::atomic<int> passed_seconds_{3600};
};

class FakeLauncher : public Launcher {
 public:
  absl::Status Start(const LaunchRequest& request) override {
    if (!start_status.ok()) return start_status;
    started.push_back(request);
    return absl::OkStatus();
  }
  void Stop(int64_t run, int) override {
    stopped.push_back(run);
    ++stops;
  }

  absl::Status start_status;
  std::vector<LaunchRequest> started;
  std::vector<int64_t> stopped;
  std::atomic<int> stops{0};  // for a thread beside the loop
};

class FakePreparer : public Preparer {
 public:
  void Start(const std::string& word) override { started.push_back(word); }
  std::vector<std::string> started;
};

// Runs the loop on this thread until nothing is left to do: every wait ends by a shutdown that a
// test posts last.
class CoordinatorTest : public testing::Test {
 protected:
  void SetUp() override { Open(4); }

  void Open(int slots) {
    coordinator_.reset();
    writer_.reset();
    auto writer = Writer::Open(folder_.Path());
    ASSERT_TRUE(writer.ok()) << writer.status();
    writer_ = *std::move(writer);
    writer_->Start([this](int64_t batch, const absl::Status& status) {
      events_.Post(Committed{batch, status});
    });
    coordinator_ = std::make_unique<Coordinator>(CoordinatorOptions{.state_folder = folder_.Path(),
                                                                    .slots = slots,
                                                                    .cores = {{0, 0, 0}, {1, 0, 1}},
                                                                    .gpus = {"3", "5", "GPU-a"}},
                                                 clock_, events_, *writer_, rendezvous_);
    coordinator_->SetLauncher(launcher_);
    coordinator_->SetPreparer(preparer_);
  }

  static Experiment MakeExperiment(int runs, int ranks, int max_parallel) {
    Experiment experiment;
    experiment.head.name = "test";
    experiment.head.limits.max_parallel = max_parallel;
    v1::RunSpec spec;
    spec.set_ranks(ranks);
    spec.set_threads_per_rank(1);
    spec.set_pin(true);
    for (int i = 0; i < runs; ++i) {
      PlannedRun run;
      run.name = "run " + std::to_string(i);
      run.ranks = ranks;
      run.spec = std::make_shared<const std::string>(spec.SerializeAsString());
      experiment.runs.push_back(run);
    }
    return experiment;
  }

  void Submit(int runs, int ranks, int max_parallel, const std::string& token = "t") {
    events_.Post(
        Submitted{MakeExperiment(runs, ranks, max_parallel), token,
                  [this](absl::StatusOr<Submitted::Ids> ids) { submitted_.push_back(ids); }});
  }

  void SubmitThis(Experiment experiment, const std::string& token = "t") {
    events_.Post(
        Submitted{std::move(experiment), token,
                  [this](absl::StatusOr<Submitted::Ids> ids) { submitted_.push_back(ids); }});
  }

  void Cancel(std::vector<int64_t> runs) {
    events_.Post(
        CancelWanted{std::move(runs), {}, [this](absl::StatusOr<CancelWanted::Counts> counts) {
                       cancelled_.push_back(counts);
                     }});
  }

  // Waits for the loop to have done everything that was posted, and its effects.
  void Settle() {
    for (int i = 0; i < 4; ++i) {
      std::promise<void> done;
      events_.Post(
          CancelWanted{{}, {}, [&](absl::StatusOr<CancelWanted::Counts>) { done.set_value(); }});
      done.get_future().wait();
    }
  }

  // Runs `script` while the loop runs on another thread.
  absl::Status WithLoop(const std::function<void()>& script) {
    absl::Status status;
    std::thread loop([&] { status = coordinator_->Run(); });
    script();
    events_.Post(ShutdownWanted{});
    loop.join();
    writer_.reset();
    return status;
  }

  void RankOk(int64_t run, int rank) {
    events_.Post(RankFinished{{run, 1}, rank, true, "", 0, {{"steps", 3}}, {}, [] {}});
    events_.Post(RankExited{{run, 1}, {rank, 0, false, 0, ""}});
  }

  Table Query(const std::string& sql) {
    auto reader = Reader::Open(folder_.Path());
    EXPECT_TRUE(reader.ok());
    auto table = (*reader)->Query(sql);
    EXPECT_TRUE(table.ok()) << table.status();
    return *table;
  }
  std::string One(const std::string& sql) {
    const Table table = Query(sql);
    return table.rows.empty() ? "no row" : CellText(table.rows[0][0]);
  }

  TemporaryFolder folder_;
  FakeClock clock_;
  EventQueue events_;
  Rendezvous rendezvous_{[this](AttemptKey key) { events_.Post(AllJoined{key}); }};
  FakeLauncher launcher_;
  FakePreparer preparer_;
  std::unique_ptr<Writer> writer_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<absl::StatusOr<Submitted::Ids>> submitted_;
  std::vector<absl::StatusOr<CancelWanted::Counts>> cancelled_;
};

TEST_F(CoordinatorTest, FromSubmitToARow) {
  ASSERT_TRUE(WithLoop([&] {
                Submit(1, 2, 1);
                Settle();
                ASSERT_EQ(launcher_.started.size(), 1u);
                EXPECT_EQ(launcher_.started[0].ranks, 2);
                EXPECT_EQ(One("select state from results"), "STARTING");
                for (int rank = 0; rank < 2; ++rank) {
                  ASSERT_TRUE(rendezvous_
                                  .Join({{1, 1}, rank, launcher_.started[0].token},
                                        [](const absl::Status&) {})
                                  .ok());
                }
                Settle();
                EXPECT_EQ(One("select state from results"), "RUNNING");
                RankOk(1, 0);
                RankOk(1, 1);
                Settle();
                EXPECT_EQ(One("select state from results"), "RUNNING")
                    << "not before the gang is gone";
                events_.Post(GangGone{{1, 1}, absl::OkStatus()});
                Settle();
                EXPECT_EQ(One("select state from results"), "SUCCEEDED");
              }).ok());
  EXPECT_THAT(submitted_[0]->runs, ElementsAre(1));
  EXPECT_EQ(One("select steps from results"), "3");
  EXPECT_EQ(rendezvous_.Check({{1, 1}, 0, launcher_.started[0].token}).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(CoordinatorTest, TheSameTokenSubmitsOnce) {
  (void)WithLoop([&] {
    Submit(2, 1, 1, "same");
    Submit(2, 1, 1, "same");
    Settle();
    Cancel({1, 2});
    Settle();
    events_.Post(GangGone{{1, 1}, absl::OkStatus()});
    Settle();
  });
  EXPECT_EQ(submitted_[0]->runs, submitted_[1]->runs);
  EXPECT_EQ(One("select count(*) from runs"), "2");
}

TEST_F(CoordinatorTest, MaxParallelAndSlotsHold) {
  (void)WithLoop([&] {
    Submit(3, 2, 2);
    Settle();
    EXPECT_EQ(launcher_.started.size(), 2u);
    for (int rank = 0; rank < 2; ++rank) RankOk(1, rank);
    events_.Post(GangGone{{1, 1}, absl::OkStatus()});
    Settle();
    EXPECT_EQ(launcher_.started.size(), 3u);
    for (const int64_t run : {2, 3}) events_.Post(GangGone{{run, 1}, absl::OkStatus()});
    Settle();
  });
}

TEST_F(CoordinatorTest, ARunWiderThanTheSlotsIsRefusedWhole) {
  (void)WithLoop([&] {
    Submit(1, 5, 1);
    Settle();
  });
  EXPECT_THAT(std::string(submitted_[0].status().message()),
              HasSubstr("needs 5 ranks; this coordinator has 4 slots"));
  EXPECT_EQ(One("select count(*) from experiments"), "0");
}

TEST_F(CoordinatorTest, AFailedRankEndsTheGangAndIsNamed) {
  (void)WithLoop([&] {
    Submit(1, 3, 1);
    Settle();
    events_.Post(RankExited{{1, 1}, {1, 3 << 8, false, 0, "no such tensor"}});
    Settle();
    EXPECT_THAT(launcher_.stopped, ElementsAre(1));
    EXPECT_EQ(One("select state from results"), "STOPPING");
    for (const int rank : {0, 2}) events_.Post(RankExited{{1, 1}, {rank, SIGTERM, true, 0, ""}});
    events_.Post(GangGone{{1, 1}, absl::OkStatus()});
    Settle();
  });
  EXPECT_EQ(One("select state || ' ' || reason || ' ' || sentence from failures"),
            "FAILED rank_exit rank 1 exited with code 3: no such tensor");
  EXPECT_EQ(One("select group_concat(killed_by_coordinator) from ranks"), "1,0,1");
}

TEST_F(CoordinatorTest, TheOutOfMemoryKillerIsNamedAndTheLastLinesAreKept) {
  (void)WithLoop([&] {
    Submit(1, 1, 1);
    Settle();
    events_.Post(RankExited{{1, 1}, {0, SIGKILL, false, 1, "step 1\nstep 2"}});
    events_.Post(GangGone{{1, 1}, absl::OkStatus()});
    Settle();
  });
  EXPECT_EQ(One("select reason || ': ' || sentence from failures"),
            "oom_host: rank 0 was killed by the system's out-of-memory killer: step 2");
  EXPECT_EQ(One("select failed_rank || ': ' || last_lines from failures"), "0: step 1\nstep 2");
}

TEST_F(CoordinatorTest, RanksArePinnedToCoresOfTheirOwnAndOthersAreMarked) {
  (void)WithLoop([&] {
    Submit(2, 2, 2);
    Settle();
    ASSERT_EQ(launcher_.started.size(), 2u);
    EXPECT_THAT(launcher_.started[0].cores, ElementsAre(ElementsAre(0), ElementsAre(1)));
    EXPECT_TRUE(launcher_.started[1].cores.empty()) << "no core is left";
    for (const int64_t run : {1, 2}) {
      for (int rank = 0; rank < 2; ++rank) RankOk(run, rank);
      events_.Post(GangGone{{run, 1}, absl::OkStatus()});
    }
    Submit(1, 2, 1, "later");
    Settle();
    EXPECT_THAT(launcher_.started[2].cores, ElementsAre(ElementsAre(0), ElementsAre(1)));
    for (int rank = 0; rank < 2; ++rank) RankOk(3, rank);
    events_.Post(GangGone{{3, 1}, absl::OkStatus()});
    Settle();
  });
  EXPECT_EQ(One("select group_concat(cast(shared_cores as int)) from results"), "1,1,0");
}

TEST_F(CoordinatorTest, AGpuServesOneRunAtATime) {
  Open(6);
  Experiment experiment = MakeExperiment(3, 2, 3);
  experiment.runs[0].gpus = 2;  // one a rank
  experiment.runs[1].gpus = 1;  // shared
  experiment.runs[2].gpus = 2;
  const auto gpus = [&](size_t start) {
    std::vector<std::string> of_ranks;
    for (const auto& [rank, environment] : launcher_.started.at(start).rank_environment) {
      of_ranks.push_back(environment.at("CUDA_VISIBLE_DEVICES"));
    }
    return of_ranks;
  };
  (void)WithLoop([&] {
    SubmitThis(experiment);
    Settle();
    EXPECT_EQ(launcher_.started.size(), 2u) << "the third has a slot, and no GPU";
    EXPECT_THAT(gpus(0), ElementsAre("3", "5"));
    EXPECT_THAT(gpus(1), ElementsAre("GPU-a", "GPU-a"));
    const auto end = [&](int64_t run) {
      for (int rank = 0; rank < 2; ++rank) RankOk(run, rank);
      events_.Post(GangGone{{run, 1}, absl::OkStatus()});
      Settle();
    };
    end(1);
    const bool third = launcher_.started.size() == 3;
    EXPECT_TRUE(third);
    if (third) {
      EXPECT_THAT(gpus(2), ElementsAre("3", "5"));
    }
    end(2);
    if (third) end(3);
  });
}

TEST_F(CoordinatorTest, ARankThatDoesNotEndHoldsItsSlotAndNoRun) {
  Open(2);
  (void)WithLoop([&] {
    Submit(2, 2, 1);
    Settle();
    Cancel({1});
    events_.Post(RankExited{{1, 1}, {0, SIGTERM, true, 0, ""}});
    events_.Post(RankStuck{{1, 1}, 1, 77});
    events_.Post(GangGone{{1, 1}, absl::OkStatus()});
    Settle();
    EXPECT_EQ(
        One("select state || ' ' || sentence from results where run = 1"),
        "CANCELLED cancelled while it was under way; rank 1 does not end though it was killed "
        "(pid 77): its slot stays taken until it does");
    EXPECT_EQ(launcher_.started.size(), 1u) << "one slot is left, the next run needs two";
    events_.Post(RankUnstuck{{1, 1}, 1});
    events_.Post(RankUnstuck{{1, 1}, 1});
    Settle();
    ASSERT_EQ(launcher_.started.size(), 2u);
    EXPECT_THAT(launcher_.started[1].cores, ElementsAre(ElementsAre(0), ElementsAre(1)));
    events_.Post(GangGone{{2, 1}, absl::OkStatus()});
    Settle();
  });
  EXPECT_EQ(One("select count(*) from events where what like 'rank 1 has ended%'"), "1");
}

TEST_F(CoordinatorTest, TheJoinDeadlineEndsTheRunAndNamesWhoIsMissing) {
  (void)WithLoop([&] {
    Submit(1, 3, 1);
    Settle();
    ASSERT_TRUE(
        rendezvous_.Join({{1, 1}, 1, launcher_.started[0].token}, [](const absl::Status&) {}).ok());
    Settle();
    clock_.Pass(61);
    Settle();
    EXPECT_THAT(launcher_.stopped, ElementsAre(1));
    for (int rank = 0; rank < 3; ++rank)
      events_.Post(RankExited{{1, 1}, {rank, SIGTERM, true, 0, ""}});
    events_.Post(GangGone{{1, 1}, absl::OkStatus()});
    Settle();
  });
  EXPECT_EQ(One("select reason || ': ' || sentence from failures"),
            "join_timeout: ranks 0, 2 of 3 did not join within 60 s");
}

TEST_F(CoordinatorTest, CancelOfAPendingRunNeverStartsIt) {
  (void)WithLoop([&] {
    Submit(2, 1, 1);
    Settle();
    Cancel({2});
    Settle();
    Cancel({2});
    RankOk(1, 0);
    events_.Post(GangGone{{1, 1}, absl::OkStatus()});
    Settle();
  });
  EXPECT_EQ(launcher_.started.size(), 1u);
  EXPECT_EQ(cancelled_[0]->cancelled, 1);
  EXPECT_EQ(cancelled_[1]->already_ended, 1);
  EXPECT_EQ(One("select group_concat(state) from results"), "SUCCEEDED,CANCELLED");
}

TEST_F(CoordinatorTest, CancelOfALiveRunStopsItTwiceHarmlessly) {
  (void)WithLoop([&] {
    Submit(1, 1, 1);
    Settle();
    Cancel({1});
    Cancel({1});
    Settle();
    EXPECT_THAT(launcher_.stopped, ElementsAre(1));
    events_.Post(RankExited{{1, 1}, {0, SIGTERM, true, 0, ""}});
    events_.Post(GangGone{{1, 1}, absl::OkStatus()});
    Settle();
  });
  EXPECT_EQ(One("select state || ' ' || reason from results"), "CANCELLED cancelled_by_user");
}

TEST_F(CoordinatorTest, CancelOfWhatDoesNotExistIsNotFound) {
  (void)WithLoop([&] {
    Cancel({9});
    Settle();
  });
  EXPECT_EQ(cancelled_[0].status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CoordinatorTest, ALaunchThatFailsIsTheRunsFailure) {
  launcher_.start_status = absl::InternalError("no more processes");
  (void)WithLoop([&] {
    Submit(1, 1, 1);
    Settle();
  });
  EXPECT_EQ(One("select reason || ': ' || sentence from failures"), "spawn: no more processes");
}

TEST_F(CoordinatorTest, EventsOfAStaleAttemptChangeNothing) {
  (void)WithLoop([&] {
    Submit(1, 1, 1);
    Settle();
    events_.Post(RankExited{{1, 2}, {0, 9, false, 0, ""}});
    events_.Post(GangGone{{2, 1}, absl::OkStatus()});
    Settle();
    EXPECT_EQ(One("select state from results"), "STARTING");
    events_.Post(GangGone{{1, 1}, absl::OkStatus()});
    Settle();
  });
}

TEST_F(CoordinatorTest, ShutdownEndsGangsAndKeepsTheQueue) {
  std::thread helper;
  (void)WithLoop([&] {
    Submit(2, 1, 1);
    Settle();
    helper = std::thread([&] {
      while (launcher_.stops == 0) std::this_thread::yield();
      events_.Post(RankExited{{1, 1}, {0, SIGTERM, true, 0, ""}});
      events_.Post(GangGone{{1, 1}, absl::OkStatus()});
    });
  });
  helper.join();
  EXPECT_EQ(One("select group_concat(state || ' ' || reason) from results"),
            "CANCELLED coordinator_stopped,PENDING ");
}

TEST_F(CoordinatorTest, ARestartedDaemonFailsWhatWasUnderWayAndGoesOnWithTheQueue) {
  {
    auto writer = Writer::Open(folder_.Path());
    ASSERT_TRUE(writer.ok());
    (*writer)->Start([](int64_t, const absl::Status&) {});
    (*writer)->Submit(1, {NewExperiment{1, "t", "e", "", "", "{}", 1, 60, 0, 0, 5}});
    for (int64_t id = 1; id <= 2; ++id) {
      (*writer)->Submit(id + 1, {StoredRunOf(id, id == 1 ? "RUNNING" : "PENDING")});
    }
  }
  Open(4);
  auto reader = Reader::Open(folder_.Path());
  ASSERT_TRUE(coordinator_->Load(*ReadStoredState(**reader)).ok());
  (void)WithLoop([&] {
    Settle();
    ASSERT_EQ(launcher_.started.size(), 1u);
    EXPECT_EQ(launcher_.started[0].run, 2);
    Submit(1, 1, 1, "t");
    events_.Post(GangGone{{2, 1}, absl::OkStatus()});
    Settle();
  });
  EXPECT_EQ(One("select state || ' ' || reason from results where run = 1"),
            "FAILED coordinator_restart");
  EXPECT_THAT(submitted_[0]->runs, ElementsAre(1, 2))
      << "the token of a submission outlives the daemon";
}

// A disk that is full from the first word on.
class FullDisk : public ChangeSink {
 public:
  explicit FullDisk(EventQueue& events) : events_(events) {}
  void Submit(int64_t batch, std::vector<Change>) override {
    events_.Post(Committed{batch, absl::DataLossError("the disk is full")});
  }

 private:
  EventQueue& events_;
};

TEST_F(CoordinatorTest, AFullDiskEndsTheDaemonAndNotOnlyItsAnswers) {
  FullDisk disk(events_);
  Coordinator coordinator({.state_folder = folder_.Path(), .slots = 4, .cores = {}}, clock_,
                          events_, disk, rendezvous_);
  coordinator.SetLauncher(launcher_);
  coordinator.SetPreparer(preparer_);
  Submit(2, 1, 2);
  EXPECT_EQ(coordinator.Run().message(), "the disk is full")
      << "runs that were to start never did: nobody tells of their end";
  EXPECT_TRUE(launcher_.started.empty());
  EXPECT_TRUE(submitted_.empty()) << "what is not on disk is not confirmed";
}

TEST_F(CoordinatorTest, ARunThatTakesTooLongIsStoppedAndTimedOut) {
  (void)WithLoop([&] {
    Experiment experiment = MakeExperiment(1, 1, 1);
    experiment.head.limits.timeout_seconds = 30;
    SubmitThis(std::move(experiment));
    Settle();
    clock_.Pass(29);
    Settle();
    EXPECT_EQ(launcher_.stops, 0);
    clock_.Pass(2);
    Settle();
    EXPECT_EQ(launcher_.stops, 1);
    events_.Post(RankExited{{1, 1}, {0, SIGTERM, true, 0, ""}});
    events_.Post(GangGone{{1, 1}, absl::OkStatus()});
  });
  EXPECT_EQ(One("select state || ' ' || reason || ': ' || sentence from results"),
            "TIMED_OUT time_limit: ran longer than limits.timeout, 30 s");
}

TEST_F(CoordinatorTest, RunsThatWaitTooLongNeverStart) {
  (void)WithLoop([&] {
    Experiment experiment = MakeExperiment(3, 1, 1);
    experiment.head.limits.queue_timeout_seconds = 30;
    SubmitThis(std::move(experiment));
    Settle();
    clock_.Pass(31);
    Settle();
    EXPECT_EQ(launcher_.started.size(), 1u);
    EXPECT_EQ(launcher_.stops, 0) << "what runs is not in the queue";
    RankOk(1, 0);
    events_.Post(GangGone{{1, 1}, absl::OkStatus()});
    Settle();
  });
  EXPECT_EQ(launcher_.started.size(), 1u);
  EXPECT_EQ(One("select group_concat(state || ' ' || reason) from results"),
            "SUCCEEDED ,TIMED_OUT queue_timeout,TIMED_OUT queue_timeout");
}

// A pending run whose spec names synthetic rows and an inline model: nothing to look for on disk.
PlannedRun WaitingFor(const std::vector<std::string>& words) {
  PlannedRun run;
  run.name = "waits";
  run.to_prepare = words;
  v1::RunSpec spec;
  spec.set_ranks(1);
  for (const std::string& word : words) spec.add_to_prepare(word);
  run.spec = std::make_shared<const std::string>(spec.SerializeAsString());
  return run;
}

TEST_F(CoordinatorTest, RunsWaitForTheirMaterialAndForNothingElse) {
  (void)WithLoop([&] {
    Experiment experiment = MakeExperiment(0, 1, 4);
    experiment.runs = {WaitingFor({"m", "d:m"}), WaitingFor({"m"}), WaitingFor({})};
    SubmitThis(std::move(experiment));
    Settle();
    EXPECT_THAT(preparer_.started, ElementsAre("m", "d:m")) << "each word once";
    ASSERT_EQ(launcher_.started.size(), 1u);
    EXPECT_EQ(launcher_.started[0].run, 3);
    EXPECT_EQ(One("select reason || ': ' || sentence from results where run = 1"),
              "preparing: waits for: regatta prepare m d:m");
    events_.Post(Prepared{"m", absl::OkStatus()});
    Settle();
    ASSERT_EQ(launcher_.started.size(), 2u);
    EXPECT_EQ(launcher_.started[1].run, 2);
    EXPECT_EQ(One("select reason from results where run = 2"), "");
    events_.Post(Prepared{"d:m", absl::FailedPreconditionError("the hub has no 'd'")});
    Settle();
    for (const int64_t run : {2, 3}) events_.Post(GangGone{{run, 1}, absl::OkStatus()});
  });
  EXPECT_EQ(One("select state || ' ' || reason || ': ' || sentence from results where run = 1"),
            "FAILED preparation: the hub has no 'd'");
}

TEST_F(CoordinatorTest, ARestartedDaemonPreparesAgain) {
  (void)WithLoop([&] {
    Experiment experiment = MakeExperiment(0, 1, 4);
    experiment.runs = {WaitingFor({"m"})};
    SubmitThis(std::move(experiment));
    Settle();
  });
  Open(4);
  auto reader = Reader::Open(folder_.Path());
  ASSERT_TRUE(coordinator_->Load(*ReadStoredState(**reader)).ok());
  preparer_.started.clear();
  (void)WithLoop([&] {
    Settle();
    EXPECT_THAT(preparer_.started, ElementsAre("m"));
    EXPECT_TRUE(launcher_.started.empty());
    Cancel({1});
    Settle();
    events_.Post(Prepared{"m", absl::OkStatus()});
    Settle();
  });
  EXPECT_TRUE(launcher_.started.empty()) << "cancelled while it waited";
  EXPECT_EQ(One("select state from results"), "CANCELLED");
}

TEST_F(CoordinatorTest, WhatCannotRunIsARowWithItsReason) {
  (void)WithLoop([&] {
    Experiment experiment = MakeExperiment(2, 1, 4);
    experiment.head.skip_invalid = true;
    experiment.head.labels = {{"machine", "box"}};
    experiment.runs[0].skipped = "single runs on 1 rank, not on 2";
    experiment.runs[1].ranks = 9;
    SubmitThis(std::move(experiment));
    Settle();
  });
  EXPECT_TRUE(launcher_.started.empty());
  EXPECT_EQ(One("select state || ' ' || reason || ': ' || sentence from results where run = 1"),
            "SKIPPED config: single runs on 1 rank, not on 2");
  EXPECT_THAT(One("select state || ' ' || reason || ': ' || sentence from results where run = 2"),
              HasSubstr("SKIPPED config: run 'run 1' needs 9 ranks; this coordinator has 4 slots"));
  EXPECT_EQ(One("select json_extract(labels, '$.machine') from results"), "box");
}

TEST_F(CoordinatorTest, SecretsReachTheLauncherAndNothingElse) {
  (void)WithLoop([&] {
    Experiment experiment = MakeExperiment(1, 1, 1);
    v1::RunSpec spec;
    spec.set_ranks(1);
    v1::EnvironmentVariable* plain = spec.add_environment();
    plain->set_name("PLAIN");
    plain->set_text("seen");
    v1::EnvironmentVariable* secret = spec.add_environment();
    secret->set_name("TOKEN");
    secret->set_secret(true);
    experiment.runs[0].spec = std::make_shared<const std::string>(spec.SerializeAsString());
    experiment.secrets = {{"TOKEN", "hush-hush"}};
    SubmitThis(std::move(experiment));
    Settle();
    ASSERT_EQ(launcher_.started.size(), 1u);
    EXPECT_EQ(launcher_.started[0].environment,
              (std::map<std::string, std::string>{{"PLAIN", "seen"}}));
    EXPECT_EQ(launcher_.started[0].secrets,
              (std::map<std::string, std::string>{{"TOKEN", "hush-hush"}}));
    struct stat info {};
    ASSERT_EQ(stat((folder_.Path() + "/secrets/e1.json").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    RankOk(1, 0);
    events_.Post(GangGone{{1, 1}, absl::OkStatus()});
    Settle();
    EXPECT_FALSE(std::filesystem::exists(folder_.Path() + "/secrets/e1.json"))
        << "gone with the experiment's last run";
  });
  for (const char* file : {"/regatta.db", "/regatta.db-wal"}) {
    std::ifstream stream(folder_.Path() + file, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(stream)), {});
    EXPECT_EQ(bytes.find("hush-hush"), std::string::npos) << file;
  }
}

TEST_F(CoordinatorTest, AHundredThousandRunsAreOnDiskInSeconds) {
  const auto start = std::chrono::steady_clock::now();
  double seconds = 0;
  (void)WithLoop([&] {
    Submit(100000, 1, 1);
    Settle();
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ASSERT_EQ(launcher_.started.size(), 1u);
    std::vector<int64_t> all(99999);
    std::iota(all.begin(), all.end(), 2);
    Cancel(all);
    Settle();
    events_.Post(GangGone{{1, 1}, absl::OkStatus()});
  });
  EXPECT_EQ(One("select count(*) from results where state = 'CANCELLED'"), "99999");
  EXPECT_LT(seconds, 20) << "a gate against a change of order, not a measurement";
  std::printf("100,000 runs on disk in %.2f s\n", seconds);
}

TEST_F(CoordinatorTest, AwaitAnswersAtTheNextCommitAndAtItsDeadline) {
  std::vector<int64_t> answers;
  (void)WithLoop([&] {
    std::promise<void> first;
    events_.Post(AwaitWanted{0, 1e6, [&](int64_t commit) {
                               answers.push_back(commit);
                               first.set_value();
                             }});
    Settle();
    first.get_future().wait();
    std::promise<void> second;
    events_.Post(AwaitWanted{1 << 30, 0, [&](int64_t commit) {
                               answers.push_back(commit);
                               second.set_value();
                             }});
    second.get_future().wait();
  });
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_GT(answers[0], 0);
}

}  // namespace
}  // namespace regatta
