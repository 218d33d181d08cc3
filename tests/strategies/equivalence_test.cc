#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/data_parallel/data_parallel.h"
#include "strategies/plan/predict.h"
#include "tests/testing/nano.h"
#include "tests/testing/train_nano.h"

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
    {"even batches", 12, 1, 32},
    {"uneven batches", 10, 1, 32},  // 5 + 5, 4 + 3 + 3, 3 + 3 + 2 + 2, and a tail of 2 rows
    {"a rank without rows in the tail", 8, 1, 17},
    {"accumulation with an uneven tail", 7, 3, 31},
    {"accumulation of 4, the last batch without rows for some ranks", 8, 4, 26},
};

// Half of the nano model's layers: a test of all rows spends its time in Gloo's calls.
RunSpec TwoLayers(RunSpec spec) {
  std::string& config = spec.model.config_json;
  for (const char* key : {"\"n_layers\": ", "\"num_hidden_layers\": "}) {
    if (const size_t at = config.find(key); at != std::string::npos) {
      config[at + std::string_view(key).size()] = '2';
    }
  }
  return spec;
}

// A bucket of a few parameters, so that nano models fill several.
void UseSmallBuckets(const StrategyRow& row, RunSpec& spec) {
  for (const StrategyParam& param : row.params) {
    if (param.name == "bucket_mib") spec.strategy.params = {{"bucket_mib", "0.1"}};
  }
}

class EveryModelTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(BothModels, EveryModelTest, testing::Values(false, true),
                         [](const auto& test) { return test.param ? "llama" : "distilbert"; });

TEST_P(EveryModelTest, EveryRowOfTheTableEqualsSingle) {
  for (const Shape& shape : kShapes) {
    RunSpec reference_spec = TwoLayers(GetParam() ? NanoLlamaSpec() : NanoSpec());
    reference_spec.steps = 5;
    reference_spec.batch_size = shape.batch_size;
    reference_spec.gradient_accumulation = shape.accumulation;
    reference_spec.dataset.train_rows = shape.train_rows;
    const Trained reference = TrainAsThreads(reference_spec);
    for (const StrategyRow& row : StrategyTable()) {
      for (const int ranks : {1, 2, 3, 4}) {
        if (row.max_ranks != 0 && ranks > row.max_ranks) continue;
        RunSpec spec = reference_spec;
        spec.strategy.name = std::string(row.name);
        spec.ranks = ranks;
        UseSmallBuckets(row, spec);
        SCOPED_TRACE(std::string(row.name) + " on " + std::to_string(ranks) + " ranks, " +
                     shape.what);
        const Trained trained = TrainAsThreads(spec);
        EXPECT_LE(ShareOfTolerance(trained.parameters, reference.parameters), 1);
        ASSERT_EQ(trained.losses.size(), reference.losses.size());
        for (size_t i = 0; i < trained.losses.size(); ++i)
          EXPECT_NEAR(trained.losses[i], reference.losses[i], 2e-6);
      }
    }
  }
}

// ---- the test above is itself tested: each of these must differ by far more than the tolerance
// ----

enum class Bug { kSumInsteadOfMean, kOneParameterLeftOut, kLocalMeans };

class BrokenReducer : public GradReducer {
 public:
  BrokenReducer(Bug bug, std::vector<NamedTensor> parameters, Collectives& world)
      : bug_(bug), parameters_(std::move(parameters)), world_(world) {}
  void Arm() override {}
  void Finish() override {
    const at::NoGradGuard no_grad;
    for (size_t i = bug_ == Bug::kOneParameterLeftOut ? 1 : 0; i < parameters_.size(); ++i) {
      at::Tensor gradient = parameters_[i].tensor.grad();
      world_.AllReduceSum(gradient, Launch::kOnCallersStream).Wait();
      if (bug_ != Bug::kSumInsteadOfMean) gradient.div_(world_.Size());
    }
  }

 private:
  const Bug bug_;
  const std::vector<NamedTensor> parameters_;
  Collectives& world_;
};

double ShareWithBug(Bug bug) {
  RunSpec spec = FiveSteps("simple_ddp", 2);
  spec.batch_size = 7;  // uneven: 4 + 3
  RunSpec single = spec;
  single.strategy.name = "single";
  single.ranks = 1;
  const Trained broken =
      TrainAsThreads(spec, [&](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
        auto reducer =
            std::make_unique<BrokenReducer>(bug, ParametersOf(inputs.model), *inputs.world);
        return std::make_unique<DataParallel>(std::move(inputs), std::move(reducer));
      });
  return ShareOfTolerance(broken.parameters, TrainAsThreads(single).parameters);
}

TEST(EquivalenceTest, PlantedBugsAreCaught) {
  EXPECT_GT(ShareWithBug(Bug::kSumInsteadOfMean), 100);
  EXPECT_GT(ShareWithBug(Bug::kOneParameterLeftOut), 100);
}

TEST(EquivalenceTest, TheReducerOfTheTestIsRightWithoutABug) {
  EXPECT_LE(ShareWithBug(Bug::kLocalMeans), 1) << "else the planted bugs prove nothing";
}

TEST(EquivalenceTest, SimpleDdpCallsOncePerParameterWithItsBytes) {
  const Trained trained = TrainAsThreads(FiveSteps("simple_ddp", 2));
  EXPECT_EQ(trained.traffic.at("all_reduce").calls, 5 * 72);
  EXPECT_EQ(trained.traffic.at("all_reduce").bytes, 5 * 965652);
  EXPECT_EQ(trained.observation.parameter_bytes, 965652);
  EXPECT_EQ(trained.observation.gradient_bytes, 965652);
}

// What is predicted before a run is what its counters show after it.
TEST(EquivalenceTest, CountersEqualThePrediction) {
  for (const StrategyRow& row : StrategyTable()) {
    if (row.max_ranks == 1) continue;
    SCOPED_TRACE(std::string(row.name));
    RunSpec spec = FiveSteps(std::string(row.name), 3);
    spec.batch_size = 12;
    UseSmallBuckets(row, spec);
    const Trained trained = TrainAsThreads(spec);
    const auto plan = ParseStrategy(spec.strategy.name, spec.strategy.params, {.ranks = 3});
    PredictionInputs inputs{.elements = {}, .ranks = 3};
    for (const at::Tensor& parameter : trained.parameters) {
      inputs.elements.push_back(parameter.numel());
    }
    const Prediction predicted = Predict(std::get<StrategyPlan>(plan), inputs);
    EXPECT_EQ(trained.traffic.at("all_reduce").calls, 5 * predicted.calls_per_step);
    EXPECT_EQ(trained.traffic.at("all_reduce").bytes, 5 * predicted.payload_bytes_per_step);
    EXPECT_EQ(trained.observation.parameter_bytes, predicted.parameter_bytes);
    EXPECT_EQ(trained.observation.gradient_bytes, predicted.gradient_bytes);
    EXPECT_EQ(trained.observation.optimizer_bytes, predicted.optimizer_bytes);
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
  const auto strategy = FromTable(
      NanoSpec(),
      {std::move(model), nullptr, MakeOptimizerFactory(NanoSpec().optimizer), &observation});
  Batch batch{at::ones({2, 3}, at::kLong),
              at::full({2}, 3, at::kLong),
              at::zeros({2}, at::kLong),
              2,
              6,
              {}};
  try {
    (void)strategy->ComputeGradients({batch});
    FAIL();
  } catch (const c10::Error& e) {
    EXPECT_THAT(e.what_without_backtrace(), HasSubstr("parameter forgotten got no gradient"));
  }
}

TEST(CollectivesTest, StridedTensorsAreRefused) {
  EXPECT_THROW(
      RunRanks(1,
               [](Collectives& world) {
                 (void)world.AllReduceSum(at::ones({4, 4}).t().slice(0, 0, 2), Launch::kBeside);
               }),
      c10::Error);
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
