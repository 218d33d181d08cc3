#include "strategies/data_parallel/native_reducer.h"

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <chrono>
#include <limits>

#include "strategies/data_parallel/gradient_hooks.h"

namespace regatta {
namespace {

constexpr size_t kBroadcastBytes = 250 << 20;  // as DistributedDataParallel

// torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook: buckets travel in
// half the bytes.
class Bf16Hook : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    std::vector<at::Tensor> compressed = {
        bucket.getBufferRef().to(at::kBFloat16).div_(state_->getSize())};
    return state_->allreduce(compressed)
        ->getFuture()
        ->then(
            [buffer = bucket.getBufferRef()](c10::ivalue::Future& future) {
              const at::Tensor sum = future.value().isTensorList()
                                         ? future.value().toTensorVector()[0]
                                         : future.value().toTensor();
              buffer.copy_(sum);
              return c10::IValue(buffer);
            },
            c10::TensorType::get());
  }
};

class NativeReducer : public GradReducer {
 public:
  NativeReducer(const DataParallelPlan& plan, std::vector<NamedTensor> parameters,
                Collectives& world)
      : parameters_(std::move(parameters)),
        world_(world),
        hooks_(parameters_, [this](size_t) { OnGradient(); }) {
    std::vector<at::Tensor> tensors;
    std::unordered_map<size_t, std::string> names;
    for (const NamedTensor& parameter : parameters_) {
      names[tensors.size()] = parameter.name;
      tensors.push_back(parameter.tensor);
    }
    c10d::verify_params_across_processes(world_.Group(), tensors, std::nullopt);
    {
      const at::NoGradGuard no_grad;
      c10d::broadcast_coalesced(world_.Group(), tensors, kBroadcastBytes, 0);
    }
    // One bucket first: where gradients really come from is known after a step.
    auto assignment =
        c10d::compute_bucket_assignment_by_size(tensors, {std::numeric_limits<size_t>::max()});
    std::reverse(std::get<0>(assignment).begin(), std::get<0>(assignment).end());
    reducer_ = std::make_shared<c10d::Reducer>(
        tensors, std::get<0>(assignment), world_.Group(), std::vector<bool>(tensors.size(), false),
        plan.bucket_bytes, /*find_unused_parameters=*/false, plan.gradient_as_bucket_view,
        std::move(names), plan.first_bucket_bytes, /*skip_all_reduce_unused_params=*/false,
        /*use_python_reducer=*/false, std::vector<int64_t>());
    if (plan.compression == Compression::kFp16) {
      reducer_->register_builtin_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
    }
    if (plan.compression == Compression::kBf16) {
      reducer_->register_comm_hook(std::make_unique<Bf16Hook>(world_.Group()));
    }
  }

  void Begin(size_t) override {
    reducer_->rebuild_buckets();
    armed_ = false;
  }

  void Arm() override {
    reducer_->prepare_for_forward();
    reducer_->prepare_for_backward({});
    hooks_.Arm();
    armed_ = true;
    calls_when_armed_ = Calls();
  }

  // A rank without rows takes part with a backward that makes zeros.
  Reduction Finish() override {
    const auto now = std::chrono::steady_clock::now();
    if (armed_) {
      // The reducer waits for its all-reduces at the end of backward.
      reduction_.waited_in_backward_seconds =
          hooks_.Missing() == 0 ? std::chrono::duration<double>(now - hooks_.LastCame()).count()
                                : 0;
    } else {
      Arm();
      at::Tensor zero = at::zeros({}, parameters_[0].tensor.options().requires_grad(false));
      for (const NamedTensor& parameter : parameters_) zero = zero + (parameter.tensor * 0).sum();
      zero.backward();
    }
    hooks_.Check();
    reducer_->check_finalized();
    return std::exchange(reduction_, {});
  }

 private:
  int64_t Calls() const {
    const auto found = world_.Counted().find("all_reduce");
    return found == world_.Counted().end() ? 0 : found->second.calls;
  }

  // Runs before the reducer's own hook of the same parameter.
  void OnGradient() {
    if (hooks_.Missing() == 0) reduction_.launched_early = Calls() - calls_when_armed_;
  }

  const std::vector<NamedTensor> parameters_;
  Collectives& world_;
  GradientHooks hooks_;
  std::shared_ptr<c10d::Reducer> reducer_;
  Reduction reduction_;
  bool armed_ = false;
  int64_t calls_when_armed_ = 0;
};

}  // namespace

std::unique_ptr<GradReducer> MakeNativeReducer(const DataParallelPlan& plan,
                                               std::vector<NamedTensor> parameters,
                                               Collectives& world) {
  return std::make_unique<NativeReducer>(plan, std::move(parameters), world);
}

}  // namespace regatta
