#include "strategies/plan/pipeline/simulate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

namespace regatta {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// When each stage's tensors of each micro-batch are made.
class Made {
 public:
  explicit Made(const PipelineShape& shape)
      : shape_(shape),
        activations_(static_cast<size_t>(shape.Stages() * shape.micro_batches), kNever),
        gradients_(activations_) {}

  void Add(const Action& action, double end) {
    if (action.kind == ActionKind::kForward) activations_[Place(action.stage, action)] = end;
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardInput) {
      gradients_[Place(action.stage, action)] = end;
    }
  }

  // When what the action reads is on its rank; kNever where it was not made yet.
  [[nodiscard]] double Ready(const Action& action, double transfer) const {
    if (action.kind == ActionKind::kForward) {
      return action.stage == 0 ? 0 : activations_[Place(action.stage - 1, action)] + transfer;
    }
    if (action.kind == ActionKind::kBackwardWeight) return gradients_[Place(action.stage, action)];
    const double own = activations_[Place(action.stage, action)];
    if (action.stage + 1 == shape_.Stages()) return own;
    return std::max(own, gradients_[Place(action.stage + 1, action)] + transfer);
  }

 private:
  [[nodiscard]] size_t Place(int stage, const Action& action) const {
    return static_cast<size_t>(stage * shape_.micro_batches + action.micro_batch);
  }

  const PipelineShape& shape_;
  std::vector<double> activations_;
  std::vector<double> gradients_;
};

int MostInFlight(const std::vector<Span>& spans) {
  int now = 0;
  int most = 0;
  for (const Span& span : spans) {
    if (span.action.kind == ActionKind::kForward) most = std::max(most, ++now);
    if (span.action.kind == ActionKind::kBackward) --now;
    if (span.action.kind == ActionKind::kBackwardWeight) --now;
  }
  return most;
}

}  // namespace

double StageCosts::Of(ActionKind kind) const {
  switch (kind) {
    case ActionKind::kForward:
      return forward;
    case ActionKind::kBackward:
      return backward_input + backward_weight;
    case ActionKind::kBackwardInput:
      return backward_input;
    case ActionKind::kBackwardWeight:
      return backward_weight;
    default:
      return 0;
  }
}

double Timeline::BubbleFraction() const {
  double busy = 0;
  for (const RankTimeline& rank : ranks) busy += rank.busy;
  const double all = end * static_cast<double>(ranks.size());
  return all > 0 ? 1 - busy / all : 0;
}

double Timeline::BubbleOverhead() const {
  const double fraction = BubbleFraction();
  return fraction < 1 ? fraction / (1 - fraction) : kNever;
}

Timeline Simulate(const Program& program, const PipelineShape& shape,
                  const SimulationInputs& inputs) {
  Timeline timeline;
  timeline.ranks.resize(program.size());
  std::vector<size_t> next(program.size());
  Made made(shape);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < program.size(); ++rank) {
      RankTimeline& mine = timeline.ranks[rank];
      for (; next[rank] < program[rank].size(); ++next[rank], moved = true) {
        const Action& action = program[rank][next[rank]];
        if (IsTransfer(action.kind)) continue;
        const double ready = made.Ready(action, inputs.transfer);
        if (ready == kNever) break;
        const double free = mine.spans.empty() ? 0 : mine.spans.back().end;
        const double cost = inputs.stages.at(static_cast<size_t>(action.stage)).Of(action.kind);
        const double start = std::max(free, ready);
        mine.spans.push_back({action, start, start + cost});
        mine.busy += cost;
        made.Add(action, start + cost);
        timeline.end = std::max(timeline.end, start + cost);
      }
    }
  }
  for (RankTimeline& rank : timeline.ranks) rank.most_in_flight = MostInFlight(rank.spans);
  return timeline;
}

}  // namespace regatta
