#pragma once

#include <memory>
#include <vector>

#include "strategies/data_parallel/grad_reducer.h"
#include "strategies/strategy.h"

namespace regatta {

// Every rank holds the whole model and works on its own rows; a reducer makes gradients equal.
class DataParallel : public Strategy {
 public:
  DataParallel(StrategyInputs inputs, std::unique_ptr<GradReducer> reducer);

  LossSum ComputeGradients(const std::vector<Batch>& batches) override;
  void ApplyGradients(double learning_rate) override;
  Evaluation Evaluate(const Batch& batch) override;
  std::vector<at::Tensor> GatherParameters() override;

 private:
  LossSum ForwardBackward(const Batch& batch);
  void CheckGradients(bool had_rows);

  StrategyInputs inputs_;
  const std::vector<NamedTensor> parameters_;
  const std::unique_ptr<GradReducer> reducer_;
  const std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace regatta
