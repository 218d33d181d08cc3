#include "coordinator/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace regatta {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RendezvousTest : public testing::Test {
 protected:
  static RankCaller Caller(int rank, const std::string& token = "secret", int attempt = 1) {
    return {{7, attempt}, rank, token};
  }
  void SetUp() override { rendezvous_.Open({7, 1}, 2, "secret"); }

  std::vector<AttemptKey> all_joined_;
  Rendezvous rendezvous_{[this](AttemptKey key) { all_joined_.push_back(key); }};
};

TEST_F(RendezvousTest, JoinAnswersAllWhenTheLastComes) {
  int answered = 0;
  const auto done = [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok());
    EXPECT_EQ(all_joined_.size(), 1u) << "the coordinator hears first";
    ++answered;
  };
  ASSERT_TRUE(rendezvous_.Join(Caller(1), done).ok());
  EXPECT_EQ(answered, 0);
  EXPECT_THAT(rendezvous_.MissingRanks({7, 1}), ElementsAre(0));
  ASSERT_TRUE(rendezvous_.Join(Caller(0), done).ok());
  EXPECT_EQ(answered, 2);
  EXPECT_THAT(rendezvous_.MissingRanks({7, 1}), ElementsAre());
}

TEST_F(RendezvousTest, StrangersAreRefused) {
  const auto never = [](const absl::Status&) { FAIL(); };
  EXPECT_THAT(std::string(rendezvous_.Join(Caller(0, "guess"), never).message()),
              HasSubstr("token"));
  EXPECT_THAT(std::string(rendezvous_.Join(Caller(2), never).message()),
              HasSubstr("outside the 2 ranks"));
  EXPECT_THAT(std::string(rendezvous_.Join(Caller(0, "secret", 2), never).message()),
              HasSubstr("attempt 2 of run 7"));
  EXPECT_EQ(rendezvous_.Set(Caller(-1), {"k"}, {"v"}).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(RendezvousTest, JoiningTwiceIsRefused) {
  ASSERT_TRUE(rendezvous_.Join(Caller(0), [](const absl::Status&) {}).ok());
  EXPECT_THAT(std::string(rendezvous_.Join(Caller(0), [](const absl::Status&) {}).message()),
              HasSubstr("joined already"));
}

TEST_F(RendezvousTest, GetWaitsForTheLastOfItsKeys) {
  Rendezvous::Values got;
  const auto waiting = rendezvous_.Get(
      Caller(0), {"a", "b"}, [&](absl::StatusOr<Rendezvous::Values> values) { got = *values; });
  ASSERT_TRUE(waiting.ok());
  EXPECT_NE(*waiting, 0u);
  ASSERT_TRUE(rendezvous_.Set(Caller(1), {"b"}, {"2"}).ok());
  EXPECT_TRUE(got.empty());
  ASSERT_TRUE(rendezvous_.Set(Caller(1), {"a"}, {std::string("\0x", 2)}).ok());
  EXPECT_THAT(got, ElementsAre(std::string("\0x", 2), "2"));
  rendezvous_.Expire(*waiting);  // too late: harmless
}

TEST_F(RendezvousTest, AnExpiredGetNamesKeyRankAndWhoIsMissing) {
  ASSERT_TRUE(rendezvous_.Join(Caller(0), [](const absl::Status&) {}).ok());
  absl::Status status;
  const auto waiting =
      rendezvous_.Get(Caller(0), {"gloo/1"},
                      [&](absl::StatusOr<Rendezvous::Values> values) { status = values.status(); });
  rendezvous_.Expire(*waiting);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(), "rank 0 waited too long for key 'gloo/1'; not joined: rank 1");
}

TEST_F(RendezvousTest, CloseAnswersWhoWaitsAndForgetsTheScope) {
  absl::Status got;
  absl::Status joined;
  (void)rendezvous_.Get(Caller(0), {"k"},
                        [&](absl::StatusOr<Rendezvous::Values> values) { got = values.status(); });
  (void)rendezvous_.Join(Caller(0), [&](const absl::Status& status) { joined = status; });
  rendezvous_.Close({7, 1}, "the run is being stopped");
  EXPECT_EQ(got.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(joined.message(), "the run is being stopped");
  EXPECT_EQ(rendezvous_.Check(Caller(0)).code(), absl::StatusCode::kFailedPrecondition);
  rendezvous_.Close({7, 1}, "again");
}

TEST_F(RendezvousTest, AttemptsDoNotSeeEachOthersKeys) {
  rendezvous_.Open({7, 2}, 2, "other");
  ASSERT_TRUE(rendezvous_.Set(Caller(0), {"k"}, {"old"}).ok());
  EXPECT_FALSE(*rendezvous_.HasAll(Caller(0, "other", 2), {"k"}));
}

TEST_F(RendezvousTest, AddKeepsDecimalTextAndWakesReaders) {
  Rendezvous::Values got;
  (void)rendezvous_.Get(Caller(0), {"n"},
                        [&](absl::StatusOr<Rendezvous::Values> values) { got = *values; });
  EXPECT_EQ(*rendezvous_.Add(Caller(0), "n", 5), 5);
  EXPECT_EQ(*rendezvous_.Add(Caller(1), "n", -7), -2);
  EXPECT_THAT(got, ElementsAre("5"));
  ASSERT_TRUE(rendezvous_.Set(Caller(0), {"t"}, {"text"}).ok());
  EXPECT_EQ(rendezvous_.Add(Caller(0), "t", 1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(RendezvousTest, CompareSetFollowsC10d) {
  EXPECT_EQ(*rendezvous_.CompareSet(Caller(0), "k", "x", "y"), "x")
      << "absent, other value expected";
  EXPECT_FALSE(*rendezvous_.HasAll(Caller(0), {"k"}));
  EXPECT_EQ(*rendezvous_.CompareSet(Caller(0), "k", "", "first"), "first");
  EXPECT_EQ(*rendezvous_.CompareSet(Caller(0), "k", "other", "second"), "first");
  EXPECT_EQ(*rendezvous_.CompareSet(Caller(0), "k", "first", "second"), "second");
}

TEST_F(RendezvousTest, AppendDeleteAndList) {
  ASSERT_TRUE(rendezvous_.Append(Caller(0), "k", "a").ok());
  ASSERT_TRUE(rendezvous_.Append(Caller(1), "k", "b").ok());
  EXPECT_THAT(*rendezvous_.ListKeys(Caller(0)), ElementsAre("k"));
  EXPECT_TRUE(*rendezvous_.Delete(Caller(0), "k"));
  EXPECT_FALSE(*rendezvous_.Delete(Caller(0), "k"));
}

TEST_F(RendezvousTest, KeysAndValuesMustMatch) {
  EXPECT_EQ(rendezvous_.Set(Caller(0), {"a", "b"}, {"1"}).code(),
            absl::StatusCode::kInvalidArgument);
}

// Under the thread sanitizer this is the test of the lock.
TEST(RendezvousThreadsTest, ManyRanksMeetAtOnce) {
  constexpr int kRanks = 16;
  std::atomic<int> joined{0};
  std::atomic<int> got{0};
  Rendezvous rendezvous([](AttemptKey) {});
  rendezvous.Open({1, 1}, kRanks, "t");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const RankCaller caller{{1, 1}, rank, "t"};
      EXPECT_TRUE(rendezvous.Join(caller, [&](const absl::Status&) { ++joined; }).ok());
      EXPECT_TRUE(rendezvous.Set(caller, {std::to_string(rank)}, {"x"}).ok());
      Rendezvous::Values keys;
      for (int peer = 0; peer < kRanks; ++peer) keys.push_back(std::to_string(peer));
      EXPECT_TRUE(rendezvous
                      .Get(caller, keys,
                           [&](absl::StatusOr<Rendezvous::Values> v) { got += v.ok() ? 1 : 0; })
                      .ok());
      EXPECT_TRUE(rendezvous.Add(caller, "count", 1).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(joined, kRanks);
  EXPECT_EQ(got, kRanks);
  EXPECT_EQ(*rendezvous.Add({{1, 1}, 0, "t"}, "count", 0), kRanks);
}

}  // namespace
}  // namespace regatta
