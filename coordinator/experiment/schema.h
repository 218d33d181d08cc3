#pragma once

#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/experiment/yaml_tree.h"
#include "regatta/v1/spec.pb.h"

namespace regatta {

struct Limits {
  int64_t max_parallel = 1;
  int64_t max_runs = 10000;  // of one file, repeats included
  double join_timeout_seconds = 60;
  double timeout_seconds = 0;        // of a run, from its launch; 0: none
  double queue_timeout_seconds = 0;  // of a run, from its submission to its launch; 0: none
};

// What an experiment file says beside its runs.
struct ExperimentHead {
  std::string name;
  std::string description;
  std::vector<std::pair<std::string, std::string>> labels;  // in file order
  Limits limits;
  bool skip_invalid = false;  // combinations that cannot run become SKIPPED
  int64_t repeats = 1;
};

// A run while its keys are read: the spec, and what only the end of reading can decide.
struct RunDraft {
  v1::RunSpec spec;
  std::optional<int64_t> batch_size;
  std::optional<int64_t> batch_size_per_rank;
  std::optional<int64_t> gradient_accumulation;
  std::optional<int64_t> micro_batches;
  int32_t data_parallel = 1;
  std::optional<int64_t> epochs;
  std::optional<bool> pretrained;
  std::optional<int32_t> threads_per_rank;
  const YamlNode* model = nullptr;  // what was read
  std::string model_text;           // the same on one line
  std::optional<int64_t> synthetic_rows;
  bool profiles_apart = false;  // in an extra repeat, so that the others are as fast as they can be
  std::set<std::string> from_client;  // variables whose text comes from the client's environment
};

// Reads a value, which outlives the draft; returns an empty string, `kNotRight`, or a sentence that
// follows the key's name.
using ReadHead = std::string (*)(const YamlNode& value, ExperimentHead& head);
using ReadRun = std::string (*)(const YamlNode& value, RunDraft& draft);
struct ReadByExpansion {};  // matrix, include and their like: experiment.cc reads them
struct NotBuilt {};         // refused where it is written

inline constexpr const char* kNotRight = "?";  // the value is not what the key's `right` says

// One key of an experiment file. The table is the schema: what the parser takes, what `regatta
// defaults` prints, and what docs/experiment.md lists.
struct SchemaKey {
  const char* path;          // "run.optimizer.eps"
  const char* type;          // "integer", "number", "text", ...
  const char* unit;          // "rows", "seconds"; empty where there is none
  const char* default_text;  // YAML; "required" for the one key without a default
  const char* right;         // what would be right, for messages
  const char* meaning;
  std::variant<ReadHead, ReadRun, ReadByExpansion, NotBuilt> read;
  bool open = false;  // a map of names that are not keys of this table

  [[nodiscard]] bool Built() const { return !std::holds_alternative<NotBuilt>(read); }
};

[[nodiscard]] const std::vector<SchemaKey>& Schema();

// The key at the path, or the open key that the path leads into; null where there is none.
[[nodiscard]] const SchemaKey* FindKey(const std::string& path);

// The default of a key as a value, parsed once.
[[nodiscard]] const YamlNode& DefaultOf(const SchemaKey& key);

// Refuses keys below `prefix` ("", "run.", "limits.") that the table lacks, with the nearest match,
// or has but does not build yet.
[[nodiscard]] absl::Status CheckKeys(const YamlNode& map, const std::string& prefix,
                                     const std::string& file_name);

// The same for one dotted key, as an axis of a matrix is named; `where` is the value's place.
[[nodiscard]] absl::Status CheckKey(const std::string& path, const YamlNode& where,
                                    const std::string& file_name);

// "KEY is 'VALUE'; RIGHT is right", or the reader's own sentence after the key's name.
[[nodiscard]] absl::Status WrongValue(const SchemaKey& key, const YamlNode& value,
                                      const std::string& wrong, const std::string& file_name);

// All keys as a commented file of their defaults, and as a Markdown table for docs/experiment.md.
[[nodiscard]] std::string DefaultsAsYaml();
[[nodiscard]] std::string SchemaAsMarkdown();

}  // namespace regatta
