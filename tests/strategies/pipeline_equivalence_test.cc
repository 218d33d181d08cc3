#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "strategies/pipeline/pipeline.h"
#include "strategies/plan/predict.h"
#include "tests/testing/nano.h"
#include "tests/testing/pipeline_rows.h"
#include "tests/testing/train_nano.h"
#include "worker/shapes/model_shapes.h"

namespace regatta {
namespace {

constexpr int64_t kNanoWidth = 64;

// Eight instead of four, for several stages on each of four ranks.
RunSpec Deep(RunSpec spec) {
  std::string& config = spec.model.config_json;
  for (const char* key : {"\"n_layers\": 4", "\"num_hidden_layers\": 4"}) {
    if (const size_t at = config.find(key); at != std::string::npos) {
      config[at + std::string_view(key).size() - 1] = '8';
    }
  }
  return spec;
}

// Five SGD steps over batches of 14 rows and one of 1: micro-batches are uneven and some have no
// rows, as has a second replica.
RunSpec FiveSteps(bool llama) {
  RunSpec spec = llama ? NanoLlamaSpec() : NanoSpec();
  spec.steps = 5;
  spec.epochs = 2;
  spec.batch_size = 14;
  spec.dataset.train_rows = 29;
  return spec;
}

RunSpec Pipelined(RunSpec spec, const std::string& strategy, int stages, int micro_batches,
                  int replicas = 1) {
  spec.strategy.name = strategy;
  spec.ranks = stages * replicas;
  spec.data_parallel = replicas;
  spec.micro_batches = micro_batches;
  return spec;
}

void ExpectEqual(const Trained& trained, const Trained& reference) {
  EXPECT_LE(ShareOfTolerance(trained.parameters, reference.parameters), 1);
  ASSERT_EQ(trained.losses.size(), reference.losses.size());
  for (size_t i = 0; i < trained.losses.size(); ++i) {
    EXPECT_NEAR(trained.losses[i], reference.losses[i], 2e-6);
  }
}

class PipelineWalkTest : public testing::TestWithParam<std::tuple<bool, size_t>> {};
INSTANTIATE_TEST_SUITE_P(Walk, PipelineWalkTest,
                         testing::Combine(testing::Bool(),
                                          testing::Range<size_t>(0, PipelineRows().size())),
                         [](const auto& test) {
                           std::string name(PipelineRows()[std::get<1>(test.param)].name);
                           return (std::get<0>(test.param) ? "llama_" : "distilbert_") + name;
                         });

TEST_P(PipelineWalkTest, EveryShapeEqualsSingle) {
  const auto [llama, index] = GetParam();
  const StrategyRow row = PipelineRows()[index];
  const SchedulePolicy& policy = row.pipeline->policy;
  const RunSpec spec = policy.Interleaves() ? Deep(FiveSteps(llama)) : FiveSteps(llama);
  const Trained reference = TrainAsThreads(spec);
  int tried = 0;
  for (const int stages : {2, 3, 4}) {
    for (const int micro_batches : {1, 2, 4, 7}) {
      const PipelineShape shape{stages, policy.StagesPerRank(), micro_batches};
      if (!CheckShape(policy, shape).empty()) continue;
      for (const int replicas : {1, 2}) {
        SCOPED_TRACE(std::to_string(stages) + " ranks, " + std::to_string(micro_batches) +
                     " micro-batches, " + std::to_string(replicas) + " replicas");
        ExpectEqual(
            TrainAsThreads(Pipelined(spec, std::string(row.name), stages, micro_batches, replicas)),
            reference);
        ++tried;
      }
    }
  }
  EXPECT_EQ(tried, policy.whole_batch ? 6 : policy.Interleaves() ? 20 : 24);
}

TEST_P(PipelineWalkTest, DropoutDependsOnNoPartition) {
  const auto [llama, index] = GetParam();
  const StrategyRow row = PipelineRows()[index];
  const SchedulePolicy& policy = row.pipeline->policy;
  RunSpec spec = policy.Interleaves() ? Deep(FiveSteps(llama)) : FiveSteps(llama);
  const Trained dry = TrainAsThreads(spec);
  spec.dropout = true;
  const Trained reference = TrainAsThreads(spec);
  EXPECT_GT(ShareOfTolerance(dry.parameters, reference.parameters), 100);
  for (const int stages : {2, 4}) {
    for (const int micro_batches : {policy.whole_batch ? 1 : 4, 1}) {
      for (const int replicas : {1, 2}) {
        SCOPED_TRACE(std::to_string(stages) + " ranks, " + std::to_string(micro_batches) +
                     " micro-batches, " + std::to_string(replicas) + " replicas");
        ExpectEqual(
            TrainAsThreads(Pipelined(spec, std::string(row.name), stages, micro_batches, replicas)),
            reference);
      }
    }
  }
}

TEST(PipelineTest, EverySplitEqualsSingle) {
  const RunSpec spec = FiveSteps(false);
  const Trained reference = TrainAsThreads(spec);
  for (const char* split : {"even", "by_parameters", "by_time", "[1, 2]", "[4, 5]"}) {
    SCOPED_TRACE(split);
    RunSpec cut = Pipelined(spec, "pipeline", 3, 4);
    cut.strategy.params = {{"split", split}, {"program", "zb1p"}};
    ExpectEqual(TrainAsThreads(cut), reference);
  }
}

TEST(PipelineTest, ClippingAndAccumulationEqualSingle) {
  RunSpec spec = FiveSteps(false);
  spec.clip_norm = 0.5;
  spec.gradient_accumulation = 2;
  spec.dataset.train_rows = 50;
  spec.epochs = 3;
  const Trained reference = TrainAsThreads(spec);
  for (const int replicas : {1, 2}) {
    for (const char* row : {"1f1b_pp", "zb1p_pp"}) {
      SCOPED_TRACE(row);
      ExpectEqual(TrainAsThreads(Pipelined(spec, row, 3, 4, replicas)), reference);
    }
  }
}

// The tests above are themselves tested.
TEST(PipelineTest, AMicroBatchLeftOutIsSeen) {
  const RunSpec spec = Pipelined(FiveSteps(false), "gpipe_pp", 2, 4);
  const Trained broken =
      TrainAsThreads(spec, [&](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
        PipelineInputs pipeline = PlanPipeline(PlanOf(spec).pipeline.value(), inputs);
        for (auto& actions : pipeline.program) {
          std::erase_if(actions, [](const Action& action) { return action.micro_batch == 3; });
        }
        return std::make_unique<Pipeline>(std::move(pipeline), std::move(inputs));
      });
  EXPECT_GT(ShareOfTolerance(broken.parameters, TrainAsThreads(FiveSteps(false)).parameters), 100);
}

// Each rank keeps its stages alone; forward and back, each activation and its gradient cross each
// boundary once. What is predicted is what is counted.
TEST(PipelineTest, CountersEqualThePrediction) {
  for (const StrategyRow& row : PipelineRows()) {
    for (const int replicas : {1, 2}) {
      for (const bool clips : {false, true}) {
        RunSpec spec = Pipelined(NanoSpec(), std::string(row.name), 2, 0, replicas);
        spec.optimizer.name = "adamw";
        spec.clip_norm = clips ? 0.5 : 0;
        spec.gradient_accumulation = clips ? 2 : 1;
        spec.steps = 4;
        spec.dataset.train_rows = 64;
        SCOPED_TRACE(std::string(row.name) + ", " + std::to_string(replicas) + " replicas");
        Trained trained = TrainAsThreads(spec);
        PredictionInputs inputs{
            .parameters = ParameterSizes(nlohmann::json::parse(spec.model.config_json)),
            .ranks = spec.ranks,
            .optimizer_tensors = 2,
            .accumulation = spec.gradient_accumulation,
            .clips = clips,
            .batch_rows = spec.batch_size,
            .padded_length = spec.padded_length,
            .width = kNanoWidth};
        const StrategyPlan plan = PlanOf(spec);
        const Prediction predicted = Predict(plan, inputs);
        std::map<std::string, double>& summary = trained.summary;
        EXPECT_EQ(summary["calls_per_step"], static_cast<double>(predicted.calls_per_step));
        EXPECT_EQ(summary["payload_bytes_per_step"],
                  static_cast<double>(predicted.payload_bytes_per_step));
        EXPECT_NEAR(summary["bytes_sent_per_step"], predicted.sent_bytes_per_step, 0.01);
        int64_t whole = 0;
        for (int rank = 0; rank < spec.ranks; ++rank) {
          inputs.rank = rank;
          const Prediction states = Predict(plan, inputs);
          const Observation& seen = trained.observations.at(static_cast<size_t>(rank));
          EXPECT_EQ(seen.parameter_bytes, states.parameter_bytes) << "rank " << rank;
          EXPECT_EQ(seen.gradient_bytes, states.gradient_bytes) << "rank " << rank;
          EXPECT_EQ(seen.optimizer_bytes, states.optimizer_bytes) << "rank " << rank;
          whole += seen.parameter_bytes;
        }
        EXPECT_EQ(whole, replicas * int64_t{965652}) << "each parameter once a replica";
      }
    }
  }
}

TEST(PipelineTest, NoRowDoesWhatNcclRefuses) {
  for (const StrategyRow& row : PipelineRows()) {
    SCOPED_TRACE(std::string(row.name));
    RunSpec spec = Pipelined(FiveSteps(false), std::string(row.name), 2, 4, 2);
    spec.clip_norm = 0.5;
    if (row.pipeline->policy.whole_batch) spec.micro_batches = 1;
    const Trained trained = TrainAsThreads(spec, [&](StrategyInputs inputs) {
      inputs.world->Group()->SetRules(Rules::kNccl);
      inputs.replicas->Group()->SetRules(Rules::kNccl);
      return FromTable(spec, std::move(inputs));
    });
    RunSpec single = FiveSteps(false);
    single.clip_norm = 0.5;
    ExpectEqual(trained, TrainAsThreads(single));
  }
}

TEST(PipelineTest, CutsABatchAsEvenlyAsItGoes) {
  Batch batch;
  batch.ids = at::arange(10, at::kLong).view({10, 1});
  batch.lengths = at::ones({10}, at::kLong);
  batch.labels = at::zeros({10}, at::kLong);
  batch.row_ids = at::arange(20, 30, at::kLong);
  batch.loss_weight = 0.5;
  PipelinePlan plan;
  const auto cut = [&](int parts) {
    plan.shape.micro_batches = parts;
    return CutBatch(batch, plan);
  };
  using RowsAndWeight = std::pair<int64_t, double>;
  const auto cut_in_4 = [&] {
    std::vector<RowsAndWeight> parts;
    for (const Batch& part : cut(4)) parts.emplace_back(part.Rows(), part.loss_weight);
    return parts;
  };
  EXPECT_EQ(cut_in_4(),
            (std::vector<RowsAndWeight>{{3, 0.5 * 0.3}, {3, 0.5 * 0.3}, {2, 0.1}, {2, 0.1}}));
  EXPECT_EQ(cut(12)[9].ids.item<int64_t>(), 9);
  EXPECT_EQ(cut(12)[9].row_ids.item<int64_t>(), 29);
  EXPECT_EQ(cut(12)[10].Rows(), 0);
  plan.chunk_sizes = ChunkSizes::kFull;
  plan.mean_of_chunk_means = true;
  EXPECT_EQ(cut_in_4(),
            (std::vector<RowsAndWeight>{{3, 0.125}, {3, 0.125}, {3, 0.125}, {1, 0.125}}));
  EXPECT_EQ(cut(6)[4].Rows(), 2);
  EXPECT_EQ(cut(6)[5].Rows(), 0) << "torch.chunk makes five";
}

}  // namespace
}  // namespace regatta
