#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "coordinator/cli/output.h"

namespace regatta {

// What every verb shares.
struct CommonOptions {
  std::string state_folder;
  std::string output = "table";
  bool json = false;
  int exit_code = 0;  // set by the verb that ran

  [[nodiscard]] Format GetFormat() const {
    return json || output == "json" ? Format::kJson
           : output == "csv"        ? Format::kCsv
                                    : Format::kTable;
  }
};

// Each adds its verbs to the program: options, help, and what to do. Verbs leave their exit code in
// `common`.
void AddPlanVerbs(CLI::App& app, CommonOptions& common);     // plan, defaults, init, models
void AddSubmitVerbs(CLI::App& app, CommonOptions& common);   // run, submit, cancel, wait
void AddReadVerbs(CLI::App& app, CommonOptions& common);     // ls, show, logs, sql, strategies
void AddPrepareVerb(CLI::App& app, CommonOptions& common);   // prepare
void AddScheduleVerb(CLI::App& app, CommonOptions& common);  // schedule

void AddCompletionVerb(CLI::App& app);  // completion, of all verbs added so far

// -o/--output and --json.
void AddOutputOptions(CLI::App* verb, CommonOptions& common);
// --state.
void AddStateOption(CLI::App* verb, CommonOptions& common);

// Says what went wrong on stderr and leaves its exit code.
void Fail(CommonOptions& common, const absl::Status& status);

// The same for a refused experiment file: INVALID_ARGUMENT is exit code 3.
void FailSubmit(CommonOptions& common, const absl::Status& status);
// On stderr, one line each.
void PrintWarnings(const std::vector<std::string>& warnings);

// `regatta plan`, and `regatta submit --dry-run`.
struct FileOptions;
void PlanVerb(CommonOptions& common, const FileOptions& options, const std::string& material);

// "12", "r12": a run; "e3": an experiment.
struct Target {
  bool is_experiment = false;
  int64_t id = 0;
};
[[nodiscard]] absl::StatusOr<Target> ParseTarget(const std::string& text);

}  // namespace regatta
