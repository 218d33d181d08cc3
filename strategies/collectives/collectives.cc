#include "strategies/collectives/collectives.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace regatta {

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
  TORCH_CHECK(tensor.is_contiguous(), "all_reduce of a tensor with strides ", tensor.strides(),
              "; Gloo would give wrong sums, a contiguous tensor is right");
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  Traffic& traffic = counted_["all_reduce"];
  ++traffic.calls;
  traffic.bytes += bytes;
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::SUM;
  options.asyncOp = launch == Launch::kBeside;
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  return {"all_reduce of " + std::to_string(bytes) + " bytes", group_->allreduce(tensors, options)};
}

c10::intrusive_ptr<c10d::ProcessGroup> MakeGlooGroup(const c10::intrusive_ptr<c10d::Store>& store,
                                                     int rank, int size,
                                                     std::chrono::milliseconds timeout) {
  const auto scoped = c10::make_intrusive<c10d::PrefixStore>("gloo/", store);
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  // Not by host name: names that lead to 127.0.1.1 or to a slow interface are a known trap.
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(kGlooAddress));
  options->threads = 2;
  auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(scoped, rank, size, options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(scoped, rank, size);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  group->setGroupName("world");
  return group;
}

}  // namespace regatta
