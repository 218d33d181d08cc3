#include "strategies/collectives/collectives.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

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
  for (const at::Tensor& tensor : tensors) traffic.bytes += static_cast<int64_t>(tensor.nbytes());
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
