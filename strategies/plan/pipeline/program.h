#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace regatta {

// What a rank of a pipeline does for one micro-batch of one stage. A backward that is split makes
// the gradient of the stage's input first (kBackwardInput) and those of its weights later
// (kBackwardWeight).
enum class ActionKind {
  kForward,
  kBackward,
  kBackwardInput,
  kBackwardWeight,
  kSendActivation,
  kReceiveActivation,
  kSendGradient,
  kReceiveGradient
};

// `stage` is the one that acts: a send names the stage that made the tensor, a receive the one that
// needs it.
struct Action {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;
  int micro_batch = 0;

  friend auto operator<=>(const Action&, const Action&) = default;
};

[[nodiscard]] bool IsTransfer(ActionKind kind);
[[nodiscard]] bool IsSend(ActionKind kind);
// A backward, whole or of inputs alone.
[[nodiscard]] bool MakesInputGradient(ActionKind kind);
// What the other rank of a transfer does.
[[nodiscard]] Action OtherEnd(const Action& transfer);

// "0F3", "1B3", "1I3", "1W3", "0SEND_F3", "1RECV_F3", "1SEND_B3", "0RECV_B3", as
// torch.distributed.pipelining writes them.
[[nodiscard]] std::string ActionText(const Action& action);

// What each rank does in one step, in order.
using Program = std::vector<std::vector<Action>>;

// How many forwards a rank does before its first backward.
enum class WarmUp {
  kAll,               // every one
  kUntilOwnTurn,      // one a rank behind it
  kOneLess,           // the same without one: every rank but the last waits for each round trip
  kTwiceUntilOwnTurn  // two a rank behind it, so that several stages a rank keep each other fed
};

// What tells one schedule from another; the program follows from it.
struct SchedulePolicy {
  WarmUp warm_up = WarmUp::kAll;
  bool last_backward_first =
      false;  // backwards go through micro-batches from the last to the first
  bool splits_backward = false;
  bool whole_batch = false;  // one micro-batch, whatever is asked

  // Whether a rank has several stages; else it has one.
  [[nodiscard]] bool Interleaves() const { return warm_up == WarmUp::kTwiceUntilOwnTurn; }
  // Where none are asked.
  [[nodiscard]] int StagesPerRank() const { return Interleaves() ? 2 : 1; }
  friend bool operator==(const SchedulePolicy&, const SchedulePolicy&) = default;
};

// Ranks of one pipeline; stage s is on rank s % ranks.
struct PipelineShape {
  int ranks = 2;
  int stages_per_rank = 1;
  int micro_batches = 1;

  [[nodiscard]] int Stages() const { return ranks * stages_per_rank; }
  [[nodiscard]] int RankOf(int stage) const { return stage % ranks; }
};

// Why a shape cannot be scheduled, with the nearest right value; empty where it can.
[[nodiscard]] std::string CheckShape(const SchedulePolicy& policy, const PipelineShape& shape);

// What a computing action needs from the rank of another stage.
[[nodiscard]] std::optional<Action> ReceiveBefore(const Action& action, const PipelineShape& shape);

// The computing actions of every rank, of a shape that passed. Narayanan et al. 2021 (Megatron-LM,
// interleaved 1F1B), Qi et al. 2024 (zero bubble, ZB1P); torch/distributed/pipelining/schedules.py.
[[nodiscard]] Program MakeProgram(const SchedulePolicy& policy, const PipelineShape& shape);

// Adds sends and receives by going through all ranks together: a tensor is sent when it was made,
// and its receive takes its place in the other rank's list at the same moment, so that all lists
// keep to one order and no rank waits for one that waits for it; for ranks that go on while
// transfers are under way. The sentence names the cycle where
// the program cannot finish.
[[nodiscard]] std::variant<Program, std::string> AddTransfers(const Program& program,
                                                              const PipelineShape& shape);

// Moves each receive to just before the action that needs it, or before a later receive from the
// same rank: for ranks that wait for transfers where they stand. Where a send stands just before,
// both are waited for together.
[[nodiscard]] Program DelayReceives(const Program& program, const PipelineShape& shape);

// Which transfers that follow one another start together: all; a send and a receive between the
// same two ranks; none.
enum class Fusing { kAdjacent, kSamePeer, kNone };

// Past the transfers of one rank that start together with actions[begin]; `begin` where that is
// none.
[[nodiscard]] size_t EndOfBatch(const std::vector<Action>& actions, size_t begin, Fusing fusing,
                                const PipelineShape& shape);

// How many times a rank starts transfers: kernels, on a GPU.
[[nodiscard]] int CountBatches(const std::vector<Action>& actions, Fusing fusing,
                               const PipelineShape& shape);

// Why a program with transfers would hang, or compute with what is not there, when every transfer
// waits for its other end (those that start together, together) and those between two ranks pair up
// in order, as NCCL's do. Empty where it finishes.
[[nodiscard]] std::string CheckProgram(const Program& program, const PipelineShape& shape,
                                       Fusing fusing = Fusing::kAdjacent);

// The program that the ranks run, with transfers: where ranks wait for them at once, receives are
// as late as they can be. The sentence names the cycle where it cannot finish.
[[nodiscard]] std::variant<Program, std::string> PlanProgram(const SchedulePolicy& policy,
                                                             const PipelineShape& shape,
                                                             bool waits_at_once, Fusing fusing);

}  // namespace regatta
