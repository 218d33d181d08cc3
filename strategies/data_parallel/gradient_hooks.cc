#include "strategies/data_parallel/gradient_hooks.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>

namespace regatta {
namespace {

class AfterAccumulation : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit AfterAccumulation(std::function<void()> then) : then_(std::move(then)) {}
  void operator()(const torch::autograd::Variable&) override { then_(); }

 private:
  const std::function<void()> then_;
};

}  // namespace

GradientHooks::GradientHooks(std::vector<NamedTensor> parameters, std::function<void(size_t)> ready)
    : parameters_(std::move(parameters)), ready_(std::move(ready)), came_(parameters_.size()) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    TORCH_CHECK(parameters_[i].tensor.requires_grad() && parameters_[i].tensor.is_leaf(),
                "parameter ", parameters_[i].name,
                " takes no gradient (it is frozen, or computed from others); only parameters that "
                "are trained belong into a strategy");
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameters_[i].tensor, std::make_unique<AfterAccumulation>([this, i] { OnGradient(i); }));
  }
}

GradientHooks::~GradientHooks() {
  for (const NamedTensor& parameter : parameters_) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
  }
}

void GradientHooks::Arm() {
  armed_ = true;
  missing_ = parameters_.size();
  came_.assign(parameters_.size(), false);
}

void GradientHooks::OnGradient(size_t i) {
  if (!armed_) return;  // an earlier batch of the step: it only adds up
  TORCH_CHECK(!came_[i], "parameter ", parameters_[i].name,
              " got its gradient twice in one backward");
  came_[i] = true;
  if (--missing_ == 0) last_came_ = std::chrono::steady_clock::now();
  if (ready_) ready_(i);
}

void GradientHooks::Check() {
  if (!armed_) return;
  armed_ = false;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    TORCH_CHECK(came_[i], "parameter ", parameters_[i].name,
                " got no gradient in the step's last backward; every parameter must take part");
  }
}

}  // namespace regatta
