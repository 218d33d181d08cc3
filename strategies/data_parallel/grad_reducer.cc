#include "strategies/data_parallel/grad_reducer.h"

namespace regatta {
namespace {

class NoReducer : public GradReducer {
 public:
  void Arm() override {}
  void Finish() override {}
};

// The study's simple_ddp: one all-reduce a parameter, in registration order, each waited for at
// once.
class EachAfterBackward : public GradReducer {
 public:
  EachAfterBackward(std::vector<NamedTensor> parameters, Collectives& world)
      : parameters_(std::move(parameters)), world_(world) {}

  void Arm() override {}
  void Finish() override {
    const at::NoGradGuard no_grad;
    for (const NamedTensor& parameter : parameters_) {
      at::Tensor gradient = parameter.tensor.grad();
      world_.AllReduceSum(gradient, Launch::kOnCallersStream).Wait();
      gradient.div_(world_.Size());
    }
  }

 private:
  const std::vector<NamedTensor> parameters_;
  Collectives& world_;
};

}  // namespace

std::unique_ptr<GradReducer> MakeGradReducer(const DataParallelPlan& plan,
                                             std::vector<NamedTensor> parameters,
                                             Collectives* world) {
  switch (plan.grad_sync) {
    case GradSync::kNone:
      return std::make_unique<NoReducer>();
    case GradSync::kEachAfterBackward:
      // One rank alone has nothing to add up, and no group.
      if (world == nullptr) return std::make_unique<NoReducer>();
      return std::make_unique<EachAfterBackward>(std::move(parameters), *world);
  }
  TORCH_CHECK(false, "a data-parallel plan without a reducer");
}

}  // namespace regatta
