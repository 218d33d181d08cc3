#pragma once

#include <absl/status/statusor.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/experiment/material.h"
#include "coordinator/experiment/schema.h"
#include "coordinator/experiment/yaml_tree.h"
#include "regatta/v1/spec.pb.h"
#include "strategies/plan/strategy_table.h"

namespace regatta {

// Where an experiment comes from and where it would run.
struct Surroundings {
  std::string file_name;  // for messages
  std::string folder;     // absolute; relative paths of the experiment start here
  std::string material;   // absolute; prepared models and data sets
  int cores = 1;
  std::map<std::string, std::string> environment = {};  // what `env: {NAME: null}` may take
};

// A dotted key of `run` and its value.
struct Assignment {
  std::string_view key;
  const YamlNode* value = nullptr;
};

// What one run is, and what is known of it before it starts.
struct ResolvedRun {
  v1::RunSpec spec;
  StrategyPlan plan;
  const ResolvedModel* model = nullptr;  // without parameters until it is prepared
  bool profiles_apart = false;           // spec.profile is for an extra repeat
};

// Turns one combination after another into complete specs. The base run is read once, and a
// combination reads again only what it changes; what names lead to is looked up once.
class RunResolver {
 public:
  // `run`: the map below the file's `run:`. Both arguments outlive the resolver.
  RunResolver(const YamlNode& run, const Surroundings& surroundings);

  // INVALID_ARGUMENT: a mistake in the base run.
  [[nodiscard]] absl::Status ReadBase();

  // INVALID_ARGUMENT: a mistake. FAILED_PRECONDITION: all names and values are right, but not
  // together. Both with the place.
  [[nodiscard]] absl::StatusOr<ResolvedRun> Resolve(const std::vector<Assignment>& set);

  // The value that a run has at a dotted key: set, written or default; null where it has none.
  [[nodiscard]] const YamlNode* ValueOf(const std::vector<Assignment>& set,
                                        const std::string& key) const;

  // Values of {secret: true} variables that specs name without them.
  [[nodiscard]] const std::map<std::string, std::string>& Secrets() const { return secrets_; }

 private:
  struct Problem {
    const char* key;  // whose place is told
    std::string sentence;
    bool cannot_run = false;
  };

  // A key of the schema, as ReadTop wants it.
  struct TopKey {
    const SchemaKey* key;
    std::string_view leaf;     // below the top key; empty: the top key itself
    const YamlNode* fallback;  // default
    ReadRun read;
  };

  [[nodiscard]] absl::Status ReadTop(std::string_view top, const YamlNode* value, RunDraft& draft);
  [[nodiscard]] Problem Finish(RunDraft& draft, ResolvedRun* run);
  [[nodiscard]] std::string FinishModel(RunDraft& draft, ResolvedRun* run);
  [[nodiscard]] std::string FinishDataset(RunDraft& draft);
  [[nodiscard]] std::string FinishEnvironment(RunDraft& draft);
  [[nodiscard]] MaterialPlace Place() const {
    return {surroundings_.folder, surroundings_.material};
  }

  const YamlNode& run_;
  const Surroundings& surroundings_;
  std::map<std::string_view, std::vector<TopKey>> keys_by_top_;
  RunDraft base_;
  std::map<std::string, std::pair<std::string, ResolvedModel>> models_;      // by text; error
  std::map<std::string, std::pair<std::string, ResolvedDataset>> datasets_;  // by name and model
  std::map<std::string, std::string> secrets_;
};

}  // namespace regatta
