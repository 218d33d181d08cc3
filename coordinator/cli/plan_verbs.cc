#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "coordinator/cli/exit_code.h"
#include "coordinator/cli/experiment_file.h"
#include "coordinator/cli/verbs.h"
#include "coordinator/experiment/material.h"
#include "coordinator/experiment/schema.h"
#include "coordinator/state_folder.h"
#include "strategies/plan/memory.h"
#include "worker/shapes/model_shapes.h"

namespace regatta {
namespace {

Cell BytesOrNothing(int64_t bytes, bool known) { return known ? Cell(bytes) : Cell(); }

std::string NoteOf(const PlannedRun& run) {
  if (!run.skipped.empty()) return "SKIPPED: " + run.skipped;
  std::string note = run.repeat == 0 ? "profiled; does not count for speeds" : "";
  const auto peak_bytes = static_cast<double>(run.predicted->peak_bytes);
  const double needed = kPeakMargin * peak_bytes;
  if (run.memory_limit > 0 && needed > static_cast<double>(run.memory_limit)) {
    constexpr double kMebibyte = 1 << 20;
    absl::StrAppend(
        &note, note.empty() ? "" : "; ",
        absl::StrFormat("may not fit: about %.1f MiB, memory_limit is %.1f MiB",
                        peak_bytes / kMebibyte, static_cast<double>(run.memory_limit) / kMebibyte));
  }
  if (run.to_prepare.empty()) return note;
  return absl::StrCat(note, note.empty() ? "" : "; ", "first: regatta prepare ",
                      absl::StrJoin(run.to_prepare, " "));
}

Table RunsTable(const Experiment& experiment) {
  Table table{
      {"run", "name", "ranks", "slots", "repeat", "state_bytes_per_rank", "peak_bytes_per_rank",
       "calls_per_step", "payload_bytes_per_step", "sent_bytes_per_step", "note"},
      {}};
  int64_t number = 0;
  for (const PlannedRun& run : experiment.runs) {
    const Prediction& p = run.predicted->most;
    const bool known = p.parameter_bytes > 0;
    const bool knows_bytes = known && p.knows_traffic;
    table.rows.push_back({++number, run.name, int64_t{run.ranks}, int64_t{run.ranks}, run.repeat,
                          BytesOrNothing(p.StateBytes(), known),
                          BytesOrNothing(run.predicted->peak_bytes, run.predicted->peak_bytes > 0),
                          BytesOrNothing(p.calls_per_step, known),
                          BytesOrNothing(p.payload_bytes_per_step, knows_bytes),
                          BytesOrNothing(std::llround(p.sent_bytes_per_step), knows_bytes),
                          NoteOf(run)});
  }
  return table;
}

// A column that is the same in every row tells nothing to people.
Table ForPeople(const Experiment& experiment) {
  Table table = RunsTable(experiment);
  std::vector<std::string> dull = {"slots", "payload_bytes_per_step"};
  const auto once = [](const PlannedRun& run) { return run.repeat == 1; };
  if (std::all_of(experiment.runs.begin(), experiment.runs.end(), once)) {
    dull.emplace_back("repeat");
  }
  bool any_note = false;
  for (const auto& row : table.rows) any_note = any_note || !CellText(row.back()).empty();
  if (!any_note) dull.emplace_back("note");
  for (const std::string& name : dull) {
    for (size_t c = 0; c < table.columns.size(); ++c) {
      if (table.columns[c] != name) continue;
      table.columns.erase(table.columns.begin() + static_cast<std::ptrdiff_t>(c));
      for (auto& row : table.rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(c));
    }
  }
  return table;
}

// What only programs read: exact for each rank, where it is known.
void AddRanks(const PlannedRun& run, nlohmann::ordered_json& json) {
  nlohmann::ordered_json calls = nlohmann::ordered_json::array();
  nlohmann::ordered_json states = nlohmann::ordered_json::array();
  for (const Prediction& rank : run.predicted->ranks) {
    if (rank.parameter_bytes == 0) continue;  // not known before the run
    nlohmann::ordered_json& of_rank = calls.emplace_back(nlohmann::ordered_json::object());
    for (const PredictedCalls& kind : rank.calls) of_rank[std::string(kind.kind)] = kind.calls;
    if (rank.transfer_batches > 0) of_rank["transfer_batch"] = rank.transfer_batches;
    states.push_back({{"parameters", rank.parameter_bytes},
                      {"gradients", rank.gradient_bytes},
                      {"optimizer", rank.optimizer_bytes}});
  }
  json["calls"] = std::move(calls);
  json["state_bytes"] = std::move(states);
  if (!run.predicted->most.bucket_bytes.empty()) {
    json["bucket_bytes"] = run.predicted->most.bucket_bytes;
  }
}

nlohmann::ordered_json PlanAsJson(const Experiment& experiment) {
  const ExperimentHead& head = experiment.head;
  nlohmann::ordered_json labels = nlohmann::ordered_json::object();
  for (const auto& [name, text] : head.labels) labels[name] = text;
  nlohmann::ordered_json rules = nlohmann::ordered_json::array();
  for (const RuleReport& rule : experiment.rules) {
    rules.push_back(
        {{"kind", rule.kind}, {"line", rule.line}, {"rule", rule.text}, {"matched", rule.matched}});
  }
  nlohmann::ordered_json runs = ToJson(RunsTable(experiment));
  for (size_t i = 0; i < experiment.runs.size(); ++i) AddRanks(experiment.runs[i], runs[i]);
  return {{"name", head.name},
          {"labels", labels},
          {"limits",
           {{"max_parallel", head.limits.max_parallel},
            {"max_runs", head.limits.max_runs},
            {"join_timeout_seconds", head.limits.join_timeout_seconds}}},
          {"repeats", head.repeats},
          {"rules", rules},
          {"warnings", experiment.warnings},
          {"runs", std::move(runs)}};
}

void PrintPlanForPeople(const Experiment& experiment) {
  PrintTable(ForPeople(experiment), Format::kTable);
  const Limits& limits = experiment.head.limits;
  for (const RuleReport& rule : experiment.rules) {
    std::printf("%s %s (line %d): %s %ld\n", rule.kind.c_str(), rule.text.c_str(), rule.line,
                rule.kind == "exclude" ? "drops" : "changes", static_cast<long>(rule.matched));
  }
  std::printf(
      "%zu run%s, at most %ld at once; more than %ld would be refused; ranks must join within %g s\n",
      experiment.runs.size(), experiment.runs.size() == 1 ? "" : "s",
      static_cast<long>(limits.max_parallel), static_cast<long>(limits.max_runs),
      limits.join_timeout_seconds);
}

void DefaultsVerb(bool markdown) {
  const std::string text = markdown ? SchemaAsMarkdown() : DefaultsAsYaml();
  std::fwrite(text.data(), 1, text.size(), stdout);
}

constexpr const char* kStarter =
    R"(# An experiment of regatta. See what it would do:  regatta plan FILE
# and run it:                                      regatta run FILE
# Every key and its default:                       regatta defaults
name: my_first
description: two strategies on two ranks

run:                                   # what all runs share
  model: minilm-distil                 # 22 million parameters; regatta prepare fetches it
  dataset: {name: reviews, max_length: 64, eval_rows: none}
  ranks: 2                             # worker processes
  threads_per_rank: 1
  batch_size: 16                       # rows of a step over all ranks
  steps: 8
  optimizer: {name: adamw, learning_rate: 1e-4}

matrix:                                # every combination of these runs
  strategy: [simple_ddp, bucket_ddp_async]
  # ranks: [1, 2]                      # a second axis: each strategy on one and on two ranks

# exclude:                             # combinations to leave out
#   - {strategy: bucket_ddp_async, ranks: "<2"}

include:                               # further runs
  - {strategy: single, ranks: 1}       # what the others are compared with

# repeats: 3                           # one run tells little about speed
)";

void InitVerb(CommonOptions& common, const std::string& file) {
  if (std::filesystem::exists(file)) {
    return Fail(common, absl::AlreadyExistsError(absl::StrCat(
                            "'", file, "' is there already; name another file, or remove it")));
  }
  std::ofstream stream(file);
  stream << kStarter;
  stream.close();
  if (!stream) {
    return Fail(common, absl::InternalError(absl::StrCat("'", file, "' cannot be written")));
  }
  std::fprintf(stderr, "wrote %s; next: regatta plan %s, then regatta run %s\n", file.c_str(),
               file.c_str(), file.c_str());
}

void CheckModelVerb(CommonOptions& common, const std::string& path) {
  const std::vector<std::string> errors = CheckModelFolder(path);
  Table table{{"path", "supported", "problem"}, {}};
  for (const std::string& error : errors) table.rows.push_back({path, std::string("no"), error});
  if (errors.empty()) table.rows.push_back({path, std::string("yes"), std::string()});
  PrintTable(table, common.GetFormat());
  if (!errors.empty()) common.exit_code = kClientError;
}

}  // namespace

void PlanVerb(CommonOptions& common, const FileOptions& options, const std::string& material) {
  const absl::StatusOr<ExperimentFile> file = ReadExperimentFile(options);
  if (!file.ok()) return FailSubmit(common, file.status());
  const absl::StatusOr<Experiment> experiment = ParseExperiment(
      file->source, {.file_name = file->name,
                     .folder = file->folder,
                     .material = std::filesystem::absolute(material).string(),
                     .cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency())),
                     .environment = file->environment});
  if (!experiment.ok()) return FailSubmit(common, experiment.status());
  PrintWarnings(experiment->warnings);
  switch (common.GetFormat()) {
    case Format::kJson: {
      const std::string text =
          PlanAsJson(*experiment).dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
      std::printf("%s\n", text.c_str());
      break;
    }
    case Format::kCsv:
      PrintTable(RunsTable(*experiment), Format::kCsv);
      break;
    case Format::kTable:
      PrintPlanForPeople(*experiment);
  }
}

void AddPlanVerbs(CLI::App& app, CommonOptions& common) {
  CLI::App* plan = app.add_subcommand(
      "plan",
      "Show what an experiment would run, with predicted memory and traffic; needs no daemon");
  auto options = std::make_shared<FileOptions>();
  auto material = std::make_shared<std::string>(DefaultMaterialFolder());
  AddFileOptions(plan, *options);
  plan->add_option("--material", *material, "Folder of prepared models and data")
      ->capture_default_str();
  AddOutputOptions(plan, common);
  plan->callback([&common, options, material] { PlanVerb(common, *options, *material); });

  CLI::App* defaults =
      app.add_subcommand("defaults", "Print every key of an experiment file with its default");
  auto markdown = std::make_shared<bool>(false);
  defaults->add_flag("--markdown", *markdown, "As the table of docs/experiment.md");
  defaults->callback([markdown] { DefaultsVerb(*markdown); });

  CLI::App* init = app.add_subcommand("init", "Write a commented experiment file to start from");
  auto init_file = std::make_shared<std::string>("experiment.yaml");
  init->add_option("file", *init_file, "File to write")->capture_default_str();
  init->callback([&common, init_file] { InitVerb(common, *init_file); });

  CLI::App* models = app.add_subcommand("models", "Ask about models");
  models->require_subcommand(1);
  CLI::App* check = models->add_subcommand(
      "check", "Say whether regatta can train a model folder, or which key or tensor is wrong");
  auto path = std::make_shared<std::string>();
  check->add_option("path", *path, "Folder with config.json and model.safetensors")->required();
  AddOutputOptions(check, common);
  check->callback([&common, path] { CheckModelVerb(common, *path); });
}

}  // namespace regatta
