#include "strategies/collectives/collectives.h"

#include "strategies/collectives/agreement.h"
#include "strategies/plan/predict.h"

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
  Traffic& traffic = (*counted_)[kind];
  ++traffic.calls;
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  traffic.bytes += bytes;
  traffic.sent += SentBytes(kind, bytes, getSize());
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

void CountedGroup::BePartOf(const CountedGroup& whole) {
  counted_ = whole.counted_;
  rules_ = whole.rules_;
  if (whole.add_backend_) UseDevice(whole.device_, whole.native_, whole.add_backend_);
}

void CountedGroup::UseDevice(at::Device device, bool native, AddBackend add) {
  add(*this);
  device_ = device;
  native_ = native;
  add_backend_ = std::move(add);
}

void PendingWork::Wait() {
  try {
    for (const auto& work : works_) work->wait();
  } catch (const c10::Error& e) {
    TORCH_CHECK_WITH(DistBackendError, false, what_, " failed: ", e.what_without_backtrace());
  } catch (const std::exception& e) {  // Gloo's own
    TORCH_CHECK_WITH(DistBackendError, false, what_, " failed: ", e.what());
  }
  if (then_) then_();
}

PendingWork Collectives::AllReduceSum(at::Tensor tensor, Launch launch) {
  std::string what = Describe("all_reduce", tensor);
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::SUM;
  options.asyncOp = launch == Launch::kBeside;
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  return {std::move(what), {group_->allreduce(tensors, options)}};
}

PendingWork Collectives::Broadcast(at::Tensor tensor, int root, Launch launch) {
  std::string what = Describe("broadcast", tensor);
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.asyncOp = launch == Launch::kBeside;
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  return {std::move(what), {group_->broadcast(tensors, options)}};
}

std::vector<PendingWork> Collectives::StartTransfers(std::vector<Transfer> transfers) {
  if (group_->GetRules() == Rules::kNccl) {
    TORCH_CHECK(connected_,
                "a transfer before all ranks have made their first together; NCCL may wait for "
                "ever, Connect is right");
    for (const Transfer& transfer : transfers) {
      TORCH_CHECK(transfer.tag == 0, "a transfer with tag ", transfer.tag,
                  "; NCCL has no tags, the order of transfers alone tells them apart");
    }
  }
  std::vector<PendingWork> works;
  if (!transfers.empty()) group_->CountTransferBatch();
  const bool one_launch = !transfers.empty() && group_->IsNative() &&
                          transfers[0].tensor.device() == group_->GetDevice();
  if (one_launch) group_->startCoalescing(group_->GetDevice().type());
  for (Transfer& transfer : transfers) {
    const bool sends = transfer.direction == Transfer::Direction::kSend;
    std::string what = Describe(sends ? "send" : "receive", transfer.tensor);
    what += (sends ? " to rank " : " from rank ") + std::to_string(transfer.peer);
    std::vector<at::Tensor> tensors = {std::move(transfer.tensor)};
    group_->Count(sends ? "send" : "receive", tensors);
    PendingWork::Works work = {sends ? group_->send(tensors, transfer.peer, transfer.tag)
                                     : group_->recv(tensors, transfer.peer, transfer.tag)};
    works.emplace_back(std::move(what), std::move(work));
  }
  if (!one_launch) return works;
  // One work stands for all.
  const PendingWork::Works all = {group_->endCoalescing(group_->GetDevice().type())};
  for (PendingWork& work : works) work = PendingWork("transfers that were started together", all);
  return works;
}

// Tells the transfers of one exchange from those of the next, and from a strategy's own.
int Collectives::NextTag() {
  constexpr int kFirst = 1 << 30;
  constexpr int kCount = 1 << 20;
  return kFirst + exchanges_++ % kCount;
}

// Not a ring: every part makes one hop, all of them at once, and nobody must pass on what came;
// that needs memory for W - 1 parts, and no thread of ours while backward goes on. Gloo's own
// reduce-scatter is an all-reduce in disguise.
PendingWork Collectives::ReduceScatterSum(const at::Tensor& input, const at::Tensor& output,
                                          ReduceScatter how) {
  std::string what = Describe("reduce_scatter", input);
  TORCH_CHECK(output.is_contiguous() && output.numel() * Size() == input.numel(),
              "reduce_scatter of ", input.numel(), " elements into ", output.numel(), " on ",
              Size(), " ranks; ", Size(), " equal parts are right");
  const at::NoGradGuard no_grad;
  const at::Tensor parts = input.view({Size(), -1});
  const at::Tensor mine = output.view({-1});
  if (group_->IsNative()) {
    group_->Count("reduce_scatter", {input});
    at::Tensor in = input;
    at::Tensor out = output;
    c10d::ReduceScatterOptions options;
    options.asyncOp = true;
    return {std::move(what), {group_->_reduce_scatter_base(out, in, options)}};
  }
  if (how == ReduceScatter::kEmulated) {
    std::vector<at::Tensor> tensors = {input};
    c10d::AllreduceOptions options;
    options.asyncOp = true;
    return {std::move(what), {group_->allreduce(tensors, options)}, [parts, mine, rank = Rank()] {
              if (!mine.is_alias_of(parts)) mine.copy_(parts[rank]);
            }};
  }
  group_->Count("reduce_scatter", {input});
  const int tag = NextTag();
  PendingWork::Works works;
  std::vector<at::Tensor> terms;  // by rank
  for (int rank = 0; rank < Size(); ++rank) {
    terms.push_back(rank == Rank() ? parts[rank] : at::empty_like(mine));
    if (rank == Rank()) continue;
    // The backend itself: the call above has counted.
    std::vector<at::Tensor> in = {terms.back()};
    std::vector<at::Tensor> out = {parts[rank]};
    works.push_back(group_->recv(in, rank, tag));
    works.push_back(group_->send(out, rank, tag));
  }
  return {std::move(what), std::move(works), [terms = std::move(terms), mine, rank = Rank()] {
            const at::NoGradGuard nothing_to_differentiate;
            // Summed up in a term that came from elsewhere; a + b is b + a to the last bit.
            size_t first = rank == 0 && terms.size() > 1 ? 1 : 0;
            const at::Tensor& sum = terms[first];
            if (terms.size() > 1) sum.add_(terms[1 - first]);
            for (size_t i = 2; i < terms.size(); ++i) sum.add_(terms[i]);
            mine.copy_(sum);
          }};
}

PendingWork Collectives::AllGatherInto(const at::Tensor& all, const at::Tensor& mine) {
  std::string what = Describe("all_gather", mine);
  TORCH_CHECK(all.is_contiguous() && mine.numel() * Size() == all.numel(), "all_gather of ",
              mine.numel(), " elements into ", all.numel(), " on ", Size(), " ranks; ", Size(),
              " equal parts are right");
  const at::NoGradGuard no_grad;
  group_->Count("all_gather", {mine});
  if (group_->IsNative()) {
    at::Tensor in = mine;
    at::Tensor out = all;
    c10d::AllgatherOptions options;
    options.asyncOp = true;
    return {std::move(what), {group_->_allgather_base(out, in, options)}};
  }
  const int tag = NextTag();
  const at::Tensor places = all.view({Size(), -1});
  PendingWork::Works works;
  for (int rank = 0; rank < Size(); ++rank) {
    if (rank == Rank()) {
      if (places[rank].const_data_ptr() != mine.const_data_ptr()) {
        places[rank].copy_(mine.view({-1}));
      }
      continue;
    }
    std::vector<at::Tensor> in = {places[rank]};
    std::vector<at::Tensor> out = {mine};
    works.push_back(group_->recv(in, rank, tag));
    works.push_back(group_->send(out, rank, tag));
  }
  return {std::move(what), std::move(works)};
}

void Collectives::Connect(const std::vector<int>& peers) {
  connected_ = true;
  const at::NoGradGuard no_grad;
  std::vector<Transfer> transfers;
  for (const int peer : peers) {
    transfers.push_back({Transfer::Direction::kSend, at::zeros({1}, Device()), peer});
    transfers.push_back({Transfer::Direction::kReceive, at::empty({1}, Device()), peer});
  }
  for (PendingWork& work : StartTransfers(std::move(transfers))) work.Wait();
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
  PendingWork(std::move(what), {group_->allgather(outputs, inputs, options)}).Wait();
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

c10::intrusive_ptr<CountedGroup> MakeGlooSubgroup(const CountedGroup& whole,
                                                  const std::string& name, int rank, int size) {
  auto group = MakeGlooGroup(c10::make_intrusive<c10d::PrefixStore>(name + "/", whole.getStore()),
                             rank, size, whole.getDefaultBackend()->getBackendOptions()->timeout);
  group->BePartOf(whole);
  return group;
}

}  // namespace regatta
