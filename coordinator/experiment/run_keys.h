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

// What a key's `read` returns where the value is not what `right` says; other texts are sentences
// of their own.
inline constexpr const char* kNotRight = "?";

// Typed reads of one scalar. False where the text is no such number.
[[nodiscard]] bool ReadInteger(const YamlNode& node, int64_t least, int64_t* to);
[[nodiscard]] bool ReadNumber(const YamlNode& node, double least, double* to);
// "90s", "2m", "1h", "500ms" in seconds.
[[nodiscard]] bool ReadDuration(const YamlNode& node, double* seconds);

}  // namespace regatta
