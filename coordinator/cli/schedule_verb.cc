#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include <cstdio>
#include <fstream>
#include <memory>

#include "coordinator/cli/exit_code.h"
#include "coordinator/cli/timeline_svg.h"
#include "coordinator/cli/verbs.h"
#include "strategies/plan/pipeline/simulate.h"
#include "strategies/plan/strategy_table.h"
#include "strategies/plan/suggest.h"

namespace regatta {
namespace {

struct ScheduleOptions {
  std::string strategy = "1f1b_pp";
  std::vector<std::string> compare;
  int ranks = 4;
  int micro_batches = 8;
  int stages_per_rank = 0;  // 0: as the row has it
  double forward = 1;
  double backward = 2;
  double transfer = 0;
  std::string compat = "none";
  std::string svg;
};

struct Scheduled {
  std::string name;
  PipelineShape shape;
  Fusing fusing;
  Program program;  // with transfers
  Timeline timeline;

  [[nodiscard]] int MostInFlight() const {
    int most = 0;
    for (const RankTimeline& rank : timeline.ranks) most = std::max(most, rank.most_in_flight);
    return most;
  }
};

absl::StatusOr<Scheduled> Schedule(const std::string& name, const ScheduleOptions& options) {
  const StrategyRow* row = FindStrategy(name);
  if (row == nullptr || !row->pipeline) {
    std::vector<std::string> names;
    for (const StrategyRow& known : StrategyTable()) {
      if (known.pipeline) names.emplace_back(known.name);
    }
    return absl::InvalidArgumentError(
        absl::StrCat("'", name, "' is no pipeline strategy", SuggestName(name, names)));
  }
  // Rows that are compared do the same work: a batch, and a rank's part of the model.
  const bool whole = row->pipeline->policy.whole_batch;
  StrategyParams params;
  if (row->pipeline->policy.Interleaves() && options.stages_per_rank > 0) {
    params.emplace_back("stages_per_rank", absl::StrCat(options.stages_per_rank));
  }
  const auto parsed = ParseStrategy(name, params,
                                    {.ranks = options.ranks,
                                     .micro_batches = whole ? 1 : options.micro_batches,
                                     .original = options.compat == "original"});
  if (const auto* error = std::get_if<PlanError>(&parsed); error != nullptr) {
    return absl::InvalidArgumentError(error->sentence);
  }
  const PipelinePlan& plan = *std::get<StrategyPlan>(parsed).pipeline;
  const int per_rank = plan.shape.stages_per_rank;
  Scheduled scheduled{name, plan.shape, plan.fusing, {}, {}};
  auto program = PlanProgram(plan.policy, plan.shape, plan.waits_at_once, plan.fusing);
  if (const auto* sentence = std::get_if<std::string>(&program); sentence != nullptr) {
    return absl::InternalError(absl::StrCat(name, ": ", *sentence));
  }
  scheduled.program = std::get<Program>(std::move(program));
  const double work = static_cast<double>(whole ? options.micro_batches : 1) / per_rank;
  const StageCosts costs{work * options.forward, work * options.backward / 2,
                         work * options.backward / 2};
  scheduled.timeline =
      Simulate(scheduled.program, scheduled.shape,
               {std::vector<StageCosts>(static_cast<size_t>(scheduled.shape.Stages()), costs),
                options.transfer});
  return scheduled;
}

nlohmann::ordered_json JsonOf(const Scheduled& scheduled) {
  nlohmann::ordered_json json = {{"strategy", scheduled.name},
                                 {"stages", scheduled.shape.Stages()},
                                 {"stages_per_rank", scheduled.shape.stages_per_rank},
                                 {"micro_batches", scheduled.shape.micro_batches},
                                 {"step", scheduled.timeline.end},
                                 {"bubble_fraction", scheduled.timeline.BubbleFraction()},
                                 {"bubble_overhead", scheduled.timeline.BubbleOverhead()},
                                 {"most_in_flight", scheduled.MostInFlight()},
                                 {"ranks", nlohmann::ordered_json::array()}};
  for (size_t rank = 0; rank < scheduled.program.size(); ++rank) {
    const RankTimeline& timeline = scheduled.timeline.ranks[rank];
    nlohmann::ordered_json program = nlohmann::ordered_json::array();
    for (const Action& action : scheduled.program[rank]) program.push_back(ActionText(action));
    nlohmann::ordered_json spans = nlohmann::ordered_json::array();
    for (const Span& span : timeline.spans) {
      spans.push_back(
          {{"action", ActionText(span.action)}, {"start", span.start}, {"end", span.end}});
    }
    json["ranks"].push_back({{"rank", rank},
                             {"busy", timeline.busy},
                             {"most_in_flight", timeline.most_in_flight},
                             {"transfer_batches", CountBatches(scheduled.program[rank],
                                                               scheduled.fusing, scheduled.shape)},
                             {"program", std::move(program)},
                             {"spans", std::move(spans)}});
  }
  return json;
}

Table TableOfRanks(const Scheduled& scheduled) {
  Table table{{"rank", "busy", "bubble", "most_in_flight", "program"}, {}};
  for (size_t rank = 0; rank < scheduled.program.size(); ++rank) {
    const RankTimeline& timeline = scheduled.timeline.ranks[rank];
    table.rows.push_back(
        {static_cast<int64_t>(rank), timeline.busy, scheduled.timeline.end - timeline.busy,
         int64_t{timeline.most_in_flight},
         absl::StrJoin(scheduled.program[rank], " ", [](std::string* out, const Action& action) {
           absl::StrAppend(out, ActionText(action));
         })});
  }
  return table;
}

Table TableOf(const std::vector<Scheduled>& all) {
  Table table{{"strategy", "stages", "micro_batches", "step", "bubble_fraction", "bubble_overhead",
               "most_in_flight"},
              {}};
  for (const Scheduled& scheduled : all) {
    table.rows.push_back({scheduled.name, int64_t{scheduled.shape.Stages()},
                          int64_t{scheduled.shape.micro_batches}, scheduled.timeline.end,
                          scheduled.timeline.BubbleFraction(), scheduled.timeline.BubbleOverhead(),
                          int64_t{scheduled.MostInFlight()}});
  }
  return table;
}

absl::Status WriteSvg(const Scheduled& scheduled, const std::string& path) {
  const std::string title = absl::StrFormat(
      "%s: %d ranks, %d micro-batches, bubble %.1f %%", scheduled.name, scheduled.shape.ranks,
      scheduled.shape.micro_batches, 100 * scheduled.timeline.BubbleFraction());
  std::ofstream file(path);
  file << DrawTimeline(title, scheduled.shape, scheduled.timeline);
  file.close();
  if (!file) return absl::UnknownError(absl::StrCat(path, " cannot be written"));
  std::fprintf(stderr, "picture: %s\n", path.c_str());
  return absl::OkStatus();
}

void ScheduleVerb(CommonOptions& common, const ScheduleOptions& options) {
  const auto fail = [&common](const absl::Status& status) {
    Fail(common, status);
    if (absl::IsInvalidArgument(status)) common.exit_code = kClientUsage;
  };
  std::vector<Scheduled> all;
  for (const std::string& name :
       options.compare.empty() ? std::vector<std::string>{options.strategy} : options.compare) {
    absl::StatusOr<Scheduled> scheduled = Schedule(name, options);
    if (!scheduled.ok()) return fail(scheduled.status());
    all.push_back(*std::move(scheduled));
  }
  if (!options.compare.empty()) return PrintTable(TableOf(all), common.GetFormat());
  if (!options.svg.empty()) {
    if (const absl::Status status = WriteSvg(all[0], options.svg); !status.ok()) {
      return fail(status);
    }
  }
  if (common.GetFormat() == Format::kJson) {
    std::printf("%s\n", JsonOf(all[0]).dump(2).c_str());
    return;
  }
  PrintTable(TableOfRanks(all[0]), common.GetFormat());
  std::fprintf(stderr,
               "one step: %g; bubble_fraction %.4f (of all ranks' time, as GPipe and Zero Bubble "
               "count it), bubble_overhead %.4f (over the ideal step, as Megatron-LM counts it)\n",
               all[0].timeline.end, all[0].timeline.BubbleFraction(),
               all[0].timeline.BubbleOverhead());
}

}  // namespace

void AddScheduleVerb(CLI::App& app, CommonOptions& common) {
  CLI::App* verb = app.add_subcommand(
      "schedule", "What each rank of a pipeline does in one step, and how long it waits; no model");
  auto options = std::make_shared<ScheduleOptions>();
  AddOutputOptions(verb, common);
  verb->add_option("--strategy", options->strategy, "A pipeline row")->capture_default_str();
  verb->add_option("--compare", options->compare, "Several rows in one table")->type_name("ROW...");
  verb->add_option("--stages", options->ranks, "Ranks of the pipeline")
      ->check(CLI::Range(2, 256))
      ->capture_default_str();
  verb->add_option("--micro-batches", options->micro_batches, "Parts of a batch")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb->add_option("--stages-per-rank", options->stages_per_rank,
                   "Of rows that have several: into how many stages a rank's part is cut")
      ->check(CLI::Range(2, 64));
  const CLI::Range any_time(0.0, 1e9);
  verb->add_option("--forward", options->forward,
                   "Time of a rank's part of the model for one micro-batch")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--backward", options->backward, "The same of backward")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->add_option("--transfer", options->transfer, "Time from one rank to the next")
      ->check(any_time)
      ->capture_default_str();
  verb->add_option("--compat", options->compat,
                   "original: programs as the study had them (docs/from_the_study.md)")
      ->check(CLI::IsMember({"none", "original"}))
      ->capture_default_str();
  verb->add_option("--svg", options->svg, "Draw the step into this file")->type_name("FILE");
  verb->callback([&common, options] { ScheduleVerb(common, *options); });
}

}  // namespace regatta
