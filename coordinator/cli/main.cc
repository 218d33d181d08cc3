#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <cstdio>

#include "coordinator/cli/exit_code.h"
#include "coordinator/cli/verbs.h"
#include "coordinator/state_folder.h"
#include "coordinator/version.h"

namespace regatta {

void AddOutputOptions(CLI::App* verb, CommonOptions& common) {
  verb->add_option("-o,--output", common.output, "How to print: table, json or csv")
      ->check(CLI::IsMember({"table", "json", "csv"}));
  verb->add_flag("--json", common.json, "Same as -o json");
}

void AddStateOption(CLI::App* verb, CommonOptions& common) {
  verb->add_option("--state", common.state_folder, "Folder of the coordinator's database and logs")
      ->capture_default_str();
}

void Fail(CommonOptions& common, const absl::Status& status) {
  std::fprintf(stderr, "regatta: %s\n", std::string(status.message()).c_str());
  common.exit_code = ExitCodeOf(status);
}

void FailSubmit(CommonOptions& common, const absl::Status& status) {
  Fail(common, status);
  if (absl::IsInvalidArgument(status)) common.exit_code = kClientInvalid;
}

void PrintWarnings(const std::vector<std::string>& warnings) {
  for (const std::string& warning : warnings) {
    std::fprintf(stderr, "warning: %s\n", warning.c_str());
  }
}

absl::StatusOr<Target> ParseTarget(const std::string& text) {
  Target target;
  target.is_experiment = text.starts_with("e");
  const size_t skip = target.is_experiment || text.starts_with("r") ? 1 : 0;
  if (!absl::SimpleAtoi(text.substr(skip), &target.id) || target.id < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is no id; a run is written 12 or r12, an experiment e3"));
  }
  return target;
}

}  // namespace regatta

int main(int argc, char** argv) {
  regatta::CommonOptions common;
  common.state_folder = regatta::DefaultStateFolder();
  CLI::App app(
      "regatta: which parallel training strategy is best for my model on my machines,\n"
      "and what does it cost?\n\n"
      "First steps:\n"
      "  regatta prepare                          fetch a small model and real reviews\n"
      "  regatta run experiments/quickstart.yaml  train with every strategy, print the results\n"
      "  regatta strategies                       what there is to compare\n"
      "  regatta init my.yaml; regatta plan my.yaml   an experiment of your own\n\n"
      "With a daemon (regattad), for longer work:\n"
      "  regatta submit FILE; regatta ls; regatta logs -f RUN\n"
      "  regatta sql \"select * from results\"\n");
  app.set_version_flag("--version", regatta::kVersion);
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 ok, 1 error, 2 usage, 3 invalid experiment, 4 no coordinator, 5 not found,\n"
      "10 a run failed, 11 cancelled, 12 timed out, 13 still running.");
  regatta::AddPlanVerbs(app, common);
  regatta::AddSubmitVerbs(app, common);
  regatta::AddReadVerbs(app, common);
  regatta::AddPrepareVerb(app, common);
  regatta::AddScheduleVerb(app, common);
  regatta::AddCompletionVerb(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? regatta::kClientOk : regatta::kClientUsage;
  }
  return common.exit_code;
}
