#pragma once

#include <cstdlib>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "strategies/collectives/collectives.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace regatta {

// LibTorch's flight recorder is one a process, and two groups that record at once can crash it (a
// map without a lock, seen in 2.11.0). Real ranks have a process each. Call before the first group.
inline void DisableFlightRecorder() { setenv("TORCH_FR_BUFFER_SIZE", "0", 1); }

// Runs `body` as that many ranks, one thread each, over Gloo and a store in memory. Rethrows the
// first exception.
inline void RunRanks(int ranks, const std::function<void(Collectives&)>& body) {
  DisableFlightRecorder();
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
