#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "strategies/plan/pipeline/program.h"
#include "strategies/plan/pipeline/split.h"
#include "strategies/plan/slices.h"

namespace regatta {

// When a bucket's all-reduce starts, and when its end is waited for.
enum class LaunchWhen { kAfterBackward, kGradientsReady };
enum class WaitWhen { kAtOnce, kAtFinish };
// What a bucket travels as.
enum class Compression { kNone, kFp16, kBf16 };

// When and how the data-parallel class makes gradients equal on all ranks.
struct DataParallelPlan {
  bool reduces = false;      // false: no communication, the one-process reference
  int64_t bucket_bytes = 0;  // gradients of one all-reduce; 0: each parameter alone
  LaunchWhen launch = LaunchWhen::kAfterBackward;
  WaitWhen wait = WaitWhen::kAtOnce;
  // LibTorch's c10d::Reducer, which launches when ready and waits at the end of backward, and what
  // it alone knows.
  bool native = false;
  int64_t first_bucket_bytes = 0;  // of its first bucket, which goes while backward still works
  bool gradient_as_bucket_view = false;
  Compression compression = Compression::kNone;
  // Each parameter has one rank that updates it and then broadcasts it. Where that rank alone keeps
  // its gradient, or the parameter itself between steps, those are whole tensors too.
  Owners owners = Owners::kNone;
  bool gradients_to_owners = false;
  bool parameters_of_owners = false;
  // A step of fewer batches is reduced after backward, in buckets of registration order.
  int64_t flushes_below = 0;
};

// When gradients of several batches are reduced: after each, so that a rank keeps its slice alone,
// or once, after the last.
enum class Accumulate { kSharded, kFull };

// What the sharded class cuts among ranks, and when it gathers and reduces. The optimizer always
// sees slices only.
struct ShardedPlan {
  UnitKind unit = UnitKind::kBlock;
  SliceKind slices = SliceKind::kElements;
  bool gradients_sharded = false;
  bool parameters_sharded = false;
  bool reshard_after_forward = false;  // sharded parameters are gathered again for backward
  int64_t prefetch = 0;                // units that are gathered ahead of the one in use
  Accumulate accumulate = Accumulate::kSharded;  // of sharded gradients
  bool emulated_reduce_scatter = false;          // an all-reduce, as PyTorch has it for Gloo

  // Whether gradients of `batches` a step add up whole before any of them is reduced.
  [[nodiscard]] bool AddsWholeGradients(int64_t batches) const {
    return !gradients_sharded || (accumulate == Accumulate::kFull && batches > 1);
  }
};

// Of `rows` in M micro-batches. kEven: they differ by one row at most (torch.tensor_split). kFull:
// ceil(rows / M) each, fewer in the last ones, perhaps none (torch.chunk).
enum class ChunkSizes { kEven, kFull };

// How a pipeline cuts model and batch, and in which order its ranks work.
struct PipelinePlan {
  SchedulePolicy policy;
  bool waits_at_once = true;  // for a transfer where it stands; else just before it is needed
  SplitPlan split = {};
  // Of one pipeline. In the table and before it was checked 0 stages a rank are as many as the
  // policy needs, and no micro-batches as many as fit.
  PipelineShape shape = {.ranks = 0, .stages_per_rank = 0, .micro_batches = 0};
  int replicas = 1;  // pipelines beside each other, rank r belongs to the one of r / shape.ranks
  Fusing fusing = Fusing::kAdjacent;
  ChunkSizes chunk_sizes = ChunkSizes::kEven;
  bool mean_of_chunk_means = false;  // each micro-batch counts 1 / M, whatever rows it has
};

// Micro-batches of so many rows that have any.
[[nodiscard]] int64_t ChunksWithRows(const PipelinePlan& plan, int64_t rows);

// How replicas of a pipeline make their gradients equal: once a step, after the last micro-batch.
inline constexpr DataParallelPlan kReplicaReduction = {.reduces = true, .bucket_bytes = 25 << 20};

// What `ParseStrategy` found good: built into a Strategy later, on the ranks.
struct StrategyPlan {
  std::string name;
  DataParallelPlan data_parallel;
  std::optional<ShardedPlan> sharded = {};  // with one of these data_parallel does not matter
  std::optional<PipelinePlan> pipeline = {};
};

// What the checks of a row may look at.
struct RunShape {
  int ranks = 1;
  int replicas = 1;           // of a pipeline
  int64_t batch_rows = 0;     // of a loader batch, over all ranks; 0: not looked at
  int64_t micro_batches = 0;  // 0: as many as fit
  int64_t accumulation = 1;   // loader batches of a step
  bool original = false;      // the study's own way, of rows that it has
};

// Parameters as the experiment writes them, sorted by name.
using StrategyParams = std::vector<std::pair<std::string, std::string>>;

// Why a strategy, its parameters or its shape is refused: one sentence.
struct PlanError {
  std::string sentence;
  bool cannot_run = false;       // all names and values are right, but not together
  const char* key = "strategy";  // of the run, that is to blame
};

// A parameter of a row's own.
struct StrategyParam {
  std::string_view name;
  std::string_view default_text;
  std::string_view right;  // what would be right, for messages
  std::string_view meaning;
  // False where the text is not what `right` says.
  bool (*apply)(const std::string& text, StrategyPlan& plan);
};

// How the study that regatta follows ran a row, where that differs from what the row does here; its
// loss is the mean of the ranks' (and micro-batches') means in any case.
struct StudyWay {
  void (*change)(StrategyPlan& plan, const RunShape& shape) = nullptr;  // null: as here
  int64_t gradient_accumulation = 1;
  bool fixed_length = false;  // rows padded to kStudyLength, an epoch's incomplete batch dropped
};
inline constexpr int64_t kStudyLength = 256;

// One row of the table. `origin` says whose implementation runs: "libtorch" (the library's own
// object), "after PyTorch" (the same algorithm, our code) or "regatta".
struct StrategyRow {
  std::string_view name;
  std::string_view family;
  std::string_view origin;
  std::string_view summary;
  std::string_view source;  // paper or file that describes the method
  DataParallelPlan data_parallel = {};
  std::optional<ShardedPlan> sharded = {};
  std::optional<PipelinePlan> pipeline = {};
  std::vector<StrategyParam> params = {};
  int64_t gradient_accumulation = 1;   // where the experiment sets none
  int max_ranks = 0;                   // 0: any number
  std::optional<StudyWay> study = {};  // nothing: the study has no such row
};

// The rows in the order of the documentation. The only place where a strategy is registered.
[[nodiscard]] const std::vector<StrategyRow>& StrategyTable();

// Null where no row has the name.
[[nodiscard]] const StrategyRow* FindStrategy(const std::string& name);

// What a row does, as pairs of a property and its value: what tells two rows apart.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> DescribePlan(
    const StrategyPlan& plan);

// Checks name, parameters and shape now, so that a bad run is refused before anything is queued.
[[nodiscard]] std::variant<StrategyPlan, PlanError> ParseStrategy(const std::string& name,
                                                                  const StrategyParams& params,
                                                                  const RunShape& shape);

// Into how many shares the rows of a batch are cut: the ranks of one pipeline work on the same.
[[nodiscard]] int RowShares(const StrategyPlan& plan, int ranks);

}  // namespace regatta
