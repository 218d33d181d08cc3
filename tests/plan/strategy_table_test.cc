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
    EXPECT_EQ(ErrorOf(ParseStrategy(std::string(row.name), {}, {.ranks = row.pipeline ? 2 : 1})),
              "");
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
  ExpectPresets("pipeline",
                {{"naive_pp", {{"program", "naive"}}},
                 {"gpipe_pp", {{"program", "gpipe"}}},
                 {"1f1b_pp", {}},
                 {"interleaved_1f1b_pp", {{"program", "interleaved_1f1b"}, {"wait", "before_use"}}},
                 {"zb1p_pp", {{"program", "zb1p"}, {"wait", "before_use"}}}});
}

PipelinePlan Pipelined(const std::string& name, const RunShape& shape,
                       const StrategyParams& params = {}) {
  return std::get<StrategyPlan>(ParseStrategy(name, params, shape)).pipeline.value();
}

TEST(StrategyTableTest, APipelineCutsItsBatchEvenlyInFourPartsAStage) {
  const auto parts = [](const char* name, int ranks, int64_t rows, int replicas = 1) {
    return Pipelined(name, {ranks, replicas, rows, 0}).shape.micro_batches;
  };
  EXPECT_EQ(parts("1f1b_pp", 2, 16), 8);
  EXPECT_EQ(parts("1f1b_pp", 3, 16), 8) << "12 do not divide 16 rows";
  EXPECT_EQ(parts("1f1b_pp", 2, 4), 4);
  EXPECT_EQ(parts("1f1b_pp", 4, 16, 2), 8);
  EXPECT_EQ(parts("naive_pp", 2, 16), 1);
  EXPECT_EQ(parts("interleaved_1f1b_pp", 2, 32), 16);
  EXPECT_EQ(parts("interleaved_1f1b_pp", 3, 14), 2) << "7 do not divide into rounds of 3 ranks";
}

TEST(StrategyTableTest, PipelinesThatCannotRunAreRefused) {
  const auto error = [](const char* name, const RunShape& shape,
                        const StrategyParams& params = {}) {
    return ErrorOf(ParseStrategy(name, params, shape));
  };
  EXPECT_EQ(error("1f1b_pp", {.ranks = 1}),
            "strategy '1f1b_pp': a pipeline has stages on 2 ranks at least, not on 1");
  EXPECT_EQ(error("1f1b_pp", {2, 2, 16, 0}),
            "strategy '1f1b_pp': a pipeline has stages on 2 ranks at least, not on 1");
  EXPECT_EQ(error("1f1b_pp", {6, 4, 16, 0}),
            "strategy '1f1b_pp': data_parallel is 4, but 6 ranks do not divide into so many "
            "pipelines");
  EXPECT_EQ(error("gpipe_pp", {4, 2, 15, 9}),
            "strategy 'gpipe_pp': micro_batches is 9, but a pipeline has 8 rows of a batch; 8 or "
            "fewer is right");
  EXPECT_EQ(error("interleaved_1f1b_pp", {3, 1, 16, 7}),
            "strategy 'interleaved_1f1b_pp': 7 micro-batches do not divide into rounds of 3 ranks; "
            "6 or 8 is right");
  EXPECT_EQ(error("zero1", {2, 2, 16, 0}),
            "strategy 'zero1': data_parallel is 2, but it is no pipeline of which there could be "
            "several; 1 is right");
  for (const char* split : {"", "evenly", "[]", "[1", "[0]", "[1,,2]", "[a]", "1, 2", "[-1]"}) {
    EXPECT_EQ(error("1f1b_pp", {.ranks = 2}, {{"split", split}}),
              "strategy '1f1b_pp': split is '" + std::string(split) +
                  "'; even, by_parameters, by_time or cut points such as [2, 4] is right");
  }
  EXPECT_EQ(Pipelined("1f1b_pp", {.ranks = 3}, {{"split", "[ 2,4 ]"}}).split.cut_points,
            (std::vector<int>{2, 4}));
  EXPECT_EQ(error("interleaved_1f1b_pp", {.ranks = 2}, {{"stages_per_rank", "1"}}),
            "strategy 'interleaved_1f1b_pp': stages_per_rank is 1; 2 or more is right");
}

TEST(StrategyTableTest, TheStudysWayIsOfItsRowsAlone) {
  const auto error = [](const char* name, RunShape shape) {
    shape.original = true;
    return ErrorOf(ParseStrategy(name, {}, shape));
  };
  int rows = 0;
  for (const StrategyRow& row : StrategyTable()) {
    const std::string name(row.name);
    const std::string sentence = error(name.c_str(), {.ranks = row.max_ranks == 1 ? 1 : 2});
    if (row.study) {
      ++rows;
      EXPECT_EQ(sentence, "");
    } else {
      EXPECT_EQ(sentence,
                "strategy '" + name + "': the study has no such row; compat: none is right");
    }
  }
  EXPECT_EQ(rows, 18);
  EXPECT_EQ(error("zero2", {.ranks = 3, .batch_rows = 14}),
            "strategy 'zero2': the study gave each rank equally many rows, batch_size is 14 on 3 "
            "ranks; 12 is right");
  EXPECT_EQ(error("gpipe_pp", {.ranks = 2, .batch_rows = 8, .micro_batches = 5}),
            "strategy 'gpipe_pp': the study cut batches with torch.chunk, which makes 4 parts of 8 "
            "rows, not 5; 4 is right");
  EXPECT_EQ(error("pytorch_gpipe_pp", {.ranks = 2, .batch_rows = 8, .micro_batches = 5}), "");
  EXPECT_EQ(error("1f1b_pp", {.ranks = 4, .replicas = 2, .batch_rows = 8}),
            "strategy '1f1b_pp': the study had one pipeline, data_parallel is 2; 1 is right");
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
  EXPECT_EQ(AssignBuckets({4, 40, 4}, 8, 8, BucketOrder::kRegistration), (Buckets{{0, 1}, {2}}));
}

TEST(StrategyTableTest, UnknownNameSuggestsTheNearest) {
  EXPECT_EQ(ErrorOf(ParseStrategy("simple_dpd", {}, {.ranks = 2})),
            "unknown strategy 'simple_dpd'; did you mean 'simple_ddp'?");
}

}  // namespace
}  // namespace regatta
