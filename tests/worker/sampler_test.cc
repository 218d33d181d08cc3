#include "worker/data/sampler.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace regatta {
namespace {

using testing::ElementsAre;

TEST(SamplerTest, DistributedDrawsWhatPyTorchDraws) {
  const auto golden =
      nlohmann::json::parse(std::ifstream(REGATTA_TEST_DATA "/golden/distributed_sampler.json"));
  ASSERT_FALSE(golden["cases"].empty());
  for (const auto& entry : golden["cases"]) {
    const auto order = GlobalOrder("distributed", entry["rows"], entry["seed"], entry["epoch"]);
    const int ranks = entry["ranks"];
    const int64_t rows = entry["rows"];
    for (int rank = 0; rank < ranks; ++rank) {
      // One batch of everything: the rank's whole list.
      auto mine = RankRows(order, 0, rows, rank, ranks);
      mine.resize(std::min<size_t>(mine.size(), 24));
      EXPECT_EQ(mine, entry["first_rows"][static_cast<size_t>(rank)].get<std::vector<int64_t>>())
          << entry.dump();
    }
  }
}

TEST(SamplerTest, RanksShareEveryGlobalBatchInterleaved) {
  const std::vector<int64_t> order = {10, 11, 12, 13, 14, 15, 16};
  EXPECT_THAT(RankRows(order, 0, 4, 0, 2), ElementsAre(10, 12));
  EXPECT_THAT(RankRows(order, 0, 4, 1, 2), ElementsAre(11, 13));
  EXPECT_THAT(RankRows(order, 1, 4, 0, 2), ElementsAre(14, 16));
  EXPECT_THAT(RankRows(order, 1, 4, 1, 2), ElementsAre(15));
  EXPECT_THAT(RankRows(order, 1, 6, 1, 2), ElementsAre()) << "one row is left, for rank 0";
}

TEST(SamplerTest, EveryRowIsSeenOnceAnEpoch) {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto order = GlobalOrder("distributed", 37, 1, 5);
    std::vector<int64_t> seen;
    for (int64_t batch = 0; batch < 5; ++batch) {
      for (int rank = 0; rank < ranks; ++rank) {
        const auto rows = RankRows(order, batch, 8, rank, ranks);
        seen.insert(seen.end(), rows.begin(), rows.end());
      }
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, GlobalOrder("sequential", 37, 0, 0)) << ranks;
  }
}

TEST(SamplerTest, EpochsDiffer) {
  EXPECT_NE(GlobalOrder("distributed", 30, 1, 0), GlobalOrder("distributed", 30, 1, 1));
}

TEST(SamplerTest, AnUnknownNameIsRefused) {
  EXPECT_THROW((void)GlobalOrder("random", 3, 0, 0), c10::Error);
}

TEST(SamplerTest, RowsAreGroupedByLengthAsTransformersDoes) {
  const auto golden = nlohmann::json::parse(
      std::ifstream(std::string(REGATTA_TEST_DATA) + "/golden/length_grouped.json"));
  for (const auto& one : golden["cases"]) {
    const auto rows = one["rows"].get<int64_t>();
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < rows; ++i) lengths.push_back((i * 37 + 11) % 29 + 1);
    EXPECT_EQ(GroupByLength(GlobalOrder("length_grouped", rows, one["seed"], 0), lengths,
                            one["batch_size"]),
              one["order"].get<std::vector<int64_t>>())
        << rows << " rows";
  }
  EXPECT_TRUE(GroupByLength({}, {}, 4).empty());
}

}  // namespace
}  // namespace regatta
