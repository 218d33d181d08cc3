#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace regatta {

// Largest resident set of this process so far (VmHWM).
[[nodiscard]] int64_t PeakRssBytes();

// What this process sees of itself and its machine: library versions, CPU, host.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> ProcessFacts();

}  // namespace regatta
