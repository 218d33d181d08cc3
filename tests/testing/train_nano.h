#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "strategies/strategy.h"
#include "tests/testing/run_ranks.h"
#include "worker/data/loader.h"
#include "worker/metrics/recorder.h"
#include "worker/models/model_table.h"
#include "worker/optimizer.h"
#include "worker/trainer.h"

namespace regatta {

// What a run leaves: rank 0's parameters in model order, the loss of every step over all ranks, and
// one rank's traffic.
struct Trained {
  std::vector<at::Tensor> parameters;
  std::vector<double> losses;
  std::vector<double> launched_early;  // by rank 0, step by step
  std::map<std::string, Traffic> traffic;
  std::map<std::string, double> summary;  // of rank 0
  std::vector<Observation> observations;  // by rank
};

using MakeStrategy = std::function<std::unique_ptr<Strategy>(StrategyInputs inputs)>;

inline std::unique_ptr<Strategy> FromTable(const RunSpec& spec, StrategyInputs inputs) {
  return BuildStrategy(PlanOf(spec), std::move(inputs));
}

// Trains `spec` with its ranks as threads, through the same loop as regatta-worker.
inline Trained TrainAsThreads(const RunSpec& spec, const MakeStrategy& make) {
  Trained trained;
  std::mutex mutex;
  std::vector<LossSum> sums;
  const auto rank_body = [&](Collectives* world) {
    const int rank = world == nullptr ? 0 : world->Rank();
    BuiltModel built = BuildModel(spec);
    const StrategyPlan plan = PlanOf(spec);
    Loader loader(spec, LoadSplit(spec.dataset, Split::kTrain, built.limits), built.limits.pad_id,
                  ShareOf(plan, rank, spec.ranks));
    const std::unique_ptr<Collectives> replicas = MakeReplicaGroup(plan, world);
    Observation observation;
    const auto strategy =
        make({std::move(built.model), world, replicas.get(), MakeOptimizerFactory(spec.optimizer),
              spec.clip_norm, &observation, [&loader] { return loader.Sample(); }});
    Recorder recorder(world);
    StepProfiler profiler(spec.profile, rank, spec.ranks, "gloo");
    Train({spec, loader, *strategy, observation, recorder, profiler, {}, {}, {}});
    const std::vector<at::Tensor> parameters = strategy->GatherParameters();
    std::lock_guard lock(mutex);
    trained.observations[static_cast<size_t>(rank)] = observation;
    if (rank == 0) {
      for (const at::Tensor& parameter : parameters)
        trained.parameters.push_back(parameter.detach().clone());
      const auto values = recorder.Summarize();
      trained.summary = {values.begin(), values.end()};
      if (world != nullptr) trained.traffic = world->Counted();
    }
    for (const StepRecord& record : recorder.TakeRecords()) {
      sums.resize(std::max(sums.size(), static_cast<size_t>(record.step) + 1));
      for (const auto& [name, value] : record.values) {
        if (name == "launched_early" && rank == 0) trained.launched_early.push_back(value);
        if (name == "loss_sum") sums[static_cast<size_t>(record.step)].sum += value;
        if (name == "rows")
          sums[static_cast<size_t>(record.step)].rows += static_cast<int64_t>(value);
      }
    }
  };
  trained.observations.resize(static_cast<size_t>(spec.ranks));
  at::set_num_threads(1);
  if (spec.ranks == 1) {
    rank_body(nullptr);
  } else {
    RunRanks(spec.ranks, [&](Collectives& world) { rank_body(&world); });
  }
  for (const LossSum& sum : sums) trained.losses.push_back(sum.sum / static_cast<double>(sum.rows));
  return trained;
}

inline Trained TrainAsThreads(const RunSpec& spec) {
  return TrainAsThreads(spec,
                        [&](StrategyInputs inputs) { return FromTable(spec, std::move(inputs)); });
}

// The design's tolerance, as a share of what is allowed: max |a - b| / (1e-6 max(1, max |b|)) over
// tensors; at most 1 is equal.
inline double ShareOfTolerance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  TORCH_CHECK(a.size() == b.size() && !a.empty(), a.size(), " tensors against ", b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double allowed = 1e-6 * std::max(1.0, b[i].abs().max().item<double>());
    const double share = (a[i] - b[i]).abs().max().item<double>() / allowed;
    worst = std::isnan(share) ? share : std::max(worst, share);
    if (std::isnan(worst)) return worst;
  }
  return worst;
}

}  // namespace regatta
