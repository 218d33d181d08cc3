#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "coordinator/cli/exit_code.h"
#include "coordinator/cli/experiment_file.h"
#include "coordinator/cli/follow.h"
#include "coordinator/cli/session.h"
#include "coordinator/cli/verbs.h"
#include "coordinator/state_folder.h"

namespace regatta {
namespace {

constexpr const char* kResultsSql =
    "select run, name, ranks, state, steps, loss, accuracy, accuracy_low, accuracy_high, "
    "tokens_per_second, step_seconds_median, peak_rss_bytes, bytes_sent_per_step, sentence "
    "from results where run in (";

// A column that is empty in every row tells nothing.
Table DropEmptyColumns(const Table& table) {
  Table kept;
  kept.rows.resize(table.rows.size());
  for (size_t c = 0; c < table.columns.size(); ++c) {
    bool empty = true;
    for (const auto& row : table.rows) empty = empty && CellText(row[c]).empty();
    if (empty) continue;
    kept.columns.push_back(table.columns[c]);
    for (size_t r = 0; r < table.rows.size(); ++r) kept.rows[r].push_back(table.rows[r][c]);
  }
  return kept;
}

absl::Status PrintResults(Session& session, const std::vector<int64_t>& runs, Format format) {
  const absl::StatusOr<Table> table =
      session.Query(absl::StrCat(kResultsSql, absl::StrJoin(runs, ","), ") order by run"));
  if (!table.ok()) return table.status();
  PrintTable(format == Format::kTable ? DropEmptyColumns(*table) : *table, format);
  return absl::OkStatus();
}

void FollowAndReport(CommonOptions& common, Session& session, const std::vector<int64_t>& runs,
                     Interrupt on_interrupt) {
  const absl::StatusOr<int> code = FollowRuns(
      session,
      {.runs = runs, .show_progress = true, .on_interrupt = on_interrupt, .timeout_seconds = {}});
  if (!code.ok()) return Fail(common, code.status());
  common.exit_code = *code;
  if (*code == kClientStillRunning) return;
  if (absl::Status status = PrintResults(session, runs, common.GetFormat()); !status.ok())
    Fail(common, status);
}

struct RunOptions {
  FileOptions file;
  std::string state_folder;
  std::string material_folder = DefaultMaterialFolder();
  std::string worker;
  int slots = 0;
};

void RunVerb(CommonOptions& common, const RunOptions& options) {
  const absl::StatusOr<ExperimentFile> file = ReadExperimentFile(options.file);
  if (!file.ok()) return FailSubmit(common, file.status());
  std::string state = options.state_folder;
  if (state.empty()) {
    std::string pattern = (std::filesystem::temp_directory_path() / "regatta-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      return Fail(common, absl::InternalError(absl::StrCat("cannot make a folder like ", pattern)));
    }
    state = pattern;
  }
  std::vector<std::string> arguments = {"--material", options.material_folder};
  if (options.slots > 0)
    arguments.insert(arguments.end(), {"--slots", std::to_string(options.slots)});
  if (!options.worker.empty()) arguments.insert(arguments.end(), {"--worker", options.worker});
  const auto daemon =
      PrivateDaemon::Start({.state_folder = state, .arguments = std::move(arguments)});
  if (!daemon.ok()) return Fail(common, daemon.status());
  const absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(state);
  if (!session.ok()) return Fail(common, session.status());
  const absl::StatusOr<Session::Ids> ids = (*session)->Submit(*file);
  if (!ids.ok()) return FailSubmit(common, ids.status());
  PrintWarnings(ids->warnings);
  std::fprintf(stderr, "%zu run%s; status page while they last: %s\n", ids->runs.size(),
               ids->runs.size() == 1 ? "" : "s", (*daemon)->StatusPage().c_str());
  FollowAndReport(common, **session, ids->runs, Interrupt::kCancel);
  std::fprintf(stderr,
               "database: %s/regatta.db   logs: %s/runs   ask: regatta sql --state %s \"select * "
               "from results\"\n",
               state.c_str(), state.c_str(), state.c_str());
}

struct SubmitOptions {
  FileOptions file;
  bool dry_run = false;
  bool wait = false;
  bool follow = false;
};

void SubmitVerb(CommonOptions& common, const SubmitOptions& options) {
  if (options.dry_run) return PlanVerb(common, options.file, DefaultMaterialFolder());
  const absl::StatusOr<ExperimentFile> file = ReadExperimentFile(options.file);
  if (!file.ok()) return FailSubmit(common, file.status());
  const absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(common.state_folder);
  if (!session.ok()) return Fail(common, session.status());
  const absl::StatusOr<Session::Ids> ids = (*session)->Submit(*file);
  if (!ids.ok()) return FailSubmit(common, ids.status());
  PrintWarnings(ids->warnings);
  std::fprintf(stderr, "experiment e%ld: %zu run%s\n", static_cast<long>(ids->experiment),
               ids->runs.size(), ids->runs.size() == 1 ? "" : "s");
  if (options.follow) return FollowAndReport(common, **session, ids->runs, Interrupt::kDetach);
  if (options.wait) {
    const auto code = FollowRuns(**session, {.runs = ids->runs,
                                             .show_progress = false,
                                             .on_interrupt = Interrupt::kDetach,
                                             .timeout_seconds = {}});
    if (!code.ok()) return Fail(common, code.status());
    common.exit_code = *code;
  }
  Table table{{"experiment", "run"}, {}};
  for (const int64_t run : ids->runs) table.rows.push_back({ids->experiment, run});
  PrintTable(table, common.GetFormat());
}

absl::StatusOr<std::vector<int64_t>> FindRuns(Session& session,
                                              const std::vector<std::string>& texts) {
  std::vector<int64_t> runs;
  for (const std::string& text : texts) {
    const absl::StatusOr<Target> target = ParseTarget(text);
    if (!target.ok()) return target.status();
    const absl::StatusOr<Table> table = session.Query(
        absl::StrCat("select run from progress where ",
                     target->is_experiment ? "experiment" : "run", " = ", target->id));
    if (!table.ok()) return table.status();
    if (table->rows.empty()) {
      return absl::NotFoundError(absl::StrCat(
          "there is no ", target->is_experiment ? "experiment e" : "run ", target->id));
    }
    for (const auto& row : table->rows) runs.push_back(std::get<int64_t>(row[0]));
  }
  return runs;
}

void CancelVerb(CommonOptions& common, const std::vector<std::string>& texts) {
  const absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(common.state_folder);
  if (!session.ok()) return Fail(common, session.status());
  std::vector<int64_t> runs;
  std::vector<int64_t> experiments;
  for (const std::string& text : texts) {
    const absl::StatusOr<Target> target = ParseTarget(text);
    if (!target.ok()) {
      Fail(common, target.status());
      common.exit_code = kClientUsage;
      return;
    }
    (target->is_experiment ? experiments : runs).push_back(target->id);
  }
  const auto counts = (*session)->Cancel(runs, experiments);
  if (!counts.ok()) return Fail(common, counts.status());
  PrintTable({{"cancelled", "already_ended"}, {{counts->first, counts->second}}},
             common.GetFormat());
}

void WaitVerb(CommonOptions& common, const std::vector<std::string>& texts,
              double timeout_seconds) {
  const absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(common.state_folder);
  if (!session.ok()) return Fail(common, session.status());
  const absl::StatusOr<std::vector<int64_t>> runs = FindRuns(**session, texts);
  if (!runs.ok()) return Fail(common, runs.status());
  FollowOptions options{.runs = *runs,
                        .show_progress = true,
                        .on_interrupt = Interrupt::kDetach,
                        .timeout_seconds = {}};
  if (timeout_seconds > 0) options.timeout_seconds = timeout_seconds;
  const absl::StatusOr<int> code = FollowRuns(**session, options);
  if (!code.ok()) return Fail(common, code.status());
  common.exit_code = *code;
}

}  // namespace

void AddSubmitVerbs(CLI::App& app, CommonOptions& common) {
  CLI::App* run = app.add_subcommand(
      "run", "Run an experiment with a coordinator of its own and print the results");
  auto run_options = std::make_shared<RunOptions>();
  AddFileOptions(run, run_options->file);
  run->add_option("--state", run_options->state_folder,
                  "Keep database and logs here (default: a new temporary folder)");
  run->add_option("--material", run_options->material_folder, "Folder of prepared models and data")
      ->capture_default_str();
  run->add_option("--slots", run_options->slots, "Ranks that may run at once (default: the cores)")
      ->check(CLI::Range(1, 1000000));
  run->add_option("--worker", run_options->worker, "Program that a rank runs");
  AddOutputOptions(run, common);
  run->callback([&common, run_options] { RunVerb(common, *run_options); });

  CLI::App* submit =
      app.add_subcommand("submit", "Queue an experiment with the running coordinator");
  auto submit_options = std::make_shared<SubmitOptions>();
  AddFileOptions(submit, submit_options->file);
  submit->add_flag("--dry-run", submit_options->dry_run, "Same as regatta plan FILE");
  submit->add_flag("--wait", submit_options->wait,
                   "Return when all runs have ended, with their outcome");
  submit->add_flag("--follow", submit_options->follow, "The same, with progress and the results");
  AddStateOption(submit, common);
  AddOutputOptions(submit, common);
  submit->callback([&common, submit_options] { SubmitVerb(common, *submit_options); });

  CLI::App* cancel = app.add_subcommand("cancel", "End runs, or all runs of experiments");
  auto cancelled = std::make_shared<std::vector<std::string>>();
  cancel->add_option("id", *cancelled, "Runs (12) and experiments (e3)")->required();
  AddStateOption(cancel, common);
  AddOutputOptions(cancel, common);
  cancel->callback([&common, cancelled] { CancelVerb(common, *cancelled); });

  CLI::App* wait =
      app.add_subcommand("wait", "Wait until runs have ended; the exit code is their outcome");
  auto awaited = std::make_shared<std::vector<std::string>>();
  auto timeout = std::make_shared<double>(0);
  wait->add_option("id", *awaited, "Runs (12) and experiments (e3)")->required();
  wait->add_option("--timeout", *timeout, "Seconds to wait at most; then exit code 13")
      ->check(CLI::PositiveNumber);
  AddStateOption(wait, common);
  wait->callback([&common, awaited, timeout] { WaitVerb(common, *awaited, *timeout); });
}

}  // namespace regatta
