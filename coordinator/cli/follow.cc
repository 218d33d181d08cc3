#include "coordinator/cli/follow.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>

#include "coordinator/cli/exit_code.h"
#include "coordinator/cli/output.h"
#include "coordinator/run.h"

namespace regatta {
namespace {

constexpr int64_t kAwaitMs = 200;
constexpr int kBarCells = 24;

volatile std::sig_atomic_t interrupts = 0;
void CountInterrupt(int) { interrupts = interrupts + 1; }

struct RunRow {
  int64_t id;
  std::string name;
  std::string state;
  std::string sentence;
  int64_t step;
  int64_t planned;
};

absl::StatusOr<std::vector<RunRow>> ReadRuns(Session& session, const std::vector<int64_t>& runs) {
  const absl::StatusOr<Table> table = session.Query(absl::StrCat(
      "select run, name, state, sentence, step, planned_steps from progress where run in (",
      absl::StrJoin(runs, ","), ") order by run"));
  if (!table.ok()) return table.status();
  std::vector<RunRow> rows;
  for (const auto& row : table->rows) {
    rows.push_back({IntegerOf(row[0]), CellText(row[1]), CellText(row[2]), CellText(row[3]),
                    IntegerOf(row[4]), IntegerOf(row[5])});
  }
  return rows;
}

bool HasEnded(const RunRow& run) {
  const std::optional<RunState> state = ParseState(run.state);
  return state && IsTerminal(*state);
}

std::string ClockText(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  return whole >= 3600 ? absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60)
                       : absl::StrFormat("%d:%02d", whole / 60, whole % 60);
}

// Recent speed of a run: tokens of all ranks over the slowest rank's seconds, over its last
// reported steps.
std::string Speed(Session& session, const RunRow& run) {
  constexpr int kRecentSteps = 20;
  const absl::StatusOr<Table> table = session.Query(
      "with recent as (select * from steps where run = ?1 and step >= ?2), "
      "times as (select rank, sum(value) as seconds, count(*) as steps from recent "
      "where name = 'step_seconds' group by rank) "
      "select (select sum(value) from recent where name = 'tokens'), "
      "(select max(seconds) from times), (select max(steps) from times)",
      {std::to_string(run.id), std::to_string(std::max<int64_t>(1, run.step - kRecentSteps))});
  if (!table.ok() || table->rows.empty()) return "";
  const auto* tokens = std::get_if<double>(&table->rows[0][0]);
  const auto* seconds = std::get_if<double>(&table->rows[0][1]);
  const int64_t steps = IntegerOf(table->rows[0][2]);
  if (tokens == nullptr || seconds == nullptr || *seconds <= 0 || steps == 0) return "";
  const double left =
      *seconds / static_cast<double>(steps) * static_cast<double>(run.planned - run.step);
  return absl::StrFormat("  %.0f tokens/s  %s left", *tokens / *seconds, ClockText(left));
}

std::string Bar(int64_t done, int64_t all) {
  const int64_t cells = all > 0 ? std::min<int64_t>(kBarCells, done * kBarCells / all) : 0;
  return absl::StrCat("[", std::string(static_cast<size_t>(cells), '#'),
                      std::string(static_cast<size_t>(kBarCells - cells), '.'), "]");
}

// Draws on stderr: one living line on a terminal, a line for every change of state elsewhere.
class Progress {
 public:
  explicit Progress(bool wanted) : wanted_(wanted), terminal_(isatty(STDERR_FILENO) != 0) {}
  ~Progress() { Clear(); }

  void Show(Session& session, const std::vector<RunRow>& runs) {
    if (!wanted_) return;
    for (const RunRow& run : runs) {
      std::string& last = last_states_[run.id];
      if (last == run.state) continue;
      last = run.state;
      if (terminal_ && !HasEnded(run)) continue;
      Clear();
      std::fprintf(stderr, "run %ld  %s  %s%s%s\n", static_cast<long>(run.id), run.name.c_str(),
                   run.state.c_str(), run.sentence.empty() ? "" : ": ", run.sentence.c_str());
    }
    if (terminal_) DrawLine(session, runs);
  }

  void Clear() {
    if (drawn_) std::fprintf(stderr, "\r\033[K");
    drawn_ = false;
  }

 private:
  void DrawLine(Session& session, const std::vector<RunRow>& runs) {
    const auto ended = std::count_if(runs.begin(), runs.end(), HasEnded);
    const auto now = std::find_if(runs.begin(), runs.end(), [](const RunRow& run) {
      return !HasEnded(run) && run.state != "PENDING";
    });
    std::string line = absl::StrCat(ended, "/", runs.size(), " runs");
    if (now != runs.end() && now->planned == 0) {  // not a step is known of yet
      absl::StrAppend(&line, "  ", now->name, "  ", now->state);
    } else if (now != runs.end()) {
      absl::StrAppend(&line, "  ", Bar(now->step, now->planned), " step ", now->step, "/",
                      now->planned, "  ", now->name, Speed(session, *now));
    }
    std::fprintf(stderr, "\r\033[K%s", line.c_str());
    std::fflush(stderr);
    drawn_ = true;
  }

  const bool wanted_;
  const bool terminal_;
  bool drawn_ = false;
  std::map<int64_t, std::string> last_states_;
};

}  // namespace

int OutcomeExitCode(const std::vector<std::string>& states) {
  const auto any = [&](RunState wanted) {
    return std::find(states.begin(), states.end(), StateName(wanted)) != states.end();
  };
  if (any(RunState::kFailed)) return kClientRunFailed;
  if (any(RunState::kTimedOut)) return kClientRunTimedOut;
  if (any(RunState::kCancelled)) return kClientRunCancelled;
  const bool all_ended = std::all_of(states.begin(), states.end(), [](const std::string& name) {
    const std::optional<RunState> state = ParseState(name);
    return state && IsTerminal(*state);
  });
  return all_ended ? kClientOk : kClientStillRunning;
}

absl::StatusOr<int> FollowRuns(Session& session, const FollowOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  interrupts = 0;
  const auto old_handler = std::signal(SIGINT, CountInterrupt);
  Progress progress(options.show_progress);
  int64_t commit = 0;
  bool cancelled = false;
  for (;;) {
    const absl::StatusOr<std::vector<RunRow>> runs = ReadRuns(session, options.runs);
    if (!runs.ok()) return runs.status();
    progress.Show(session, *runs);
    std::vector<std::string> states;
    for (const RunRow& run : *runs) states.push_back(run.state);
    const bool all_ended = std::all_of(runs->begin(), runs->end(), HasEnded);
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    const bool too_long = options.timeout_seconds && waited.count() >= *options.timeout_seconds;
    if (all_ended || too_long) {
      std::signal(SIGINT, old_handler);
      return all_ended ? OutcomeExitCode(states) : kClientStillRunning;
    }
    if (interrupts > 0 && options.on_interrupt == Interrupt::kDetach) {
      progress.Clear();
      std::fprintf(stderr,
                   "detached; the runs go on. Look: regatta ls; end them: regatta cancel\n");
      std::signal(SIGINT, old_handler);
      return kClientStillRunning;
    }
    if (interrupts > 0 && !cancelled) {
      progress.Clear();
      std::fprintf(stderr, "cancelling\n");
      cancelled = true;
      const auto counts = session.Cancel(options.runs, {});
      if (!counts.ok()) return counts.status();
    }
    const absl::StatusOr<int64_t> next = session.Await(commit, kAwaitMs);
    if (!next.ok()) return next.status();
    commit = *next;
  }
}

}  // namespace regatta
