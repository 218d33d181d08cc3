#include "coordinator/outcome.h"

#include <gtest/gtest.h>

#include <csignal>

namespace regatta {
namespace {

constexpr int Exit(int code) { return code << 8; }

RankFate Good() {
  return {.joined = true, .finished = true, .finished_ok = true, .sentence = "", .wait_status = 0};
}
RankFate Exited(int code, int order, const std::string& words = "") {
  return {.joined = true, .sentence = words, .wait_status = Exit(code), .bad_news_order = order};
}
RankFate Signalled(int signal, int order) {
  return {.joined = true, .sentence = "", .wait_status = signal, .bad_news_order = order};
}
RankFate Killed() {
  return {
      .joined = true, .sentence = "", .wait_status = SIGTERM, .killed = true, .bad_news_order = 2};
}

TEST(OutcomeTest, OnlyAllRanksWellIsSuccess) {
  EXPECT_EQ(DecideOutcome({.ranks = {Good(), Good()}, .stop_sentence = ""}).state,
            RunState::kSucceeded);
}

TEST(OutcomeTest, GoodResultWithoutExitZeroIsFailure) {
  RankFate rank = Good();
  rank.wait_status = Exit(3);
  const Outcome outcome = DecideOutcome({.ranks = {Good(), rank}, .stop_sentence = ""});
  EXPECT_EQ(outcome.state, RunState::kFailed);
  EXPECT_EQ(outcome.sentence, "rank 1 exited with code 3");
}

TEST(OutcomeTest, ExitZeroWithoutResultIsFailure) {
  const Outcome outcome = DecideOutcome({.ranks = {Exited(0, 1), Good()}, .stop_sentence = ""});
  EXPECT_EQ(outcome.state, RunState::kFailed);
  EXPECT_EQ(outcome.sentence, "rank 0 exited with code 0 without sending its result");
}

TEST(OutcomeTest, AnExitThatWasNeverSeenIsFailure) {
  RankFate lost = Good();
  lost.wait_status.reset();
  const Outcome outcome = DecideOutcome({.ranks = {Good(), lost}, .stop_sentence = ""});
  EXPECT_EQ(outcome.state, RunState::kFailed);
  EXPECT_EQ(outcome.sentence, "rank 1 was lost: its exit was never seen");
}

TEST(OutcomeTest, NamesTheFirstFailureNotTheVictims) {
  const Outcome outcome =
      DecideOutcome({.ranks = {Killed(), Exited(1, 1, "tensor 'x' is missing"), Killed()},
                     .stop = StopCause::kRankFailed,
                     .stop_sentence = ""});
  EXPECT_EQ(outcome.reason, "rank_exit");
  EXPECT_EQ(outcome.sentence, "rank 1 exited with code 1: tensor 'x' is missing");
}

TEST(OutcomeTest, WhatDoesNotFitIsAReasonOfItsOwn) {
  RankFate rank = Exited(66, 2, "does not fit: needs at least 27.3 GiB, memory_limit is 16.0 GiB");
  rank.finished = true;
  rank.announced_exit_code = 66;
  const Outcome outcome = DecideOutcome({.ranks = {Exited(67, 1, "connection closed"), rank},
                                         .stop = StopCause::kRankFailed,
                                         .stop_sentence = ""});
  EXPECT_EQ(outcome.reason, "oom_device");
  EXPECT_EQ(outcome.sentence,
            "rank 1 does not fit: needs at least 27.3 GiB, memory_limit is 16.0 GiB");
  EXPECT_EQ(DecideOutcome({.ranks = {Exited(66, 1)}, .stop_sentence = ""}).reason, "rank_exit")
      << "a code alone says nothing of memory";
  RankFate after_result = Good();
  after_result.wait_status = Exit(66);
  EXPECT_EQ(DecideOutcome({.ranks = {after_result}, .stop_sentence = ""}).reason, "rank_exit");
}

TEST(OutcomeTest, ADeadRankIsTheCauseEvenWhenItsPeerComplainedFirst) {
  const Outcome outcome =
      DecideOutcome({.ranks = {Exited(67, 1, "connection closed by peer"), Signalled(SIGKILL, 2)},
                     .stop = StopCause::kRankFailed,
                     .stop_sentence = ""});
  EXPECT_EQ(outcome.reason, "rank_signal");
  EXPECT_EQ(outcome.sentence, "rank 1 was killed by signal 9 (Killed), cause unknown");
}

TEST(OutcomeTest, ARankThatSaidWhyIsTheCauseEvenWhenItWasStoppedBeforeItsExit) {
  RankFate said = Killed();
  said.finished = true;
  said.sentence = "model.safetensors is cut off";
  said.announced_exit_code = 1;
  RankFate peer = said;
  peer.sentence = "connection closed";
  peer.announced_exit_code = 67;
  peer.bad_news_order = 1;
  const Outcome outcome =
      DecideOutcome({.ranks = {peer, said}, .stop = StopCause::kRankFailed, .stop_sentence = ""});
  EXPECT_EQ(outcome.reason, "rank_exit");
  EXPECT_EQ(outcome.sentence, "rank 1 exited with code 1: model.safetensors is cut off");
}

TEST(OutcomeTest, SignalsAreNamedWithTheirCore) {
  constexpr int kCoreFlag = 0x80;
  const Outcome outcome = DecideOutcome({.ranks = {Signalled(SIGSEGV | kCoreFlag, 1)},
                                         .stop = StopCause::kRankFailed,
                                         .stop_sentence = ""});
  EXPECT_EQ(outcome.sentence, "rank 0 was killed by signal 11 (Segmentation fault), core dumped");
}

TEST(OutcomeTest, TheOutOfMemoryKillerIsTheCauseOfASigkillOnly) {
  RankFate killed = Signalled(SIGKILL, 1);
  killed.oom_kills = 1;
  EXPECT_EQ(DecideOutcome({.ranks = {killed}, .stop_sentence = ""}).reason, "oom_host");
  RankFate child = Exited(1, 1, "a loader ended");
  child.oom_kills = 1;
  const Outcome outcome = DecideOutcome({.ranks = {Good(), child}, .stop_sentence = ""});
  EXPECT_EQ(outcome.reason, "rank_exit");
  EXPECT_EQ(outcome.sentence,
            "rank 1 exited with code 1 after the system's out-of-memory killer took a process of "
            "it: a loader ended");
  EXPECT_EQ(outcome.failed_rank, 1);
  RankFate unharmed = Good();
  unharmed.oom_kills = 1;
  EXPECT_EQ(DecideOutcome({.ranks = {unharmed}, .stop_sentence = ""}).state, RunState::kSucceeded);
}

TEST(OutcomeTest, ARankThatDoesNotEndIsNeverSuccess) {
  RankFate stuck = Good();
  stuck.wait_status.reset();
  stuck.stuck_pid = 5;
  const Outcome outcome = DecideOutcome({.ranks = {Good(), stuck}, .stop_sentence = ""});
  EXPECT_EQ(outcome.state, RunState::kFailed);
  EXPECT_NE(outcome.sentence.find("rank 1 does not end though it was killed (pid 5)"),
            std::string::npos);
}

TEST(OutcomeTest, StopCausesKeepTheirSentence) {
  const auto with = [](StopCause cause) {
    return DecideOutcome({.ranks = {Killed(), Killed()}, .stop = cause, .stop_sentence = "why"});
  };
  EXPECT_EQ(with(StopCause::kCancelled).state, RunState::kCancelled);
  EXPECT_EQ(with(StopCause::kDaemonStop).reason, "coordinator_stopped");
  EXPECT_EQ(with(StopCause::kJoinTimeout).reason, "join_timeout");
  EXPECT_EQ(with(StopCause::kJoinTimeout).sentence, "why");
  EXPECT_EQ(with(StopCause::kSpawn).reason, "spawn");
}

TEST(OutcomeTest, CancelOfARunThatWasDoneIsSuccess) {
  EXPECT_EQ(
      DecideOutcome({.ranks = {Good(), Good()}, .stop = StopCause::kCancelled, .stop_sentence = ""})
          .state,
      RunState::kSucceeded);
}

TEST(OutcomeTest, OnlyKilledRanksSayThatNobodyKnowsWhy) {
  const Outcome outcome =
      DecideOutcome({.ranks = {Killed()}, .stop = StopCause::kRankFailed, .stop_sentence = ""});
  EXPECT_EQ(outcome.state, RunState::kFailed);
  EXPECT_FALSE(outcome.sentence.empty());
}

}  // namespace
}  // namespace regatta
