#include "coordinator/event_queue.h"

#include <gtest/gtest.h>

#include <thread>

namespace regatta {
namespace {

TEST(EventQueueTest, KeepsEachPostersOrder) {
  EventQueue queue;
  constexpr int kEach = 1000;
  std::vector<std::thread> posters;
  for (int run = 0; run < 4; ++run) {
    posters.emplace_back([&queue, run] {
      for (int i = 0; i < kEach; ++i) queue.Post(RankSpawned{{run, 1}, i, 0});
    });
  }
  std::vector<int> next(4, 0);
  for (int taken = 0; taken < 4 * kEach;) {
    for (const Event& event : queue.Take(std::nullopt)) {
      const auto& spawned = std::get<RankSpawned>(event);
      EXPECT_EQ(spawned.rank, next[static_cast<size_t>(spawned.key.run)]++);
      ++taken;
    }
  }
  for (std::thread& poster : posters) poster.join();
}

TEST(EventQueueTest, ADeadlineInThePastReturnsAtOnce) {
  EventQueue queue;
  EXPECT_TRUE(queue.Take(Instant()).empty());
  queue.Post(ShutdownWanted{});
  EXPECT_EQ(queue.Take(Instant()).size(), 1u);
}

}  // namespace
}  // namespace regatta
