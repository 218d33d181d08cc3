#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace regatta {

// The calls of one kind. Payload: the bytes of the tensors that this rank handed over, whatever the
// algorithm moves; sent: what it moves (SentBytes).
struct Traffic {
  int64_t calls = 0;
  int64_t bytes = 0;
  double sent = 0;
};

// By kind, as the profiler names them: "all_reduce".
using TrafficByKind = std::map<std::string, Traffic>;

// The kind of transfers that start together: one kernel on a GPU. A send and a receive in it are
// calls of their own kinds.
inline constexpr const char* kTransferBatch = "transfer_batch";

// What a group lets pass. kNccl is what NCCL asks for, checked on any backend, so that a strategy
// that would fail or hang on GPUs is found on a CPU: no tags, a first batch of transfers that all
// ranks make together (Collectives::Connect), and the same calls in the same order on all
// ranks (see Collectives::CheckSameCalls). That transfers do not wait for each other is for a
// program to prove (CheckProgram): each batch is one NCCL group.
enum class Rules { kBackend, kNccl };

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

  // Transfers that start together, in no total: each is counted as what it is, too.
  void CountTransferBatch() { ++(*counted_)[kTransferBatch].calls; }
  // For algorithms made of several calls, and of calls that are not this group's own.
  void Count(const char* kind, const std::vector<at::Tensor>& tensors);
  [[nodiscard]] const TrafficByKind& Counted() const { return *counted_; }
  // From now on this group counts and checks as a part of `whole`, of whose ranks it has some.
  void BePartOf(const CountedGroup& whole);

  // Tensors on a device other than the CPU go through what `add` adds to a group, and to each part
  // of it; `native`: which has reduce-scatter, all-gather and batches of transfers of its own.
  using AddBackend = std::function<void(CountedGroup& group)>;
  void UseDevice(at::Device device, bool native, AddBackend add);
  [[nodiscard]] at::Device GetDevice() const { return device_; }
  [[nodiscard]] bool IsNative() const { return native_; }

  void SetRules(Rules rules) { rules_ = rules; }
  [[nodiscard]] Rules GetRules() const { return rules_; }
  // Since it was asked last, under kNccl: "all_reduce of 400 bytes".
  [[nodiscard]] std::vector<std::string> TakeCalls() { return std::exchange(calls_, {}); }

 private:
  std::shared_ptr<TrafficByKind> counted_ = std::make_shared<TrafficByKind>();
  Rules rules_ = Rules::kBackend;
  std::vector<std::string> calls_;
  at::Device device_ = at::kCPU;
  bool native_ = false;
  AddBackend add_backend_;
};

// Whether a backend may run the work on the caller's stream (c10d's asyncOp = false) or beside it.
enum class Launch { kOnCallersStream, kBeside };

// A collective that was started. Wait once, before the tensor is read.
class PendingWork {
 public:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  // `then` is what is left to do once all works are done; it may be empty.
  PendingWork(std::string what, Works works, std::function<void()> then = {})
      : what_(std::move(what)), works_(std::move(works)), then_(std::move(then)) {}
  // Throws c10::DistBackendError naming the collective where a peer is gone or the time is over.
  void Wait();

 private:
  std::string what_;
  Works works_;
  std::function<void()> then_;
};

// One end of a transfer between two ranks. The other end names the same tag.
struct Transfer {
  enum class Direction { kSend, kReceive };
  Direction direction;
  at::Tensor tensor;  // contiguous
  int peer = 0;
  int tag = 0;  // tells transfers between the same two ranks apart; NCCL has none
};

// How a sum is scattered. kDirect: each rank sends every part to the rank that adds it up, (W - 1)
// / W of the input. kEmulated: an all-reduce of which each rank keeps its part, twice as much, as
// PyTorch does where a backend has no reduce-scatter.
enum class ReduceScatter { kDirect, kEmulated };

// The one layer over c10d: contiguity is checked, calls and bytes are counted. Every operation
// starts work; Wait is explicit. All ranks make the same calls in the same order. One thread.
class Collectives {
 public:
  explicit Collectives(c10::intrusive_ptr<CountedGroup> group) : group_(std::move(group)) {}

  [[nodiscard]] int Rank() const { return group_->getRank(); }
  [[nodiscard]] int Size() const { return group_->getSize(); }
  // Of the tensors that strategies hand over; small ones that only ranks look at are on the CPU.
  [[nodiscard]] at::Device Device() const { return group_->GetDevice(); }

  // Sums over all ranks, in place.
  [[nodiscard]] PendingWork AllReduceSum(at::Tensor tensor, Launch launch);
  // Gives every rank the root's values.
  [[nodiscard]] PendingWork Broadcast(at::Tensor tensor, int root, Launch launch);
  // `input` is W parts of equal size, `output` becomes this rank's part of the sum over ranks,
  // which are added in the order of ranks. `output` may be this rank's part of `input`, which is
  // left alone until then; emulated, it holds the whole sum afterwards.
  [[nodiscard]] PendingWork ReduceScatterSum(const at::Tensor& input, const at::Tensor& output,
                                             ReduceScatter how);
  // `all` becomes the W tensors of all ranks, one after another; `mine` may be this rank's place in
  // it.
  [[nodiscard]] PendingWork AllGatherInto(const at::Tensor& all, const at::Tensor& mine);
  // Starts transfers together, so that none waits for another; receives are ready once their work
  // was waited for. In the order of `transfers`.
  [[nodiscard]] std::vector<PendingWork> StartTransfers(std::vector<Transfer> transfers);
  // One small transfer to and from each of these ranks, which name this one too, so that channels
  // are open in all directions before a rank must wait for one. Collective.
  void Connect(const std::vector<int>& peers);
  // Throws, naming the first difference, where ranks have made different calls since the last time.
  // Only under Rules::kNccl; collective.
  void CheckSameCalls();
  // Every rank's tensor, by rank; all have the same shape.
  [[nodiscard]] std::vector<at::Tensor> AllGather(const at::Tensor& tensor);

  [[nodiscard]] const TrafficByKind& Counted() const { return group_->Counted(); }

  // For LibTorch's own objects.
  [[nodiscard]] const c10::intrusive_ptr<CountedGroup>& Group() const { return group_; }

 private:
  [[nodiscard]] int NextTag();

  const c10::intrusive_ptr<CountedGroup> group_;
  int exchanges_ = 0;
  bool connected_ = false;
};

// Where Gloo's connections begin and end.
inline constexpr const char* kGlooAddress = "127.0.0.1";

// A group over Gloo in which all ranks are on this machine.
[[nodiscard]] c10::intrusive_ptr<CountedGroup> MakeGlooGroup(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    std::chrono::milliseconds timeout);

// A group of some ranks of `whole`, which call it with the same name, that no others use.
[[nodiscard]] c10::intrusive_ptr<CountedGroup> MakeGlooSubgroup(const CountedGroup& whole,
                                                                const std::string& name, int rank,
                                                                int size);

}  // namespace regatta
