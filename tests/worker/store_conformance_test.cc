#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "strategies/collectives/collectives.h"
#include "tests/testing/rendezvous_server.h"
#include "tests/testing/run_ranks.h"
#include "tests/testing/temporary_folder.h"
#include "worker/grpc_store.h"

namespace regatta {
namespace {

using Bytes = std::vector<uint8_t>;
using std::chrono::milliseconds;

Bytes B(const std::string& text) { return {text.begin(), text.end()}; }

// A kind of store, and two handles on the same one as two ranks would have them.
class StoreKind {
 public:
  virtual ~StoreKind() = default;
  virtual c10::intrusive_ptr<c10d::Store> Open(int rank) = 0;
};

class HashKind : public StoreKind {
 public:
  c10::intrusive_ptr<c10d::Store> Open(int) override { return store_; }

 private:
  c10::intrusive_ptr<c10d::Store> store_ = c10::make_intrusive<c10d::HashStore>();
};

class FileKind : public StoreKind {
 public:
  c10::intrusive_ptr<c10d::Store> Open(int) override {
    return c10::make_intrusive<c10d::FileStore>(folder_.Path() + "/store", -1);
  }

 private:
  TemporaryFolder folder_;
};

class TcpKind : public StoreKind {
 public:
  c10::intrusive_ptr<c10d::Store> Open(int rank) override {
    c10d::TCPStoreOptions options;
    options.port = server_ ? server_->getPort() : 0;
    options.isServer = rank == 0;
    options.waitWorkers = false;
    if (rank != 0) return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    server_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    return server_;
  }

 private:
  c10::intrusive_ptr<c10d::TCPStore> server_;
};

class GrpcKind : public StoreKind {
 public:
  c10::intrusive_ptr<c10d::Store> Open(int rank) override {
    return c10::make_intrusive<GrpcStore>(
        std::make_shared<CoordinatorClient>(RankIdentity{address_, 1, 1, rank, "secret"}));
  }

 private:
  TemporaryFolder folder_;
  const std::string address_ = "unix:" + folder_.Path() + "/socket";
  RendezvousServer server_{address_, 2};
};

// What is set may not be seen by another rank at once: TCPStore's set has no answer, but the same
// rank's get comes after it.
void SetAndSee(c10d::Store& store, const std::string& key, const Bytes& value) {
  store.set(key, value);
  EXPECT_EQ(store.get(key), value);
}

struct KindRow {
  const char* name;
  std::unique_ptr<StoreKind> (*make)();
};
constexpr KindRow kKinds[] = {
    {"Hash", [] { return std::unique_ptr<StoreKind>(new HashKind); }},
    {"File", [] { return std::unique_ptr<StoreKind>(new FileKind); }},
    {"Tcp", [] { return std::unique_ptr<StoreKind>(new TcpKind); }},
    {"Grpc", [] { return std::unique_ptr<StoreKind>(new GrpcKind); }},
};

class StoreConformanceTest : public testing::TestWithParam<KindRow> {
 protected:
  const std::unique_ptr<StoreKind> kind_ = GetParam().make();
  const c10::intrusive_ptr<c10d::Store> a_ = kind_->Open(0);
  const c10::intrusive_ptr<c10d::Store> b_ = kind_->Open(1);
};

TEST_P(StoreConformanceTest, WhatOneRankSetsAnotherGets) {
  a_->set("k", Bytes{0, 255, 10, 0});
  EXPECT_EQ(b_->get("k"), (Bytes{0, 255, 10, 0}));
  SetAndSee(*a_, "k", B("new"));
  EXPECT_EQ(b_->get("k"), B("new"));
  a_->set("empty", Bytes{});
  EXPECT_EQ(b_->get("empty"), Bytes{});
}

TEST_P(StoreConformanceTest, GetBlocksUntilTheKeyIsThere) {
  std::thread setter([&] { a_->set("late", B("x")); });
  EXPECT_EQ(b_->get("late"), B("x"));
  setter.join();
}

TEST_P(StoreConformanceTest, CountersAreDecimalText) {
  EXPECT_EQ(a_->add("n", 5), 5);
  EXPECT_EQ(b_->add("n", -2), 3);
  EXPECT_EQ(a_->get("n"), B("3"));
  EXPECT_EQ(a_->add("n", 0), 3);
}

TEST_P(StoreConformanceTest, AddIsAtomic) {
  constexpr int kEach = 50;
  std::thread other([&] {
    for (int i = 0; i < kEach; ++i) b_->add("sum", 1);
  });
  for (int i = 0; i < kEach; ++i) a_->add("sum", 1);
  other.join();
  EXPECT_EQ(a_->add("sum", 0), 2 * kEach);
}

TEST_P(StoreConformanceTest, CheckDoesNotBlock) {
  EXPECT_FALSE(a_->check({"one", "two"}));
  SetAndSee(*b_, "one", B("1"));
  EXPECT_FALSE(a_->check({"one", "two"}));
  SetAndSee(*b_, "two", B("2"));
  EXPECT_TRUE(a_->check({"one", "two"}));
}

TEST_P(StoreConformanceTest, WaitEndsWithAnErrorAtItsTime) {
  EXPECT_ANY_THROW(a_->wait({"never"}, milliseconds(50)));
  b_->set("there", B("x"));
  a_->wait({"there"}, milliseconds(5000));
}

TEST_P(StoreConformanceTest, ATimedOutWaitDoesNotHoldUpOthers) {
  std::thread waiter([&] { EXPECT_ANY_THROW(a_->wait({"never"}, milliseconds(300))); });
  for (int i = 0; i < 20; ++i) b_->set("k" + std::to_string(i), B("x"));
  EXPECT_EQ(b_->get("k19"), B("x"));
  waiter.join();
}

TEST_P(StoreConformanceTest, DeleteSaysWhetherTheKeyWasThere) {
  if (std::string(GetParam().name) == "File")
    GTEST_SKIP() << "FileStore says true for a key that is gone";
  SetAndSee(*a_, "k", B("x"));
  EXPECT_TRUE(b_->deleteKey("k"));
  EXPECT_FALSE(b_->deleteKey("k"));
  EXPECT_FALSE(a_->check({"k"}));
}

TEST_P(StoreConformanceTest, CompareSetSetsAnAbsentKeyAndAMatchingOne) {
  EXPECT_EQ(a_->compareSet("lock", Bytes{}, B("a")), B("a"));
  EXPECT_EQ(b_->compareSet("lock", B("other"), B("b")), B("a"));
  EXPECT_EQ(b_->compareSet("lock", B("a"), B("b")), B("b"));
  EXPECT_EQ(a_->get("lock"), B("b"));
}

TEST_P(StoreConformanceTest, TheExtendedVerbs) {
  if (!a_->hasExtendedApi())
    GTEST_SKIP() << GetParam().name << " store has no extended verbs of its own";
  a_->append("log", B("a"));
  EXPECT_EQ(a_->get("log"), B("a"));
  b_->append("log", B("b"));
  a_->multiSet({"x", "y"}, {B("1"), B("2")});
  EXPECT_EQ(b_->multiGet({"y", "log", "x"}), (std::vector<Bytes>{B("2"), B("ab"), B("1")}));
}

TEST_P(StoreConformanceTest, ACloneIsTheSameStore) {
  const auto clone = a_->clone();
  clone->set("through clone", B("x"));
  EXPECT_EQ(b_->get("through clone"), B("x"));
}

TEST_P(StoreConformanceTest, GlooMeetsThroughIt) {
  DisableFlightRecorder();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Collectives world(MakeGlooGroup(rank == 0 ? a_ : b_, rank, 2, std::chrono::seconds(30)));
      at::Tensor tensor = at::full({3}, rank + 1.0);
      world.AllReduceSum(tensor, Launch::kOnCallersStream).Wait();
      EXPECT_EQ(tensor[0].item<double>(), 3);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

INSTANTIATE_TEST_SUITE_P(AllStores, StoreConformanceTest, testing::ValuesIn(kKinds),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(GrpcStoreTest, ATimeoutIsADistStoreErrorThatNamesEverything) {
  GrpcKind kind;
  const auto store = kind.Open(1);
  store->setTimeout(milliseconds(50));
  try {
    store->get("gloo/0");
    FAIL();
  } catch (const c10::DistStoreError& e) {
    EXPECT_THAT(
        std::string(e.what_without_backtrace()),
        testing::HasSubstr("rank 1 waited too long for key 'gloo/0'; not joined: rank 0, 1"));
  }
}

TEST(GrpcStoreTest, KeysCanBeListedAndCounted) {
  GrpcKind kind;
  const auto store = kind.Open(0);
  store->set("b", B("1"));
  store->set("a", B("2"));
  EXPECT_EQ(store->listKeys(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(store->getNumKeys(), 2);
}

}  // namespace
}  // namespace regatta
