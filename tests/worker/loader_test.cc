#include "worker/data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

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

TEST(LoaderTest, ABatchKnowsHowMuchItCounts) {
  const RunSpec spec = Spec(4, 2, 2, 0, 2);
  Loader loader(spec, TenRows(), 0, {1, spec.ranks});
  std::vector<Batch> first = loader.NextStep();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].loss_weight, 0.5) << "2 of 8 rows, times 2 ranks";
  EXPECT_EQ(first[1].Rows(), 2);
  std::vector<Batch> tail = loader.NextStep();
  ASSERT_EQ(tail.size(), 1u);
  EXPECT_EQ(tail[0].loss_weight, 1);
  EXPECT_EQ(tail[0].Rows(), 1);
  EXPECT_EQ(loader.NextStep()[0].loss_weight, 0.5) << "the next epoch";
}

// 10 rows on 3 ranks: 12 with the first two again, 4 a rank.
TEST(LoaderTest, TheStudysSharesAreEqualAndSoAreItsBatches) {
  RunSpec spec = Spec(9, 4, 1, 0, 3);
  spec.original = true;
  std::map<int64_t, int> times;
  for (int rank = 0; rank < 3; ++rank) {
    Loader loader(spec, TenRows(), 0, {rank, 3});
    EXPECT_EQ(loader.PlannedSteps(), 1) << "an epoch's end";
    const std::vector<Batch> step = loader.NextStep();
    ASSERT_EQ(step.size(), 2u);
    EXPECT_EQ(step[0].Rows(), 3);
    EXPECT_EQ(step[1].Rows(), 1);
    for (const Batch& batch : step) {
      EXPECT_EQ(batch.loss_weight, 0.25) << "one of four, though there are two";
      for (int64_t i = 0; i < batch.Rows(); ++i) ++times[batch.row_ids[i].item<int64_t>()];
    }
  }
  EXPECT_EQ(times.size(), 10u);
  EXPECT_EQ(times[0] + times[1], 4);
  EXPECT_EQ(times[9], 1);
}

TEST(LoaderTest, TheStudysEvaluationCountsTheFirstRowsTwice) {
  std::map<int64_t, int> times;
  for (int rank = 0; rank < 4; ++rank) {
    for (const Batch& batch :
         EvaluationBatches(TenRows(), {.batch_rows = 2, .wraps = true}, {rank, 4})) {
      for (int64_t i = 0; i < batch.Rows(); ++i) ++times[batch.row_ids[i].item<int64_t>()];
    }
  }
  EXPECT_THAT(times,
              testing::ElementsAre(testing::Pair(0, 2), testing::Pair(1, 2), testing::Pair(2, 1),
                                   testing::Pair(3, 1), testing::Pair(4, 1), testing::Pair(5, 1),
                                   testing::Pair(6, 1), testing::Pair(7, 1), testing::Pair(8, 1),
                                   testing::Pair(9, 1)));
}

TEST(LoaderTest, EvaluationCountsEveryRowOnceInEquallyManyCalls) {
  for (const int ranks : {1, 2, 3, 4}) {
    int64_t rows = 0;
    const size_t calls = EvaluationBatches(TenRows(), {2}, {0, ranks}).size();
    for (int rank = 0; rank < ranks; ++rank) {
      const auto batches = EvaluationBatches(TenRows(), {2}, {rank, ranks});
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
