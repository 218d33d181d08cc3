#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <string>

namespace regatta {

// Of the caching allocator of one GPU.
struct GpuMemory {
  int64_t allocated = 0;  // bytes of tensors
  int64_t peak = 0;       // the most since it was asked last
  int64_t reserved = 0;   // bytes taken from the driver
};

// What libregatta_cuda.so gives, the only code that knows CUDA and NCCL. One thread.
class GpuModule {
 public:
  virtual ~GpuModule() = default;

  // Why no GPU can be used here: a sentence, or empty.
  [[nodiscard]] virtual std::string WhyUnusable() const = 0;
  // GPUs that this process sees (CUDA_VISIBLE_DEVICES).
  [[nodiscard]] virtual int Devices() const = 0;
  [[nodiscard]] virtual std::string DeviceName(int device) const = 0;
  // From now on what is made on "cuda" is made there.
  virtual void UseDevice(int device) = 0;
  [[nodiscard]] virtual GpuMemory TakeMemory(int device) = 0;
  // An allocation that would lead beyond `bytes` throws c10::OutOfMemoryError.
  virtual void LimitMemory(int device, int64_t bytes) = 0;
  // Waits until the device has done all that it was told.
  virtual void Synchronize(int device) = 0;

  // The NCCL backend of one rank, bound to its device and connected to all others. Collective.
  [[nodiscard]] virtual c10::intrusive_ptr<c10d::Backend> MakeNccl(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, int device,
      std::chrono::milliseconds timeout) = 0;
  // The 128 bytes by which ranks find each other, as ncclGetUniqueId makes them; needs no GPU.
  [[nodiscard]] virtual std::string MakeUniqueId() = 0;
};

// Opens libregatta_cuda.so beside this program, once; before anything else is asked of LibTorch,
// which would miss it. Throws std::runtime_error, one sentence, where it is not built or a library
// that it needs is missing.
[[nodiscard]] GpuModule& OpenGpuModule();

}  // namespace regatta
