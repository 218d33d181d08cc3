#pragma once

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "strategies/collectives/collectives.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace regatta {

// Runs `body` as that many ranks, one thread each, over Gloo and a store in memory. Rethrows the
// first exception.
inline void RunRanks(int ranks, const std::function<void(Collectives&)>& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Collectives world(MakeGlooGroup(store, rank, ranks, std::chrono::seconds(60)));
        body(world);
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace regatta
