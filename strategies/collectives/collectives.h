#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace regatta {

// The calls of one kind. Payload: the bytes of the tensors that this rank handed over, whatever the
// algorithm moves.
struct Traffic {
  int64_t calls = 0;
  int64_t bytes = 0;
};

// By kind, as the profiler names them: "all_reduce".
using TrafficByKind = std::map<std::string, Traffic>;

// A process group that counts what goes through it, also from LibTorch's own objects such as
// c10d::Reducer. One thread.
class CountedGroup : public c10d::ProcessGroup {
 public:
  using c10d::ProcessGroup::ProcessGroup;

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;

  [[nodiscard]] const TrafficByKind& Counted() const { return counted_; }

 private:
  void Count(const char* kind, const std::vector<at::Tensor>& tensors);
  TrafficByKind counted_;
};

// Whether a backend may run the work on the caller's stream (c10d's asyncOp = false) or beside it.
enum class Launch { kOnCallersStream, kBeside };

// A collective that was started. Wait once, before the tensor is read.
class PendingWork {
 public:
  PendingWork(std::string what, c10::intrusive_ptr<c10d::Work> work)
      : what_(std::move(what)), work_(std::move(work)) {}
  // Throws c10::DistBackendError naming the collective where a peer is gone or the time is over.
  void Wait();

 private:
  std::string what_;
  c10::intrusive_ptr<c10d::Work> work_;
};

// The one layer over c10d: contiguity is checked, calls and bytes are counted. Every operation
// starts work; Wait is explicit. All ranks make the same calls in the same order. One thread.
class Collectives {
 public:
  explicit Collectives(c10::intrusive_ptr<CountedGroup> group) : group_(std::move(group)) {}

  [[nodiscard]] int Rank() const { return group_->getRank(); }
  [[nodiscard]] int Size() const { return group_->getSize(); }

  // Sums over all ranks, in place.
  [[nodiscard]] PendingWork AllReduceSum(at::Tensor tensor, Launch launch);
  // Every rank's tensor, by rank; all have the same shape.
  [[nodiscard]] std::vector<at::Tensor> AllGather(const at::Tensor& tensor);

  [[nodiscard]] const TrafficByKind& Counted() const { return group_->Counted(); }

  // For LibTorch's own objects.
  [[nodiscard]] const c10::intrusive_ptr<CountedGroup>& Group() const { return group_; }

 private:
  const c10::intrusive_ptr<CountedGroup> group_;
};

// Where Gloo's connections begin and end.
inline constexpr const char* kGlooAddress = "127.0.0.1";

// A group over Gloo in which all ranks are on this machine.
[[nodiscard]] c10::intrusive_ptr<CountedGroup> MakeGlooGroup(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    std::chrono::milliseconds timeout);

}  // namespace regatta
