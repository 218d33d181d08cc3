#pragma once

#include <cstdint>
#include <string>

namespace regatta {

// Counts what ATen allocates on the CPU, exactly and in all threads, from InstallCountingAllocator
// on (call it first in main: tensors that exist already are not counted).
void InstallCountingAllocator();

// From now on an allocation that would lead beyond `bytes` throws c10::OutOfMemoryError, saying how
// much is needed at least; 0: no limit.
void LimitTensorBytes(int64_t bytes);

// "27.3 GiB".
[[nodiscard]] std::string SizeText(int64_t bytes);

[[nodiscard]] int64_t CurrentTensorBytes();
[[nodiscard]] int64_t PeakTensorBytes();
// The same since it was asked last.
int64_t TakePhasePeakBytes();

}  // namespace regatta
