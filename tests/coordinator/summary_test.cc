#include "coordinator/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace regatta {
namespace {

std::map<std::string, double> Summarize(const std::vector<NamedNumbers>& ranks) {
  const NamedNumbers summary = SummarizeRun(ranks);
  return {summary.begin(), summary.end()};
}

TEST(SummaryTest, RatesUseAllTokensAndTheSlowestRank) {
  auto run =
      Summarize({{{"measured_tokens", 100}, {"measured_seconds", 2}, {"measured_steps", 4}},
                 {{"measured_tokens", 300}, {"measured_seconds", 4}, {"measured_steps", 4}}});
  EXPECT_DOUBLE_EQ(run["tokens_per_second"], 100);
  EXPECT_DOUBLE_EQ(run["steps_per_second"], 1);
}

TEST(SummaryTest, LossIsTheMeanOverAllRowsNotOfTheRanksMeans) {
  auto run = Summarize({{{"last_loss_sum", 3}, {"last_loss_rows", 3}},
                        {{"last_loss_sum", 4}, {"last_loss_rows", 1}}});
  EXPECT_DOUBLE_EQ(run["loss"], 1.75);
}

TEST(SummaryTest, PeaksAreThoseOfTheFullestRank) {
  auto run = Summarize({{{"peak_rss_bytes", 5}, {"only_here", 1}}, {{"peak_rss_bytes", 7}}});
  EXPECT_EQ(run["peak_rss_bytes"], 7);
  EXPECT_FALSE(run.contains("only_here"));
}

TEST(SummaryTest, BytesSentAreTheMeanOverRanks) {
  auto run = Summarize({{{"bytes_sent_per_step", 5}}, {{"bytes_sent_per_step", 7}}});
  EXPECT_EQ(run["bytes_sent_per_step"], 6);
}

TEST(SummaryTest, AccuracyHasTheWilsonInterval) {
  // 668 of 1437: computed with statsmodels' proportion_confint(668, 1437, method='wilson').
  auto run = Summarize(
      {{{"eval_correct", 300}, {"eval_rows", 719}}, {{"eval_correct", 368}, {"eval_rows", 718}}});
  EXPECT_NEAR(run["accuracy"], 0.464857, 1e-6);
  EXPECT_NEAR(run["accuracy_low"], 0.439201, 1e-5);
  EXPECT_NEAR(run["accuracy_high"], 0.490702, 1e-5);
}

TEST(SummaryTest, ANanOfOneRankShows) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  auto run = Summarize({{{"last_loss_sum", 1}, {"last_loss_rows", 1}, {"peak_rss_bytes", 1}},
                        {{"last_loss_sum", nan}, {"last_loss_rows", 1}, {"peak_rss_bytes", nan}}});
  EXPECT_TRUE(std::isnan(run["loss"]));
  EXPECT_TRUE(std::isnan(run["peak_rss_bytes"]));
  auto other = Summarize({{{"peak_rss_bytes", nan}}, {{"peak_rss_bytes", 1}}});
  EXPECT_TRUE(std::isnan(other["peak_rss_bytes"]));
}

TEST(SummaryTest, NothingMeasuredIsAbsentNotZero) {
  auto run = Summarize({{{"steps", 1}}});
  EXPECT_FALSE(run.contains("tokens_per_second"));
  EXPECT_FALSE(run.contains("accuracy"));
  EXPECT_TRUE(SummarizeRun({}).empty());
}

}  // namespace
}  // namespace regatta
