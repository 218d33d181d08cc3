#include "worker/models/fixture_recipe.h"
#include "strategies/weights.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "strategies/model.h"
#include "tests/testing/nano.h"
#include "worker/data/loader.h"
#include "worker/models/model_table.h"

namespace regatta {
namespace {

// sha256 over (name, NUL, little-endian bytes) in name order: what the manifest holds.
std::string HashOf(const std::map<std::string, at::Tensor>& tensors) {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  EVP_DigestInit_ex(context, EVP_sha256(), nullptr);
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor whole = tensor.contiguous();
    EVP_DigestUpdate(context, name.c_str(), name.size() + 1);
    EVP_DigestUpdate(context, whole.const_data_ptr(), whole.nbytes());
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_DigestFinal_ex(context, digest, &size);
  EVP_MD_CTX_free(context);
  std::string text;
  for (unsigned int i = 0; i < size; ++i) {
    char hex[3];
    std::snprintf(hex, sizeof(hex), "%02x", digest[i]);
    text += hex;
  }
  return text;
}

nlohmann::json Manifest() {
  return nlohmann::json::parse(std::ifstream(REGATTA_TEST_DATA "/golden/fixtures_manifest.json"));
}

std::string ModelHash(const char* config) {
  const BuiltModel built = BuildModel({"", "", config, false});
  LoadWeights(built.model);
  std::map<std::string, at::Tensor> tensors;
  for (const NamedTensor& parameter : ParametersOf(built.model))
    tensors[parameter.name] = parameter.tensor.detach();
  return HashOf(tensors);
}

std::string RowsHash(const std::string& name, int64_t rows, int64_t length,
                     const ModelLimits& limits) {
  const Shard shard = MakeSyntheticShard(name, rows, length, limits);
  std::vector<int64_t> all(static_cast<size_t>(rows));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const Batch batch = Collate(shard, all, length, limits.pad_id);
  const at::Tensor mask =
      at::arange(length, at::kLong).unsqueeze(0).lt(batch.lengths.unsqueeze(1)).to(at::kLong);
  return HashOf({{"input_ids", batch.ids}, {"attention_mask", mask}, {"labels", batch.labels}});
}

TEST(FixtureRecipeTest, ModelsAreThePeersBitForBit) {
  EXPECT_EQ(ModelHash(kNanoConfig), Manifest()["bert_nano"]["sha256"]);
  EXPECT_EQ(ModelHash(kMiniConfig), Manifest()["bert_mini"]["sha256"]);
}

TEST(FixtureRecipeTest, RowsAreThePeersBitForBit) {
  const ModelLimits nano = BuildModel({"", "", kNanoConfig, false}).limits;
  EXPECT_EQ(RowsHash("data_bert_nano/train", 32, 32, nano),
            Manifest()["data_bert_nano/train"]["sha256"]);
  EXPECT_EQ(RowsHash("data_bert_nano/eval", 16, 32, nano),
            Manifest()["data_bert_nano/eval"]["sha256"]);
  const ModelLimits mini = BuildModel({"", "", kMiniConfig, false}).limits;
  EXPECT_EQ(RowsHash("data_bert_mini/train", 512, 64, mini),
            Manifest()["data_bert_mini/train"]["sha256"]);
}

}  // namespace
}  // namespace regatta
