#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// A run while its keys are read: the spec, and what only the end of reading can decide.
struct RunDraft {
  v1::RunSpec spec;
  std::optional<int64_t> batch_size;
  std::optional<int64_t> batch_size_per_rank;
  std::optional<bool> pretrained;
  std::optional<int32_t> threads_per_rank;
  YamlNode model;
  YamlNode dataset;
};

// One key below `run`. The table is the schema: what the parser takes, and what docs/experiment.md
// lists.
struct RunKey {
  const char* path;          // "optimizer.eps"
  const char* default_text;  // YAML; empty: the key has no value of its own unless written
  const char* right;         // what would be right, for messages
  const char* meaning;
  // Reads the value into the draft; a sentence without place on error. Null: not built yet.
  std::string (*read)(const YamlNode& value, RunDraft& draft);
};

[[nodiscard]] const std::vector<RunKey>& RunKeys();

// The complete spec of the run that `run` (the map below the file's `run:`, axes already set)
// describes. Checks names, files, types, bounds and contradictions.
[[nodiscard]] absl::StatusOr<v1::RunSpec> ResolveRun(const YamlNode& run,
                                                     const Surroundings& surroundings);

// Typed reads of one scalar. False where the text is no such number.
[[nodiscard]] bool ReadInteger(const YamlNode& node, int64_t least, int64_t* to);
[[nodiscard]] bool ReadNumber(const YamlNode& node, double least, double* to);
// "90s", "2m", "1h", "500ms" in seconds.
[[nodiscard]] bool ReadDuration(const YamlNode& node, double* seconds);

}  // namespace regatta
