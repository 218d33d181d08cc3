#include "strategies/collectives/collectives.h"

#include "strategies/collectives/agreement.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <string_view>

namespace regatta {
namespace {

std::string Describe(const char* kind, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.is_contiguous(), kind, " of a tensor with strides ", tensor.strides(),
              "; Gloo would give wrong results, a contiguous tensor is right");
  return std::string(kind) + " of " + std::to_string(tensor.nbytes()) + " bytes";
}

}  // namespace

void CountedGroup::Count(const char* kind, const std::vector<at::Tensor>& tensors) {
  Traffic& traffic = counted_[kind];
  ++traffic.calls;
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  traffic.bytes += bytes;
  // Transfers differ between ranks by nature.
  const bool collective = std::string_view(kind) != "send" && std::string_view(kind) != "receive";
  if (rules_ == Rules::kNccl && collective) {
    calls_.push_back(std::string(kind) + " of " + std::to_string(bytes) + " bytes");
  }
}

c10::intrusive_ptr<c10d::Work> CountedGroup::allreduce(std::vector<at::Tensor>& tensors,
                                                       const c10d::AllreduceOptions& options) {
  Count("all_reduce", tensors);
  return ProcessGroup::allreduce(tensors, options);
}

c10::intrusive_ptr<c10d::Work> CountedGroup::broadcast(std::vector<at::Tensor>& tensors,
                                                       const c10d::BroadcastOptions& options) {
  Count("broadcast", tensors);
  return ProcessGroup::broadcast(tensors, options);
}

c10::intrusive_ptr<c10d::Work> CountedGroup::allgather(
    std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
    const c10d::AllgatherOptions& options) {
  Count("all_gather", inputs);
  return ProcessGroup::allgather(outputs, inputs, options);
}

void PendingWork::Wait() {
  try {
    work_->wait();
  } catch (const c10::Error& e) {
    TORCH_CHECK_WITH(DistBackendError, false, what_, " failed: ", e.what_without_backtrace());
  } catch (const std::exception& e) {  // Gloo's own
    TORCH_CHECK_WITH(DistBackendError, false, what_, " failed: ", e.what());
  }
}

PendingWork Collectives::AllReduceSum(at::Tensor tensor, Launch launch) {
  std::string what = Describe("all_reduce", tensor);
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::SUM;
  options.asyncOp = launch == Launch::kBeside;
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  return {std::move(what), group_->allreduce(tensors, options)};
}

PendingWork Collectives::Broadcast(at::Tensor tensor, int root, Launch launch) {
  std::string what = Describe("broadcast", tensor);
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.asyncOp = launch == Launch::kBeside;
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  return {std::move(what), group_->broadcast(tensors, options)};
}

std::vector<PendingWork> Collectives::StartTransfers(std::vector<Transfer> transfers) {
  if (group_->GetRules() == Rules::kNccl) {
    TORCH_CHECK(Size() <= 2 || transfers.size() > 1, "a single transfer in a group of ", Size(),
                " ranks; NCCL may wait for ever, all transfers of one moment in one batch are "
                "right");
    for (const Transfer& transfer : transfers) {
      TORCH_CHECK(transfer.tag == 0, "a transfer with tag ", transfer.tag,
                  "; NCCL has no tags, the order of transfers alone tells them apart");
    }
  }
  std::vector<PendingWork> works;
  for (Transfer& transfer : transfers) {
    const bool sends = transfer.direction == Transfer::Direction::kSend;
    std::string what = Describe(sends ? "send" : "receive", transfer.tensor);
    what += (sends ? " to rank " : " from rank ") + std::to_string(transfer.peer);
    std::vector<at::Tensor> tensors = {std::move(transfer.tensor)};
    group_->Count(sends ? "send" : "receive", tensors);
    works.emplace_back(std::move(what), sends ? group_->send(tensors, transfer.peer, transfer.tag)
                                              : group_->recv(tensors, transfer.peer, transfer.tag));
  }
  return works;
}

// The ring of Patarasuk and Yuan 2009: part p starts at rank p + 1 and goes once around, each rank
// adds its own. Gloo's own reduce-scatter is an all-reduce in disguise.
void Collectives::ReduceScatterSum(const at::Tensor& input, at::Tensor output, ReduceScatter how) {
  std::string what = Describe("reduce_scatter", input);
  TORCH_CHECK(output.is_contiguous() && output.numel() * Size() == input.numel(),
              "reduce_scatter of ", input.numel(), " elements into ", output.numel(), " on ",
              Size(), " ranks; ", Size(), " equal parts are right");
  const at::NoGradGuard no_grad;
  const at::Tensor parts = input.view({Size(), -1});
  const at::Tensor mine = output.view({-1});
  if (how == ReduceScatter::kEmulated) {
    const at::Tensor sum = input.clone();
    AllReduceSum(sum, Launch::kOnCallersStream).Wait();
    mine.copy_(sum.view({Size(), -1})[Rank()]);
    return;
  }
  group_->Count("reduce_scatter", {input});
  const int next = (Rank() + 1) % Size();
  const int previous = (Rank() + Size() - 1) % Size();
  at::Tensor sending = parts[previous].clone();
  at::Tensor receiving = at::empty_like(sending);
  for (int round = 1; round < Size(); ++round) {
    std::vector<at::Tensor> out = {sending};
    std::vector<at::Tensor> in = {receiving};
    // The backend itself: the call above has counted.
    PendingWork received(what, group_->recv(in, previous, round));
    PendingWork sent(what, group_->send(out, next, round));
    received.Wait();
    sent.Wait();
    receiving.add_(parts[(Rank() + 2 * Size() - 1 - round) % Size()]);
    std::swap(sending, receiving);
  }
  mine.copy_(Size() == 1 ? parts[0] : sending);
}

void Collectives::CheckSameCalls() {
  AgreementItems items;
  for (std::string& call : group_->TakeCalls()) {
    items.emplace_back("call " + std::to_string(items.size()), std::move(call));
  }
  CheckAgreement(items, *this);
  (void)group_->TakeCalls();  // the check's own
}

std::vector<at::Tensor> Collectives::AllGather(const at::Tensor& tensor) {
  std::string what = Describe("all_gather", tensor);
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int rank = 0; rank < Size(); ++rank) outputs[0].push_back(at::empty_like(tensor));
  std::vector<at::Tensor> inputs = {tensor};
  c10d::AllgatherOptions options;
  options.asyncOp = false;
  PendingWork(std::move(what), group_->allgather(outputs, inputs, options)).Wait();
  return outputs[0];
}

c10::intrusive_ptr<CountedGroup> MakeGlooGroup(const c10::intrusive_ptr<c10d::Store>& store,
                                               int rank, int size,
                                               std::chrono::milliseconds timeout) {
  const auto scoped = c10::make_intrusive<c10d::PrefixStore>("gloo/", store);
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  // Not by host name: names that lead to 127.0.1.1 or to a slow interface are a known trap.
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(kGlooAddress));
  options->threads = 2;
  auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(scoped, rank, size, options);
  auto group = c10::make_intrusive<CountedGroup>(scoped, rank, size);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setGroupName("world");
  return group;
}

}  // namespace regatta
