#include "coordinator/coordinator.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <google/protobuf/util/json_util.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>

#include "coordinator/scheduler.h"
#include "coordinator/summary.h"
#include "coordinator/token.h"

namespace regatta {

Coordinator::Coordinator(CoordinatorOptions options, Clock& clock, EventQueue& events,
                         ChangeSink& sink, Rendezvous& rendezvous)
    : options_(std::move(options)),
      clock_(clock),
      events_(events),
      sink_(sink),
      rendezvous_(rendezvous),
      free_slots_(options_.slots) {}

absl::Status Coordinator::Load(const StoredState& stored) {
  for (const StoredExperiment& from : stored.experiments) {
    OneExperiment& experiment = experiments_[from.id];
    experiment.id = from.id;
    experiment.max_parallel = from.max_parallel;
    experiment.join_timeout_seconds = from.join_timeout_seconds;
    submissions_[from.token].experiment = from.id;
    last_experiment_ = from.id;
  }
  for (const StoredRun& from : stored.runs) {
    last_run_ = from.id;
    OneExperiment& experiment = experiments_[from.experiment];
    experiment.runs.push_back(from.id);
    const std::optional<RunState> state = ParseState(from.state);
    if (!state) {
      return absl::DataLossError(
          absl::StrCat("run ", from.id, " has the unknown state '", from.state, "'"));
    }
    if (IsTerminal(*state)) continue;
    OneRun& run = runs_[from.id];
    run.id = from.id;
    run.experiment = from.experiment;
    run.state = *state;
    run.attempts = from.attempt;
    if (*state != RunState::kPending) {
      Move(run, RunState::kFailed, "coordinator_restart",
           "the coordinator ended while this run was under way; its ranks were stopped");
      runs_.erase(from.id);
      continue;
    }
    auto spec = std::make_shared<v1::RunSpec>();
    if (!google::protobuf::util::JsonStringToMessage(from.spec_json, spec.get()).ok()) {
      return absl::DataLossError(absl::StrCat("run ", from.id, ": its spec cannot be read"));
    }
    run.spec = std::move(spec);
    experiment.pending.insert(from.id);
  }
  for (auto& [token, ids] : submissions_) ids.runs = experiments_[ids.experiment].runs;
  return absl::OkStatus();
}

absl::Status Coordinator::Run() {
  StartWaitingRuns();
  Flush();
  for (;;) {
    std::vector<Event> events = events_.Take(NextDeadline());
    for (Event& event : events) {
      std::visit([this](auto& e) { Handle(e); }, event);
    }
    CheckDeadlines();
    StartWaitingRuns();
    Flush();
    const bool any_live = std::any_of(
        runs_.begin(), runs_.end(), [](const auto& entry) { return entry.second.live != nullptr; });
    if (shutting_down_ && !any_live && (waiting_effects_.empty() || !failure_.ok()))
      return failure_;
  }
}

std::shared_ptr<const v1::RunSpec> Coordinator::FindSpec(AttemptKey key) {
  MutexLock lock(specs_mutex_);
  const auto found = specs_.find(key);
  return found == specs_.end() ? nullptr : found->second;
}

// ---- decisions ----

void Coordinator::StartWaitingRuns() {
  if (shutting_down_) return;
  QueueSnapshot snapshot{free_slots_, {}};
  for (const auto& [id, experiment] : experiments_) {
    if (experiment.pending.empty() || experiment.running >= experiment.max_parallel) continue;
    QueuedExperiment& queued = snapshot.experiments.emplace_back();
    queued.running = experiment.running;
    queued.max_parallel = experiment.max_parallel;
    for (const int64_t run : experiment.pending) {
      if (queued.pending.size() >= static_cast<size_t>(experiment.max_parallel)) break;
      queued.pending.emplace_back(run, runs_[run].spec->ranks());
    }
  }
  for (const int64_t run : ChooseStarts(snapshot)) StartRun(runs_[run]);
}

void Coordinator::StartRun(OneRun& run) {
  OneExperiment& experiment = experiments_[run.experiment];
  experiment.pending.erase(run.id);
  ++experiment.running;
  free_slots_ -= run.spec->ranks();
  const auto ranks = static_cast<size_t>(run.spec->ranks());
  run.live = std::make_unique<Attempt>();
  Attempt& attempt = *run.live;
  attempt.number = ++run.attempts;
  attempt.folder =
      absl::StrCat(options_.state_folder, "/runs/", run.id, "/attempt_", attempt.number);
  attempt.token = MakeToken();
  attempt.launched = clock_.Now();
  attempt.join_deadline = AddSeconds(attempt.launched, experiment.join_timeout_seconds);
  attempt.fate.ranks.resize(ranks);
  attempt.results.resize(ranks);
  run.step = 0;
  Move(run, RunState::kStarting, "", "");
  changes_.push_back(
      NewAttempt{run.id, attempt.number, attempt.folder, run.spec->ranks(), clock_.UnixMicros()});
  const AttemptKey key{run.id, attempt.number};
  const LaunchRequest request{
      run.id,         attempt.number, run.spec->ranks(), run.spec->threads_per_rank(),
      attempt.folder, attempt.token};
  effects_.push_back([this, key, request, spec = run.spec] {
    {
      MutexLock lock(specs_mutex_);
      specs_[key] = spec;
    }
    rendezvous_.Open(key, request.ranks, request.token);
    std::error_code error;
    std::filesystem::create_directories(request.folder, error);
    const absl::Status status =
        error ? absl::InternalError(absl::StrCat(request.folder, ": ", error.message()))
              : launcher_->Start(request);
    if (!status.ok()) events_.Post(GangGone{key, status});
  });
}

void Coordinator::BeginStop(OneRun& run, StopCause cause, const std::string& sentence) {
  AttemptFate& fate = run.live->fate;
  if (fate.stop != StopCause::kNone) return;  // the first cause counts
  fate.stop = cause;
  fate.stop_sentence = sentence;
  Move(run, RunState::kStopping, "", "");
  const AttemptKey key{run.id, run.live->number};
  effects_.push_back([this, key] {
    rendezvous_.Close(key, "the run is being stopped");
    launcher_->Stop(key.run, key.attempt);
  });
}

void Coordinator::EndAttempt(OneRun& run) {
  Attempt& attempt = *run.live;
  const Outcome outcome = DecideOutcome(attempt.fate);
  if (outcome.state == RunState::kSucceeded) {
    changes_.push_back(Summaries{run.id, attempt.number, -1, SummarizeRun(attempt.results)});
  }
  changes_.push_back(AttemptEnded{run.id, attempt.number, clock_.UnixMicros()});
  const AttemptKey key{run.id, attempt.number};
  effects_.push_back([this, key] {
    rendezvous_.Close(key, "the run has ended");
    MutexLock lock(specs_mutex_);
    specs_.erase(key);
  });
  free_slots_ += run.spec->ranks();
  --experiments_[run.experiment].running;
  Move(run, outcome.state, outcome.reason, outcome.sentence);
  runs_.erase(run.id);
}

void Coordinator::CheckDeadlines() {
  const Instant now = clock_.Now();
  for (auto& [id, run] : runs_) {
    if (run.state != RunState::kStarting || run.live == nullptr || now < run.live->join_deadline)
      continue;
    const std::vector<int> missing = rendezvous_.MissingRanks({id, run.live->number});
    if (missing.empty()) continue;  // the last one joins this very moment
    BeginStop(run, StopCause::kJoinTimeout,
              absl::StrCat(missing.size() == 1 ? "rank " : "ranks ", absl::StrJoin(missing, ", "),
                           " of ", run.spec->ranks(), " did not join within ",
                           experiments_[run.experiment].join_timeout_seconds, " s"));
  }
  for (size_t i = 0; i < awaiting_.size();) {
    if (now < awaiting_[i].deadline) {
      ++i;
      continue;
    }
    awaiting_[i].wanted.reply(commits_);
    awaiting_.erase(awaiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

std::optional<Instant> Coordinator::NextDeadline() const {
  std::optional<Instant> next;
  const auto consider = [&](Instant deadline) {
    next = next ? std::min(*next, deadline) : deadline;
  };
  for (const auto& [id, run] : runs_) {
    if (run.state == RunState::kStarting && run.live != nullptr &&
        run.live->fate.stop == StopCause::kNone) {
      consider(run.live->join_deadline);
    }
  }
  for (const Awaiting& awaiting : awaiting_) consider(awaiting.deadline);
  return next;
}

void Coordinator::Move(OneRun& run, RunState to, const std::string& reason,
                       const std::string& sentence) {
  if (!CanMove(run.state, to)) return;
  run.state = to;
  RunStateChange change{
      .run = run.id,
      .state = std::string(StateName(to)),
      .reason = reason,
      .sentence = sentence,
      .cancel_wanted = run.live != nullptr && run.live->fate.stop == StopCause::kCancelled,
      .started_us = {},
      .ended_us = {}};
  if (to == RunState::kStarting) change.started_us = clock_.UnixMicros();
  if (IsTerminal(to)) change.ended_us = clock_.UnixMicros();
  changes_.push_back(std::move(change));
  Note(run, absl::StrCat(StateName(to), reason.empty() ? "" : " ", reason));
}

void Coordinator::Note(const OneRun& run, const std::string& what) {
  changes_.push_back(EventNote{clock_.UnixMicros(), run.id, run.attempts, what});
}

// Hands over what was decided; its effects wait for the answer.
void Coordinator::Flush() {
  if (changes_.empty() && effects_.empty()) return;
  if (!failure_.ok()) {
    changes_.clear();
    effects_.clear();
    return;
  }
  waiting_effects_.emplace_back(++last_batch_, std::exchange(effects_, {}));
  sink_.Submit(last_batch_, std::exchange(changes_, {}));
}

Coordinator::OneRun* Coordinator::FindLive(AttemptKey key) {
  const auto found = runs_.find(key.run);
  const bool live = found != runs_.end() && found->second.live != nullptr &&
                    found->second.live->number == key.attempt;
  return live ? &found->second : nullptr;
}

}  // namespace regatta
