#include "strategies/plan/strategy_table.h"

#include <gtest/gtest.h>

#include <set>

#include "strategies/plan/buckets.h"

namespace regatta {
namespace {

std::string ErrorOf(const std::variant<StrategyPlan, PlanError>& parsed) {
  const PlanError* error = std::get_if<PlanError>(&parsed);
  return error == nullptr ? "" : error->sentence;
}

TEST(StrategyTableTest, EveryRowParsesUnderItsNameOnce) {
  std::set<std::string_view> names;
  for (const StrategyRow& row : StrategyTable()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(ErrorOf(ParseStrategy(std::string(row.name), {}, {.ranks = 1})), "");
    EXPECT_FALSE(row.summary.empty()) << row.name;
    EXPECT_FALSE(row.origin.empty()) << row.name;
  }
}

TEST(StrategyTableTest, SingleRefusesASecondRank) {
  EXPECT_EQ(ErrorOf(ParseStrategy("single", {}, {.ranks = 2})),
            "strategy 'single' runs on 1 rank, not on 2");
}

TEST(StrategyTableTest, AParameterThatNobodyReadsIsRefused) {
  EXPECT_EQ(ErrorOf(ParseStrategy("simple_ddp", {{"bucket_mib", "10"}}, {.ranks = 2})),
            "strategy 'simple_ddp' has no parameter 'bucket_mib'; it has none");
}

TEST(StrategyTableTest, ParametersAreReadOrRefusedByWhatWouldBeRight) {
  const auto parsed = ParseStrategy(
      "pytorch_ddp",
      {{"bucket_mib", "4"}, {"compression", "bf16"}, {"gradient_as_bucket_view", "true"}},
      {.ranks = 2});
  const DataParallelPlan& plan = std::get<StrategyPlan>(parsed).data_parallel;
  EXPECT_EQ(plan.bucket_bytes, 4 << 20);
  EXPECT_EQ(plan.first_bucket_bytes, 1 << 20);
  EXPECT_EQ(plan.compression, Compression::kBf16);
  EXPECT_TRUE(plan.gradient_as_bucket_view);
  EXPECT_EQ(ErrorOf(ParseStrategy("pytorch_ddp", {{"compression", "int8"}}, {.ranks = 2})),
            "strategy 'pytorch_ddp': compression is 'int8'; none, fp16 or bf16 is right");
  EXPECT_EQ(
      ErrorOf(ParseStrategy("data_parallel", {{"launch", "soon"}}, {.ranks = 2})),
      "strategy 'data_parallel': launch is 'soon'; after_backward or gradients_ready is right");
  EXPECT_EQ(
      ErrorOf(ParseStrategy("data_parallel", {{"bucket_mib", "0"}}, {.ranks = 2})),
      "strategy 'data_parallel': bucket_mib is '0'; parameter or a number above 0, at most 65536 "
      "is right");
}

// Named rows are settings of the open row.
void ExpectPresets(const char* open_row,
                   const std::vector<std::pair<const char*, StrategyParams>>& presets) {
  for (const auto& [name, params] : presets) {
    const auto named = ParseStrategy(name, {}, {.ranks = 2});
    const auto open = ParseStrategy(open_row, params, {.ranks = 2});
    EXPECT_EQ(DescribePlan(std::get<StrategyPlan>(named)),
              DescribePlan(std::get<StrategyPlan>(open)))
        << name;
  }
}

TEST(StrategyTableTest, TheOpenRowsSpanTheNamedOnes) {
  ExpectPresets("data_parallel",
                {{"simple_ddp", {}},
                 {"simple_ddp_hook", {{"launch", "gradients_ready"}}},
                 {"simple_ddp_async", {{"launch", "gradients_ready"}, {"wait", "at_finish"}}},
                 {"bucket_ddp_async",
                  {{"bucket_mib", "25"}, {"launch", "gradients_ready"}, {"wait", "at_finish"}}}});
  ExpectPresets("sharded", {{"zero1", {{"gradients", "full"}, {"parameters", "full"}}},
                            {"zero2", {{"parameters", "full"}}},
                            {"zero3", {}}});
}

TEST(StrategyTableTest, ParametersOfShardedRowsAreCheckedToo) {
  EXPECT_EQ(ErrorOf(ParseStrategy("sharded", {{"unit", "root and layers"}}, {.ranks = 2})),
            "strategy 'sharded': unit is 'root and layers'; block or model is right");
  EXPECT_EQ(ErrorOf(ParseStrategy("zero3", {{"prefetch", "-1"}}, {.ranks = 2})),
            "strategy 'zero3': prefetch is '-1'; an integer from 0 to 100 is right");
}

TEST(BucketsTest, TheFirstMayBeSmaller) {
  using Buckets = std::vector<std::vector<size_t>>;
  EXPECT_EQ(AssignBuckets({4, 4, 4, 4, 4}, 8, 8), (Buckets{{4, 3}, {2, 1}, {0}}));
  EXPECT_EQ(AssignBuckets({4, 4, 4, 4, 4}, 8, 4), (Buckets{{4}, {3, 2}, {1, 0}}));
  EXPECT_EQ(AssignBuckets({4, 4, 4}, 0, 0), (Buckets{{2}, {1}, {0}}));
  EXPECT_EQ(AssignBuckets({4, 40, 4}, 8, 8), (Buckets{{2, 1}, {0}}));
  EXPECT_TRUE(AssignBuckets({}, 8, 8).empty());
}

TEST(StrategyTableTest, UnknownNameSuggestsTheNearest) {
  EXPECT_EQ(ErrorOf(ParseStrategy("simple_dpd", {}, {.ranks = 2})),
            "unknown strategy 'simple_dpd'; did you mean 'simple_ddp'?");
}

}  // namespace
}  // namespace regatta
