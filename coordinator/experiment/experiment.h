#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/experiment/resolve_run.h"
#include "coordinator/experiment/schema.h"
#include "strategies/plan/predict.h"

namespace regatta {

// What is known of a run before it runs; empty until its model is prepared.
struct PredictedRun {
  std::vector<Prediction> ranks;
  Prediction most;         // MostOf(ranks)
  int64_t peak_bytes = 0;  // of tensors; 0: not known
};

// One run as it will be queued. The spec is kept serialised: a file may have 100,000 runs.
struct PlannedRun {
  std::string name;    // the swept keys and their values
  int64_t repeat = 1;  // 0: the extra one that is profiled
  std::string strategy;
  std::string model;
  std::string dataset;
  int32_t ranks = 1;
  int32_t threads_per_rank = 1;
  std::shared_ptr<const std::string> spec;                // v1::RunSpec
  std::shared_ptr<const std::string> profiled_spec = {};  // of an extra repeat; null: there is none
  std::vector<std::string> to_prepare;
  std::string skipped;  // why it cannot run; empty: it can
  // Never null; runs that are predicted alike share it.
  std::shared_ptr<const PredictedRun> predicted = std::make_shared<const PredictedRun>();
  int64_t memory_limit = 0;  // bytes; 0: none
  int gpus = 0;              // that it needs: GpusOf(spec)
};

// GPUs that a run holds while it lasts: one a rank, or one for all where Gloo carries their
// tensors.
[[nodiscard]] int GpusOf(const v1::RunSpec& spec);

// What a rule did, for `regatta plan`.
struct RuleReport {
  std::string kind;  // exclude, override
  int line = 0;
  std::string text;
  int64_t matched = 0;
};

// One experiment file, expanded and checked: nothing in it can be misread later.
struct Experiment {
  ExperimentHead head;
  std::string text;              // the file as it was submitted, with --set's as comments before it
  std::vector<PlannedRun> runs;  // in the order in which they are queued, at least one
  std::vector<RuleReport> rules;
  std::vector<std::string> warnings;  // sentences with their place
  std::map<std::string, std::string> secrets;
};

struct ExperimentSource {
  std::string text;
  std::vector<std::string> sets = {};  // "run.ranks=4", as --set gives them
  bool strict = false;                 // warnings are errors
};

// Pure but for looking at the prepared files that the experiment names. Errors are INVALID_ARGUMENT
// with one sentence: file, line, column, the thing, the value and what would be right.
[[nodiscard]] absl::StatusOr<Experiment> ParseExperiment(const ExperimentSource& source,
                                                         const Surroundings& surroundings);

// The variables that the file names below `env`, whose values it may take from the client. Empty
// where the file cannot be read: ParseExperiment says why.
[[nodiscard]] std::vector<std::string> WantedEnvironment(const ExperimentSource& source);

}  // namespace regatta
