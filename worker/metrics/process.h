#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace regatta {

// Largest resident set of this process so far (VmHWM).
[[nodiscard]] int64_t PeakRssBytes();

// What this process sees of itself and its machine: versions, commit and binary, CPU and the cores
// that it may run on, memory, GPU, host.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> ProcessFacts();

}  // namespace regatta
