#include "coordinator/coordinator.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <google/protobuf/util/json_util.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>

#include "coordinator/experiment/material.h"
#include "coordinator/scheduler.h"
#include "coordinator/secrets.h"
#include "coordinator/summary.h"
#include "coordinator/token.h"
#include "worker/chaos/fault.h"

namespace regatta {

Coordinator::Coordinator(CoordinatorOptions options, Clock& clock, EventQueue& events,
                         ChangeSink& sink, Rendezvous& rendezvous)
    : options_(std::move(options)),
      clock_(clock),
      events_(events),
      sink_(sink),
      rendezvous_(rendezvous),
      free_slots_(options_.slots),
      free_gpus_(options_.gpus),
      cores_(options_.cores) {}

absl::Status Coordinator::Load(const StoredState& stored) {
  for (const StoredExperiment& from : stored.experiments) {
    OneExperiment& experiment = experiments_[from.id];
    experiment.id = from.id;
    experiment.max_parallel = from.max_parallel;
    experiment.join_timeout_seconds = from.join_timeout_seconds;
    experiment.timeout_seconds = from.timeout_seconds;
    if (from.queue_timeout_seconds > 0) {
      // Not negative where the system's clock was set back since.
      const double waited =
          std::max(0.0, static_cast<double>(clock_.UnixMicros() - from.submitted_us) / 1e6);
      experiment.queue_deadline = AddSeconds(clock_.Now(), from.queue_timeout_seconds - waited);
    }
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
    v1::RunSpec spec;
    // Version 1 of the schema kept specs as JSON.
    const bool read = from.spec.starts_with("{")
                          ? google::protobuf::util::JsonStringToMessage(from.spec, &spec).ok()
                          : spec.ParseFromString(from.spec);
    if (!read) {
      return absl::DataLossError(absl::StrCat("run ", from.id, ": its spec cannot be read"));
    }
    OneRun& run =
        AddRun(from.id, experiment, std::make_shared<const std::string>(spec.SerializeAsString()),
               {spec.to_prepare().begin(), spec.to_prepare().end()});
    run.ranks = spec.ranks();
    run.gpus = GpusOf(spec);
    run.state = *state;
    run.attempts = from.attempt;
    if (*state != RunState::kPending) {
      Move(run, RunState::kFailed, "coordinator_restart",
           "the coordinator ended while this run was under way; its ranks were stopped");
      EndRun(run);
    }
  }
  for (auto& [id, experiment] : experiments_) {
    const auto secrets = ReadSecrets(options_.state_folder, id);
    experiment.has_secrets = secrets.ok() && !secrets->empty();
  }
  for (auto& [token, ids] : submissions_) ids.runs = experiments_[ids.experiment].runs;
  return absl::OkStatus();
}

absl::Status Coordinator::Run() {
  for (const auto& [word, runs] : preparing_) preparer_->Start(word);
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
    if (shutting_down_ && live_.empty() && (waiting_effects_.empty() || !failure_.ok()))
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
  QueueSnapshot snapshot{free_slots_, {}, static_cast<int>(free_gpus_.size())};
  for (const auto& [id, experiment] : experiments_) {
    if (experiment.pending.empty() || experiment.running >= experiment.max_parallel) continue;
    QueuedExperiment& queued = snapshot.experiments.emplace_back();
    queued.running = experiment.running;
    queued.max_parallel = experiment.max_parallel;
    for (const int64_t run : experiment.pending) {
      if (queued.pending.size() >= static_cast<size_t>(experiment.max_parallel)) break;
      // One that wants more than there are starts all the same, and says so itself.
      const int gpus = std::min(runs_[run].gpus, static_cast<int>(options_.gpus.size()));
      queued.pending.push_back({run, runs_[run].ranks, gpus});
    }
  }
  for (const int64_t run : ChooseStarts(snapshot)) StartRun(runs_[run]);
}

void Coordinator::StartRun(OneRun& run) {
  OneExperiment& experiment = experiments_[run.experiment];
  experiment.pending.erase(run.id);
  ++experiment.running;
  free_slots_ -= run.ranks;
  const auto ranks = static_cast<size_t>(run.ranks);
  run.live = std::make_unique<Attempt>();
  live_.insert(run.id);
  Attempt& attempt = *run.live;
  attempt.number = ++run.attempts;
  attempt.folder =
      absl::StrCat(options_.state_folder, "/runs/", run.id, "/attempt_", attempt.number);
  attempt.token = MakeToken();
  attempt.launched = clock_.Now();
  attempt.join_deadline = AddSeconds(attempt.launched, experiment.join_timeout_seconds);
  if (experiment.timeout_seconds > 0) {
    attempt.deadline = AddSeconds(attempt.launched, experiment.timeout_seconds);
  }
  attempt.fate.ranks.resize(ranks);
  attempt.results.resize(ranks);
  run.step = 0;
  Move(run, RunState::kStarting, "", "");
  changes_.push_back(
      NewAttempt{run.id, attempt.number, attempt.folder, run.ranks, clock_.UnixMicros()});
  const AttemptKey key{run.id, attempt.number};
  auto spec = std::make_shared<v1::RunSpec>();
  spec->ParseFromString(*run.spec);
  if (spec->profile().active() > 0) {
    spec->mutable_profile()->set_folder(
        absl::StrCat(attempt.folder, "/profile/", spec->strategy().name()));
  }
  if (spec->save()) spec->set_save_folder(attempt.folder + "/model");
  TakeCores(run, *spec);
  TakeGpus(run);
  LaunchRequest request{run.id,         attempt.number, run.ranks, spec->threads_per_rank(),
                        attempt.folder, attempt.token};
  request.cores = attempt.cores;
  for (int rank = 0; !attempt.gpus.empty() && rank < run.ranks; ++rank) {
    const size_t own = std::min(static_cast<size_t>(rank), attempt.gpus.size() - 1);
    request.rank_environment[rank]["CUDA_VISIBLE_DEVICES"] = attempt.gpus[own];
  }
  for (const v1::EnvironmentVariable& variable : spec->environment()) {
    if (!variable.secret()) request.environment[variable.name()] = variable.text();
  }
  for (const v1::Fault& fault : spec->chaos()) {
    if (fault.step() == kBeforeJoin)
      request.rank_environment[fault.rank()]["REGATTA_CHAOS"] = fault.what();
  }
  effects_.push_back([this, key, request, spec, experiment = run.experiment]() mutable {
    {
      MutexLock lock(specs_mutex_);
      specs_[key] = spec;
    }
    if (OneRun* live = FindLive(key); live != nullptr) live->live->at_launcher = true;
    rendezvous_.Open(key, request.ranks, request.token);
    std::error_code error;
    std::filesystem::create_directories(request.folder, error);
    absl::Status status =
        error ? absl::InternalError(absl::StrCat(request.folder, ": ", error.message()))
              : TakeSecrets(*spec, experiment, &request.secrets);
    if (status.ok()) status = launcher_->Start(request);
    if (!status.ok()) events_.Post(GangGone{key, status});
  });
}

// Pins the run's ranks where it wants that and enough cores are free. Whatever else, runs that
// together want more cores than there are cannot be compared by their speed, and are marked.
void Coordinator::TakeCores(OneRun& run, const v1::RunSpec& spec) {
  Attempt& attempt = *run.live;
  attempt.threads = run.ranks * spec.threads_per_rank();
  threads_ += attempt.threads;
  if (options_.may_pin && spec.pin())
    attempt.cores = cores_.Take(run.ranks, spec.threads_per_rank());
  if (threads_ <= cores_.Size()) return;
  for (const int64_t id : live_) runs_.at(id).live->shares_cores = true;
}

void Coordinator::TakeGpus(OneRun& run) {
  const auto wanted = std::min(static_cast<size_t>(run.gpus), free_gpus_.size());
  const auto end = free_gpus_.begin() + static_cast<std::ptrdiff_t>(wanted);
  run.live->gpus.assign(free_gpus_.begin(), end);
  free_gpus_.erase(free_gpus_.begin(), end);
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
  NamedNumbers summary = {{"attempt_seconds", SecondsBetween(attempt.launched, clock_.Now())},
                          {"shared_cores", attempt.shares_cores || !options_.may_pin ? 1 : 0}};
  if (outcome.state == RunState::kSucceeded) {
    const NamedNumbers results = SummarizeRun(attempt.results);
    summary.insert(summary.end(), results.begin(), results.end());
  }
  changes_.push_back(Summaries{run.id, attempt.number, -1, std::move(summary)});
  changes_.push_back(AttemptEnded{run.id, attempt.number, clock_.UnixMicros()});
  const AttemptKey key{run.id, attempt.number};
  effects_.push_back([this, key] {
    rendezvous_.Close(key, "the run has ended");
    MutexLock lock(specs_mutex_);
    specs_.erase(key);
  });
  for (int rank = 0; rank < run.ranks; ++rank) {
    const auto number = static_cast<size_t>(rank);
    HeldSlot slot;
    if (!attempt.cores.empty()) slot.cores = attempt.cores[number];
    if (number < attempt.gpus.size()) slot.gpu = attempt.gpus[number];
    if (attempt.fate.ranks[number].stuck_pid != 0) {
      dirty_[{key, rank}] = std::move(slot);
    } else {
      FreeSlot(slot);
    }
  }
  threads_ -= attempt.threads;
  --experiments_[run.experiment].running;
  Move(run, outcome.state, outcome.reason, outcome.sentence, outcome.failed_rank);
  EndRun(run);
}

void Coordinator::FreeSlot(const HeldSlot& slot) {
  ++free_slots_;
  cores_.GiveBack(slot.cores);
  if (!slot.gpu.empty()) free_gpus_.push_back(slot.gpu);
}

// Forgets a run that has reached a terminal state.
void Coordinator::EndRun(OneRun& run) {
  OneExperiment& experiment = experiments_[run.experiment];
  experiment.pending.erase(run.id);
  for (const std::string& word : run.to_prepare) preparing_[word].erase(run.id);
  if (--experiment.open == 0 && experiment.has_secrets) {
    effects_.push_back([this, id = experiment.id] { RemoveSecrets(options_.state_folder, id); });
  }
  live_.erase(run.id);
  runs_.erase(run.id);
}

// A run in its queue, or waiting for its material.
Coordinator::OneRun& Coordinator::AddRun(int64_t id, OneExperiment& experiment,
                                         std::shared_ptr<const std::string> spec,
                                         const std::vector<std::string>& to_prepare) {
  OneRun& run = runs_[id];
  run.id = id;
  run.experiment = experiment.id;
  run.spec = std::move(spec);
  run.to_prepare = to_prepare;
  ++experiment.open;
  if (to_prepare.empty()) experiment.pending.insert(id);
  for (const std::string& word : to_prepare) preparing_[word].insert(id);
  return run;
}

// The values of a spec's secret variables.
absl::Status Coordinator::TakeSecrets(const v1::RunSpec& spec, int64_t experiment,
                                      std::map<std::string, std::string>* secrets) const {
  for (const v1::EnvironmentVariable& variable : spec.environment()) {
    if (!variable.secret()) continue;
    const auto values = ReadSecrets(options_.state_folder, experiment);
    if (!values.ok()) return values.status();
    const auto found = values->find(variable.name());
    if (found == values->end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the secret ", variable.name(), " is lost; submit the experiment again"));
    }
    secrets->insert(*found);
  }
  return absl::OkStatus();
}

void Coordinator::CheckDeadlines() {
  const Instant now = clock_.Now();
  for (const int64_t id : live_) {
    OneRun& run = runs_[id];
    const OneExperiment& experiment = experiments_[run.experiment];
    if (run.live->deadline && now >= *run.live->deadline) {
      BeginStop(run, StopCause::kTimeLimit,
                absl::StrCat("ran longer than limits.timeout, ", experiment.timeout_seconds, " s"));
    }
    if (run.state != RunState::kStarting || now < run.live->join_deadline) continue;
    const std::vector<int> missing = rendezvous_.MissingRanks({id, run.live->number});
    if (missing.empty()) continue;  // the last one joins this very moment
    BeginStop(
        run, StopCause::kJoinTimeout,
        absl::StrCat(missing.size() == 1 ? "rank " : "ranks ", absl::StrJoin(missing, ", "), " of ",
                     run.ranks, " did not join within ", experiment.join_timeout_seconds, " s"));
  }
  CheckQueueDeadlines();
  for (size_t i = 0; i < awaiting_.size();) {
    if (now < awaiting_[i].deadline) {
      ++i;
      continue;
    }
    awaiting_[i].wanted.reply(commits_);
    awaiting_.erase(awaiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// Runs that have waited too long end without having started, those that wait for material too.
void Coordinator::CheckQueueDeadlines() {
  const Instant now = clock_.Now();
  for (auto& [id, experiment] : experiments_) {
    if (!experiment.queue_deadline || now < *experiment.queue_deadline) continue;
    experiment.queue_deadline.reset();
    for (const int64_t run_id : experiment.runs) {
      const auto found = runs_.find(run_id);
      if (found == runs_.end() || found->second.state != RunState::kPending) continue;
      Move(found->second, RunState::kTimedOut, "queue_timeout",
           "waited in the queue longer than limits.queue_timeout");
      EndRun(found->second);
    }
  }
}

std::optional<Instant> Coordinator::NextDeadline() const {
  std::optional<Instant> next;
  const auto consider = [&](Instant deadline) {
    next = next ? std::min(*next, deadline) : deadline;
  };
  for (const int64_t id : live_) {
    const OneRun& run = runs_.at(id);
    if (run.live->fate.stop != StopCause::kNone) continue;
    if (run.state == RunState::kStarting) consider(run.live->join_deadline);
    if (run.live->deadline) consider(*run.live->deadline);
  }
  for (const auto& [id, experiment] : experiments_) {
    if (experiment.queue_deadline) consider(*experiment.queue_deadline);
  }
  for (const Awaiting& awaiting : awaiting_) consider(awaiting.deadline);
  return next;
}

void Coordinator::Move(OneRun& run, RunState to, const std::string& reason,
                       const std::string& sentence, int failed_rank) {
  if (!CanMove(run.state, to)) return;
  run.state = to;
  RunStateChange change{
      .run = run.id,
      .state = std::string(StateName(to)),
      .reason = reason,
      .sentence = sentence,
      .cancel_wanted = run.live != nullptr && run.live->fate.stop == StopCause::kCancelled,
      .failed_rank = {},
      .started_us = {},
      .ended_us = {}};
  if (failed_rank >= 0) change.failed_rank = failed_rank;
  if (to == RunState::kStarting) change.started_us = clock_.UnixMicros();
  if (IsTerminal(to)) change.ended_us = clock_.UnixMicros();
  changes_.push_back(std::move(change));
  Note(run.id, run.attempts, absl::StrCat(StateName(to), reason.empty() ? "" : " ", reason));
}

void Coordinator::Note(int64_t run, int attempt, const std::string& what) {
  changes_.push_back(EventNote{clock_.UnixMicros(), run, attempt, what});
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
