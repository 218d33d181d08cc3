#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strategies/data_parallel/gradient_hooks.h"
#include "strategies/sharded/unit.h"
#include "strategies/strategy.h"

namespace regatta {

// ZeRO stages 1 to 3 (Rajbhandari et al. 2020) and FSDP2: every rank works on its own rows with
// whole parameters, and keeps slices of what the plan says. Units are gathered, released and
// reduced at four moments: before and after a block's forward, before and after its backward.
class Sharded : public Strategy {
 public:
  // `row` names the spans of traces: "zero3_param_gather", "zero3_reduce_scatter".
  Sharded(const std::string& row, const ShardedPlan& plan, StrategyInputs inputs);

  LossSum ComputeGradients(const std::vector<Batch>& batches) override;
  void ApplyGradients(double learning_rate) override;
  ToldAtEnd Drain() override;
  Evaluation Evaluate(const Batch& batch) override;
  std::vector<at::Tensor> GatherParameters() override;

 protected:
  // The verbs, each collective; tests break them on purpose.
  virtual void Gather(Unit& unit);
  virtual void Release(Unit& unit);
  virtual void ReduceGradients(Unit& unit);
  virtual void SlicesChanged(Unit& unit);

 private:
  // What a block needs is there; then its forward, unless the rank has no rows.
  at::Tensor ForwardBlocks(const Batch& batch, bool for_backward);
  LossSum ForwardBackward(const Batch& batch);
  void BackwardWithoutRows();

  void BeforeForward(size_t block);
  void AfterForward(size_t block);
  void BeforeBackward(size_t block);
  void AfterBackward(Unit& unit);
  void OnGradient(size_t parameter);
  void Prefetch(const std::vector<Unit*>& order, const Unit& current);
  void ReleaseAll();
  // Null where the block has no parameters.
  [[nodiscard]] Unit* UnitOf(size_t block) const { return unit_of_block_[block]; }

  struct Place {
    Unit* unit = nullptr;
    size_t member = 0;
  };

  const std::string gather_span_;
  const std::string reduce_span_;
  const ShardedPlan plan_;
  StrategyInputs inputs_;
  const std::vector<NamedTensor> parameters_;
  std::vector<std::unique_ptr<Unit>> units_;
  std::vector<Unit*> forward_order_;
  std::vector<Unit*> backward_order_;
  std::vector<Unit*> unit_of_block_;
  std::vector<Place> places_;  // by parameter
  std::unique_ptr<GradientHooks> hooks_;
  std::unique_ptr<Optimizer> optimizer_;

  bool reduces_ = false;             // in the backward under way
  Unit* reducing_ = nullptr;         // at most one at a time, so that buffers of no more are kept
  double* phase_seconds_ = nullptr;  // where the time of the caller goes
};

}  // namespace regatta
