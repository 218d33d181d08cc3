#include <absl/strings/str_cat.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "coordinator/coordinator.h"
#include "coordinator/utf8.h"

// What the loop does at each kind of event; coordinator.cc holds the loop itself and its decisions.

namespace regatta {
namespace {

std::string SpecToJson(const v1::RunSpec& spec) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(spec, &json, options);
  return status.ok() ? json : "{}";
}

}  // namespace

// ---- events of the client ----

void Coordinator::Handle(Submitted& event) {
  if (const auto found = submissions_.find(event.token); found != submissions_.end()) {
    effects_.push_back([reply = event.reply, ids = found->second] { reply(ids); });
    return;
  }
  if (shutting_down_) {
    event.reply(absl::UnavailableError("the coordinator is stopping"));
    return;
  }
  for (const PlannedRun& run : event.experiment.runs) {
    if (run.spec.ranks() <= options_.slots) continue;
    event.reply(absl::InvalidArgumentError(absl::StrCat(
        "run '", run.name, "' needs ", run.spec.ranks(), " ranks; this coordinator has ",
        options_.slots, " slots: fewer ranks, or a coordinator with --slots ", run.spec.ranks(),
        ", is right")));
    return;
  }
  OneExperiment experiment;
  experiment.id = ++last_experiment_;
  experiment.max_parallel = event.experiment.limits.max_parallel;
  experiment.join_timeout_seconds = event.experiment.limits.join_timeout_seconds;
  const int64_t now = clock_.UnixMicros();
  changes_.push_back(NewExperiment{experiment.id, event.token, event.experiment.name,
                                   event.experiment.description, event.experiment.text,
                                   experiment.max_parallel, experiment.join_timeout_seconds, now});
  Submitted::Ids ids{experiment.id, {}};
  for (PlannedRun& planned : event.experiment.runs) {
    OneRun& run = runs_[++last_run_];
    run.id = last_run_;
    run.experiment = experiment.id;
    run.spec = std::make_shared<const v1::RunSpec>(std::move(planned.spec));
    changes_.push_back(NewRun{run.id, experiment.id, static_cast<int64_t>(ids.runs.size()),
                              planned.name, run.spec->strategy().name(), run.spec->model().name(),
                              run.spec->dataset().name(), run.spec->ranks(), SpecToJson(*run.spec),
                              std::string(StateName(run.state)), now});
    experiment.pending.insert(run.id);
    experiment.runs.push_back(run.id);
    ids.runs.push_back(run.id);
  }
  submissions_[event.token] = ids;
  experiments_[experiment.id] = std::move(experiment);
  effects_.push_back([reply = event.reply, ids = std::move(ids)] { reply(ids); });
}

void Coordinator::Handle(CancelWanted& event) {
  std::vector<int64_t> wanted = event.runs;
  for (const int64_t id : event.experiments) {
    const auto found = experiments_.find(id);
    if (found == experiments_.end()) {
      event.reply(absl::NotFoundError(absl::StrCat("there is no experiment e", id)));
      return;
    }
    wanted.insert(wanted.end(), found->second.runs.begin(), found->second.runs.end());
  }
  CancelWanted::Counts counts;
  for (const int64_t id : wanted) {
    if (id < 1 || id > last_run_) {
      event.reply(absl::NotFoundError(absl::StrCat("there is no run ", id)));
      return;
    }
  }
  for (const int64_t id : wanted) {
    const auto found = runs_.find(id);
    if (found == runs_.end()) {
      ++counts.already_ended;
      continue;
    }
    CancelRun(found->second);
    ++counts.cancelled;
  }
  effects_.push_back([reply = event.reply, counts] { reply(counts); });
}

void Coordinator::CancelRun(OneRun& run) {
  if (run.state == RunState::kPending) {
    experiments_[run.experiment].pending.erase(run.id);
    Move(run, RunState::kCancelled, "cancelled_by_user", "cancelled before it started");
    runs_.erase(run.id);
    return;
  }
  BeginStop(run, StopCause::kCancelled, "cancelled while it was under way");
}

void Coordinator::Handle(AwaitWanted& event) {
  if (commits_ > event.after_commit) {
    event.reply(commits_);
    return;
  }
  const Instant deadline = AddSeconds(clock_.Now(), event.timeout_seconds);
  awaiting_.push_back({deadline, std::move(event)});
}

// ---- events of ranks ----

void Coordinator::Handle(RankJoined& event) {
  OneRun* run = FindLive(event.key);
  if (run == nullptr) return;
  run->live->fate.ranks[static_cast<size_t>(event.rank)].joined = true;
  changes_.push_back(Facts{run->id, event.key.attempt, event.rank, std::move(event.facts)});
}

void Coordinator::Handle(AllJoined& event) {
  OneRun* run = FindLive(event.key);
  if (run == nullptr || run->state != RunState::kStarting) return;
  Attempt& attempt = *run->live;
  const double seconds = SecondsBetween(attempt.launched, clock_.Now());
  changes_.push_back(AttemptJoined{run->id, attempt.number, seconds});
  changes_.push_back(
      Summaries{run->id, attempt.number, -1, {{"launch_to_joined_seconds", seconds}}});
  Move(*run, RunState::kRunning, "", "");
}

void Coordinator::Handle(RankReported& event) {
  OneRun* run = FindLive(event.key);
  if (run == nullptr) return;
  int64_t done = run->step;
  for (auto& [step, values] : event.steps) {
    done = std::max(done, step + 1);
    changes_.push_back(Samples{run->id, event.key.attempt, event.rank, step, std::move(values)});
  }
  run->step = done;
  changes_.push_back(Progress{run->id, done, event.planned_steps});
}

void Coordinator::Handle(RankFinished& event) {
  OneRun* run = FindLive(event.key);
  if (run == nullptr) {
    event.reply();
    return;
  }
  Attempt& attempt = *run->live;
  RankFate& fate = attempt.fate.ranks[static_cast<size_t>(event.rank)];
  fate.finished = true;
  fate.finished_ok = event.ok;
  fate.announced_exit_code = event.exit_code;
  if (!event.sentence.empty()) fate.sentence = event.sentence;
  attempt.results[static_cast<size_t>(event.rank)] = event.values;
  changes_.push_back(RankChange{.run = run->id,
                                .attempt = attempt.number,
                                .rank = event.rank,
                                .pid = {},
                                .wait_status = {},
                                .killed = {},
                                .finished = true,
                                .sentence = event.sentence});
  changes_.push_back(Summaries{run->id, attempt.number, event.rank, std::move(event.values)});
  if (!event.facts.empty())
    changes_.push_back(Facts{run->id, attempt.number, event.rank, std::move(event.facts)});
  if (!event.ok) RankFailed(*run, event.rank);
  effects_.push_back(event.reply);
}

// ---- events of the launcher ----

void Coordinator::Handle(RankSpawned& event) {
  if (FindLive(event.key) == nullptr) return;
  changes_.push_back(RankChange{.run = event.key.run,
                                .attempt = event.key.attempt,
                                .rank = event.rank,
                                .pid = event.pid,
                                .wait_status = {},
                                .killed = {},
                                .finished = {},
                                .sentence = {}});
}

void Coordinator::Handle(RankExited& event) {
  OneRun* run = FindLive(event.key);
  if (run == nullptr) return;
  RankFate& fate = run->live->fate.ranks[static_cast<size_t>(event.rank)];
  fate.wait_status = event.wait_status;
  fate.killed = event.killed;
  if (fate.sentence.empty()) fate.sentence = ReplaceInvalidUtf8(event.last_words);
  changes_.push_back(RankChange{.run = run->id,
                                .attempt = event.key.attempt,
                                .rank = event.rank,
                                .pid = {},
                                .wait_status = event.wait_status,
                                .killed = fate.killed,
                                .finished = {},
                                .sentence = fate.sentence});
  if (!RankSucceeded(fate)) RankFailed(*run, event.rank);
}

void Coordinator::Handle(GangGone& event) {
  OneRun* run = FindLive(event.key);
  if (run == nullptr) return;
  if (!event.status.ok()) {
    run->live->fate.stop = StopCause::kSpawn;
    run->live->fate.stop_sentence = std::string(event.status.message());
  }
  EndAttempt(*run);
}

// One rank of a gang is lost: the others cannot go on without it.
void Coordinator::RankFailed(OneRun& run, int rank) {
  RankFate& fate = run.live->fate.ranks[static_cast<size_t>(rank)];
  if (fate.bad_news_order == 0) fate.bad_news_order = ++run.live->bad_news;
  BeginStop(run, StopCause::kRankFailed, "");
}

// ---- the writer's answers ----

void Coordinator::Handle(Committed& event) {
  if (!event.status.ok()) {
    // Nothing more can be kept: no effect is released, gangs end, and the daemon says why and
    // stops.
    if (failure_.ok()) failure_ = event.status;
    waiting_effects_.clear();
    shutting_down_ = true;
    for (auto& [id, run] : runs_) {
      if (run.live != nullptr) launcher_->Stop(id, run.live->number);
    }
    return;
  }
  commits_ = event.batch;
  while (!waiting_effects_.empty() && waiting_effects_.front().first <= event.batch) {
    for (const Effect& effect : waiting_effects_.front().second) effect();
    waiting_effects_.pop_front();
  }
  for (const Awaiting& awaiting : std::exchange(awaiting_, {})) awaiting.wanted.reply(commits_);
}

void Coordinator::Handle(ShutdownWanted&) {
  shutting_down_ = true;
  for (auto& [id, run] : runs_) {
    if (run.live != nullptr) BeginStop(run, StopCause::kDaemonStop, "the coordinator was stopped");
  }
}

}  // namespace regatta
