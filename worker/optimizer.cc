#include "worker/optimizer.h"

#include <cmath>

namespace regatta {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors GradientsOf(const Tensors& parameters) {
  Tensors gradients;
  gradients.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

class Sgd : public Optimizer {
 public:
  explicit Sgd(Tensors parameters) : parameters_(std::move(parameters)) {}
  void Step(double learning_rate) override {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : parameters_) parameter.add_(parameter.grad(), -learning_rate);
  }
  int64_t StateBytes() const override { return 0; }

 private:
  Tensors parameters_;
};

// What the three forms of AdamW share: two moments a parameter and the step count.
class AdamW : public Optimizer {
 public:
  AdamW(const RunSpec::OptimizerChoice& choice, Tensors parameters)
      : choice_(choice), parameters_(std::move(parameters)) {
    for (const at::Tensor& parameter : parameters_) {
      means_.push_back(at::zeros_like(parameter));
      squares_.push_back(at::zeros_like(parameter));
    }
  }

  int64_t StateBytes() const override {
    int64_t bytes = 0;
    for (const at::Tensor& mean : means_) bytes += 2 * static_cast<int64_t>(mean.nbytes());
    return bytes;
  }

  void Step(double learning_rate) final {
    const at::NoGradGuard no_grad;
    ++steps_;
    if (parameters_.empty()) return;  // this rank owns nothing
    Update(GradientsOf(parameters_), learning_rate);
  }

 protected:
  virtual void Update(const Tensors& gradients, double learning_rate) = 0;

  double MeanCorrection() const { return 1 - std::pow(choice_.beta1, steps_); }
  double SquareCorrection() const { return 1 - std::pow(choice_.beta2, steps_); }

  const RunSpec::OptimizerChoice choice_;
  Tensors parameters_;
  Tensors means_;
  Tensors squares_;
  int64_t steps_ = 0;
};

class SingleAdamW : public AdamW {
 public:
  using AdamW::AdamW;

 protected:
  void Update(const Tensors& gradients, double learning_rate) override {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].mul_(1 - learning_rate * choice_.weight_decay);
      means_[i].lerp_(gradients[i], 1 - choice_.beta1);
      squares_[i].mul_(choice_.beta2).addcmul_(gradients[i], gradients[i], 1 - choice_.beta2);
      const at::Tensor denominator =
          squares_[i].sqrt().div_(std::sqrt(SquareCorrection())).add_(choice_.eps);
      parameters_[i].addcdiv_(means_[i], denominator, -learning_rate / MeanCorrection());
    }
  }
};

class ForeachAdamW : public AdamW {
 public:
  using AdamW::AdamW;

 protected:
  void Update(const Tensors& gradients, double learning_rate) override {
    at::_foreach_mul_(parameters_, 1 - learning_rate * choice_.weight_decay);
    at::_foreach_lerp_(means_, gradients, 1 - choice_.beta1);
    at::_foreach_mul_(squares_, choice_.beta2);
    at::_foreach_addcmul_(squares_, gradients, gradients, 1 - choice_.beta2);
    const Tensors denominators = at::_foreach_sqrt(squares_);
    at::_foreach_div_(denominators, std::sqrt(SquareCorrection()));
    at::_foreach_add_(denominators, choice_.eps);
    at::_foreach_addcdiv_(parameters_, means_, denominators, -learning_rate / MeanCorrection());
  }
};

class FusedAdamW : public AdamW {
 public:
  FusedAdamW(const RunSpec::OptimizerChoice& choice, Tensors parameters)
      : AdamW(choice, std::move(parameters)) {
    for (const at::Tensor& mean : means_) step_tensors_.push_back(at::zeros({}, mean.options()));
  }

 protected:
  void Update(const Tensors& gradients, double learning_rate) override {
    for (at::Tensor& step : step_tensors_) step.fill_(static_cast<double>(steps_));
    at::_fused_adamw_(parameters_, gradients, means_, squares_, {}, step_tensors_, learning_rate,
                      choice_.beta1, choice_.beta2, choice_.weight_decay, choice_.eps,
                      /*amsgrad=*/false, /*maximize=*/false);
  }

 private:
  Tensors step_tensors_;  // the kernel's own form of the count
};

template <typename T>
std::unique_ptr<Optimizer> Make(const RunSpec::OptimizerChoice& choice, Tensors parameters) {
  return std::make_unique<T>(choice, std::move(parameters));
}
std::unique_ptr<Optimizer> MakeSgd(const RunSpec::OptimizerChoice&, Tensors parameters) {
  return std::make_unique<Sgd>(std::move(parameters));
}

struct OptimizerRow {
  const char* name;
  const char* implementation;  // empty: any
  std::unique_ptr<Optimizer> (*make)(const RunSpec::OptimizerChoice&, Tensors);
};
constexpr OptimizerRow kOptimizers[] = {{"sgd", "", MakeSgd},
                                        {"adamw", "single", Make<SingleAdamW>},
                                        {"adamw", "foreach", Make<ForeachAdamW>},
                                        {"adamw", "fused", Make<FusedAdamW>}};

}  // namespace

OptimizerFactory MakeOptimizerFactory(const RunSpec::OptimizerChoice& choice) {
  for (const OptimizerRow& row : kOptimizers) {
    if (choice.name != row.name ||
        (*row.implementation != '\0' && choice.implementation != row.implementation))
      continue;
    return [choice, make = row.make](Tensors parameters) {
      return make(choice, std::move(parameters));
    };
  }
  TORCH_CHECK(false, "optimizer ", choice.name, " has no implementation '", choice.implementation,
              "'; single, foreach and fused are built");
}

}  // namespace regatta
