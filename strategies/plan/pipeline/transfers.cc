#include <map>
#include <optional>
#include <set>

#include "strategies/plan/pipeline/program.h"

namespace regatta {
namespace {

bool MakesInputGradient(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
}

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
        return action.stage == 0 ? std::nullopt
                                 : Unless({ActionKind::kReceiveActivation, action.stage, m});
      case ActionKind::kBackward:
      case ActionKind::kBackwardInput:
        if (auto own = Unless({ActionKind::kForward, action.stage, m})) return own;
        return IsInside(action.stage + 1, shape_)
                   ? Unless({ActionKind::kReceiveGradient, action.stage, m})
                   : std::nullopt;
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

std::string CheckProgram(const Program& program, const PipelineShape& shape) {
  std::vector<size_t> next(program.size());
  Done done(shape);
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
  const auto current = [&](int rank) -> const Action* {
    const auto& actions = program[static_cast<size_t>(rank)];
    const size_t at = next[static_cast<size_t>(rank)];
    return at < actions.size() ? &actions[at] : nullptr;
  };
  while (true) {
    bool ended = true;
    bool moved = false;
    std::map<int, Blocked> blocked;
    for (int rank = 0; rank < static_cast<int>(program.size()); ++rank) {
      const Action* action = current(rank);
      if (action == nullptr) continue;
      ended = false;
      if (const auto missing = done.Missing(*action)) {
        return "rank " + std::to_string(rank) + " does " + ActionText(*action) + " without " +
               ActionText(*missing) + " before it";
      }
      if (!IsTransfer(action->kind)) {
        moved = true;
        done.Add(*action);
        ++next[static_cast<size_t>(rank)];
        continue;
      }
      const Action other = OtherEnd(*action);
      const int peer = shape.RankOf(other.stage);
      const Action* theirs = current(peer);
      if (theirs == nullptr || !(*theirs == other)) {
        blocked[rank] = {*action, other, peer};
        continue;
      }
      moved = true;
      done.Add(*action);
      done.Add(other);
      ++next[static_cast<size_t>(rank)];
      ++next[static_cast<size_t>(peer)];
    }
    if (ended) break;
    if (!moved) return NameCycle(blocked);
  }
  for (int stage = 0; stage < shape.Stages(); ++stage) {
    for (int m = 0; m < shape.micro_batches; ++m) {
      if (done.Has({ActionKind::kBackward, stage, m})) continue;
      if (done.Has({ActionKind::kBackwardWeight, stage, m})) continue;
      return "the program never does " + ActionText({ActionKind::kBackward, stage, m});
    }
  }
  return "";
}

}  // namespace regatta
