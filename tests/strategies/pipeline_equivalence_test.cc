#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "strategies/pipeline/pipeline.h"
#include "strategies/plan/pipeline/split.h"
#include "tests/testing/nano.h"
#include "tests/testing/train_nano.h"

namespace regatta {
namespace {

using testing::HasSubstr;

constexpr int64_t kNanoWidth = 64;
constexpr size_t kNanoBlocks = 6;  // embedding, 4 layers, head

// Five SGD steps over batches of 10 rows, the last of 2: micro-batches are uneven, and without
// rows.
RunSpec FiveSteps(bool llama) {
  RunSpec spec = llama ? NanoLlamaSpec() : NanoSpec();
  spec.steps = 5;
  spec.batch_size = 10;
  return spec;
}

// As a row would have it; empty first blocks where the model has too few.
PipelineInputs Planned(const ScheduleRow& row, const PipelineShape& shape) {
  auto split = SplitBlocks({}, std::vector<double>(kNanoBlocks, 1), shape.Stages());
  auto program = AddTransfers(MakeProgram(row.policy, shape), shape);
  PipelineInputs inputs{shape,
                        std::get<Program>(std::move(program)),
                        {},
                        kNanoWidth,
                        !row.name.starts_with("pytorch_")};
  if (auto* firsts = std::get_if<std::vector<int>>(&split)) inputs.first_block = *firsts;
  return inputs;
}

Trained TrainPipeline(RunSpec spec, const PipelineInputs& inputs) {
  spec.ranks = inputs.shape.ranks;
  return TrainAsThreads(
      spec,
      [&](StrategyInputs strategy) {
        return std::make_unique<Pipeline>(inputs, std::move(strategy));
      },
      Rows::kAll);
}

class PipelineWalkTest : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Models, PipelineWalkTest, testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "llama" : "distilbert");
});

TEST_P(PipelineWalkTest, EveryProgramEqualsSingle) {
  const RunSpec spec = FiveSteps(GetParam());
  const Trained reference = TrainAsThreads(spec);
  int tried = 0;
  for (const ScheduleRow& row : ScheduleTable()) {
    if (row.policy.splits_backward) continue;
    for (const int ranks : {2, 3, 4}) {
      for (const int micro_batches : {1, 2, 4, 7}) {
        const PipelineShape shape{ranks, row.stages_per_rank, micro_batches};
        if (!CheckShape(row, shape).empty()) continue;
        const PipelineInputs inputs = Planned(row, shape);
        if (inputs.first_block.empty()) continue;
        SCOPED_TRACE(std::string(row.name) + ", " + std::to_string(ranks) + " ranks, " +
                     std::to_string(micro_batches) + " micro-batches");
        const Trained trained = TrainPipeline(spec, inputs);
        EXPECT_LE(ShareOfTolerance(trained.parameters, reference.parameters), 1);
        ASSERT_EQ(trained.losses.size(), reference.losses.size());
        for (size_t i = 0; i < trained.losses.size(); ++i) {
          EXPECT_NEAR(trained.losses[i], reference.losses[i], 2e-6);
        }
        ++tried;
      }
    }
  }
  EXPECT_GE(tried, 4 * 3 * 4 + 3);
}

// The Python peer's own runs of these rows, DistilBERT on two ranks, four micro-batches of two
// rows.
TEST(PipelineTest, EqualsTheGoldensOfThePeer) {
  const nlohmann::json golden = nlohmann::json::parse(
      std::ifstream(std::string(REGATTA_TEST_DATA) + "/golden/nano_bert_sgd.json"));
  ASSERT_EQ(golden["microbatches"], 4);
  const RunSpec spec = NanoSpec();
  const std::vector<NamedTensor> names = ParametersOf(BuildModel(spec.model).model);
  int rows = 0;
  for (const ScheduleRow& row : ScheduleTable()) {
    if (!golden["strategies"].contains(row.name)) continue;
    SCOPED_TRACE(std::string(row.name));
    ++rows;
    const nlohmann::json& peer = golden["strategies"][std::string(row.name)];
    const int micro_batches = row.policy.whole_batch ? 1 : 4;
    const Trained trained = TrainPipeline(spec, Planned(row, {2, 1, micro_batches}));
    const auto losses = peer["loss_per_step_mean"].get<std::vector<double>>();
    ASSERT_EQ(trained.losses.size(), losses.size());
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(trained.losses[i], losses[i], 1e-5);
    size_t compared = 0;
    for (size_t i = 0; i < names.size(); ++i) {
      if (!peer["tensors"].contains(names[i].name)) continue;
      ++compared;
      const at::Tensor flat = trained.parameters[i].flatten();
      const auto first = peer["tensors"][names[i].name]["first"].get<std::vector<double>>();
      for (size_t k = 0; k < first.size(); ++k) {
        EXPECT_NEAR(flat[static_cast<int64_t>(k)].item<double>(), first[k], 1e-6) << names[i].name;
      }
    }
    EXPECT_GT(compared, 5u);
  }
  EXPECT_EQ(rows, 5);
}

TEST(PipelineTest, ClippingAndAccumulationEqualSingle) {
  RunSpec spec = FiveSteps(false);
  spec.clip_norm = 0.5;
  spec.gradient_accumulation = 2;
  spec.dataset.train_rows = 50;
  const Trained reference = TrainAsThreads(spec);
  const Trained trained = TrainPipeline(spec, Planned(*FindSchedule("1f1b_pp"), {3, 1, 4}));
  EXPECT_LE(ShareOfTolerance(trained.parameters, reference.parameters), 1);
}

// The test above is itself tested.
TEST(PipelineTest, AMicroBatchLeftOutIsSeen) {
  const RunSpec spec = FiveSteps(false);
  PipelineInputs inputs = Planned(*FindSchedule("gpipe_pp"), {2, 1, 4});
  for (auto& actions : inputs.program) {
    std::erase_if(actions, [](const Action& action) { return action.micro_batch == 3; });
  }
  EXPECT_GT(
      ShareOfTolerance(TrainPipeline(spec, inputs).parameters, TrainAsThreads(spec).parameters),
      100);
}

TEST(PipelineTest, EachRankKeepsItsStageAlone) {
  const RunSpec spec = FiveSteps(false);
  const Trained whole = TrainAsThreads(spec);
  const Trained cut = TrainPipeline(spec, Planned(*FindSchedule("1f1b_pp"), {3, 1, 4}));
  int64_t sum = 0;
  for (const Observation& rank : cut.observations) {
    EXPECT_LT(rank.parameter_bytes, whole.observations[0].parameter_bytes);
    sum += rank.parameter_bytes;
  }
  EXPECT_EQ(sum, whole.observations[0].parameter_bytes);
}

// Forward and back, each activation and its gradient cross each boundary once.
TEST(PipelineTest, SendsActivationsAndGradientsOnce) {
  RunSpec spec = FiveSteps(false);
  spec.batch_size = 8;  // 32 rows: four even steps
  spec.steps = 4;
  const Trained trained = TrainPipeline(spec, Planned(*FindSchedule("1f1b_pp"), {2, 1, 4}));
  const int64_t activation = 2 * 32 * kNanoWidth * 4;  // rows x length x width x fp32
  EXPECT_EQ(trained.traffic.at("send").calls, 4 * 4);
  EXPECT_EQ(trained.traffic.at("send").bytes, 4 * 4 * activation);
}

TEST(PipelineTest, CutsABatchAsEvenlyAsItGoes) {
  Batch batch;
  batch.ids = at::arange(10, at::kLong).view({10, 1});
  batch.lengths = at::ones({10}, at::kLong);
  batch.labels = at::zeros({10}, at::kLong);
  batch.global_rows = 30;
  std::vector<int64_t> rows;
  for (const Batch& part : CutBatch(batch, 4)) {
    rows.push_back(part.Rows());
    EXPECT_EQ(part.global_rows, 30);
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{3, 3, 2, 2}));
  EXPECT_EQ(CutBatch(batch, 12)[9].ids.item<int64_t>(), 9);
  EXPECT_EQ(CutBatch(batch, 12)[10].Rows(), 0);
}

}  // namespace
}  // namespace regatta
