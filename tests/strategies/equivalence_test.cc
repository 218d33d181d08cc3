#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "strategies/clipping.h"
#include "strategies/collectives/agreement.h"
#include "strategies/data_parallel/data_parallel.h"
#include "strategies/plan/predict.h"
#include "strategies/sharded/sharded.h"
#include "strategies/weights.h"
#include "tests/testing/nano.h"
#include "tests/testing/train_nano.h"
#include "worker/shapes/model_shapes.h"

namespace regatta {
namespace {

using testing::HasSubstr;

// Five SGD steps; Adam would hide a wrong scale.
RunSpec FiveSteps(const std::string& strategy, int ranks) {
  RunSpec spec = NanoSpec();
  spec.strategy.name = strategy;
  spec.ranks = ranks;
  spec.steps = 5;
  return spec;
}

struct Shape {
  const char* what;
  int64_t batch_size;
  int64_t accumulation;
  int64_t train_rows;
};
constexpr Shape kShapes[] = {
    {"even batches", 12, 1, 60},
    {"uneven batches", 10, 1, 32},  // 5 + 5, 4 + 3 + 3, 3 + 3 + 2 + 2, and a tail of 2 rows
    {"a rank without rows in the tail", 8, 1, 17},
    {"accumulation of 4", 12, 4, 48},
    {"accumulation of 4, the last batch without rows for some ranks", 7, 4, 26},
};
constexpr double kClipNorms[] = {0, 0.5};  // the nano models' gradients are around 1

// One of the nano model's layers: a test of all rows spends its time in Gloo's calls.
RunSpec OneLayer(RunSpec spec) {
  std::string& config = spec.model.config_json;
  for (const char* key : {"\"n_layers\": ", "\"num_hidden_layers\": "}) {
    if (const size_t at = config.find(key); at != std::string::npos) {
      config[at + std::string_view(key).size()] = '1';
    }
  }
  return spec;
}

// Rows whose ranks each have a part of the batch; pipelines: pipeline_equivalence_test.cc.
bool SharesRows(const StrategyRow& row) { return row.max_ranks != 1 && !row.pipeline; }

// Buckets of a few parameters, so that nano models fill several.
void UseSmallBuckets(const StrategyRow& row, RunSpec& spec) {
  for (const StrategyParam& param : row.params) {
    if (param.name == "bucket_mib") spec.strategy.params.emplace_back("bucket_mib", "0.1");
    if (param.name == "first_bucket_mib") {
      spec.strategy.params.emplace_back("first_bucket_mib", "0.02");
    }
  }
}

// A row's settings that the walk tries beside its defaults.
std::vector<StrategyParams> VariantsOf(const StrategyRow& row, int64_t accumulation) {
  std::vector<StrategyParams> variants = {{}};
  for (const StrategyParam& param : row.params) {
    if (param.name == "accumulate" && accumulation > 1)
      variants.push_back({{"accumulate", "full"}});
  }
  if (row.name == "sharded") {
    variants.push_back({{"gradients", "full"}, {"reshard", "false"}, {"prefetch", "0"}});
    variants.push_back({{"parameters", "full"}, {"unit", "model"}});
    variants.push_back({{"unit", "model"}, {"prefetch", "3"}});
  }
  return variants;
}

RunSpec SpecOf(const StrategyRow& row, int ranks, const RunSpec& base) {
  RunSpec spec = base;
  spec.strategy.name = std::string(row.name);
  spec.ranks = ranks;
  UseSmallBuckets(row, spec);
  return spec;
}

RunSpec SpecOf(const Shape& shape, double clip_norm, bool llama) {
  RunSpec spec = OneLayer(llama ? NanoLlamaSpec() : NanoSpec());
  spec.steps = 5;
  spec.batch_size = shape.batch_size;
  spec.gradient_accumulation = shape.accumulation;
  spec.dataset.train_rows = shape.train_rows;
  spec.clip_norm = clip_norm;
  return spec;
}

// Of two models (false: DistilBERT, true: Llama) and the shapes above.
class EveryRowTest : public testing::TestWithParam<std::tuple<bool, size_t>> {};
INSTANTIATE_TEST_SUITE_P(Walk, EveryRowTest,
                         testing::Combine(testing::Bool(),
                                          testing::Range<size_t>(0, std::size(kShapes))),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) ? "llama" : "distilbert") +
                                  "_shape" + std::to_string(std::get<1>(test.param));
                         });

TEST_P(EveryRowTest, EqualsSingle) {
  const auto [llama, number] = GetParam();
  const Shape& shape = kShapes[number];
  for (const double clip_norm : kClipNorms) {
    const RunSpec reference_spec = SpecOf(shape, clip_norm, llama);
    const Trained reference = TrainAsThreads(reference_spec);
    for (const StrategyRow& row : StrategyTable()) {
      for (const int ranks : {1, 2, 3, 4}) {
        if (row.pipeline || (row.max_ranks != 0 && ranks > row.max_ranks)) continue;
        for (const StrategyParams& variant : VariantsOf(row, shape.accumulation)) {
          RunSpec spec = SpecOf(row, ranks, reference_spec);
          std::string what(row.name);
          for (const auto& [name, text] : variant) {
            spec.strategy.params.emplace_back(name, text);
            what += " " + name + "=" + text;
          }
          SCOPED_TRACE(what + " on " + std::to_string(ranks) + " ranks, " + shape.what +
                       ", clip_norm " + std::to_string(clip_norm));
          const Trained trained = TrainAsThreads(spec);
          EXPECT_LE(ShareOfTolerance(trained.parameters, reference.parameters), 1);
          ASSERT_EQ(trained.losses.size(), reference.losses.size());
          for (size_t i = 0; i < trained.losses.size(); ++i)
            EXPECT_NEAR(trained.losses[i], reference.losses[i], 2e-6);
        }
      }
    }
  }
}

// Masks belong to rows: every rank drops what the one rank alone drops.
class EveryRowDropsTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Walk, EveryRowDropsTest, testing::Bool());

TEST_P(EveryRowDropsTest, EqualsSingle) {
  RunSpec spec = SpecOf(kShapes[4], 0, GetParam());
  spec.dropout = true;
  const Trained reference = TrainAsThreads(spec);
  RunSpec dry = spec;
  dry.dropout = false;
  EXPECT_GT(ShareOfTolerance(TrainAsThreads(dry).parameters, reference.parameters), 100);
  for (const StrategyRow& row : StrategyTable()) {
    if (!SharesRows(row)) continue;
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(std::string(row.name) + " on " + std::to_string(ranks) + " ranks");
      const Trained trained = TrainAsThreads(SpecOf(row, ranks, spec));
      EXPECT_LE(ShareOfTolerance(trained.parameters, reference.parameters), 1);
    }
  }
}

// Clipping must have happened above: without it, parameters end elsewhere.
TEST(EquivalenceTest, ClippingChangesTheResult) {
  const Trained clipped = TrainAsThreads(SpecOf(kShapes[0], kClipNorms[1], false));
  const Trained free = TrainAsThreads(SpecOf(kShapes[0], 0, false));
  EXPECT_GT(ShareOfTolerance(clipped.parameters, free.parameters), 100);
}

// Rows differ in when they do the same sums: with two ranks a + b is b + a, and halving is exact.
// Two sums are not the same where gradients are in slices: the norm that clips, and several
// batches.
TEST(EquivalenceTest, AllRowsAreBitEqualOnTwoRanks) {
  for (const bool llama : {false, true}) {
    for (const bool plain : {true, false}) {
      const size_t shape = plain ? 0 : 3;
      std::vector<at::Tensor> first;
      for (const StrategyRow& row : StrategyTable()) {
        if (!SharesRows(row) || (!plain && row.sharded)) continue;
        const Trained trained = TrainAsThreads(
            SpecOf(row, 2, SpecOf(kShapes[shape], kClipNorms[plain ? 0 : 1], llama)));
        if (first.empty()) first = trained.parameters;
        for (size_t i = 0; i < first.size(); ++i) {
          EXPECT_TRUE(at::equal(trained.parameters[i], first[i]))
              << row.name << ", parameter " << i << ", " << kShapes[shape].what;
        }
      }
    }
  }
}

// ---- the test above is itself tested: each of these must differ by far more than the tolerance
// ----

enum class Bug {
  kNone,
  kSumInsteadOfMean,
  kOneParameterLeftOut,
  kNotCopiedBack,
  kOrderDiffers,
  kClippedPerRank
};

class BrokenReducer : public GradReducer {
 public:
  BrokenReducer(Bug bug, std::vector<NamedTensor> parameters, Collectives& world)
      : bug_(bug), parameters_(std::move(parameters)), world_(world) {}
  void Arm() override {}
  Reduction Finish() override {
    const at::NoGradGuard no_grad;
    if (bug_ == Bug::kClippedPerRank) {
      std::vector<at::Tensor> gradients;
      for (const NamedTensor& parameter : parameters_) gradients.push_back(parameter.tensor.grad());
      ClipGradients(gradients, 0.5);
    }
    for (size_t i = bug_ == Bug::kOneParameterLeftOut ? 1 : 0; i < parameters_.size(); ++i) {
      at::Tensor gradient = parameters_[Place(i)].tensor.grad();
      if (bug_ == Bug::kNotCopiedBack) gradient = gradient.clone();
      world_.AllReduceSum(gradient, Launch::kOnCallersStream).Wait();
      if (bug_ != Bug::kSumInsteadOfMean) gradient.div_(world_.Size());
    }
    return {};
  }

 private:
  // Two parameters of one shape change places on rank 1: sums of different things, and no error.
  size_t Place(size_t i) const {
    if (bug_ != Bug::kOrderDiffers || world_.Rank() != 1) return i;
    for (size_t j = 0; j < parameters_.size(); ++j) {
      if (parameters_[j].name.ends_with("q_lin.weight") &&
          parameters_[j + 2].name.ends_with("k_lin.weight")) {
        return i == j ? j + 2 : i == j + 2 ? j : i;
      }
    }
    return i;
  }

  const Bug bug_;
  const std::vector<NamedTensor> parameters_;
  Collectives& world_;
};

double ShareWithBug(Bug bug) {
  RunSpec spec = FiveSteps("simple_ddp", 2);
  spec.batch_size = 7;  // uneven: 4 + 3
  if (bug == Bug::kClippedPerRank) spec.clip_norm = 0.5;
  RunSpec single = spec;
  single.strategy.name = "single";
  single.ranks = 1;
  const Trained broken =
      TrainAsThreads(spec, [&](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
        auto reducer =
            std::make_unique<BrokenReducer>(bug, ParametersOf(inputs.model), *inputs.world);
        LoadWeights(inputs.model);
        return std::make_unique<DataParallel>(spec.strategy.name, DataParallelPlan{},
                                              std::move(inputs), std::move(reducer));
      });
  return ShareOfTolerance(broken.parameters, TrainAsThreads(single).parameters);
}

// Layers that go forward again give the same gradients to the last bit, under every row.
TEST(EquivalenceTest, RecomputedLayersAreTheSame) {
  for (const RunSpec& model : {NanoSpec(), NanoLlamaSpec()}) {
    for (const StrategyRow& row : StrategyTable()) {
      SCOPED_TRACE(std::string(row.name));
      RunSpec spec = model;
      spec.strategy.name = std::string(row.name);
      spec.ranks = row.max_ranks == 1 ? 1 : 2;
      spec.batch_size = 7;
      spec.steps = 3;
      spec.dropout = true;
      const Trained kept = TrainAsThreads(spec);
      spec.recompute = true;
      const Trained recomputed = TrainAsThreads(spec);
      EXPECT_EQ(recomputed.losses, kept.losses);
      for (size_t i = 0; i < kept.parameters.size(); ++i) {
        EXPECT_TRUE(at::equal(recomputed.parameters[i], kept.parameters[i])) << i;
      }
    }
  }
}

TEST(EquivalenceTest, PlantedBugsAreCaught) {
  for (const Bug bug : {Bug::kSumInsteadOfMean, Bug::kOneParameterLeftOut, Bug::kNotCopiedBack,
                        Bug::kOrderDiffers, Bug::kClippedPerRank}) {
    EXPECT_GT(ShareWithBug(bug), 100) << "bug " << static_cast<int>(bug);
  }
}

TEST(EquivalenceTest, TheReducerOfTheTestIsRightWithoutABug) {
  EXPECT_LE(ShareWithBug(Bug::kNone), 1) << "else the planted bugs prove nothing";
}

enum class CutBug {
  kNone,
  kNoGather,
  kWrongSlice,
  kNotReduced,
  kStaleParameters,
  kOverwrittenWhileInUse
};

class BrokenSharded : public Sharded {
 public:
  BrokenSharded(CutBug bug, const char* row, StrategyInputs inputs,
                std::vector<NamedTensor> parameters)
      : Sharded(row, *FindStrategy(row)->sharded, std::move(inputs)),
        bug_(bug),
        parameters_(std::move(parameters)) {}

 protected:
  void Gather(Unit& unit) override {
    if (bug_ != CutBug::kNoGather || unit.FirstBlock() != 1) Sharded::Gather(unit);
  }
  void Release(Unit& unit) override {
    if (bug_ != CutBug::kOverwrittenWhileInUse || unit.FirstBlock() != 1) {
      Sharded::Release(unit);
      return;
    }
    const at::Tensor& tensor = parameters_[unit.Members()[0]].tensor;  // as another unit's gather
    std::fill_n(static_cast<float*>(tensor.mutable_data_ptr()), tensor.numel(), 0.5F);
  }
  void ReduceGradients(Unit& unit) override {
    if (bug_ == CutBug::kNotReduced && unit.FirstBlock() == 1) {
      for (const size_t parameter : unit.Members()) parameters_[parameter].tensor.grad().zero_();
    }
    Sharded::ReduceGradients(unit);
  }
  void SlicesChanged(Unit& unit) override {
    const at::Tensor& shard = unit.Shards()[0];
    if (bug_ == CutBug::kWrongSlice) shard.copy_(shard.roll(1));
    if (bug_ != CutBug::kStaleParameters) Sharded::SlicesChanged(unit);
  }

 private:
  const CutBug bug_;
  const std::vector<NamedTensor> parameters_;
};

double ShareWithBug(CutBug bug, const char* row) {
  const RunSpec spec = FiveSteps(row, 2);
  RunSpec single = spec;
  single.strategy.name = "single";
  single.ranks = 1;
  const Trained broken =
      TrainAsThreads(spec, [&](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
        const bool harmed = bug != CutBug::kNotReduced || inputs.world->Rank() == 1;
        std::vector<NamedTensor> parameters = ParametersOf(inputs.model);
        return std::make_unique<BrokenSharded>(harmed ? bug : CutBug::kNone, row, std::move(inputs),
                                               std::move(parameters));
      });
  return ShareOfTolerance(broken.parameters, TrainAsThreads(single).parameters);
}

TEST(EquivalenceTest, PlantedBugsOfShardedRowsAreCaught) {
  for (const char* row : {"zero1", "zero3"}) EXPECT_LE(ShareWithBug(CutBug::kNone, row), 1);
  EXPECT_GT(ShareWithBug(CutBug::kWrongSlice, "zero1"), 100);
  EXPECT_GT(ShareWithBug(CutBug::kWrongSlice, "zero3"), 100);
  EXPECT_GT(ShareWithBug(CutBug::kNotReduced, "zero2"), 100);
  EXPECT_GT(ShareWithBug(CutBug::kStaleParameters, "zero1"), 100);
  EXPECT_GT(ShareWithBug(CutBug::kOverwrittenWhileInUse, "zero3"), 100);
  try {
    (void)ShareWithBug(CutBug::kNoGather, "zero3");
    FAIL();
  } catch (const c10::Error& e) {
    EXPECT_THAT(e.what_without_backtrace(), HasSubstr("block 1 read while released"));
  }
}

TEST(EquivalenceTest, SimpleDdpCallsOncePerParameterWithItsBytes) {
  const Trained trained = TrainAsThreads(FiveSteps("simple_ddp", 2));
  EXPECT_EQ(trained.traffic.at("all_reduce").calls, 5 * 72);
  EXPECT_EQ(trained.traffic.at("all_reduce").bytes, 5 * 965652);
  EXPECT_EQ(trained.observations[0].parameter_bytes, 965652);
  EXPECT_EQ(trained.observations[0].gradient_bytes, 965652);
}

void ExpectPredicted(const RunSpec& spec, Trained trained) {
  const auto plan = ParseStrategy(spec.strategy.name, spec.strategy.params, {.ranks = spec.ranks});
  PredictionInputs inputs{
      .parameters = ParameterSizes(nlohmann::json::parse(spec.model.config_json)),
      .ranks = spec.ranks,
      .optimizer_tensors = 2,
      .accumulation = spec.gradient_accumulation,
      .clips = spec.clip_norm > 0};
  const Prediction predicted = Predict(std::get<StrategyPlan>(plan), inputs);
  std::map<std::string, double>& summary = trained.summary;
  EXPECT_EQ(summary["calls_per_step"], static_cast<double>(predicted.calls_per_step));
  EXPECT_EQ(summary["payload_bytes_per_step"],
            static_cast<double>(predicted.payload_bytes_per_step));
  EXPECT_NEAR(summary["bytes_sent_per_step"], predicted.sent_bytes_per_step, 0.01);
  for (int rank = 0; rank < spec.ranks; ++rank) {
    inputs.rank = rank;
    const Prediction states = Predict(std::get<StrategyPlan>(plan), inputs);
    const Observation& seen = trained.observations.at(static_cast<size_t>(rank));
    EXPECT_EQ(seen.parameter_bytes, states.parameter_bytes) << "rank " << rank;
    EXPECT_EQ(seen.gradient_bytes, states.gradient_bytes) << "rank " << rank;
    EXPECT_EQ(seen.optimizer_bytes, states.optimizer_bytes) << "rank " << rank;
  }
}

// What is predicted before a run is what its counters show after it.
TEST(EquivalenceTest, CountersEqualThePrediction) {
  for (const StrategyRow& row : StrategyTable()) {
    for (const int ranks : {2, 3, 4}) {
      for (const int64_t accumulation : {1, 4}) {
        for (const StrategyParams& variant : VariantsOf(row, accumulation)) {
          if (!SharesRows(row) || (row.data_parallel.reduces && ranks != 3)) continue;
          RunSpec spec = OneLayer(FiveSteps(std::string(row.name), ranks));
          spec.batch_size = 12;
          spec.gradient_accumulation = accumulation;
          spec.dataset.train_rows = 240;
          spec.optimizer.name = "adamw";
          spec.clip_norm = accumulation > 1 ? 0.5 : 0;
          UseSmallBuckets(row, spec);
          std::string what(row.name);
          for (const auto& [name, text] : variant) {
            spec.strategy.params.emplace_back(name, text);
            what += " " + name + "=" + text;
          }
          SCOPED_TRACE(what + " on " + std::to_string(ranks) + " ranks, accumulation " +
                       std::to_string(accumulation));
          ExpectPredicted(spec, TrainAsThreads(spec));
        }
      }
    }
  }
}

// LibTorch's reducer with its own parameters: views change nothing, compression rounds and halves
// the bytes.
TEST(EquivalenceTest, ParametersOfTheNativeReducer) {
  const RunSpec reference_spec = SpecOf(kShapes[1], 0, false);
  const Trained reference = TrainAsThreads(reference_spec);
  const auto with = [&](const char* name, const char* value) {
    RunSpec spec = SpecOf(*FindStrategy("pytorch_ddp"), 3, reference_spec);
    spec.strategy.params.emplace_back(name, value);
    return TrainAsThreads(spec);
  };
  const Trained views = with("gradient_as_bucket_view", "true");
  EXPECT_LE(ShareOfTolerance(views.parameters, reference.parameters), 1);
  const double bytes = views.summary.at("payload_bytes_per_step");
  for (const char* type : {"fp16", "bf16"}) {
    SCOPED_TRACE(type);
    const Trained compressed = with("compression", type);
    EXPECT_EQ(compressed.summary.at("payload_bytes_per_step"), bytes / 2);
    const double share = ShareOfTolerance(compressed.parameters, reference.parameters);
    EXPECT_GT(share, 1) << "something must have been rounded";
    EXPECT_LT(share, 3000);  // bf16 keeps 8 bits: 5 steps of 0.05 times gradients around 0.1
  }
}

// Overlap is real: collectives begin while backward still works.
TEST(EquivalenceTest, RowsThatLaunchInBackwardDoSo) {
  for (const StrategyRow& row : StrategyTable()) {
    if (!SharesRows(row)) continue;
    SCOPED_TRACE(std::string(row.name));
    const Trained trained = TrainAsThreads(SpecOf(row, 2, SpecOf(kShapes[0], 0, false)));
    const double early = trained.launched_early.back();
    const bool in_backward = row.sharded || row.data_parallel.launch == LaunchWhen::kGradientsReady;
    EXPECT_EQ(early > 0, in_backward) << early;
  }
}

// A block whose second parameter takes no part in the forward.
class ForgetfulBlock : public Block {
 public:
  at::Tensor Forward(const at::Tensor&, const Batch& batch) override {
    return batch.ids.to(at::kFloat).matmul(used_.tensor);
  }
  std::vector<NamedTensor> Parameters() const override { return {used_, forgotten_}; }

 private:
  const NamedTensor used_{"used", at::ones({3, 5}).set_requires_grad(true)};
  const NamedTensor forgotten_{"forgotten", at::ones({2}).set_requires_grad(true)};
};

TEST(EquivalenceTest, AParameterWithoutGradientIsNamedBeforeTheStep) {
  Model model;
  model.prepare = [](Batch&) {};
  model.blocks.push_back(std::make_unique<ForgetfulBlock>());
  Observation observation;
  const auto strategy =
      FromTable(NanoSpec(), {std::move(model), nullptr, nullptr,
                             MakeOptimizerFactory(NanoSpec().optimizer), 0, &observation});
  Batch batch;
  batch.ids = at::ones({2, 3}, at::kLong);
  batch.lengths = at::full({2}, 3, at::kLong);
  batch.labels = at::zeros({2}, at::kLong);
  batch.real_tokens = 6;
  try {
    (void)strategy->ComputeGradients({batch});
    FAIL();
  } catch (const c10::Error& e) {
    EXPECT_THAT(e.what_without_backtrace(), HasSubstr("parameter forgotten got no gradient"));
  }
}

// ---- parameters that are not as usual, on two ranks under every row ----

// A linear layer whose weight is used twice, with a bias of one element.
class SharingBlock : public Block {
 public:
  explicit SharingBlock(bool frozen = false)
      : bias_{"bias", at::full({1}, 0.5).set_requires_grad(!frozen)} {}
  at::Tensor Forward(const at::Tensor& x, const Batch& batch) override {
    const at::Tensor input = x.defined() ? x : batch.ids.to(at::kFloat);
    return input.matmul(weight_.tensor) + bias_.tensor;
  }
  std::vector<NamedTensor> Parameters() const override { return {weight_, bias_}; }
  void ShareWith(const SharingBlock& other) { weight_.tensor = other.weight_.tensor; }

 private:
  NamedTensor weight_{"weight",
                      (at::arange(25, at::kFloat).view({5, 5}) / 50).set_requires_grad(true)};
  NamedTensor bias_;
};

class DoublingBlock : public Block {
 public:
  at::Tensor Forward(const at::Tensor& x, const Batch&) override { return x * 2; }
  std::vector<NamedTensor> Parameters() const override { return {}; }
};

// With a block between them that has no parameters.
Model TiedModel(bool frozen) {
  Model model;
  model.prepare = [](Batch&) {};
  auto first = std::make_unique<SharingBlock>();
  auto second = std::make_unique<SharingBlock>(frozen);
  second->ShareWith(*first);
  model.blocks.push_back(std::move(first));
  model.blocks.push_back(std::make_unique<DoublingBlock>());
  model.blocks.push_back(std::move(second));
  return model;
}

Batch FiveTokens(int64_t first_row, int64_t rows) {
  Batch batch;
  if (rows > 0) {
    batch.ids = at::arange(first_row * 5, (first_row + rows) * 5, at::kLong).view({rows, 5}) % 7;
    batch.lengths = at::full({rows}, 5, at::kLong);
    batch.labels = at::arange(first_row, first_row + rows, at::kLong) % 5;
  }
  return batch;
}

// Two steps, and an evaluation between them in which only one rank has a row.
std::vector<at::Tensor> StepsOfTiedModel(const StrategyRow& row, Collectives* world) {
  Observation observation;
  RunSpec spec = NanoSpec();
  spec.strategy.name = std::string(row.name);
  spec.ranks = world == nullptr ? 1 : world->Size();
  const auto strategy = FromTable(spec, {TiedModel(false), world, nullptr,
                                         MakeOptimizerFactory(spec.optimizer), 0, &observation});
  const int64_t mine = world == nullptr ? 4 : 2;
  const int64_t first = world == nullptr ? 0 : world->Rank() * mine;
  for (const int64_t step : {0, 1}) {
    (void)strategy->ComputeGradients({FiveTokens(first + 4 * step, mine)});
    strategy->ApplyGradients(0.01);
    const Evaluation seen = strategy->Evaluate(FiveTokens(0, first == 0 ? 1 : 0));
    EXPECT_EQ(seen.rows, first == 0 ? 1 : 0);
  }
  return strategy->GatherParameters();
}

TEST(EquivalenceTest, TiedAndOneElementParametersAreRightUnderEveryRow) {
  const std::vector<at::Tensor> reference = StepsOfTiedModel(*FindStrategy("single"), nullptr);
  ASSERT_EQ(reference.size(), 3u) << "the tied weight counts once";
  for (const StrategyRow& row : StrategyTable()) {
    if (!SharesRows(row)) continue;
    RunRanks(2, [&](Collectives& world) {
      const std::vector<at::Tensor> parameters = StepsOfTiedModel(row, &world);
      if (world.Rank() != 0) return;
      EXPECT_LE(ShareOfTolerance(parameters, reference), 1) << row.name;
    });
  }
}

TEST(EquivalenceTest, FrozenAndForgottenParametersAreNamedUnderEveryRow) {
  for (const StrategyRow& row : StrategyTable()) {
    for (const bool frozen : {false, true}) {
      if (!SharesRows(row)) continue;
      std::string sentence;
      RunRanks(2, [&](Collectives& world) {
        Model model;
        if (frozen) {
          model = TiedModel(true);
        } else {
          model.prepare = [](Batch&) {};
          model.blocks.push_back(std::make_unique<ForgetfulBlock>());
        }
        try {
          Observation observation;
          RunSpec spec = NanoSpec();
          spec.strategy.name = std::string(row.name);
          const auto strategy =
              FromTable(spec, {std::move(model), &world, nullptr,
                               MakeOptimizerFactory(spec.optimizer), 0, &observation});
          Batch batch = FiveTokens(0, 2);
          batch.ids = batch.ids.slice(1, 0, frozen ? 5 : 3).contiguous();
          (void)strategy->ComputeGradients({batch});
        } catch (const c10::Error& e) {
          if (world.Rank() == 0) sentence = e.what_without_backtrace();
        }
      });
      EXPECT_THAT(sentence, HasSubstr(frozen ? "parameter bias takes no gradient"
                                             : "parameter forgotten got no gradient"))
          << row.name;
    }
  }
}

TEST(ClippingTest, AsTorchNnUtilsClipGradNorm) {
  std::vector<at::Tensor> gradients = {at::full({1}, 3.0), at::full({1}, 4.0)};
  EXPECT_DOUBLE_EQ(ClipGradients(gradients, 10), 5);
  EXPECT_FLOAT_EQ(gradients[0].item<float>(), 3) << "below the limit nothing changes";
  EXPECT_DOUBLE_EQ(ClipGradients(gradients, 1), 5);
  EXPECT_NEAR(gradients[0].item<double>(), 3 / (5 + 1e-6), 1e-7);
  EXPECT_NEAR(gradients[1].item<double>(), 4 / (5 + 1e-6), 1e-7);
}

class ListedBlock : public Block {
 public:
  explicit ListedBlock(std::vector<NamedTensor> parameters) : parameters_(std::move(parameters)) {}
  at::Tensor Forward(const at::Tensor& x, const Batch&) override { return x; }
  std::vector<NamedTensor> Parameters() const override { return parameters_; }

 private:
  const std::vector<NamedTensor> parameters_;
};

AgreementItems Described(std::vector<NamedTensor> parameters) {
  Model model;
  model.blocks.push_back(std::make_unique<ListedBlock>(std::move(parameters)));
  return DescribeParameters(model);
}

TEST(AgreementTest, RanksThatDifferAreRefusedByTheFirstDifference) {
  const auto sentence = [](const std::function<void(int, AgreementItems&)>& change) {
    std::vector<std::string> sentences(3);
    RunRanks(3, [&](Collectives& world) {
      AgreementItems items =
          Described({{"weight", at::ones({2, 3})}, {"bias", at::zeros({3}, at::kFloat)}});
      change(world.Rank(), items);
      try {
        CheckAgreement(items, world);
      } catch (const c10::Error& e) {
        sentences[static_cast<size_t>(world.Rank())] = e.what_without_backtrace();
      }
    });
    EXPECT_EQ(sentences[0], sentences[1]);
    EXPECT_EQ(sentences[0], sentences[2]);
    return sentences[0];
  };
  EXPECT_EQ(sentence([](int, AgreementItems&) {}), "");
  EXPECT_THAT(
      sentence([](int rank, AgreementItems& items) {
        if (rank == 2) items = Described({{"weight", at::ones({3, 2})}});
      }),
      testing::MatchesRegex("ranks differ: parameter weight is .3, 2. Float with hash .* on "
                            "rank 2, .2, 3. Float with hash .* on rank 0; all ranks .*"));
  EXPECT_THAT(sentence([](int rank, AgreementItems& items) {
                if (rank == 1) items.pop_back();
              }),
              HasSubstr("parameter bias is missing on rank 1, rank 0 has it"));
  EXPECT_THAT(sentence([](int rank, AgreementItems& items) {
                if (rank == 1) std::swap(items[0], items[1]);
              }),
              HasSubstr("in the place of parameter weight there is parameter bias on rank 1"));
  EXPECT_THAT(sentence([](int rank, AgreementItems& items) {
                if (rank == 0) items = Described({{"weight", at::zeros({2, 3})}});
              }),
              HasSubstr("parameter weight is [2, 3] Float with hash"));
}

// Compares what ranks have called after each step.
class SameCallsEachStep : public Strategy {
 public:
  SameCallsEachStep(std::unique_ptr<Strategy> strategy, Collectives& world)
      : strategy_(std::move(strategy)), world_(world) {}
  LossSum ComputeGradients(const std::vector<Batch>& batches) override {
    return strategy_->ComputeGradients(batches);
  }
  ToldAtEnd Drain() override { return strategy_->Drain(); }
  void ApplyGradients(double learning_rate) override {
    strategy_->ApplyGradients(learning_rate);
    world_.CheckSameCalls();
  }
  Evaluation Evaluate(const Batch& batch) override { return strategy_->Evaluate(batch); }
  std::vector<at::Tensor> GatherParameters() override { return strategy_->GatherParameters(); }

 private:
  const std::unique_ptr<Strategy> strategy_;
  Collectives& world_;
};

TEST(CollectivesTest, StridedTensorsAreRefused) {
  EXPECT_THROW(
      RunRanks(1,
               [](Collectives& world) {
                 (void)world.AllReduceSum(at::ones({4, 4}).t().slice(0, 0, 2), Launch::kBeside);
               }),
      c10::Error);
}

TEST(CollectivesTest, ReduceScatterGivesEachRankItsPartOfTheSum) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const ReduceScatter how : {ReduceScatter::kDirect, ReduceScatter::kEmulated}) {
      RunRanks(ranks, [&](Collectives& world) {
        const auto values = [&](int rank) {
          return at::arange(5 * ranks, at::kFloat) * (rank + 1) + 0.25 * rank;
        };
        const at::Tensor input = values(world.Rank());
        const at::Tensor before = input.clone();
        at::Tensor output = at::empty({5});
        world.ReduceScatterSum(input, output, how).Wait();
        at::Tensor expected = at::zeros({5 * ranks});
        for (int rank = 0; rank < ranks; ++rank) expected += values(rank);
        EXPECT_TRUE(at::equal(output, expected.slice(0, 5 * world.Rank(), 5 * world.Rank() + 5)))
            << ranks << " ranks, rank " << world.Rank();
        const bool direct = how == ReduceScatter::kDirect;
        EXPECT_TRUE(!direct || at::equal(input, before)) << "the input is left alone";
        const Traffic& traffic = world.Counted().at(direct ? "reduce_scatter" : "all_reduce");
        EXPECT_EQ(traffic.calls, 1);
        EXPECT_EQ(traffic.bytes, 20 * ranks);
        EXPECT_EQ(world.Counted().size(), 1u) << "transfers inside are not counted twice";
        EXPECT_THROW((void)world.ReduceScatterSum(input, at::empty({4}), how), c10::Error);
      });
    }
  }
}

// Within one buffer, two at a time, waited for in the other order.
TEST(CollectivesTest, ExchangesWorkInPlaceAndTogether) {
  for (const int ranks : {1, 2, 3, 4}) {
    RunRanks(ranks, [&](Collectives& world) {
      const auto mine_of = [&](const at::Tensor& all) {
        return all.narrow(0, 3 * world.Rank(), 3);
      };
      const at::Tensor summed = at::arange(3 * ranks, at::kFloat) + world.Rank();
      const at::Tensor gathered = at::full({3 * ranks}, -1.0F);
      mine_of(gathered).fill_(world.Rank());
      PendingWork reduction =
          world.ReduceScatterSum(summed, mine_of(summed), ReduceScatter::kDirect);
      PendingWork gather = world.AllGatherInto(gathered, mine_of(gathered));
      gather.Wait();
      reduction.Wait();
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(gathered[3 * rank + 1].item<float>(), static_cast<float>(rank));
      }
      const double of_ranks = ranks * (ranks - 1) / 2.0;
      EXPECT_EQ(mine_of(summed)[1].item<double>(), ranks * (3 * world.Rank() + 1) + of_ranks);
      EXPECT_EQ(world.Counted().at("all_gather").bytes, 12);
    });
  }
}

TEST(CollectivesTest, BroadcastGivesTheRootsValues) {
  RunRanks(3, [](Collectives& world) {
    const at::Tensor tensor = at::full({7}, static_cast<float>(world.Rank()));
    world.Broadcast(tensor, 2, Launch::kBeside).Wait();
    EXPECT_TRUE(at::equal(tensor, at::full({7}, 2.0F)));
  });
}

// A ring in which each rank sends before it receives: single blocking transfers would hang.
TEST(CollectivesTest, TransfersOfABatchDoNotWaitForEachOther) {
  RunRanks(3, [](Collectives& world) {
    const int next = (world.Rank() + 1) % 3;
    const int previous = (world.Rank() + 2) % 3;
    const at::Tensor out = at::full({1 << 20}, static_cast<float>(world.Rank()));
    at::Tensor in = at::empty({1 << 20});
    for (PendingWork& work :
         world.StartTransfers({{Transfer::Direction::kSend, out, next, 4},
                               {Transfer::Direction::kReceive, in, previous, 4}})) {
      work.Wait();
    }
    EXPECT_EQ(in[12345].item<float>(), static_cast<float>(previous));
    EXPECT_EQ(world.Counted().at("send").bytes, 4 << 20);
  });
}

TEST(CollectivesTest, WhatNcclRefusesIsRefused) {
  const auto sentence = [](int ranks, const std::function<void(Collectives&)>& body) {
    std::string said;
    RunRanks(ranks, [&](Collectives& world) {
      world.Group()->SetRules(Rules::kNccl);
      try {
        body(world);
      } catch (const c10::Error& e) {
        if (world.Rank() == 0) said = e.what_without_backtrace();
      }
    });
    return said;
  };
  const at::Tensor tensor = at::ones({4});
  EXPECT_THAT(sentence(2,
                       [&](Collectives& world) {
                         world.Connect({1 - world.Rank()});
                         (void)world.StartTransfers({{Transfer::Direction::kSend, tensor, 1, 7}});
                       }),
              HasSubstr("a transfer with tag 7; NCCL has no tags"));
  EXPECT_THAT(sentence(3,
                       [&](Collectives& world) {
                         (void)world.StartTransfers({{Transfer::Direction::kSend, tensor, 1, 0}});
                       }),
              HasSubstr("a transfer before all ranks have made their first together"));
  EXPECT_THAT(
      sentence(
          2,
          [&](Collectives& world) {
            world.Connect({1 - world.Rank()});
            (void)world.StartTransfers({{Transfer::Direction::kSend, at::ones({4, 4}).t(), 1, 0}});
          }),
      HasSubstr("send of a tensor with strides"));
  EXPECT_THAT(
      sentence(2,
               [&](Collectives& world) {
                 const at::Tensor a = at::ones({8});
                 const at::Tensor b = at::ones({8}, at::kDouble);
                 world.AllReduceSum(a, Launch::kBeside).Wait();
                 world.CheckSameCalls();
                 // One all-reduce more on rank 0; Gloo would wait, or add the wrong things.
                 world.Group()->Count("all_reduce", {world.Rank() == 0 ? a : b});
                 world.CheckSameCalls();
               }),
      HasSubstr("ranks differ: call 0 is all_reduce of 64 bytes on rank 1, all_reduce of 32 "
                "bytes on rank 0"));
}

// Every row keeps to what NCCL asks for.
TEST(CollectivesTest, NoRowDoesWhatNcclRefuses) {
  for (const StrategyRow& row : StrategyTable()) {
    if (!SharesRows(row)) continue;
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(std::string(row.name) + " on " + std::to_string(ranks) + " ranks");
      const RunSpec spec = SpecOf(row, ranks, SpecOf(kShapes[2], kClipNorms[1], false));
      TrainAsThreads(spec, [&](StrategyInputs inputs) {
        inputs.world->Group()->SetRules(Rules::kNccl);
        Collectives& world = *inputs.world;
        return std::unique_ptr<Strategy>(
            std::make_unique<SameCallsEachStep>(FromTable(spec, std::move(inputs)), world));
      });
    }
  }
}

TEST(CollectivesTest, ALostPeerIsACollectiveErrorNamingTheCall) {
  std::string error;
  RunRanks(2, [&](Collectives& world) {
    if (world.Rank() == 1) return;  // its connections close
    try {
      world.AllReduceSum(at::ones({1000}), Launch::kOnCallersStream).Wait();
    } catch (const c10::DistBackendError& e) {
      error = e.what_without_backtrace();
    }
  });
  EXPECT_THAT(error, HasSubstr("all_reduce of 4000 bytes failed"));
}

}  // namespace
}  // namespace regatta
