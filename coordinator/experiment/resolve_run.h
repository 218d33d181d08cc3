#pragma once

#include <absl/status/statusor.h>

#include <string>

#include "coordinator/experiment/yaml_tree.h"
#include "regatta/v1/spec.pb.h"

namespace regatta {

// Where names in an experiment lead on this machine.
struct Surroundings {
  std::string file_name;  // for messages
  std::string folder;     // absolute; relative paths of the experiment start here
  std::string material;   // absolute; prepared models and data sets
  int cores = 1;
};

// The complete spec of the run that `run` (the map below the file's `run:`, axes already set)
// describes. Checks names, files, types, bounds and contradictions.
[[nodiscard]] absl::StatusOr<v1::RunSpec> ResolveRun(const YamlNode& run,
                                                     const Surroundings& surroundings);

}  // namespace regatta
