#pragma once

#include <cstdint>
#include <vector>

#include "strategies/plan/pipeline/program.h"

namespace regatta {

// What one stage takes for one micro-batch, in any unit of time. A whole backward takes both parts.
struct StageCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;

  [[nodiscard]] double Of(ActionKind kind) const;
};

struct SimulationInputs {
  std::vector<StageCosts> stages;
  double transfer = 0;  // from a tensor's end on one rank until it is there on another
};

// When a computing action runs.
struct Span {
  Action action;
  double start = 0;
  double end = 0;
};

struct RankTimeline {
  std::vector<Span> spans;
  double busy = 0;
  int most_in_flight = 0;  // micro-batches, over its stages, whose activations it keeps at once
};

struct Timeline {
  std::vector<RankTimeline> ranks;
  double end = 0;

  // The share of all ranks' time in which they do nothing.
  [[nodiscard]] double BubbleFraction() const;
  // The same time over that in which they work: what the pipeline adds to an ideal step.
  [[nodiscard]] double BubbleOverhead() const;
};

// Runs a program (of computing actions; transfers in it are passed over) in virtual time: an action
// starts when its rank is free and its input has arrived. The program must finish (AddTransfers).
[[nodiscard]] Timeline Simulate(const Program& program, const PipelineShape& shape,
                                const SimulationInputs& inputs);

}  // namespace regatta
