#include "strategies/plan/slices.h"

#include <gtest/gtest.h>

#include <numeric>

#include "strategies/plan/predict.h"
#include "worker/shapes/model_shapes.h"

namespace regatta {
namespace {

// The study's model: SmolLM2-360M with a head for five labels.
std::vector<ParameterSize> StudyModel() {
  const nlohmann::json config = {{"model_type", "llama"},      {"hidden_size", 960},
                                 {"intermediate_size", 2560},  {"num_hidden_layers", 32},
                                 {"num_attention_heads", 15},  {"num_key_value_heads", 5},
                                 {"vocab_size", 49152},        {"rope_theta", 100000.0},
                                 {"rms_norm_eps", 1e-5},       {"max_position_embeddings", 8192},
                                 {"pad_token_id", 2},          {"num_labels", 5},
                                 {"tie_word_embeddings", true}};
  EXPECT_EQ(CheckModelConfig(config), "");
  return ParameterSizes(config);
}

TEST(SlicesTest, EveryElementHasOneOwner) {
  const std::vector<ParameterSize> members = {{7, 7, {0}}, {1, 1, {0}}, {30, 3, {0}}, {10, 5, {0}}};
  for (const SliceKind kind : {SliceKind::kElements, SliceKind::kRows}) {
    for (const int ranks : {1, 2, 3, 4, 50}) {
      const SlicePlan plan = PlanSlices(kind, members, ranks);
      ASSERT_EQ(plan.of_rank.size(), static_cast<size_t>(ranks));
      std::vector<std::vector<int>> owners;
      for (const ParameterSize& member : members) {
        owners.emplace_back(static_cast<size_t>(member.elements));
      }
      for (const auto& segments : plan.of_rank) {
        std::vector<int> places(static_cast<size_t>(plan.slice_elements));
        for (const Segment& segment : segments) {
          for (int64_t i = 0; i < segment.elements; ++i) {
            ++owners[segment.parameter][static_cast<size_t>(segment.begin + i)];
            ++places.at(static_cast<size_t>(segment.offset + i));
          }
        }
        for (const int used : places) EXPECT_LE(used, 1);
      }
      for (const auto& of_parameter : owners) {
        for (const int owner_count : of_parameter) EXPECT_EQ(owner_count, 1);
      }
      if (kind == SliceKind::kElements) {
        EXPECT_EQ(plan.slice_elements, (48 + ranks - 1) / ranks);
      }
    }
  }
}

// torch.chunk along the first dimension: 5 rows on 4 ranks are 2, 2, 1 and none.
TEST(SlicesTest, RowsGoAsInTorchChunk) {
  const SlicePlan plan = PlanSlices(SliceKind::kRows, {{15, 5, {0}}}, 4);
  EXPECT_EQ(plan.slice_elements, 6);
  EXPECT_EQ(plan.of_rank[1][0].begin, 6);
  EXPECT_EQ(plan.of_rank[2][0].elements, 3);
  EXPECT_TRUE(plan.of_rank[3].empty());
}

TEST(SlicesTest, UnitsAreBlocksOrRootAndLayersOrAll) {
  const std::vector<ParameterSize> parameters = {
      {4, 2, {0}}, {6, 2, {1}}, {1, 1, {1}}, {6, 2, {3}}, {5, 5, {4}}};
  using Lists = std::vector<std::vector<size_t>>;
  const auto members = [&](UnitKind kind, const std::vector<ParameterSize>& of) {
    Lists lists;
    for (const UnitMembers& unit : MakeUnits(kind, of)) lists.push_back(unit.parameters);
    return lists;
  };
  EXPECT_EQ(members(UnitKind::kBlock, parameters), (Lists{{0}, {1, 2}, {3}, {4}}));
  EXPECT_EQ(members(UnitKind::kRootAndLayers, parameters), (Lists{{0, 4}, {1, 2}, {3}}));
  EXPECT_EQ(members(UnitKind::kModel, parameters), (Lists{{0, 1, 2, 3, 4}}));
  std::vector<ParameterSize> tied = parameters;
  tied[0].blocks = {0, 3};
  EXPECT_EQ(members(UnitKind::kBlock, tied), (Lists{{0, 3}, {1, 2}, {4}}));
  EXPECT_EQ(MakeUnits(UnitKind::kBlock, tied)[0].blocks, (std::vector<size_t>{0, 3}));
}

// research: mean and larger rank of the study's table; see docs/strategies.md.
TEST(SlicesTest, TheStudysModelIsCutAsPyTorchDid) {
  const std::vector<ParameterSize> model = StudyModel();
  std::vector<int64_t> elements;
  for (const ParameterSize& parameter : model) elements.push_back(parameter.elements);
  ASSERT_EQ(std::accumulate(elements.begin(), elements.end(), int64_t{0}), 361825920);
  const auto mebibytes = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::vector<int64_t> owned(2);
  const std::vector<int> owners = AssignOwners(Owners::kBySize, elements, 2);
  for (size_t p = 0; p < elements.size(); ++p) {
    owned[static_cast<size_t>(owners[p])] += 4 * elements[p];
  }
  EXPECT_NEAR(mebibytes(std::min(owned[0], owned[1])), 690.02, 0.01);
  EXPECT_NEAR(mebibytes(std::max(owned[0], owned[1])), 690.23, 0.01);
  const auto plan = std::get<StrategyPlan>(ParseStrategy("pytorch_zero3", {}, {.ranks = 2}));
  EXPECT_NEAR(mebibytes(Predict(plan, {.parameters = model, .ranks = 2}).parameter_bytes), 690.1300,
              1e-4);
  EXPECT_NEAR(
      mebibytes(Predict(plan, {.parameters = model, .ranks = 2, .rank = 1}).parameter_bytes),
      690.1263, 1e-4);
  EXPECT_EQ(MakeUnits(UnitKind::kRootAndLayers, model).size(), 33u);
}

// The formulas of the documentation, with c = (W - 1) / W, N of gradients, A of parameters.
TEST(SlicesTest, TrafficIsThatOfTheFormulas) {
  const std::vector<ParameterSize> model = {{48, 12, {0}}, {120, 12, {1}}, {240, 24, {2}}};
  const int64_t n = 4 * (48 + 120 + 240);
  const auto sent = [&](const char* name, const StrategyParams& params, int ranks, int k) {
    const auto plan = std::get<StrategyPlan>(ParseStrategy(name, params, {.ranks = ranks}));
    return Predict(plan, {.parameters = model, .ranks = ranks, .accumulation = k})
        .sent_bytes_per_step;
  };
  for (const int ranks : {2, 3, 4}) {
    const double cn = static_cast<double>(n * (ranks - 1)) / ranks;
    for (const int k : {1, 4}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(k) + " batches");
      EXPECT_EQ(sent("zero1", {}, ranks, k), 2 * cn);
      EXPECT_EQ(sent("zero2", {}, ranks, k), (k + 1) * cn);
      EXPECT_EQ(sent("zero2", {{"accumulate", "full"}}, ranks, k), 2 * cn);
      EXPECT_EQ(sent("zero3", {}, ranks, k), 3 * k * cn);
      EXPECT_EQ(sent("zero3", {{"accumulate", "full"}}, ranks, k), (2 * k + 1) * cn);
      EXPECT_EQ(sent("pytorch_zero1", {}, ranks, k), 3 * cn);
      EXPECT_EQ(sent("pytorch_zero2", {}, ranks, k), 3 * k * cn);
      EXPECT_EQ(sent("pytorch_zero3", {}, ranks, k), 4 * k * cn);
    }
  }
}

}  // namespace
}  // namespace regatta
