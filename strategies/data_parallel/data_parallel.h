#pragma once

#include <memory>
#include <vector>

#include "strategies/data_parallel/grad_reducer.h"
#include "strategies/strategy.h"

namespace regatta {

// Every rank holds the whole model and works on its own rows; a reducer makes gradients equal.
// Where owners update, each parameter's optimizer state is on one rank, which broadcasts what it
// made of it.
class DataParallel : public Strategy {
 public:
  // The model's weights are loaded.
  DataParallel(StrategyInputs inputs, std::unique_ptr<GradReducer> reducer,
               bool owners_update = false);

  LossSum ComputeGradients(const std::vector<Batch>& batches) override;
  void ApplyGradients(double learning_rate) override;
  Evaluation Evaluate(const Batch& batch) override;
  std::vector<at::Tensor> GatherParameters() override;

 private:
  LossSum ForwardBackward(const Batch& batch);
  void CheckGradients(bool had_rows);
  void UpdateOwned(double learning_rate);
  void BroadcastFromOwners();
  [[nodiscard]] std::vector<at::Tensor> Owned() const;

  StrategyInputs inputs_;
  const std::vector<NamedTensor> parameters_;
  const std::unique_ptr<GradReducer> reducer_;
  const std::vector<int> owners_;  // by parameter; empty: every rank updates all
  const std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace regatta
