#include "worker/metrics/recorder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "worker/metrics/counting_allocator.h"
#include "worker/metrics/process.h"

namespace regatta {
namespace {

StepStats Step(double seconds) {
  StepStats stats;
  stats.step_seconds = seconds;
  stats.loss = {6, 3};
  stats.real_tokens = 10;
  return stats;
}

std::map<std::string, double> Summary(const Recorder& recorder) {
  const Recorder::Values values = recorder.Summarize();
  return {values.begin(), values.end()};
}

TEST(RecorderTest, WarmUpStepsCountButDoNotSetTheSpeed) {
  Recorder recorder;
  for (const double seconds : {100.0, 50.0, 1.0, 3.0, 2.0}) recorder.EndStep(Step(seconds));
  auto summary = Summary(recorder);
  EXPECT_EQ(summary["steps"], 5);
  EXPECT_EQ(summary["warmup_steps"], 2);
  EXPECT_EQ(summary["measured_seconds"], 6);
  EXPECT_EQ(summary["measured_tokens"], 30);
  EXPECT_EQ(summary["step_seconds_median"], 2);
  EXPECT_EQ(recorder.TakeRecords().size(), 5u);
  EXPECT_TRUE(recorder.TakeRecords().empty());
}

TEST(RecorderTest, PeaksAreThoseOfEachPhaseAndTheLargestOfAll) {
  Recorder recorder;
  for (const int64_t bytes : {5, 9, 7}) {
    StepStats stats = Step(1);
    stats.observation.forward_peak_bytes = bytes;
    recorder.EndStep(stats);
  }
  auto summary = Summary(recorder);
  EXPECT_EQ(summary["peak_forward_bytes"], 9);
  EXPECT_EQ(summary["peak_steady_bytes"], 7) << "after two steps of warm-up";
  EXPECT_FALSE(summary.contains("peak_backward_bytes")) << "nobody counted";
  EXPECT_THAT(recorder.TakeRecords()[2].values,
              testing::Contains(std::pair<std::string, double>("peak_forward_bytes", 7)));
}

TEST(RecorderTest, TooFewStepsGiveNoSpeed) {
  Recorder recorder;
  recorder.EndStep(Step(1));
  EXPECT_FALSE(Summary(recorder).contains("step_seconds_median"));
}

TEST(PercentileTest, TakesTheNearestRank) {
  EXPECT_EQ(Percentile({4, 1, 3, 2}, 0.5), 2);
  EXPECT_EQ(Percentile({4, 1, 3, 2}, 0.95), 4);
  EXPECT_EQ(Percentile({7}, 0.5), 7);
  EXPECT_EQ(Percentile({}, 0.5), 0);
}

TEST(CountingAllocatorTest, RefusesWhatLeadsBeyondTheLimit) {
  InstallCountingAllocator();
  LimitTensorBytes(CurrentTensorBytes() + (1 << 20));
  const at::Tensor fits = at::empty({1 << 10}, at::kFloat);
  try {
    (void)at::empty({1 << 20}, at::kFloat);
    ADD_FAILURE() << "4 MiB within 1";
  } catch (const c10::OutOfMemoryError& e) {
    EXPECT_THAT(e.what_without_backtrace(),
                testing::MatchesRegex("does not fit: needs at least .* MiB, memory_limit is .*"));
  }
  LimitTensorBytes(0);
  EXPECT_EQ(at::empty({1 << 20}, at::kFloat).numel(), 1 << 20);
  EXPECT_EQ(SizeText(29313493402), "27.3 GiB");
  EXPECT_EQ(SizeText(100), "100 bytes");
}

TEST(CountingAllocatorTest, CountsWhatTensorsTakeAndGiveBack) {
  InstallCountingAllocator();
  const int64_t before = CurrentTensorBytes();
  {
    const at::Tensor tensor = at::empty({1 << 20}, at::kFloat);
    EXPECT_GE(CurrentTensorBytes() - before, 4 << 20);
    EXPECT_GE(TakePhasePeakBytes() - before, 4 << 20);
    EXPECT_LT(CurrentTensorBytes() - before, (4 << 20) + (64 << 10));
    const at::Tensor clone = tensor.clone();
    EXPECT_GE(CurrentTensorBytes() - before, 8 << 20);
  }
  EXPECT_EQ(CurrentTensorBytes(), before);
  EXPECT_GE(PeakTensorBytes(), before + (8 << 20));
}

TEST(ProcessTest, SeesItsOwnMemory) { EXPECT_GT(PeakRssBytes(), 1 << 20); }

}  // namespace
}  // namespace regatta
