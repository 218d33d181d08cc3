#include "strategies/plan/pipeline/program.h"

#include <algorithm>
#include <array>

namespace regatta {
namespace {

constexpr std::array<std::string_view, 8> kKindTexts = {"F",      "B",      "I",      "W",
                                                        "SEND_F", "RECV_F", "SEND_B", "RECV_B"};

// Forwards, or backwards, of one rank in their order: which stage and micro-batch the k-th is. A
// rank with several stages goes to the next one after a round of micro-batches.
class Order {
 public:
  Order(const PipelineShape& shape, int rank) : shape_(shape), rank_(rank) {
    const int rounds = std::max(1, shape.micro_batches / shape.ranks);
    round_ = shape.micro_batches / rounds;
  }

  [[nodiscard]] int Count() const { return shape_.micro_batches * shape_.stages_per_rank; }
  [[nodiscard]] int Round() const { return round_; }

  [[nodiscard]] Action Forward(int k) const {
    return At(ActionKind::kForward, k, (k / round_) % shape_.stages_per_rank);
  }

  [[nodiscard]] Action Backward(ActionKind kind, int k, bool last_first) const {
    const int chunk = shape_.stages_per_rank - 1 - (k / round_) % shape_.stages_per_rank;
    Action action = At(kind, k, chunk);
    if (last_first) action.micro_batch = shape_.micro_batches - 1 - action.micro_batch;
    return action;
  }

 private:
  [[nodiscard]] Action At(ActionKind kind, int k, int chunk) const {
    const int micro_batch = k / (round_ * shape_.stages_per_rank) * round_ + k % round_;
    return {kind, chunk * shape_.ranks + rank_, micro_batch};
  }

  const PipelineShape& shape_;
  const int rank_;
  int round_ = 1;
};

int WarmUpForwards(const SchedulePolicy& policy, const PipelineShape& shape, const Order& order,
                   int rank) {
  if (policy.warm_up == WarmUp::kAll) return order.Count();
  const int factor = policy.warm_up == WarmUp::kTwiceUntilOwnTurn ? 2 : 1;
  const int rounds = (shape.stages_per_rank - 1) * order.Round();
  const int behind = shape.ranks - 1 - rank;
  const int turns = policy.warm_up == WarmUp::kOneLess ? std::max(0, behind - 1) : factor * behind;
  return std::min(order.Count(), rounds + turns);
}

std::vector<Action> ProgramOfRank(const SchedulePolicy& policy, const PipelineShape& shape,
                                  int rank) {
  const Order order(shape, rank);
  const int warm_up = WarmUpForwards(policy, shape, order, rank);
  std::vector<Action> actions;
  for (int k = 0; k < warm_up; ++k) actions.push_back(order.Forward(k));
  int weights = 0;
  const auto backward_weight = [&] {
    actions.push_back(
        order.Backward(ActionKind::kBackwardWeight, weights++, policy.last_backward_first));
  };
  for (int k = 0; k < order.Count(); ++k) {
    if (warm_up + k < order.Count()) actions.push_back(order.Forward(warm_up + k));
    const ActionKind kind =
        policy.splits_backward ? ActionKind::kBackwardInput : ActionKind::kBackward;
    actions.push_back(order.Backward(kind, k, policy.last_backward_first));
    // The further back a rank is, the longer its weights wait: their gradients fill its drain.
    if (policy.splits_backward && k >= rank) backward_weight();
  }
  while (policy.splits_backward && weights < order.Count()) backward_weight();
  return actions;
}

}  // namespace

bool IsTransfer(ActionKind kind) { return kind >= ActionKind::kSendActivation; }

bool IsSend(ActionKind kind) {
  return kind == ActionKind::kSendActivation || kind == ActionKind::kSendGradient;
}

Action OtherEnd(const Action& transfer) {
  switch (transfer.kind) {
    case ActionKind::kSendActivation:
      return {ActionKind::kReceiveActivation, transfer.stage + 1, transfer.micro_batch};
    case ActionKind::kReceiveActivation:
      return {ActionKind::kSendActivation, transfer.stage - 1, transfer.micro_batch};
    case ActionKind::kSendGradient:
      return {ActionKind::kReceiveGradient, transfer.stage - 1, transfer.micro_batch};
    default:
      return {ActionKind::kSendGradient, transfer.stage + 1, transfer.micro_batch};
  }
}

std::string ActionText(const Action& action) {
  return std::to_string(action.stage) +
         std::string(kKindTexts.at(static_cast<size_t>(action.kind))) +
         std::to_string(action.micro_batch);
}

std::string CheckShape(const SchedulePolicy& policy, const PipelineShape& shape) {
  if (shape.ranks < 2) {
    return "a pipeline has stages on 2 ranks at least, not on " + std::to_string(shape.ranks);
  }
  const int per_rank = shape.stages_per_rank;
  if (policy.Interleaves() ? per_rank < 2 : per_rank != 1) {
    return "stages_per_rank is " + std::to_string(per_rank) +
           (policy.Interleaves() ? "; 2 or more is right"
                                 : "; 1 is right: only interleaved "
                                   "programs have several stages a rank");
  }
  const int m = shape.micro_batches;
  if (m < 1) return "micro_batches is " + std::to_string(m) + "; 1 or more is right";
  if (policy.whole_batch && m > 1) {
    return "it takes the batch whole: micro_batches is " + std::to_string(m) + "; 1 is right";
  }
  const auto fits = [&](int count) { return count % std::max(1, count / shape.ranks) == 0; };
  if (per_rank == 1 || fits(m)) return "";
  int below = m;
  int above = m;
  while (!fits(below)) --below;
  while (!fits(above)) ++above;
  return std::to_string(m) + " micro-batches do not divide into rounds of " +
         std::to_string(shape.ranks) + " ranks; " + std::to_string(below) + " or " +
         std::to_string(above) + " is right";
}

Program MakeProgram(const SchedulePolicy& policy, const PipelineShape& shape) {
  Program program;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    program.push_back(ProgramOfRank(policy, shape, rank));
  }
  return program;
}

}  // namespace regatta
