#include "worker/data/shard.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/temporary_folder.h"

namespace regatta {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A shard file made by hand, so that a test can break any part of it.
struct ShardFile {
  std::vector<int64_t> offsets = {0, 3, 5};
  std::vector<int64_t> labels = {4, 0};
  std::vector<int32_t> ids = {1, 20, 102, 1, 102};
  std::string metadata = R"("__metadata__": {"end_token": "102"}, )";

  std::string Bytes() const {
    const auto part = [](const auto& v) {
      return std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(v[0]));
    };
    size_t at = 0;
    const auto entry = [&](const char* name, const char* type, size_t count, size_t bytes) {
      const std::string text = std::string("\"") + name + "\": {\"dtype\": \"" + type +
                               "\", \"shape\": [" + std::to_string(count) +
                               "], \"data_offsets\": [" + std::to_string(at) + ", " +
                               std::to_string(at + bytes) + "]}";
      at += bytes;
      return text;
    };
    std::string header = "{" + metadata;
    header += entry("offsets", "I64", offsets.size(), offsets.size() * 8) + ", ";
    header += entry("labels", "I64", labels.size(), labels.size() * 8) + ", ";
    header += entry("input_ids", "I32", ids.size(), ids.size() * 4) + "}";
    while (header.size() % 8 != 0) header += ' ';
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + header + part(offsets) +
           part(labels) + part(ids);
  }
};

constexpr ModelLimits kModel{.vocab_size = 200, .labels = 5, .max_positions = 16, .pad_id = 0};

class ShardTest : public testing::Test {
 protected:
  Shard Read(const ShardFile& file, const ShardLimits& limits = {}) {
    return ReadShard(folder_.Write("s.safetensors", file.Bytes()), limits, kModel);
  }
  std::string ErrorOf(const ShardFile& file, const ShardLimits& limits = {},
                      const ModelLimits& model = kModel) {
    try {
      (void)ReadShard(folder_.Write("s.safetensors", file.Bytes()), limits, model);
    } catch (const c10::Error& e) {
      return e.what_without_backtrace();
    }
    return "";
  }
  TemporaryFolder folder_;
};

TEST_F(ShardTest, ReadsRows) {
  const Shard shard = Read({});
  EXPECT_EQ(shard.Rows(), 2);
  EXPECT_EQ(shard.Length(1), 2);
  EXPECT_THAT(shard.ids, ElementsAre(1, 20, 102, 1, 102));
  EXPECT_THAT(shard.labels, ElementsAre(4, 0));
}

TEST_F(ShardTest, ACutRowKeepsItsEndToken) {
  EXPECT_THAT(Read({}, {.rows = -1, .max_length = 2}).ids, ElementsAre(1, 102, 1, 102));
  ShardFile without;
  without.metadata = "";
  EXPECT_THAT(Read(without, {.rows = -1, .max_length = 2}).ids, ElementsAre(1, 20, 1, 102));
}

TEST_F(ShardTest, TheFirstRowsAreTheWantedOnes) {
  EXPECT_THAT(Read({}, {.rows = 1, .max_length = 0}).labels, ElementsAre(4));
}

TEST_F(ShardTest, BadRowsGetASentence) {
  EXPECT_THAT(ErrorOf({.offsets = {0}, .labels = {}, .ids = {}}), HasSubstr("holds no rows"));
  EXPECT_THAT(ErrorOf({.labels = {5, 0}}),
              HasSubstr("row 0 has label 5; the model has 5 labels, counted from 0"));
  EXPECT_THAT(ErrorOf({.labels = {0, -1}}), HasSubstr("row 1 has label -1"));
  EXPECT_THAT(ErrorOf({.ids = {1, 20, 200, 1, 102}}),
              HasSubstr("row 0 has token 200; the model's vocabulary has 200"));
  EXPECT_THAT(ErrorOf({.ids = {1, 20, 102, 1, -7}}), HasSubstr("row 1 has token -7"));
  EXPECT_THAT(ErrorOf({.offsets = {0, 5, 5}}), HasSubstr("row 1 has 0 tokens"));
  EXPECT_THAT(ErrorOf({.offsets = {0, 9, 5}}), HasSubstr("row 0 has 9 tokens"));
  EXPECT_THAT(ErrorOf({.offsets = {0, 3}}), HasSubstr("offsets do not fit 2 rows of 5 tokens"));
  EXPECT_THAT(ErrorOf({.offsets = {0, 3, 6}}), HasSubstr("offsets do not fit"));
  EXPECT_THAT(ErrorOf({}, {.rows = 3, .max_length = 0}),
              HasSubstr("holds 2 rows; the experiment asks for 3"));
  ModelLimits narrow = kModel;
  narrow.max_positions = 2;
  EXPECT_THAT(ErrorOf({}, {}, narrow),
              HasSubstr("row 0 has 3 tokens; the model has 2 positions: set dataset.max_length"));
}

TEST_F(ShardTest, AModelFileIsNoShard) {
  const std::string header =
      R"({"offsets": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})";
  const uint64_t length = header.size();
  const std::string file =
      folder_.Write("m.safetensors",
                    std::string(reinterpret_cast<const char*>(&length), 8) + header + "12345678");
  try {
    (void)ReadShard(file, {}, kModel);
    FAIL();
  } catch (const c10::Error& e) {
    EXPECT_THAT(e.what_without_backtrace(),
                HasSubstr("tensor 'offsets' is F32 of 1 dimensions; I64 of 1 is right"));
  }
}

TEST_F(ShardTest, SyntheticRowsFitTheModelOrSayWhyNot) {
  const auto error = [](const ModelLimits& model, int64_t length) -> std::string {
    try {
      (void)MakeSyntheticShard("x/train", 4, length, model);
    } catch (const c10::Error& e) {
      return e.what_without_backtrace();
    }
    return "";
  };
  EXPECT_EQ(error(kModel, 16), "");
  EXPECT_THAT(error(kModel, 17),
              HasSubstr("synthetic rows of 17 tokens; the model has 16 positions"));
  EXPECT_THAT(error({.vocab_size = 16, .labels = 5, .max_positions = 64, .pad_id = 0}, 16),
              HasSubstr("vocabulary of more than 16"));
  EXPECT_THAT(error({.vocab_size = 99, .labels = 2, .max_positions = 64, .pad_id = 0}, 16),
              HasSubstr("have 5 labels; the model has 2"));
}

}  // namespace
}  // namespace regatta
