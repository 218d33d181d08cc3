#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strategies/data_parallel/grad_reducer.h"
#include "strategies/strategy.h"

namespace regatta {

// Every rank holds the whole model and works on its own rows; a reducer makes gradients equal.
// Where parameters have owners, each one's optimizer state is on one rank, which broadcasts what it
// made of it: after the step, or, where it alone keeps the parameter, before the next forward.
class DataParallel : public Strategy {
 public:
  // `row` names the spans of traces: "zero1_param_broadcast". The model's weights are loaded. A
  // `reducer` takes the place of the plan's.
  DataParallel(std::string row, const DataParallelPlan& plan, StrategyInputs inputs,
               std::unique_ptr<GradReducer> reducer = nullptr);

  LossSum ComputeGradients(const std::vector<Batch>& batches) override;
  void ApplyGradients(double learning_rate) override;
  Evaluation Evaluate(const Batch& batch) override;
  std::vector<at::Tensor> GatherParameters() override;

 private:
  LossSum ForwardBackward(const Batch& batch);
  void CheckGradients(bool had_rows);
  void Reduce();
  void UpdateOwned(double learning_rate);
  void BroadcastFromOwners();
  // Of parameters that their owners alone keep.
  void GatherAll();
  void ReleaseOthers();
  [[nodiscard]] bool IsOwn(size_t parameter) const;
  [[nodiscard]] std::vector<at::Tensor> Owned() const;

  const std::string row_;
  const DataParallelPlan plan_;
  StrategyInputs inputs_;
  const std::vector<NamedTensor> parameters_;
  const std::vector<int> owners_;  // by parameter; empty: every rank updates all
  const std::unique_ptr<GradReducer> reducer_;
  const std::unique_ptr<Optimizer> optimizer_;
  bool whole_ = true;  // all parameters are here
};

}  // namespace regatta
