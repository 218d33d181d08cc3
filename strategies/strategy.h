#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strategies/collectives/collectives.h"
#include "strategies/model.h"
#include "strategies/observation.h"
#include "strategies/optimizer.h"
#include "strategies/plan/strategy_table.h"

namespace regatta {

// This rank's part of a loss: the sum over its rows of their losses.
struct LossSum {
  double sum = 0;
  int64_t rows = 0;
};

struct Evaluation {
  double loss_sum = 0;
  int64_t correct = 0;
  int64_t rows = 0;
};

// What a strategy alone can tell, once training is over: numbers of this rank, and facts.
struct ToldAtEnd {
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<std::pair<std::string, std::string>> facts;
};

// One training method, seen from one rank. Every call is collective: all ranks of a run make the
// same calls in the same order. A batch without rows is legal everywhere.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Forward and backward over the batches of one step, all reductions done: afterwards the gradient
  // is that of the mean over the step's global rows, on every rank that updates the parameter.
  virtual LossSum ComputeGradients(const std::vector<Batch>& batches) = 0;

  // One optimizer step, of gradients clipped first where that is asked; they are gone afterwards.
  virtual void ApplyGradients(double learning_rate) = 0;

  // After the last step: waits for what it has left under way, so that a rank may end, and tells
  // what it has learned of the whole run.
  virtual ToldAtEnd Drain() { return {}; }

  virtual Evaluation Evaluate(const Batch& batch) = 0;

  // Whole parameters in model order, on rank 0; empty elsewhere.
  [[nodiscard]] virtual std::vector<at::Tensor> GatherParameters() = 0;
};

// All that a strategy may touch.
struct StrategyInputs {
  Model model;
  Collectives* world = nullptr;     // null: one rank
  Collectives* replicas = nullptr;  // the ranks that train the same stage; null: there is one
  OptimizerFactory optimizer;
  double clip_norm = 0;                // largest norm of a step's gradient; 0: not clipped
  Observation* observation = nullptr;  // never null
  std::function<Batch()> sample = {};  // rows as this rank's batches have; only for measuring
};

// The group for StrategyInputs::replicas, or null. Collective.
[[nodiscard]] std::unique_ptr<Collectives> MakeReplicaGroup(const StrategyPlan& plan,
                                                            const Collectives* world);

// Builds what `ParseStrategy` found good.
[[nodiscard]] std::unique_ptr<Strategy> BuildStrategy(const StrategyPlan& plan,
                                                      StrategyInputs inputs);

}  // namespace regatta
