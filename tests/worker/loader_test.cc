#include "worker/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/learning_rate.h"

namespace regatta {
namespace {

Shard TenRows() {
  Shard shard;
  for (int32_t row = 0; row < 10; ++row) {
    for (int32_t i = 0; i <= row; ++i) shard.ids.push_back(100 + row);
    shard.offsets.push_back(static_cast<int64_t>(shard.ids.size()));
    shard.labels.push_back(row % 5);
  }
  return shard;
}

RunSpec Spec(int64_t batch_size, int64_t accumulation, int64_t epochs, int64_t steps,
             int ranks = 1) {
  RunSpec spec;
  spec.sampler = "sequential";
  spec.batch_size = batch_size;
  spec.gradient_accumulation = accumulation;
  spec.epochs = epochs;
  spec.steps = steps;
  spec.ranks = ranks;
  return spec;
}

TEST(LoaderTest, PadsAtTheRightToTheLongestOrToAFixedLength) {
  const Batch batch = Collate(TenRows(), {0, 2}, 0, 7);
  EXPECT_TRUE(at::equal(batch.ids, at::tensor({100, 7, 7, 102, 102, 102}, at::kLong).view({2, 3})));
  EXPECT_TRUE(at::equal(batch.lengths, at::tensor({1, 3}, at::kLong)));
  EXPECT_EQ(batch.real_tokens, 4);
  EXPECT_EQ(Collate(TenRows(), {0}, 5, 7).ids.size(1), 5);
  EXPECT_THROW((void)Collate(TenRows(), {9}, 5, 7), c10::Error);
  EXPECT_EQ(Collate(TenRows(), {}, 5, 7).Rows(), 0);
}

TEST(LoaderTest, PlansTheSoonerOfEpochsAndSteps) {
  const auto planned = [](const RunSpec& spec) {
    return Loader(spec, TenRows(), 0, {}).PlannedSteps();
  };
  EXPECT_EQ(planned(Spec(4, 1, 2, 0)), 6) << "3 batches an epoch, the last short";
  EXPECT_EQ(planned(Spec(4, 2, 2, 0)), 4) << "an epoch's tail is a step of its own";
  EXPECT_EQ(planned(Spec(4, 1, 2, 5)), 5);
  EXPECT_EQ(planned(Spec(4, 1, 0, 50)), 50);
  RunSpec drop = Spec(4, 1, 2, 0);
  drop.drop_last = true;
  EXPECT_EQ(planned(drop), 4);
  drop.batch_size = 11;
  EXPECT_THROW((void)planned(drop), c10::Error);
}

TEST(LoaderTest, AStepKnowsItsGlobalRows) {
  const RunSpec spec = Spec(4, 2, 2, 0, 2);
  Loader loader(spec, TenRows(), 0, {1, spec.ranks});
  std::vector<Batch> first = loader.NextStep();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].global_rows, 8);
  EXPECT_EQ(first[1].Rows(), 2);
  std::vector<Batch> tail = loader.NextStep();
  ASSERT_EQ(tail.size(), 1u);
  EXPECT_EQ(tail[0].global_rows, 2);
  EXPECT_EQ(tail[0].Rows(), 1);
  EXPECT_EQ(loader.NextStep()[0].global_rows, 8) << "the next epoch";
}

TEST(LoaderTest, EvaluationCountsEveryRowOnceInEquallyManyCalls) {
  for (const int ranks : {1, 2, 3, 4}) {
    int64_t rows = 0;
    const size_t calls = EvaluationBatches(TenRows(), 2, 0, 0, {0, ranks}).size();
    for (int rank = 0; rank < ranks; ++rank) {
      const auto batches = EvaluationBatches(TenRows(), 2, 0, 0, {rank, ranks});
      EXPECT_EQ(batches.size(), calls);
      for (const Batch& batch : batches) rows += batch.Rows();
    }
    EXPECT_EQ(rows, 10) << ranks;
  }
}

TEST(LearningRateTest, WarmsUpFromZeroAndFallsToZero) {
  RunSpec::OptimizerChoice choice;
  choice.learning_rate = 1;
  choice.warmup_steps = 4;
  choice.decay = "none";
  EXPECT_DOUBLE_EQ(LearningRate(choice, 0, 10), 0);
  EXPECT_DOUBLE_EQ(LearningRate(choice, 1, 10), 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(choice, 4, 10), 1);
  EXPECT_DOUBLE_EQ(LearningRate(choice, 9, 10), 1);
  choice.decay = "linear";
  EXPECT_DOUBLE_EQ(LearningRate(choice, 4, 10), 1);
  EXPECT_DOUBLE_EQ(LearningRate(choice, 7, 10), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(choice, 10, 10), 0);
}

}  // namespace
}  // namespace regatta
