#include <absl/strings/str_cat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "coordinator/coordinator.h"
#include "coordinator/experiment/material.h"
#include "coordinator/secrets.h"
#include "coordinator/utf8.h"

// What the loop does at each kind of event; coordinator.cc holds the loop itself and its decisions.

namespace regatta {
namespace {

std::string LabelsJson(const ExperimentHead& head) {
  nlohmann::json labels = nlohmann::json::object();
  for (const auto& [name, text] : head.labels) labels[name] = text;
  return labels.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A run that this coordinator can never start: skipped where the experiment says so.
std::string TooWide(const PlannedRun& run, int slots) {
  if (run.ranks <= slots) return "";
  return absl::StrCat("run '", run.name, "' needs ", run.ranks, " ranks; this coordinator has ",
                      slots, " slots: fewer ranks, or a coordinator with --slots ", run.ranks,
                      ", is right");
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
  Experiment& submitted = event.experiment;
  for (PlannedRun& run : submitted.runs) {
    std::string too_wide = run.skipped.empty() ? TooWide(run, options_.slots) : "";
    if (too_wide.empty()) continue;
    if (!submitted.head.skip_invalid) {
      event.reply(absl::InvalidArgumentError(too_wide));
      return;
    }
    run.skipped = std::move(too_wide);
  }
  OneExperiment experiment;
  experiment.id = last_experiment_ + 1;
  experiment.max_parallel = submitted.head.limits.max_parallel;
  experiment.join_timeout_seconds = submitted.head.limits.join_timeout_seconds;
  experiment.timeout_seconds = submitted.head.limits.timeout_seconds;
  if (submitted.head.limits.queue_timeout_seconds > 0) {
    experiment.queue_deadline =
        AddSeconds(clock_.Now(), submitted.head.limits.queue_timeout_seconds);
  }
  experiment.has_secrets = !submitted.secrets.empty();
  if (experiment.has_secrets) {
    const absl::Status status =
        WriteSecrets(options_.state_folder, experiment.id, submitted.secrets);
    if (!status.ok()) {
      event.reply(status);
      return;
    }
  }
  last_experiment_ = experiment.id;
  const int64_t now = clock_.UnixMicros();
  changes_.push_back(NewExperiment{
      experiment.id, event.token, submitted.head.name, submitted.head.description, submitted.text,
      LabelsJson(submitted.head), experiment.max_parallel, experiment.join_timeout_seconds,
      experiment.timeout_seconds, submitted.head.limits.queue_timeout_seconds, now});
  Submitted::Ids ids{experiment.id, {}};
  changes_.reserve(changes_.size() + submitted.runs.size());
  for (PlannedRun& planned : submitted.runs) SubmitRun(std::move(planned), experiment, now, &ids);
  if (experiment.open == 0 && experiment.has_secrets) {  // all runs were skipped
    RemoveSecrets(options_.state_folder, experiment.id);
  }
  submissions_[event.token] = ids;
  experiments_[experiment.id] = std::move(experiment);
  effects_.push_back([reply = event.reply, ids = std::move(ids)] { reply(ids); });
}

void Coordinator::SubmitRun(PlannedRun planned, OneExperiment& experiment, int64_t now,
                            Submitted::Ids* ids) {
  const int64_t id = ++last_run_;
  const bool skipped = !planned.skipped.empty();
  NewRun change{.id = id,
                .experiment = experiment.id,
                .position = static_cast<int64_t>(ids->runs.size()),
                .repeat = planned.repeat,
                .name = std::move(planned.name),
                .strategy = std::move(planned.strategy),
                .model = std::move(planned.model),
                .dataset = std::move(planned.dataset),
                .ranks = planned.ranks,
                .spec = planned.spec,
                .state = StateName(skipped ? RunState::kSkipped : RunState::kPending),
                .reason = "",
                .sentence = "",
                .predicted_state_bytes = {},
                .predicted_peak_bytes = {},
                .predicted_payload_bytes_per_step = {},
                .submitted_us = now,
                .ended_us = {}};
  const Prediction& most = planned.predicted->most;
  if (most.parameter_bytes > 0) {
    change.predicted_state_bytes = most.StateBytes();
    if (most.knows_traffic) {
      change.predicted_payload_bytes_per_step = most.payload_bytes_per_step;
    }
  }
  const int64_t peak_bytes = planned.predicted->peak_bytes;
  if (peak_bytes > 0) change.predicted_peak_bytes = peak_bytes;
  if (skipped) {
    change.reason = "config";
    change.sentence = std::move(planned.skipped);
    change.ended_us = now;
  } else {
    for (const std::string& word : planned.to_prepare) {
      change.reason = "preparing";
      absl::StrAppend(&change.sentence,
                      change.sentence.empty() ? "waits for: regatta prepare " : " ", word);
      if (preparing_[word].empty()) {
        effects_.push_back([this, word] { preparer_->Start(word); });
      }
    }
    OneRun& run = AddRun(id, experiment, planned.spec, planned.to_prepare);
    run.ranks = planned.ranks;
    run.gpus = planned.gpus;
  }
  changes_.push_back(std::move(change));
  experiment.runs.push_back(id);
  ids->runs.push_back(id);
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
    Move(run, RunState::kCancelled, "cancelled_by_user", "cancelled before it started");
    EndRun(run);
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
  for (Trace& trace : event.traces) changes_.push_back(std::move(trace));
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
                                .sentence = event.sentence,
                                .last_lines = {}});
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
                                .sentence = {},
                                .last_lines = {}});
}

void Coordinator::Handle(RankExited& event) {
  OneRun* run = FindLive(event.key);
  if (run == nullptr) return;
  const RankExit& exit = event.exit;
  RankFate& fate = run->live->fate.ranks[static_cast<size_t>(exit.rank)];
  fate.wait_status = exit.wait_status;
  fate.killed = exit.killed;
  fate.oom_kills = exit.oom_kills;
  const std::string last_lines = ReplaceInvalidUtf8(exit.last_lines);
  if (fate.sentence.empty()) fate.sentence = last_lines.substr(last_lines.rfind('\n') + 1);
  changes_.push_back(RankChange{.run = run->id,
                                .attempt = event.key.attempt,
                                .rank = exit.rank,
                                .pid = {},
                                .wait_status = exit.wait_status,
                                .killed = fate.killed,
                                .finished = {},
                                .sentence = fate.sentence,
                                .last_lines = last_lines});
  if (!RankSucceeded(fate)) RankFailed(*run, exit.rank);
}

// Its run ends without it; its slot and cores stay taken until the system has really ended it.
void Coordinator::Handle(RankStuck& event) {
  OneRun* run = FindLive(event.key);
  if (run == nullptr) return;
  run->live->fate.ranks[static_cast<size_t>(event.rank)].stuck_pid = event.pid;
  Note(run->id, event.key.attempt,
       absl::StrCat("rank ", event.rank, " does not end, its slot stays taken"));
}

void Coordinator::Handle(RankUnstuck& event) {
  if (OneRun* run = FindLive(event.key); run != nullptr) {
    run->live->fate.ranks[static_cast<size_t>(event.rank)].stuck_pid = 0;
    return;
  }
  const auto found = dirty_.find({event.key, event.rank});
  if (found == dirty_.end()) return;
  FreeSlot(found->second);
  dirty_.erase(found);
  Note(event.key.run, event.key.attempt,
       absl::StrCat("rank ", event.rank, " has ended, its slot is free again"));
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

// ---- the preparer's answers ----

// Runs that waited for this alone go into their queue with a complete spec; a failed preparation
// ends all that needed it.
void Coordinator::Handle(Prepared& event) {
  const auto found = preparing_.find(event.word);
  if (found == preparing_.end()) return;
  const std::set<int64_t> waiting = std::exchange(found->second, {});
  preparing_.erase(found);
  for (const int64_t id : waiting) {
    OneRun& run = runs_.at(id);
    std::erase(run.to_prepare, event.word);
    std::string wrong(event.status.message());
    if (event.status.ok() && !run.to_prepare.empty()) continue;
    if (event.status.ok()) {
      v1::RunSpec spec;
      spec.ParseFromString(*run.spec);
      wrong = TakePrepared(&spec);
      run.spec = std::make_shared<const std::string>(spec.SerializeAsString());
    }
    if (!wrong.empty()) {
      Move(run, RunState::kFailed, "preparation", wrong);
      EndRun(run);
      continue;
    }
    changes_.push_back(RunPrepared{id, run.spec});
    experiments_[run.experiment].pending.insert(id);
  }
}

// ---- the writer's answers ----

void Coordinator::Handle(Committed& event) {
  if (!event.status.ok()) {
    // Nothing more can be kept: no effect is released, gangs end, and the daemon says why and
    // stops.
    if (failure_.ok()) failure_ = event.status;
    waiting_effects_.clear();
    shutting_down_ = true;
    std::erase_if(live_, [this](int64_t id) {
      const Attempt& attempt = *runs_.at(id).live;
      // An attempt whose launch was not released has no gang to wait for.
      if (attempt.at_launcher) launcher_->Stop(id, attempt.number);
      return !attempt.at_launcher;
    });
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
  for (const int64_t id : live_) {
    BeginStop(runs_.at(id), StopCause::kDaemonStop, "the coordinator was stopped");
  }
}

}  // namespace regatta
