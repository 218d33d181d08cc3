#include "worker/optimizer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

namespace regatta {
namespace {

RunSpec::OptimizerChoice AdamW(const std::string& implementation) {
  return {"adamw", implementation, 0.01, 0.9, 0.999, 1e-8, 0.01, 0, "none"};
}

// Three parameters after twenty steps on fixed gradients.
template <typename MakeStep>
std::vector<at::Tensor> TwentySteps(const MakeStep& make_step) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  std::vector<at::Tensor> parameters;
  for (const int64_t size : {1, 7, 1000})
    parameters.push_back(at::randn({size}, generator).set_requires_grad(true));
  auto step = make_step(parameters);
  for (int i = 0; i < 20; ++i) {
    for (at::Tensor& parameter : parameters)
      parameter.mutable_grad() = at::randn(parameter.sizes(), generator);
    step();
  }
  return parameters;
}

std::vector<at::Tensor> Ours(const RunSpec::OptimizerChoice& choice) {
  return TwentySteps([&](const std::vector<at::Tensor>& parameters) {
    std::shared_ptr<Optimizer> optimizer = MakeOptimizerFactory(choice)(parameters);
    return [optimizer] { optimizer->Step(0.01); };
  });
}

void ExpectClose(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b,
                 double tolerance) {
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_LE((a[i] - b[i]).abs().max().item<double>(), tolerance) << i;
}

TEST(OptimizerTest, TheThreeAdamWKernelsAgreeWithLibTorchsOwn) {
  const auto reference = TwentySteps([](const std::vector<at::Tensor>& parameters) {
    auto options =
        torch::optim::AdamWOptions(0.01).betas({0.9, 0.999}).eps(1e-8).weight_decay(0.01);
    auto optimizer = std::make_shared<torch::optim::AdamW>(parameters, options);
    return [optimizer] { optimizer->step(); };
  });
  for (const char* implementation : {"single", "foreach", "fused"})
    ExpectClose(Ours(AdamW(implementation)), reference, 1e-6);
}

TEST(OptimizerTest, SgdIsPlain) {
  at::Tensor parameter = at::tensor({1.0F, 2.0F}).set_requires_grad(true);
  parameter.mutable_grad() = at::tensor({10.0F, -10.0F});
  RunSpec::OptimizerChoice choice = AdamW("fused");
  choice.name = "sgd";
  const auto optimizer = MakeOptimizerFactory(choice)({parameter});
  optimizer->Step(0.1);
  EXPECT_TRUE(at::allclose(parameter.detach(), at::tensor({0.0F, 3.0F}), 0, 1e-6));
  EXPECT_EQ(optimizer->StateBytes(), 0);
}

TEST(OptimizerTest, AdamWKeepsTwoMomentsAParameter) {
  at::Tensor parameter = at::zeros({100}).set_requires_grad(true);
  EXPECT_EQ(MakeOptimizerFactory(AdamW("fused"))({parameter})->StateBytes(), 800);
}

TEST(OptimizerTest, AnUnknownImplementationIsRefused) {
  EXPECT_THROW((void)MakeOptimizerFactory(AdamW("slow")), c10::Error);
}

}  // namespace
}  // namespace regatta
