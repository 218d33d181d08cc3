#include "strategies/plan/strategy_table.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "strategies/plan/suggest.h"

namespace regatta {
namespace {

constexpr int64_t kMebibyte = 1 << 20;

bool ReadMebibytes(const std::string& text, int64_t* bytes) {
  double mebibytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mebibytes);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if (!(mebibytes > 0 && mebibytes <= 65536)) return false;
  *bytes = std::max<int64_t>(1, static_cast<int64_t>(mebibytes * kMebibyte));
  return true;
}

// Sets `to` to the value whose name is `text`; the names are those of `Named` below.
template <typename Value, size_t count>
bool Choose(const std::pair<std::string_view, Value> (&named)[count], const std::string& text,
            Value* to) {
  for (const auto& [name, value] : named) {
    if (name != text) continue;
    *to = value;
    return true;
  }
  return false;
}

template <typename Value, size_t count>
std::string NameOf(const std::pair<std::string_view, Value> (&named)[count], Value value) {
  for (const auto& [name, other] : named) {
    if (other == value) return std::string(name);
  }
  return "";
}

constexpr std::pair<std::string_view, LaunchWhen> kLaunches[] = {
    {"after_backward", LaunchWhen::kAfterBackward},
    {"gradients_ready", LaunchWhen::kGradientsReady}};
constexpr std::pair<std::string_view, WaitWhen> kWaits[] = {{"at_once", WaitWhen::kAtOnce},
                                                            {"at_finish", WaitWhen::kAtFinish}};
constexpr std::pair<std::string_view, Compression> kCompressions[] = {
    {"none", Compression::kNone}, {"fp16", Compression::kFp16}, {"bf16", Compression::kBf16}};
constexpr std::pair<std::string_view, bool> kFlags[] = {{"false", false}, {"true", true}};
constexpr std::pair<std::string_view, UnitKind> kUnits[] = {
    {"block", UnitKind::kBlock},
    {"model", UnitKind::kModel},
    {"root and layers", UnitKind::kRootAndLayers}};
constexpr std::pair<std::string_view, SliceKind> kSlices[] = {
    {"of elements", SliceKind::kElements}, {"of rows of each parameter", SliceKind::kRows}};
constexpr std::pair<std::string_view, Accumulate> kAccumulates[] = {
    {"sharded", Accumulate::kSharded}, {"full", Accumulate::kFull}};
constexpr std::pair<std::string_view, bool> kShardedOrFull[] = {{"full", false}, {"sharded", true}};

constexpr std::pair<std::string_view, bool> kTransferWaits[] = {{"at_once", true},
                                                                {"before_use", false}};
constexpr std::pair<std::string_view, SplitKind> kSplits[] = {
    {"even", SplitKind::kEven},
    {"by_parameters", SplitKind::kByParameters},
    {"by_time", SplitKind::kByTime}};

constexpr SchedulePolicy kNaive = {.whole_batch = true};
constexpr SchedulePolicy kGpipe = {.last_backward_first = true};
constexpr SchedulePolicy kGpipeInOrder = {};
constexpr SchedulePolicy k1f1b = {.warm_up = WarmUp::kUntilOwnTurn};
// The study's pairs are (backward, forward), after the forwards of the ranks behind.
constexpr SchedulePolicy k1f1bOfTheStudy = {.warm_up = WarmUp::kOneLess};
constexpr SchedulePolicy kInterleaved1f1b = {.warm_up = WarmUp::kTwiceUntilOwnTurn};
constexpr SchedulePolicy kZb1p = {.warm_up = WarmUp::kUntilOwnTurn, .splits_backward = true};
constexpr std::pair<std::string_view, SchedulePolicy> kPrograms[] = {
    {"naive", kNaive},
    {"gpipe", kGpipe},
    {"gpipe_in_order", kGpipeInOrder},
    {"1f1b", k1f1b},
    {"interleaved_1f1b", kInterleaved1f1b},
    {"zb1p", kZb1p}};

constexpr std::string_view kMebibytesRight = "a number above 0, at most 65536";

const StrategyParam kBucketMib = {"bucket_mib", "25", kMebibytesRight,
                                  "MiB of gradients that one all-reduce carries",
                                  [](const std::string& text, StrategyPlan& plan) {
                                    return ReadMebibytes(text, &plan.data_parallel.bucket_bytes);
                                  }};
const StrategyParam kBucket = {
    "bucket_mib", "parameter", "parameter or a number above 0, at most 65536",
    "MiB of gradients that one all-reduce carries; parameter: each gradient alone",
    [](const std::string& text, StrategyPlan& plan) {
      plan.data_parallel.bucket_bytes = 0;
      return text == "parameter" || ReadMebibytes(text, &plan.data_parallel.bucket_bytes);
    }};
const StrategyParam kLaunch = {
    "launch", "after_backward", "after_backward or gradients_ready",
    "when an all-reduce starts: after backward, or inside it once its gradients are there",
    [](const std::string& text, StrategyPlan& plan) {
      return Choose(kLaunches, text, &plan.data_parallel.launch);
    }};
const StrategyParam kWait = {"wait", "at_once", "at_once or at_finish",
                             "when its end is waited for: before going on, or after backward",
                             [](const std::string& text, StrategyPlan& plan) {
                               return Choose(kWaits, text, &plan.data_parallel.wait);
                             }};
const StrategyParam kFirstBucketMib = {
    "first_bucket_mib", "1", kMebibytesRight,
    "MiB of the first bucket, so that communication begins early",
    [](const std::string& text, StrategyPlan& plan) {
      return ReadMebibytes(text, &plan.data_parallel.first_bucket_bytes);
    }};
const StrategyParam kBucketView = {"gradient_as_bucket_view", "false", "true or false",
                                   "gradients are views of their bucket: no second copy of them",
                                   [](const std::string& text, StrategyPlan& plan) {
                                     return Choose(kFlags, text,
                                                   &plan.data_parallel.gradient_as_bucket_view);
                                   }};
const StrategyParam kCompression = {"compression", "none", "none, fp16 or bf16",
                                    "what buckets travel as: half the bytes, gradients rounded",
                                    [](const std::string& text, StrategyPlan& plan) {
                                      return Choose(kCompressions, text,
                                                    &plan.data_parallel.compression);
                                    }};

const StrategyParam kUnit = {"unit", "block", "block or model",
                             "what is gathered and reduced at once",
                             [](const std::string& text, StrategyPlan& plan) {
                               return text != NameOf(kUnits, UnitKind::kRootAndLayers) &&
                                      Choose(kUnits, text, &plan.sharded->unit);
                             }};
const StrategyParam kPrefetch = {
    "prefetch", "1", "an integer from 0 to 100", "units that are gathered ahead of the one in use",
    [](const std::string& text, StrategyPlan& plan) {
      int64_t& units = plan.sharded->prefetch;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), units);
      return error == std::errc() && end == text.data() + text.size() && units >= 0 && units <= 100;
    }};
const StrategyParam kAccumulate = {
    "accumulate", "sharded", "sharded or full",
    "with several batches a step: reduce after each (less memory) or once (less traffic)",
    [](const std::string& text, StrategyPlan& plan) {
      return Choose(kAccumulates, text, &plan.sharded->accumulate);
    }};
const StrategyParam kGradients = {
    "gradients", "sharded", "full or sharded", "what a rank keeps of gradients: all, or its slice",
    [](const std::string& text, StrategyPlan& plan) {
      return Choose(kShardedOrFull, text, &plan.sharded->gradients_sharded);
    }};
const StrategyParam kParameters = {"parameters", "sharded", "full or sharded",
                                   "what a rank keeps of parameters: all, or its slice",
                                   [](const std::string& text, StrategyPlan& plan) {
                                     return Choose(kShardedOrFull, text,
                                                   &plan.sharded->parameters_sharded);
                                   }};
const StrategyParam kReshard = {
    "reshard", "true", "true or false",
    "sharded parameters are freed after a unit's forward and gathered again for its backward",
    [](const std::string& text, StrategyPlan& plan) {
      return Choose(kFlags, text, &plan.sharded->reshard_after_forward);
    }};

bool ReadCount(std::string_view text, int most, int* count) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *count);
  return error == std::errc() && end == text.data() + text.size() && *count >= 1 && *count <= most;
}

// "[1, 3]"
bool ReadCutPoints(std::string_view text, std::vector<int>* points) {
  if (!text.starts_with('[') || !text.ends_with(']')) return false;
  text = text.substr(1, text.size() - 2);
  points->clear();
  while (true) {
    const size_t comma = text.find(',');
    std::string_view one = text.substr(0, comma);
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    if (!ReadCount(one, 1 << 20, &points->emplace_back())) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

const StrategyParam kProgram = {"program", "1f1b",
                                "naive, gpipe, gpipe_in_order, 1f1b, interleaved_1f1b or zb1p",
                                "in which order a rank does forwards and backwards",
                                [](const std::string& text, StrategyPlan& plan) {
                                  return Choose(kPrograms, text, &plan.pipeline->policy);
                                }};
const StrategyParam kTransferWait = {
    "wait", "at_once", "at_once or before_use",
    "when the end of a transfer is waited for: where it stands, or just before it is needed",
    [](const std::string& text, StrategyPlan& plan) {
      return Choose(kTransferWaits, text, &plan.pipeline->waits_at_once);
    }};
const StrategyParam kSplit = {
    "split", "even", "even, by_parameters, by_time or cut points such as [2, 4]",
    "which blocks are a stage: equally many, equally large, equally slow (measured at the start), "
    "or those from one cut point to the next",
    [](const std::string& text, StrategyPlan& plan) {
      SplitPlan& split = plan.pipeline->split;
      split.kind = SplitKind::kAtCutPoints;
      return Choose(kSplits, text, &split.kind) || ReadCutPoints(text, &split.cut_points);
    }};
const StrategyParam kStagesPerRank = {
    "stages_per_rank", "auto", "auto or an integer from 1 to 64",
    "into how many stages a rank's part of the model is cut; auto: 2 where the program has several",
    [](const std::string& text, StrategyPlan& plan) {
      plan.pipeline->shape.stages_per_rank = 0;
      return text == "auto" || ReadCount(text, 64, &plan.pipeline->shape.stages_per_rank);
    }};

// 26214400 is "25 MiB".
std::string MebibytesText(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g MiB",
                static_cast<double>(bytes) / static_cast<double>(kMebibyte));
  return text;
}

// "it has bucket_mib", "it has none".
std::string OwnParams(const StrategyRow& row) {
  std::string list;
  for (const StrategyParam& param : row.params) {
    list += (list.empty() ? "" : ", ") + std::string(param.name);
  }
  return list.empty() ? "it has none" : "it has " + list;
}

std::string ApplyParam(const StrategyRow& row, const std::string& name, const std::string& text,
                       StrategyPlan& plan) {
  const auto param = std::find_if(row.params.begin(), row.params.end(),
                                  [&](const StrategyParam& p) { return p.name == name; });
  const std::string strategy = "strategy '" + std::string(row.name) + "'";
  if (param == row.params.end()) {
    return strategy + " has no parameter '" + name + "'; " + OwnParams(row);
  }
  if (param->apply(text, plan)) return "";
  return strategy + ": " + name + " is '" + text + "'; " + std::string(param->right) + " is right";
}

// 4 a stage, or the most below that which divide the rows evenly.
int FittingMicroBatches(const PipelinePlan& plan, int64_t rows) {
  if (plan.policy.whole_batch) return 1;
  PipelineShape shape = plan.shape;
  for (int m = 4 * shape.Stages(); m > 1; --m) {
    shape.micro_batches = m;
    if (rows % m == 0 && CheckShape(plan.policy, shape).empty()) return m;
  }
  return 1;
}

// ---- the study's way (docs/from_the_study.md) ----

// An epoch's batches that fill no step are reduced on their own.
void FlushEpochs(StrategyPlan& plan, const RunShape& shape) {
  plan.data_parallel.flushes_below = shape.accumulation;
}

// Whole tensors in registration order, each updated and broadcast by its owner.
DataParallelPlan WholeTensors() { return {.reduces = true, .owners = Owners::kRuns}; }

void StudyZero1(StrategyPlan& plan, const RunShape&) {
  plan.sharded.reset();
  plan.data_parallel = WholeTensors();
}

void StudyZero2(StrategyPlan& plan, const RunShape& shape) {
  StudyZero1(plan, shape);
  plan.data_parallel.gradients_to_owners = true;
}

void StudyZero3(StrategyPlan& plan, const RunShape& shape) {
  StudyZero2(plan, shape);
  plan.data_parallel.parameters_of_owners = true;
}

// Each transfer by itself.
void StudyTransfers(StrategyPlan& plan, const RunShape&) { plan.pipeline->fusing = Fusing::kNone; }

// The same, and a batch cut as torch.chunk does.
void StudyByHand(StrategyPlan& plan, const RunShape& shape) {
  StudyTransfers(plan, shape);
  plan.pipeline->chunk_sizes = ChunkSizes::kFull;
}

// A send and a receive that meet go together, and are waited for.
void StudyPytorch1f1b(StrategyPlan& plan, const RunShape&) {
  plan.pipeline->fusing = Fusing::kSamePeer;
  plan.pipeline->waits_at_once = true;
}

void Study1f1b(StrategyPlan& plan, const RunShape& shape) {
  StudyByHand(plan, shape);
  plan.pipeline->fusing = Fusing::kSamePeer;
  plan.pipeline->policy = k1f1bOfTheStudy;
}

// Empty where the row can run as the study ran it.
std::string FollowStudy(const StrategyRow& row, const RunShape& shape, StrategyPlan& plan,
                        const char** key) {
  *key = "compat";
  if (!row.study) return "the study has no such row; compat: none is right";
  const int shares = RowShares(plan, shape.ranks);
  if (shape.replicas > 1) {
    return "the study had one pipeline, data_parallel is " + std::to_string(shape.replicas) +
           "; 1 is right";
  }
  if (shape.batch_rows % shares != 0) {
    const int64_t below = std::max<int64_t>(1, shape.batch_rows / shares) * shares;
    return "the study gave each rank equally many rows, batch_size is " +
           std::to_string(shape.batch_rows) + " on " + std::to_string(shares) + " ranks; " +
           std::to_string(below) + " is right";
  }
  if (row.study->change != nullptr) row.study->change(plan, shape);
  if (!plan.pipeline) return "";
  plan.pipeline->mean_of_chunk_means = true;
  const int64_t chunks = ChunksWithRows(*plan.pipeline, shape.batch_rows);
  if (shape.batch_rows == 0 || chunks == plan.pipeline->shape.micro_batches) return "";
  *key = "micro_batches";
  return "the study cut batches with torch.chunk, which makes " + std::to_string(chunks) +
         " parts of " + std::to_string(shape.batch_rows) + " rows, not " +
         std::to_string(plan.pipeline->shape.micro_batches) + "; " + std::to_string(chunks) +
         " is right";
}

// Completes the plan of a pipeline, or says why it cannot run.
std::string FitPipeline(PipelinePlan& plan, const RunShape& shape, const char** key) {
  if (shape.ranks % shape.replicas != 0) {
    *key = "data_parallel";
    return "data_parallel is " + std::to_string(shape.replicas) + ", but " +
           std::to_string(shape.ranks) + " ranks do not divide into so many pipelines";
  }
  plan.replicas = shape.replicas;
  plan.shape.ranks = shape.ranks / shape.replicas;
  if (plan.shape.stages_per_rank == 0) plan.shape.stages_per_rank = plan.policy.StagesPerRank();
  const int64_t rows = (shape.batch_rows + shape.replicas - 1) / shape.replicas;
  plan.shape.micro_batches = shape.micro_batches > 0 ? static_cast<int>(shape.micro_batches)
                                                     : FittingMicroBatches(plan, rows);
  if (rows > 0 && plan.shape.micro_batches > rows) {
    *key = "micro_batches";
    return "micro_batches is " + std::to_string(plan.shape.micro_batches) +
           ", but a pipeline has " + std::to_string(rows) + " rows of a batch; " +
           std::to_string(rows) + " or fewer is right";
  }
  return CheckShape(plan.policy, plan.shape);
}

std::string CheckNoPipeline(const RunShape& shape, const char** key) {
  if (shape.micro_batches > 1) {
    *key = "micro_batches";
    return "micro_batches is " + std::to_string(shape.micro_batches) +
           ", but it is no pipeline and cuts no batch; auto is right";
  }
  if (shape.replicas == 1) return "";
  *key = "data_parallel";
  return "data_parallel is " + std::to_string(shape.replicas) +
         ", but it is no pipeline of which there could be several; 1 is right";
}

}  // namespace

const std::vector<StrategyRow>& StrategyTable() {
  static const std::vector<StrategyRow> table = {
      {.name = "single",
       .family = "reference",
       .origin = "regatta",
       .summary = "one rank, no communication: what every other row is compared with",
       .source = "",
       .max_ranks = 1},
      {.name = "simple_ddp",
       .family = "data parallel",
       .origin = "regatta",
       .summary = "after backward, all-reduce each gradient and wait for it at once",
       .source = "llm-parallelism-pytorch, simple_ddp",
       .data_parallel = {.reduces = true},
       .study = StudyWay{}},
      {.name = "simple_ddp_ga",
       .family = "data parallel",
       .origin = "regatta",
       .summary = "simple_ddp once every 4 batches, whose gradients add up locally",
       .source = "llm-parallelism-pytorch, simple_ddp_ga",
       .data_parallel = {.reduces = true},
       .gradient_accumulation = 4,
       .study = StudyWay{.change = FlushEpochs, .gradient_accumulation = 4}},
      {.name = "simple_ddp_hook",
       .family = "data parallel",
       .origin = "regatta",
       .summary = "all-reduce each gradient inside backward once it is there, and wait at once",
       .source = "llm-parallelism-pytorch, simple_ddp_hook",
       .data_parallel = {.reduces = true, .launch = LaunchWhen::kGradientsReady},
       .study = StudyWay{.change = FlushEpochs, .gradient_accumulation = 4}},
      {.name = "simple_ddp_async",
       .family = "data parallel",
       .origin = "regatta",
       .summary = "all-reduce each gradient beside backward, and wait for all after it",
       .source = "llm-parallelism-pytorch, simple_ddp_async",
       .data_parallel = {.reduces = true,
                         .launch = LaunchWhen::kGradientsReady,
                         .wait = WaitWhen::kAtFinish},
       .study = StudyWay{.change = FlushEpochs, .gradient_accumulation = 4}},
      {.name = "bucket_ddp_async",
       .family = "data parallel",
       .origin = "regatta",
       .summary = "all-reduce buckets of gradients inside backward, as soon as each is full",
       .source = "Li et al. 2020, PyTorch Distributed, section 3.2.3",
       .data_parallel = {.reduces = true,
                         .launch = LaunchWhen::kGradientsReady,
                         .wait = WaitWhen::kAtFinish},
       .params = {kBucketMib},
       .study = StudyWay{.change = FlushEpochs, .gradient_accumulation = 4}},
      {.name = "pytorch_ddp",
       .family = "data parallel",
       .origin = "libtorch",
       .summary = "LibTorch's own reducer: a small first bucket, buckets rebuilt after a step",
       .source = "torch/csrc/distributed/c10d/reducer.cpp; Li et al. 2020",
       .data_parallel = {.reduces = true,
                         .launch = LaunchWhen::kGradientsReady,
                         .wait = WaitWhen::kAtFinish,
                         .native = true},
       .params = {kBucketMib, kFirstBucketMib, kBucketView, kCompression},
       .study = StudyWay{}},
      {.name = "data_parallel",
       .family = "data parallel",
       .origin = "regatta",
       .summary = "bucket, launch and wait as you like: the rows above are some of its settings",
       .source = "",
       .data_parallel = {.reduces = true},
       .params = {kBucket, kLaunch, kWait}},
      {.name = "baseline",
       .family = "sharded",
       .origin = "regatta",
       .summary = "nothing sharded: what zero1 to zero3 are compared with",
       .source = "llm-parallelism-pytorch, baseline",
       .data_parallel = {.reduces = true},
       .study = StudyWay{}},
      {.name = "zero1",
       .family = "sharded",
       .origin = "regatta",
       .summary = "optimizer states in slices; parameters are gathered after the step",
       .source = "Rajbhandari et al. 2020, ZeRO, section 5.1",
       .sharded = ShardedPlan{},
       .params = {kUnit},
       .study = StudyWay{.change = StudyZero1}},
      {.name = "zero2",
       .family = "sharded",
       .origin = "regatta",
       .summary = "zero1, and of gradients each rank keeps its slice alone",
       .source = "Rajbhandari et al. 2020, ZeRO, section 5.2",
       .sharded = ShardedPlan{.gradients_sharded = true},
       .params = {kUnit, kAccumulate},
       .study = StudyWay{.change = StudyZero2}},
      {.name = "zero3",
       .family = "sharded",
       .origin = "regatta",
       .summary = "zero2, and parameters are gathered for each block's forward and backward",
       .source = "Rajbhandari et al. 2020, ZeRO, section 5.3",
       .sharded = ShardedPlan{.gradients_sharded = true,
                              .parameters_sharded = true,
                              .reshard_after_forward = true},
       .params = {kUnit, kPrefetch, kAccumulate},
       .study = StudyWay{.change = StudyZero3}},
      {.name = "pytorch_zero1",
       .family = "sharded",
       .origin = "after PyTorch",
       .summary = "LibTorch's reducer; each parameter is updated by one rank and broadcast",
       .source = "torch/distributed/optim/zero_redundancy_optimizer.py",
       .data_parallel = {.reduces = true,
                         .launch = LaunchWhen::kGradientsReady,
                         .wait = WaitWhen::kAtFinish,
                         .native = true,
                         .owners = Owners::kBySize},
       .params = {kBucketMib, kFirstBucketMib, kBucketView},
       .study = StudyWay{}},
      {.name = "pytorch_zero2",
       .family = "sharded",
       .origin = "after PyTorch",
       .summary = "fully_shard of each layer and the root, parameters kept until backward is done",
       .source = "torch/distributed/fsdp/_fully_shard",
       .sharded = ShardedPlan{.unit = UnitKind::kRootAndLayers,
                              .slices = SliceKind::kRows,
                              .gradients_sharded = true,
                              .parameters_sharded = true,
                              .prefetch = 1,
                              .emulated_reduce_scatter = true},
       .params = {kAccumulate},
       .study = StudyWay{}},
      {.name = "pytorch_zero3",
       .family = "sharded",
       .origin = "after PyTorch",
       .summary = "fully_shard of each layer and the root, parameters gathered again in backward",
       .source = "torch/distributed/fsdp/_fully_shard",
       .sharded = ShardedPlan{.unit = UnitKind::kRootAndLayers,
                              .slices = SliceKind::kRows,
                              .gradients_sharded = true,
                              .parameters_sharded = true,
                              .reshard_after_forward = true,
                              .prefetch = 1,
                              .emulated_reduce_scatter = true},
       .params = {kAccumulate},
       .study = StudyWay{}},
      {.name = "sharded",
       .family = "sharded",
       .origin = "regatta",
       .summary = "what is cut, when it is gathered and reduced as you like",
       .source = "",
       .sharded = ShardedPlan{},
       .params = {kGradients, kParameters, kUnit, kPrefetch, kReshard, kAccumulate}},
      {.name = "naive_pp",
       .family = "pipeline",
       .origin = "regatta",
       .summary = "the whole batch through one stage after another",
       .source = "llm-parallelism-pytorch, naive_pp",
       .pipeline = PipelinePlan{.policy = kNaive},
       .params = {kSplit},
       .study = StudyWay{.change = StudyByHand, .fixed_length = true}},
      {.name = "gpipe_pp",
       .family = "pipeline",
       .origin = "regatta",
       .summary = "all forwards, then all backwards from the last to the first",
       .source = "Huang et al. 2019, GPipe",
       .pipeline = PipelinePlan{.policy = kGpipe},
       .params = {kSplit},
       .study = StudyWay{.change = StudyByHand, .fixed_length = true}},
      {.name = "1f1b_pp",
       .family = "pipeline",
       .origin = "regatta",
       .summary = "a few forwards, then one forward and one backward in turn",
       .source = "Narayanan et al. 2019, PipeDream; with a flush, Narayanan et al. 2021",
       .pipeline = PipelinePlan{.policy = k1f1b},
       .params = {kSplit},
       .study = StudyWay{.change = Study1f1b, .fixed_length = true}},
      {.name = "pytorch_gpipe_pp",
       .family = "pipeline",
       .origin = "after PyTorch",
       .summary = "all forwards, then all backwards from the first to the last",
       .source = "torch/distributed/pipelining/schedules.py, ScheduleGPipe",
       .pipeline = PipelinePlan{.policy = kGpipeInOrder, .waits_at_once = false},
       .params = {kSplit},
       .study = StudyWay{.change = StudyTransfers}},
      {.name = "pytorch_1f1b_pp",
       .family = "pipeline",
       .origin = "after PyTorch",
       .summary = "the program of 1f1b_pp, transfers waited for just before they are needed",
       .source = "torch/distributed/pipelining/schedules.py, Schedule1F1B",
       .pipeline = PipelinePlan{.policy = k1f1b, .waits_at_once = false},
       .params = {kSplit},
       .study = StudyWay{.change = StudyPytorch1f1b}},
      {.name = "interleaved_1f1b_pp",
       .family = "pipeline",
       .origin = "regatta",
       .summary = "1f1b_pp with several stages a rank, so that a rank waits for a shorter one",
       .source = "Narayanan et al. 2021, section 2.2.2; Interleaved1F1B",
       .pipeline = PipelinePlan{.policy = kInterleaved1f1b, .waits_at_once = false},
       .params = {kSplit, kStagesPerRank}},
      {.name = "zb1p_pp",
       .family = "pipeline",
       .origin = "regatta",
       .summary = "1f1b_pp whose gradients of weights wait until a rank has nothing else to do",
       .source = "Qi et al. 2024, Zero Bubble Pipeline Parallelism, ZB-H1",
       .pipeline = PipelinePlan{.policy = kZb1p, .waits_at_once = false},
       .params = {kSplit}},
      {.name = "pipeline",
       .family = "pipeline",
       .origin = "regatta",
       .summary = "program, waits and stages as you like: the rows above are some of its settings",
       .source = "",
       .pipeline = PipelinePlan{.policy = k1f1b},
       .params = {kProgram, kTransferWait, kSplit, kStagesPerRank}},
  };
  return table;
}

const StrategyRow* FindStrategy(const std::string& name) {
  for (const StrategyRow& row : StrategyTable()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::vector<std::pair<std::string, std::string>> DescribePlan(const StrategyPlan& plan) {
  const StrategyRow& row = *FindStrategy(plan.name);
  const DataParallelPlan& how = plan.data_parallel;
  std::vector<std::pair<std::string, std::string>> properties = {
      {"family", std::string(row.family)},
      {"implementation", std::string(row.origin)},
      {"ranks", row.pipeline         ? "2 or more"
                : row.max_ranks == 0 ? "any number"
                                     : std::to_string(row.max_ranks)},
      {"gradient_accumulation", std::to_string(row.gradient_accumulation)}};
  const auto add = [&](const char* name, std::string value) {
    properties.emplace_back(name, std::move(value));
  };
  if (plan.sharded) {
    const ShardedPlan& cut = *plan.sharded;
    add("optimizer states", "sharded");
    add("gradients", NameOf(kShardedOrFull, cut.gradients_sharded));
    add("parameters", NameOf(kShardedOrFull, cut.parameters_sharded));
    add("unit", NameOf(kUnits, cut.unit));
    add("slices", NameOf(kSlices, cut.slices));
    add("reduce-scatter", cut.emulated_reduce_scatter ? "an all-reduce" : "direct");
    if (cut.gradients_sharded) add("accumulate", NameOf(kAccumulates, cut.accumulate));
    if (!cut.parameters_sharded) return properties;
    add("reshard after forward", NameOf(kFlags, cut.reshard_after_forward));
    add("prefetch", std::to_string(cut.prefetch));
    return properties;
  }
  if (plan.pipeline) {
    const PipelinePlan& cut = *plan.pipeline;
    add("program", NameOf(kPrograms, cut.policy));
    add("wait", NameOf(kTransferWaits, cut.waits_at_once));
    add("stages a rank", std::to_string(cut.shape.stages_per_rank));
    add("split", cut.split.kind == SplitKind::kAtCutPoints ? "at cut points"
                                                           : NameOf(kSplits, cut.split.kind));
    add("parameters, gradients, optimizer states", "of the rank's own stages");
    return properties;
  }
  if (!how.reduces) {
    add("gradients", "stay on their rank");
    return properties;
  }
  add("gradients", "all-reduced");
  add("bucket", how.bucket_bytes == 0 ? "each parameter alone" : MebibytesText(how.bucket_bytes));
  add("launch", NameOf(kLaunches, how.launch));
  add("wait", NameOf(kWaits, how.wait));
  if (how.owners != Owners::kNone) add("optimizer states", "each parameter's on one rank");
  if (!how.native) return properties;
  add("first bucket", MebibytesText(how.first_bucket_bytes));
  add("buckets", "rebuilt after a step, in the order in which gradients came");
  add("gradient_as_bucket_view", NameOf(kFlags, how.gradient_as_bucket_view));
  add("compression", NameOf(kCompressions, how.compression));
  return properties;
}

std::variant<StrategyPlan, PlanError> ParseStrategy(const std::string& name,
                                                    const StrategyParams& params,
                                                    const RunShape& shape) {
  const StrategyRow* row = FindStrategy(name);
  if (row == nullptr) {
    std::vector<std::string> names;
    for (const StrategyRow& known : StrategyTable()) names.emplace_back(known.name);
    return PlanError{"unknown strategy '" + name + "'" + SuggestName(name, names)};
  }
  StrategyPlan plan{name, row->data_parallel, row->sharded, row->pipeline};
  for (const StrategyParam& param : row->params) {
    param.apply(std::string(param.default_text), plan);
  }
  for (const auto& [key, text] : params) {
    if (std::string error = ApplyParam(*row, key, text, plan); !error.empty()) {
      return PlanError{std::move(error)};
    }
  }
  if (row->max_ranks != 0 && shape.ranks > row->max_ranks) {
    return PlanError{"strategy '" + name + "' runs on " + std::to_string(row->max_ranks) +
                         " rank, not on " + std::to_string(shape.ranks),
                     /*cannot_run=*/true};
  }
  const char* key = "strategy";
  std::string misfit =
      plan.pipeline ? FitPipeline(*plan.pipeline, shape, &key) : CheckNoPipeline(shape, &key);
  if (misfit.empty() && shape.original) {
    misfit = FollowStudy(*row, shape, plan, &key);
  }
  if (!misfit.empty()) {
    return PlanError{"strategy '" + name + "': " + misfit, /*cannot_run=*/true, key};
  }
  return plan;
}

int64_t ChunksWithRows(const PipelinePlan& plan, int64_t rows) {
  const int64_t parts = plan.shape.micro_batches;
  if (plan.chunk_sizes == ChunkSizes::kEven || rows == 0) return std::min(parts, rows);
  const int64_t full = (rows + parts - 1) / parts;
  return (rows + full - 1) / full;
}

int RowShares(const StrategyPlan& plan, int ranks) {
  return plan.pipeline ? plan.pipeline->replicas : ranks;
}

}  // namespace regatta
