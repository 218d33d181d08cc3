#include "worker/metrics/counting_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <atomic>
#include <cstdio>
#include <iterator>

namespace regatta {
namespace {

// Process-wide by nature: ATen has one CPU allocator a process.
std::atomic<int64_t> current_bytes{0};
std::atomic<int64_t> peak_bytes{0};
std::atomic<int64_t> phase_peak_bytes{0};
std::atomic<int64_t> limit_bytes{0};  // 0: none

void Raise(std::atomic<int64_t>& peak, int64_t to) {
  int64_t before = peak.load(std::memory_order_relaxed);
  while (to > before && !peak.compare_exchange_weak(before, to, std::memory_order_relaxed)) {
  }
}

void Count(int64_t bytes) {
  const int64_t now = current_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  Raise(phase_peak_bytes, now);
  Raise(peak_bytes, now);
}

// ATen's own allocator behind a count; what malloc really gave is what is counted.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int64_t limit = limit_bytes.load(std::memory_order_relaxed);
    const int64_t needed = current_bytes + static_cast<int64_t>(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, limit == 0 || needed <= limit,
                     "does not fit: needs at least ", SizeText(needed), ", memory_limit is ",
                     SizeText(limit));
    c10::DataPtr inner = c10::GetDefaultCPUAllocator()->allocate(bytes);
    void* data = inner.get();
    TORCH_INTERNAL_ASSERT(inner.get_context() == data,
                          "the CPU allocator has a context of its own");
    inner.release_context();
    Count(static_cast<int64_t>(malloc_usable_size(data)));
    return {data, data, &Free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void Free(void* data) {
    if (data == nullptr) return;
    Count(-static_cast<int64_t>(malloc_usable_size(data)));
    c10::GetDefaultCPUAllocator()->raw_deleter()(data);
  }
};

}  // namespace

void InstallCountingAllocator() {
  static CountingAllocator allocator;
  constexpr uint8_t kAboveTheDefault = 1;
  c10::SetCPUAllocator(&allocator, kAboveTheDefault);
}

void LimitTensorBytes(int64_t bytes) { limit_bytes = bytes; }

std::string SizeText(int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto number = static_cast<double>(bytes);
  size_t unit = 0;
  for (; number >= 1024 && unit + 1 < std::size(kUnits); ++unit) number /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), unit == 0 ? "%.0f %s" : "%.1f %s", number, kUnits[unit]);
  return text;
}

int64_t CurrentTensorBytes() { return current_bytes; }
int64_t PeakTensorBytes() { return peak_bytes; }
int64_t TakePhasePeakBytes() { return phase_peak_bytes.exchange(current_bytes); }

}  // namespace regatta
