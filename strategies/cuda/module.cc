#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "strategies/cuda/gpu_module.h"

namespace regatta {
namespace {

// "2.28.9" of 22809.
std::string NcclVersion(int code) {
  return std::to_string(code / 10000) + "." + std::to_string(code / 100 % 100) + "." +
         std::to_string(code % 100);
}

std::string CudaVersion(int code) {
  return std::to_string(code / 1000) + "." + std::to_string(code % 1000 / 10);
}

class CudaModule : public GpuModule {
 public:
  [[nodiscard]] std::string WhyUnusable() const override {
    int nccl = 0;
    if (ncclGetVersion(&nccl) != ncclSuccess) return "NCCL does not tell its version";
    if (nccl != NCCL_VERSION_CODE) {
      return "NCCL " + NcclVersion(nccl) + " is loaded, but the GPU module was built against " +
             NcclVersion(NCCL_VERSION_CODE) + "; build again, or leave LD_LIBRARY_PATH unset";
    }
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0) return "this machine has no NVIDIA driver";
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error == cudaSuccess && devices > 0) return "";
    if (error == cudaErrorInsufficientDriver) {
      return "the NVIDIA driver is of CUDA " + CudaVersion(driver) + "; " +
             CudaVersion(CUDART_VERSION) + " or later is right";
    }
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    if (error == cudaErrorNoDevice || devices == 0) {
      return visible == nullptr
                 ? "this machine has a driver but no GPU"
                 : "CUDA_VISIBLE_DEVICES is '" + std::string(visible) + "', which shows no GPU";
    }
    return std::string("CUDA says: ") + cudaGetErrorString(error);
  }

  [[nodiscard]] int Devices() const override { return c10::cuda::device_count(); }

  [[nodiscard]] std::string DeviceName(int device) const override {
    cudaDeviceProp properties{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    return properties.name;
  }

  void UseDevice(int device) override {
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
  }

  [[nodiscard]] GpuMemory TakeMemory(int device) override {
    namespace allocator = c10::cuda::CUDACachingAllocator;
    const auto index = static_cast<c10::DeviceIndex>(device);
    const auto stats = allocator::getDeviceStats(index);
    allocator::resetPeakStats(index);
    constexpr auto kAll = 0;  // of the allocator's pools together
    return {stats.allocated_bytes[kAll].current, stats.allocated_bytes[kAll].peak,
            stats.reserved_bytes[kAll].current};
  }

  void LimitMemory(int device, int64_t bytes) override {
    size_t free = 0;
    size_t total = 0;
    UseDevice(device);
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    c10::cuda::CUDACachingAllocator::setMemoryFraction(
        std::min(1.0, static_cast<double>(bytes) / static_cast<double>(total)),
        static_cast<c10::DeviceIndex>(device));
  }

  void Synchronize(int device) override {
    UseDevice(device);
    c10::cuda::device_synchronize();
  }

  [[nodiscard]] c10::intrusive_ptr<c10d::Backend> MakeNccl(
      const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, int device,
      std::chrono::milliseconds timeout) override {
    auto options = c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
    // Else all groups but the process's first would have no ranks to name.
    options->global_ranks_in_group.resize(static_cast<size_t>(size));
    std::iota(options->global_ranks_in_group.begin(), options->global_ranks_in_group.end(), 0);
    auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
    const at::Device bound(at::kCUDA, static_cast<c10::DeviceIndex>(device));
    backend->setBoundDeviceId(bound);
    backend->eagerConnectSingleDevice(bound);  // else a part of the first step's time
    return backend;
  }

  [[nodiscard]] std::string MakeUniqueId() override {
    ncclUniqueId id{};
    const ncclResult_t result = ncclGetUniqueId(&id);
    TORCH_CHECK(result == ncclSuccess, "ncclGetUniqueId: ", ncclGetErrorString(result));
    return {id.internal, sizeof(id.internal)};
  }
};

}  // namespace
}  // namespace regatta

extern "C" regatta::GpuModule* RegattaMakeGpuModule() { return new regatta::CudaModule; }
