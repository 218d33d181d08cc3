#include "coordinator/outcome.h"

#include <absl/strings/str_cat.h>
#include <sys/wait.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstring>

namespace regatta {
namespace {

// A worker's own codes: the run does not fit into a rank's memory; a collective failed, which is
// what the peers of a dead rank see.
constexpr int kMemoryExitCode = 66;
constexpr int kCollectiveExitCode = 67;

// The code that a rank failed with by itself: what it announced, for it may have been stopped
// before it could exit.
std::optional<int> FailureCode(const RankFate& rank) {
  if (rank.finished && !rank.finished_ok) return rank.announced_exit_code;
  if (rank.killed || !rank.wait_status || !WIFEXITED(*rank.wait_status)) return std::nullopt;
  return WEXITSTATUS(*rank.wait_status);
}

// How far a rank is from being the cause, smaller first: ranks that we killed never are, and a rank
// whose collective failed is most often the victim of one that died.
int Suspicion(const RankFate& rank) {
  if (RankSucceeded(rank)) return 3;
  const std::optional<int> code = FailureCode(rank);
  if (rank.killed && !code) return 2;
  return code == kCollectiveExitCode ? 1 : 0;
}

bool KilledForMemory(const RankFate& rank) {
  return rank.oom_kills > 0 && rank.wait_status && WIFSIGNALED(*rank.wait_status) &&
         WTERMSIG(*rank.wait_status) == SIGKILL;
}

int FirstFailingRank(const std::vector<RankFate>& ranks) {
  const auto before = [](const RankFate& a, const RankFate& b) {
    const auto order = [](const RankFate& rank) {
      return rank.bad_news_order == 0 ? INT_MAX : rank.bad_news_order;
    };
    return std::make_pair(Suspicion(a), order(a)) < std::make_pair(Suspicion(b), order(b));
  };
  const auto first = std::min_element(ranks.begin(), ranks.end(), before);
  return first == ranks.end() || Suspicion(*first) >= 2 ? -1
                                                        : static_cast<int>(first - ranks.begin());
}

Outcome RankFailure(const std::vector<RankFate>& ranks) {
  const int first = FirstFailingRank(ranks);
  if (first < 0)
    return {RunState::kFailed, "rank_exit", "the gang was stopped and no rank says why", -1};
  const RankFate& rank = ranks[static_cast<size_t>(first)];
  const bool by_signal = rank.wait_status && WIFSIGNALED(*rank.wait_status) && !FailureCode(rank);
  // Only a rank that said so: any program may end with that code.
  if (rank.finished && !rank.finished_ok && rank.announced_exit_code == kMemoryExitCode) {
    return {RunState::kFailed, "oom_device", absl::StrCat("rank ", first, " ", rank.sentence),
            first};
  }
  const bool by_oom_killer = by_signal && KilledForMemory(rank);
  std::string sentence = absl::StrCat("rank ", first, " ", DescribeExit(rank));
  if (rank.oom_kills > 0 && !by_oom_killer) {
    absl::StrAppend(&sentence, " after the system's out-of-memory killer took a process of it");
  }
  if (!rank.sentence.empty()) absl::StrAppend(&sentence, ": ", rank.sentence);
  const char* reason = by_oom_killer ? "oom_host" : by_signal ? "rank_signal" : "rank_exit";
  return {RunState::kFailed, reason, std::move(sentence), first};
}

}  // namespace

bool RankSucceeded(const RankFate& rank) { return rank.finished_ok && rank.wait_status == 0; }

std::string DescribeExit(const RankFate& rank) {
  if (rank.finished && !rank.finished_ok)
    return absl::StrCat("exited with code ", rank.announced_exit_code);
  if (!rank.wait_status) return "was lost: its exit was never seen";
  const int status = *rank.wait_status;
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (KilledForMemory(rank)) return "was killed by the system's out-of-memory killer";
    return absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")",
                        WCOREDUMP(status) ? ", core dumped" : "",
                        signal == SIGKILL ? ", cause unknown" : "");
  }
  if (WEXITSTATUS(status) == 0 && !rank.finished) {
    return "exited with code 0 without sending its result";
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(status));
}

namespace {

Outcome Decide(const AttemptFate& fate) {
  switch (fate.stop) {
    case StopCause::kCancelled:
      // All ranks may have been done when the wish came: then nothing was cancelled.
      if (std::all_of(fate.ranks.begin(), fate.ranks.end(), RankSucceeded)) break;
      return {RunState::kCancelled, "cancelled_by_user", fate.stop_sentence, -1};
    case StopCause::kDaemonStop:
      if (std::all_of(fate.ranks.begin(), fate.ranks.end(), RankSucceeded)) break;
      return {RunState::kCancelled, "coordinator_stopped", fate.stop_sentence, -1};
    case StopCause::kTimeLimit:
      if (std::all_of(fate.ranks.begin(), fate.ranks.end(), RankSucceeded)) break;
      return {RunState::kTimedOut, "time_limit", fate.stop_sentence, -1};
    case StopCause::kJoinTimeout:
      return {RunState::kFailed, "join_timeout", fate.stop_sentence, -1};
    case StopCause::kSpawn:
      return {RunState::kFailed, "spawn", fate.stop_sentence, -1};
    case StopCause::kRankFailed:
      return RankFailure(fate.ranks);
    case StopCause::kNone:
      break;
  }
  if (std::all_of(fate.ranks.begin(), fate.ranks.end(), RankSucceeded)) {
    return {RunState::kSucceeded, "", "", -1};
  }
  return RankFailure(fate.ranks);
}

}  // namespace

Outcome DecideOutcome(const AttemptFate& fate) {
  Outcome outcome = Decide(fate);
  for (size_t rank = 0; rank < fate.ranks.size(); ++rank) {
    if (fate.ranks[rank].stuck_pid == 0) continue;
    absl::StrAppend(&outcome.sentence, outcome.sentence.empty() ? "" : "; ", "rank ", rank,
                    " does not end though it was killed (pid ", fate.ranks[rank].stuck_pid,
                    "): its slot stays taken until it does");
  }
  return outcome;
}

}  // namespace regatta
