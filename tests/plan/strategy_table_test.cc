#include "strategies/plan/strategy_table.h"

#include <gtest/gtest.h>

#include <set>

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

TEST(StrategyTableTest, UnknownNameSuggestsTheNearest) {
  EXPECT_EQ(ErrorOf(ParseStrategy("simple_dpd", {}, {.ranks = 2})),
            "unknown strategy 'simple_dpd'; did you mean 'simple_ddp'?");
}

}  // namespace
}  // namespace regatta
