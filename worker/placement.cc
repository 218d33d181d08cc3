#include "worker/placement.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>

#include "worker/metrics/counting_allocator.h"

namespace regatta {
namespace {

// Asked through a plain function: a rank has one GPU.
struct {
  int index = 0;
  int64_t peak_bytes = 0;
} rank_gpu;

int64_t TakeGpuPhasePeakBytes() {
  const int64_t peak = OpenGpuModule().TakeMemory(rank_gpu.index).peak;
  rank_gpu.peak_bytes = std::max(rank_gpu.peak_bytes, peak);
  return peak;
}

}  // namespace

int64_t Placement::PeakBytes() const {
  if (gpu == nullptr) return PeakTensorBytes();
  (void)TakeGpuPhasePeakBytes();
  return rank_gpu.peak_bytes;
}

auto Placement::TakePhasePeakBytes() const -> int64_t (*)() {
  return gpu == nullptr ? regatta::TakePhasePeakBytes : TakeGpuPhasePeakBytes;
}

void Placement::AwaitDevice() const {
  if (gpu != nullptr) gpu->Synchronize(device.index());
}

Placement ChoosePlacement(const RunSpec& spec, int rank) {
  if (spec.device != "cuda") return {};
  GpuModule& gpu = OpenGpuModule();
  const std::string wrong = gpu.WhyUnusable();
  TORCH_CHECK(wrong.empty(), wrong);
  const int index = rank % gpu.Devices();  // the coordinator shows each rank its own
  gpu.UseDevice(index);
  rank_gpu.index = index;
  if (spec.memory_limit > 0) gpu.LimitMemory(index, spec.memory_limit);
  at::globalContext().setAllowTF32CuBLAS(spec.precision == "tf32");
  at::globalContext().setAllowTF32CuDNN(spec.precision == "tf32");
  return {at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index)), &gpu};
}

c10::intrusive_ptr<CountedGroup> MakeWorld(const RunSpec& spec, int rank,
                                           const c10::intrusive_ptr<c10d::Store>& store,
                                           const Placement& place) {
  auto group = MakeGlooGroup(store, rank, spec.ranks, kGroupTimeout);
  if (place.gpu == nullptr) return group;
  if (spec.backend == "gloo") {
    group->UseDevice(place.device, /*native=*/false, [](CountedGroup& part) {
      part.setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::GLOO,
                      part.getBackend(c10::DeviceType::CPU));
    });
  } else {
    group->UseDevice(place.device, /*native=*/true, [place](CountedGroup& part) {
      const auto scoped = c10::make_intrusive<c10d::PrefixStore>("nccl/", part.getStore());
      part.setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL,
                      place.gpu->MakeNccl(scoped, part.getRank(), part.getSize(),
                                          place.device.index(), kGroupTimeout));
    });
  }
  return group;
}

GpuGroupEnd::GpuGroupEnd(const Collectives* group) {
  if (group != nullptr && group->Group()->IsNative()) group_ = group->Group();
}

GpuGroupEnd::~GpuGroupEnd() {
  if (group_) group_->getBackend(c10::DeviceType::CUDA)->abort();
}

void GpuGroupEnd::Done() {
  if (group_) group_->getBackend(c10::DeviceType::CUDA)->shutdown();
  group_.reset();
}

}  // namespace regatta
