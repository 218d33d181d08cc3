#pragma once

#include <cstdint>
#include <vector>

#include "strategies/plan/predict.h"

namespace regatta {

// What is there may be so much more than predicted.
inline constexpr double kPeakMargin = 1.1;

// What one block's activations take, in bytes, for the rows of one batch on one rank. Measured: see
// worker/shapes.
struct BlockActivations {
  int64_t saved = 0;           // from its forward to its backward
  int64_t forward_extra = 0;   // more at most while its forward works
  int64_t backward_extra = 0;  // more at most while its backward works
  int64_t autograds = 0;       // of what is saved: not where backward is ours (strategies/layers.h)
};

// The same where layers (all blocks but the first and the last) keep their input of so many bytes
// alone, and go forward again in backward.
[[nodiscard]] std::vector<BlockActivations> Recomputed(std::vector<BlockActivations> blocks,
                                                       int64_t input_bytes);

// The most bytes of tensors that one rank has in each phase. Not exact, unlike Prediction.
struct PeakPrediction {
  int64_t load = 0;
  int64_t forward = 0;
  int64_t backward = 0;
  int64_t optimizer = 0;

  [[nodiscard]] int64_t Largest() const;
};

// Goes through one step block by block and adds up what is there at each moment, on the rank that
// has most. `blocks`: of the model, in order; those of a pipeline for the rows of one micro-batch.
[[nodiscard]] PeakPrediction PredictPeaks(const StrategyPlan& plan, const PredictionInputs& inputs,
                                          const std::vector<BlockActivations>& blocks);

}  // namespace regatta
