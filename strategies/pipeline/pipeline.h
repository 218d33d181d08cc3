#pragma once

#include <map>
#include <utility>
#include <vector>

#include "strategies/data_parallel/grad_reducer.h"
#include "strategies/layers.h"
#include "strategies/pipeline/action_times.h"
#include "strategies/plan/pipeline/bubble.h"
#include "strategies/plan/pipeline/program.h"
#include "strategies/strategy.h"

namespace regatta {

// What a pipeline runs.
struct PipelineInputs {
  PipelinePlan plan;
  Program program;               // with transfers, of all ranks of one pipeline
  std::vector<int> first_block;  // of each stage
};

// Cuts the model, and makes the program. Throws the sentence where it cannot be cut. Collective
// where stages are to be equally slow: rank 0 measures.
[[nodiscard]] PipelineInputs PlanPipeline(const PipelinePlan& plan, const StrategyInputs& inputs);

// Runs a program of actions: the model's blocks are cut into stages, a batch into micro-batches.
// Every rank is given its replica's whole batch; loss and accuracy are those of the last stage's
// rank, other ranks tell of no rows. A stage's rank alone keeps its parameters; replicas of it
// reduce their gradients once a step.
class Pipeline : public Strategy {
 public:
  // Throws, naming it, where stages of different ranks share a parameter.
  Pipeline(PipelineInputs pipeline, StrategyInputs inputs);

  LossSum ComputeGradients(const std::vector<Batch>& batches) override;
  void ApplyGradients(double learning_rate) override;
  ToldAtEnd Drain() override;
  Evaluation Evaluate(const Batch& batch) override;
  std::vector<at::Tensor> GatherParameters() override;

 private:
  // A stage's input and output of one micro-batch, from its forward to its backward.
  struct InFlight {
    at::Tensor input;   // a leaf; undefined on the first stage
    at::Tensor output;  // the weighted loss on the last stage
    at::Tensor output_gradient;
    WeightGradients weights{WeightGradients::When::kLater};
  };

  // Throws where stages of different ranks share a parameter.
  [[nodiscard]] std::vector<int> FindOwners() const;
  void RunStep(const std::vector<Batch>& batches);
  void Run(const Action& action);
  void Compute(const Action& action);
  void RunForward(const Action& action);
  void RunBackward(const Action& action);
  // Starts the transfers from program[begin] on that go together.
  size_t RunTransfers(const std::vector<Action>& program, size_t begin);
  [[nodiscard]] Transfer MakeTransfer(const Action& action);
  // Waits for what arrives as `action`; nothing where it was waited for already.
  void Await(const Action& action);
  void AwaitSends();
  void AwaitAll();
  // What all ranks of the pipeline saw; collective.
  [[nodiscard]] SeenPipeline GatherSeen() const;
  // Of so many bytes, from a rank to the next.
  [[nodiscard]] double MeasureTransfer(int64_t bytes) const;
  void CheckGradients(bool had_rows) const;
  void ReduceOverReplicas();

  [[nodiscard]] at::Tensor ForwardStage(int stage, at::Tensor x, const Batch& batch) const;
  [[nodiscard]] at::Tensor EmptyActivation(const Batch& batch) const;
  [[nodiscard]] const PipelineShape& Shape() const { return pipeline_.plan.shape; }
  [[nodiscard]] bool IsLast(int stage) const { return stage + 1 == Shape().Stages(); }
  // In the world.
  [[nodiscard]] int PeerOf(int stage) const { return first_rank_ + Shape().RankOf(stage); }
  // Past the last block of a stage.
  [[nodiscard]] size_t EndOf(int stage) const;
  [[nodiscard]] InFlight& At(const Action& action) {
    return in_flight_[{action.stage, action.micro_batch}];
  }

  const PipelineInputs pipeline_;
  StrategyInputs inputs_;
  const int rank_;                             // of the pipeline
  const int first_rank_;                       // of the pipeline, in the world
  const std::vector<NamedTensor> parameters_;  // of the whole model
  const std::vector<int> owner_;               // the rank of the pipeline that keeps each
  std::vector<NamedTensor> own_;
  std::unique_ptr<GradReducer> reducer_;  // over replicas
  std::unique_ptr<Optimizer> optimizer_;

  std::vector<Batch> micro_batches_;  // of the batch under way; some may have no rows
  std::map<std::pair<int, int>, InFlight> in_flight_;
  std::map<Action, PendingWork> pending_;
  WeightGradients at_once_{WeightGradients::When::kAtOnce};
  LossSum sum_;

  ActionTimes times_;
  int64_t steps_ = 0;
  int64_t transferred_bytes_ = 0;  // of the last activation
};

// A batch in the plan's micro-batches; some may have no rows.
[[nodiscard]] std::vector<Batch> CutBatch(const Batch& batch, const PipelinePlan& plan);

}  // namespace regatta
