#pragma once

#include <absl/status/status.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/clock.h"
#include "coordinator/core_pool.h"
#include "coordinator/event.h"
#include "coordinator/event_queue.h"
#include "coordinator/launcher/launcher.h"
#include "coordinator/outcome.h"
#include "coordinator/preparation.h"
#include "coordinator/rendezvous.h"
#include "coordinator/run.h"
#include "coordinator/store/stored_state.h"
#include "coordinator/store/writer.h"
#include "regatta/v1/spec.pb.h"

namespace regatta {

struct CoordinatorOptions {
  std::string state_folder;            // absolute
  int slots = 1;                       // ranks that may run at once
  std::vector<Core> cores;             // of the machine
  bool may_pin = true;                 // false: another daemon of this machine pins its ranks
  std::vector<std::string> gpus = {};  // as CUDA_VISIBLE_DEVICES names them
};

// The loop that owns every run. It takes events, decides with pure functions (scheduler, outcome,
// run moves), hands what it decided to the writer, and acts (launch, stop, answer) only when that
// is on disk. One thread calls Load and Run; all others post events.
class Coordinator {
 public:
  // Launcher and preparer may be made after this object; Run uses them.
  Coordinator(CoordinatorOptions options, Clock& clock, EventQueue& events, ChangeSink& sink,
              Rendezvous& rendezvous);

  void SetLauncher(Launcher& launcher) { launcher_ = &launcher; }
  void SetPreparer(Preparer& preparer) { preparer_ = &preparer; }

  // Takes over what an earlier daemon left in the state folder: pending runs stay in the queue,
  // runs that were under way are ended as FAILED, coordinator_restart (the caller has ended their
  // processes). Before Run.
  [[nodiscard]] absl::Status Load(const StoredState& stored);

  // Until a ShutdownWanted event has ended every gang, or writing fails (the status then says how).
  [[nodiscard]] absl::Status Run();

  // The spec of a live attempt, for a rank that joins. Thread-safe: specs are kept apart, and never
  // change.
  [[nodiscard]] std::shared_ptr<const v1::RunSpec> FindSpec(AttemptKey key);

 private:
  struct Attempt {  // the live one of a run
    int number = 0;
    std::string folder;
    std::string token;
    Instant launched;
    Instant join_deadline;
    std::optional<Instant> deadline;      // of the whole attempt
    int bad_news = 0;                     // failures seen so far
    bool at_launcher = false;             // handed over: it will tell when the gang is gone
    int threads = 0;                      // of all its ranks
    std::vector<std::vector<int>> cores;  // by rank, where they are pinned
    std::vector<std::string> gpus;        // that it holds: one a rank, or one for all
    bool shares_cores = false;  // at some time, live runs wanted more cores than there are
    AttemptFate fate;
    std::vector<NamedNumbers> results;  // by rank
  };
  struct HeldSlot {  // of one rank
    std::vector<int> cores;
    std::string gpu;  // empty: none of its own
  };
  struct OneRun {
    int64_t id = 0;
    int64_t experiment = 0;
    RunState state = RunState::kPending;
    int ranks = 1;
    int gpus = 0;
    std::shared_ptr<const std::string> spec;  // serialized v1::RunSpec: there may be 100,000
    std::vector<std::string> to_prepare;      // words whose material it still waits for
    int attempts = 0;
    int64_t step = 0;
    std::unique_ptr<Attempt> live;
  };
  struct OneExperiment {
    int64_t id = 0;
    int64_t max_parallel = 1;
    double join_timeout_seconds = 60;
    double timeout_seconds = 0;             // 0: none
    std::optional<Instant> queue_deadline;  // of all its runs: they were submitted together
    int64_t running = 0;
    std::set<int64_t> pending;  // may start
    int64_t open = 0;           // not ended
    bool has_secrets = false;
    std::vector<int64_t> runs;
  };
  using Effect = std::function<void()>;

  void Handle(Submitted& event);
  void Handle(CancelWanted& event);
  void Handle(AwaitWanted& event);
  void Handle(RankJoined& event);
  void Handle(AllJoined& event);
  void Handle(RankReported& event);
  void Handle(RankFinished& event);
  void Handle(RankSpawned& event);
  void Handle(RankExited& event);
  void Handle(RankStuck& event);
  void Handle(RankUnstuck& event);
  void Handle(GangGone& event);
  void Handle(Prepared& event);
  void Handle(Committed& event);
  void Handle(ShutdownWanted& event);

  void StartWaitingRuns();
  void StartRun(OneRun& run);
  void TakeCores(OneRun& run, const v1::RunSpec& spec);
  void TakeGpus(OneRun& run);
  void BeginStop(OneRun& run, StopCause cause, const std::string& sentence);
  void EndAttempt(OneRun& run);
  void CheckDeadlines();
  void CheckQueueDeadlines();
  void RankFailed(OneRun& run, int rank);
  void CancelRun(OneRun& run);
  OneRun& AddRun(int64_t id, OneExperiment& experiment, std::shared_ptr<const std::string> spec,
                 const std::vector<std::string>& to_prepare);
  void SubmitRun(PlannedRun planned, OneExperiment& experiment, int64_t now, Submitted::Ids* ids);
  void EndRun(OneRun& run);
  absl::Status TakeSecrets(const v1::RunSpec& spec, int64_t experiment,
                           std::map<std::string, std::string>* secrets) const;
  void Move(OneRun& run, RunState to, const std::string& reason, const std::string& sentence,
            int failed_rank = -1);
  void Note(int64_t run, int attempt, const std::string& what);
  void FreeSlot(const HeldSlot& slot);
  void Flush();
  OneRun* FindLive(AttemptKey key);
  std::optional<Instant> NextDeadline() const;

  const CoordinatorOptions options_;
  Clock& clock_;
  EventQueue& events_;
  ChangeSink& sink_;
  Rendezvous& rendezvous_;
  Launcher* launcher_ = nullptr;
  Preparer* preparer_ = nullptr;

  // ---- the loop's thread only ----
  std::map<int64_t, OneRun> runs_;                      // those not ended yet
  std::set<int64_t> live_;                              // those with an attempt under way
  std::map<std::string, std::set<int64_t>> preparing_;  // runs that wait for a word's material
  std::map<int64_t, OneExperiment> experiments_;
  std::map<std::string, Submitted::Ids> submissions_;  // by token
  int64_t last_experiment_ = 0;
  int64_t last_run_ = 0;
  int free_slots_ = 0;
  std::vector<std::string> free_gpus_;
  CorePool cores_;
  int threads_ = 0;                                       // of the ranks of all live runs
  std::map<std::pair<AttemptKey, int>, HeldSlot> dirty_;  // of ranks that do not end
  bool shutting_down_ = false;
  absl::Status failure_;
  std::vector<Change> changes_;  // decided, not handed over yet
  std::vector<Effect> effects_;  // to be done when changes_ are on disk
  std::deque<std::pair<int64_t, std::vector<Effect>>> waiting_effects_;  // by batch
  int64_t last_batch_ = 0;
  int64_t commits_ = 0;  // batches on disk
  struct Awaiting {
    Instant deadline;
    AwaitWanted wanted;
  };
  std::vector<Awaiting> awaiting_;

  Mutex specs_mutex_;
  std::map<AttemptKey, std::shared_ptr<const v1::RunSpec>> specs_ REGATTA_GUARDED_BY(specs_mutex_);
};

}  // namespace regatta
