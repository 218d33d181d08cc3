#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "strategies/plan/strategy_table.h"

namespace regatta {

// A step's calls of one kind.
struct PredictedCalls {
  std::string_view kind;  // as counted: "all_reduce"
  int64_t calls = 0;
  int64_t payload_bytes = 0;
};

// What one rank keeps between steps, and what it hands to collectives in one step. Exact: the
// counters of a run must show the same (fp32, whole parameters of 4 bytes an element).
struct Prediction {
  int64_t parameter_bytes = 0;  // 0: nothing is known (a split that the ranks measure)
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;
  int64_t calls_per_step = 0;
  bool knows_traffic = true;               // else bytes depend on the lengths of rows
  int64_t payload_bytes_per_step = 0;      // of the tensors handed over
  double sent_bytes_per_step = 0;          // as a ring moves them: 2 (W - 1) / W of the payload
  std::vector<PredictedCalls> calls = {};  // by kind, in the order of their first use
  int64_t transfer_batches = 0;            // a pipeline's, told by PredictRanks alone
  std::vector<int64_t> bucket_bytes = {};  // of each all-reduce of gradients, in order

  [[nodiscard]] int64_t StateBytes() const {
    return parameter_bytes + gradient_bytes + optimizer_bytes;
  }
};

struct PredictionInputs {
  std::vector<ParameterSize> parameters;  // in registration order
  int ranks = 1;
  int rank = 0;               // whose states are told; where slices differ, rank 0 has most
  int optimizer_tensors = 0;  // state tensors as large as what the optimizer sees: adamw 2, sgd 0
  int64_t accumulation = 1;   // batches a step
  bool clips = false;
  // What a pipeline's transfers carry: [rows of a batch, tokens, width].
  int64_t batch_rows = 0;     // of all ranks
  int64_t padded_length = 0;  // of every row; 0: rows differ
  int64_t width = 0;          // of what one block hands to the next
};

// What one rank sends, on average over the ranks (so not always whole bytes), where calls of this
// kind ("all_reduce") were handed `payload` bytes and the algorithm moves no more than it must
// (rings and trees do).
[[nodiscard]] double SentBytes(std::string_view kind, int64_t payload, int ranks);

// The first block of each stage; nothing where the ranks will measure it, or cannot cut so.
[[nodiscard]] std::optional<std::vector<int>> PredictStages(
    const PipelinePlan& plan, const std::vector<ParameterSize>& parameters);

// Of inputs.rank.
[[nodiscard]] Prediction Predict(const StrategyPlan& plan, const PredictionInputs& inputs);

// Of each rank.
[[nodiscard]] std::vector<Prediction> PredictRanks(const StrategyPlan& plan,
                                                   PredictionInputs inputs);

// Of a run: states of the rank that keeps most, the most calls and payload that any rank has, and
// of what is sent the mean.
[[nodiscard]] Prediction MostOf(const std::vector<Prediction>& ranks);

}  // namespace regatta
