#pragma once

#include <absl/status/statusor.h>

#include <string>
#include <vector>

#include "coordinator/experiment/resolve_run.h"
#include "regatta/v1/spec.pb.h"

namespace regatta {

struct PlannedRun {
  std::string name;  // the swept keys and their values
  v1::RunSpec spec;
};

struct Limits {
  int max_parallel = 1;
  int64_t max_runs = 10000;
  double join_timeout_seconds = 60;
};

// One experiment file, expanded and checked: nothing in it can be misread later.
struct Experiment {
  std::string name;
  std::string description;
  std::string text;  // the file as it was submitted
  Limits limits;
  std::vector<PlannedRun> runs;  // in matrix order, at least one
};

// Pure but for looking at the prepared files that the experiment names. Errors are INVALID_ARGUMENT
// with one sentence: file, line, column, the thing, the value and what would be right.
[[nodiscard]] absl::StatusOr<Experiment> ParseExperiment(const std::string& text,
                                                         const Surroundings& surroundings);

}  // namespace regatta
