#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>

#include "strategies/collectives/collectives.h"
#include "strategies/cuda/gpu_module.h"
#include "worker/client/run_spec.h"

namespace regatta {

inline constexpr auto kGroupTimeout = std::chrono::minutes(30);  // PyTorch's own for Gloo

// Where a rank's tensors live; it has one device.
struct Placement {
  at::Device device = at::kCPU;
  GpuModule* gpu = nullptr;  // null: on the CPU

  // The most bytes that tensors took; and a function that tells the same since it was asked last.
  [[nodiscard]] int64_t PeakBytes() const;
  [[nodiscard]] auto TakePhasePeakBytes() const -> int64_t (*)();
  // Until the device has done all that it was told.
  void AwaitDevice() const;
};

// Opens the GPU module where the run says so: before anything else is asked of LibTorch. Throws the
// sentence where no GPU can be used.
[[nodiscard]] Placement ChoosePlacement(const RunSpec& spec, int rank);

// Gloo for small tensors that ranks look at; on a GPU NCCL beside it for all others, unless Gloo is
// asked to carry them, too. Collective.
[[nodiscard]] c10::intrusive_ptr<CountedGroup> MakeWorld(
    const RunSpec& spec, int rank, const c10::intrusive_ptr<c10d::Store>& store,
    const Placement& place);

// Ends what a GPU may still have under way: in order once all is done, at once where this rank
// failed, for it must not wait in a collective for peers that wait for it.
class GpuGroupEnd {
 public:
  explicit GpuGroupEnd(const Collectives* group);  // null: nothing to end
  ~GpuGroupEnd();
  void Done();
  GpuGroupEnd(const GpuGroupEnd&) = delete;
  GpuGroupEnd& operator=(const GpuGroupEnd&) = delete;

 private:
  c10::intrusive_ptr<CountedGroup> group_;
};

}  // namespace regatta
