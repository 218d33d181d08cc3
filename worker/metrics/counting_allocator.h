#pragma once

#include <cstdint>

namespace regatta {

// Counts what ATen allocates on the CPU, exactly and in all threads, from InstallCountingAllocator
// on (call it first in main: tensors that exist already are not counted).
void InstallCountingAllocator();

[[nodiscard]] int64_t CurrentTensorBytes();
[[nodiscard]] int64_t PeakTensorBytes();

}  // namespace regatta
