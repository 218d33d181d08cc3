#pragma once

#include <vector>

#include "strategies/plan/pipeline/simulate.h"

namespace regatta {

// What was seen of a pipeline's steps, in seconds.
struct SeenPipeline {
  std::vector<StageCosts> stages;  // processor time of one micro-batch
  double transfer = 0;             // of one activation from a rank to the next
  double busy = 0;                 // of all ranks together in a step, by the clock
  double step = 0;                 // of the slowest rank
};

// The share of all ranks' time in which they do not compute, and its parts, which add up to it.
struct Bubble {
  double measured = 0;   // by the clock
  double program = 0;    // of the program alone, were all stages equal and transfers free
  double imbalance = 0;  // more because stages differ
  double transfer = 0;   // more because transfers take time
  double rest = 0;       // the machine: ranks that share cores, memory or a link. May be negative.
};

[[nodiscard]] Bubble ExplainBubble(const Program& program, const PipelineShape& shape,
                                   const SeenPipeline& seen);

}  // namespace regatta
