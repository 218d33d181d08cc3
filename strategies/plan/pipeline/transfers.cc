#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "strategies/plan/pipeline/program.h"

namespace regatta {
namespace {

bool IsInside(int stage, const PipelineShape& shape) {
  return stage >= 0 && stage < shape.Stages();
}

// Of a pipeline's end: nothing.
std::optional<Action> SendAfter(const Action& action, const PipelineShape& shape) {
  if (action.kind == ActionKind::kForward && IsInside(action.stage + 1, shape)) {
    return Action{ActionKind::kSendActivation, action.stage, action.micro_batch};
  }
  if (MakesInputGradient(action.kind) && action.stage > 0) {
    return Action{ActionKind::kSendGradient, action.stage, action.micro_batch};
  }
  return {};
}

// What has happened on all ranks.
class Done {
 public:
  explicit Done(const PipelineShape& shape) : shape_(shape) {}

  void Add(const Action& action) { done_.insert(action); }
  [[nodiscard]] bool Has(const Action& action) const { return done_.contains(action); }

  // What must have happened on the same rank first and has not: of a computing action or a send.
  [[nodiscard]] std::optional<Action> Missing(const Action& action) const {
    const int m = action.micro_batch;
    switch (action.kind) {
      case ActionKind::kForward:
        return UnlessReceived(action);
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        if (auto own = Unless({ActionKind::kForward, action.stage, m})) return own;
        return UnlessReceived(action);
      case ActionKind::kBackwardWeight:
        return Unless({ActionKind::kBackwardInput, action.stage, m});
      case ActionKind::kSendActivation:
        return Unless({ActionKind::kForward, action.stage, m});
      case ActionKind::kSendGradient:
        return Has({ActionKind::kBackward, action.stage, m})
                   ? std::nullopt
                   : Unless({ActionKind::kBackwardInput, action.stage, m});
      default:
        return {};
    }
  }

 private:
  [[nodiscard]] std::optional<Action> Unless(const Action& action) const {
    return Has(action) ? std::nullopt : std::optional(action);
  }
  [[nodiscard]] std::optional<Action> UnlessReceived(const Action& action) const {
    const auto receive = ReceiveBefore(action, shape_);
    return receive ? Unless(*receive) : std::nullopt;
  }

  const PipelineShape& shape_;
  std::set<Action> done_;
};

// A rank's next action, and the rank whose next action it waits for.
struct Blocked {
  Action action;
  Action needs;
  int by = 0;
};

// Follows who waits for whom from any blocked rank until one comes again, or has ended.
std::string NameCycle(const std::map<int, Blocked>& blocked) {
  std::string sentence;
  std::set<int> seen;
  int rank = blocked.begin()->first;
  while (seen.insert(rank).second) {
    const auto at = blocked.find(rank);
    if (at == blocked.end()) {
      return sentence + "; rank " + std::to_string(rank) + " has ended without it";
    }
    const Blocked& waits = at->second;
    sentence += (sentence.empty() ? "the program cannot finish: rank " : ", rank ") +
                std::to_string(rank) + " waits at " + ActionText(waits.action) + " for " +
                ActionText(waits.needs) + " of rank " + std::to_string(waits.by);
    rank = waits.by;
  }
  return sentence;
}

// The computing action on another rank that a receive stands for.
Action MakerOf(const Action& receive) {
  const Action send = OtherEnd(receive);
  return {send.kind == ActionKind::kSendActivation ? ActionKind::kForward : ActionKind::kBackward,
          send.stage, send.micro_batch};
}

}  // namespace

bool MakesInputGradient(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
}

std::optional<Action> ReceiveBefore(const Action& action, const PipelineShape& shape) {
  if (action.kind == ActionKind::kForward && action.stage > 0) {
    return Action{ActionKind::kReceiveActivation, action.stage, action.micro_batch};
  }
  if (MakesInputGradient(action.kind) && IsInside(action.stage + 1, shape)) {
    return Action{ActionKind::kReceiveGradient, action.stage, action.micro_batch};
  }
  return {};
}

std::variant<Program, std::string> AddTransfers(const Program& program,
                                                const PipelineShape& shape) {
  Program with(program.size());
  std::vector<size_t> next(program.size());
  Done done(shape);
  while (true) {
    bool ended = true;
    bool moved = false;
    std::map<int, Blocked> blocked;
    for (size_t rank = 0; rank < program.size(); ++rank) {
      if (next[rank] == program[rank].size()) continue;
      ended = false;
      const Action& action = program[rank][next[rank]];
      if (const auto missing = done.Missing(action)) {
        const bool received = IsTransfer(missing->kind);
        blocked[static_cast<int>(rank)] = {
            action, received ? MakerOf(*missing) : *missing,
            received ? shape.RankOf(OtherEnd(*missing).stage) : static_cast<int>(rank)};
        continue;
      }
      moved = true;
      ++next[rank];
      with[rank].push_back(action);
      done.Add(action);
      const auto send = SendAfter(action, shape);
      if (!send) continue;
      const Action receive = OtherEnd(*send);
      done.Add(receive);
      with[rank].push_back(*send);
      with[static_cast<size_t>(shape.RankOf(receive.stage))].push_back(receive);
    }
    if (ended) return with;
    if (!moved) return NameCycle(blocked);
  }
}

Program DelayReceives(const Program& program, const PipelineShape& shape) {
  Program delayed;
  for (const std::vector<Action>& actions : program) {
    std::vector<Action>& mine = delayed.emplace_back();
    std::map<int, std::deque<Action>> waiting;  // by the rank that sends
    for (const Action& action : actions) {
      if (IsTransfer(action.kind) && !IsSend(action.kind)) {
        waiting[shape.RankOf(OtherEnd(action).stage)].push_back(action);
        continue;
      }
      const auto needs = ReceiveBefore(action, shape);
      if (needs) {
        std::deque<Action>& from = waiting[shape.RankOf(OtherEnd(*needs).stage)];
        while (std::find(from.begin(), from.end(), *needs) != from.end()) {
          mine.push_back(from.front());
          from.pop_front();
        }
      }
      mine.push_back(action);
    }
  }
  return delayed;
}

namespace {

// Ranks in the middle of a program whose transfers wait for each other. Transfers of a rank that
// follow one another start together.
class Rendezvous {
 public:
  Rendezvous(const Program& program, const PipelineShape& shape, Fusing fusing)
      : program_(program), shape_(shape), fusing_(fusing), next_(program.size()), done_(shape) {}

  // Empty where all ranks come to their end.
  std::string Finish() {
    while (true) {
      bool moved = false;
      std::map<int, Blocked> blocked;
      for (int rank = 0; rank < static_cast<int>(program_.size()); ++rank) {
        const std::vector<Action>& actions = Of(rank);
        size_t& next = next_[static_cast<size_t>(rank)];
        for (; next < actions.size() && !IsTransfer(actions[next].kind); ++next, moved = true) {
          if (std::string error = WhatIsMissing(rank, actions[next]); !error.empty()) return error;
          done_.Add(actions[next]);
        }
        for (size_t i = next; i < EndOf(rank); ++i) {
          if (std::string error = WhatIsMissing(rank, actions[i]); !error.empty()) return error;
          if (matched_.contains(actions[i])) continue;
          const Action other = OtherEnd(actions[i]);
          const int peer = shape_.RankOf(other.stage);
          if (FirstBetween(rank, peer, actions[i]) == actions[i] &&
              FirstBetween(peer, rank, other) == other) {
            matched_.insert({actions[i], other});
            moved = true;
          } else if (!blocked.contains(rank)) {
            blocked[rank] = {actions[i], other, peer};
          }
        }
        const auto is_open = [&](const Action& action) { return !matched_.contains(action); };
        const auto begin = actions.begin() + static_cast<std::ptrdiff_t>(next);
        const auto end = actions.begin() + static_cast<std::ptrdiff_t>(EndOf(rank));
        if (begin == end || std::any_of(begin, end, is_open)) continue;
        std::for_each(begin, end, [&](const Action& action) { done_.Add(action); });
        next = EndOf(rank);
        moved = true;
      }
      if (moved) continue;
      return blocked.empty() ? "" : NameCycle(blocked);
    }
  }

  [[nodiscard]] bool Has(const Action& action) const { return done_.Has(action); }

 private:
  [[nodiscard]] const std::vector<Action>& Of(int rank) const {
    return program_[static_cast<size_t>(rank)];
  }

  // Past the transfers that start together with the rank's next action; that itself where it is
  // none.
  [[nodiscard]] size_t EndOf(int rank) const {
    return EndOfBatch(Of(rank), next_[static_cast<size_t>(rank)], fusing_, shape_);
  }

  // The first transfer of a rank's batch that goes the same way between the two as `like`, and has
  // found no other end yet.
  [[nodiscard]] std::optional<Action> FirstBetween(int rank, int peer, const Action& like) const {
    for (size_t i = next_[static_cast<size_t>(rank)]; i < EndOf(rank); ++i) {
      const Action& action = Of(rank)[i];
      if (IsSend(action.kind) == IsSend(like.kind) && !matched_.contains(action) &&
          shape_.RankOf(OtherEnd(action).stage) == peer) {
        return action;
      }
    }
    return {};
  }

  [[nodiscard]] std::string WhatIsMissing(int rank, const Action& action) const {
    const auto missing = done_.Missing(action);
    return !missing ? ""
                    : "rank " + std::to_string(rank) + " does " + ActionText(action) + " without " +
                          ActionText(*missing) + " before it";
  }

  const Program& program_;
  const PipelineShape& shape_;
  const Fusing fusing_;
  std::vector<size_t> next_;
  std::set<Action> matched_;
  Done done_;
};

}  // namespace

size_t EndOfBatch(const std::vector<Action>& actions, size_t begin, Fusing fusing,
                  const PipelineShape& shape) {
  const auto joins = [&](size_t i) {
    if (i == begin || fusing == Fusing::kAdjacent) return true;
    return fusing == Fusing::kSamePeer && i == begin + 1 &&
           IsSend(actions[i].kind) != IsSend(actions[begin].kind) &&
           shape.RankOf(OtherEnd(actions[i]).stage) == shape.RankOf(OtherEnd(actions[begin]).stage);
  };
  size_t end = begin;
  while (end < actions.size() && IsTransfer(actions[end].kind) && joins(end)) ++end;
  return end;
}

int CountBatches(const std::vector<Action>& actions, Fusing fusing, const PipelineShape& shape) {
  int batches = 0;
  for (size_t i = 0; i < actions.size();) {
    const size_t end = EndOfBatch(actions, i, fusing, shape);
    if (end > i) ++batches;
    i = std::max(end, i + 1);
  }
  return batches;
}

std::variant<Program, std::string> PlanProgram(const SchedulePolicy& policy,
                                               const PipelineShape& shape, bool waits_at_once,
                                               Fusing fusing) {
  auto placed = AddTransfers(MakeProgram(policy, shape), shape);
  if (!waits_at_once || std::holds_alternative<std::string>(placed)) return placed;
  Program delayed = DelayReceives(std::get<Program>(placed), shape);
  if (CheckProgram(delayed, shape, fusing).empty()) return delayed;
  return placed;
}

std::string CheckProgram(const Program& program, const PipelineShape& shape, Fusing fusing) {
  std::set<Action> seen;
  for (size_t rank = 0; rank < program.size(); ++rank) {
    for (const Action& action : program[rank]) {
      if (shape.RankOf(action.stage) != static_cast<int>(rank) || !IsInside(action.stage, shape) ||
          (IsTransfer(action.kind) && !IsInside(OtherEnd(action).stage, shape))) {
        return "rank " + std::to_string(rank) + " cannot do " + ActionText(action);
      }
      if (!seen.insert(action).second) {
        return "rank " + std::to_string(rank) + " does " + ActionText(action) + " twice";
      }
    }
  }
  Rendezvous ranks(program, shape, fusing);
  if (std::string error = ranks.Finish(); !error.empty()) return error;
  for (int stage = 0; stage < shape.Stages(); ++stage) {
    for (int m = 0; m < shape.micro_batches; ++m) {
      if (ranks.Has({ActionKind::kBackward, stage, m})) continue;
      if (ranks.Has({ActionKind::kBackwardWeight, stage, m})) continue;
      return "the program never does " + ActionText({ActionKind::kBackward, stage, m});
    }
  }
  return "";
}

}  // namespace regatta
