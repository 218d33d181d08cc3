#include "worker/shapes/model_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/model_folder.h"
#include "worker/shapes/distilbert_shapes.h"
#include "worker/shapes/llama_shapes.h"

namespace regatta {
namespace {

nlohmann::json DistilBertBase() {
  return {{"model_type", "distilbert"},
          {"dim", 768},
          {"n_heads", 12},
          {"n_layers", 6},
          {"hidden_dim", 3072},
          {"vocab_size", 30522},
          {"max_position_embeddings", 512},
          {"num_labels", 5},
          {"pad_token_id", 0}};
}

// SmolLM2-135M-Instruct's, as on the hub.
nlohmann::json SmolLm() {
  return {{"model_type", "llama"},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"hidden_act", "silu"},
          {"hidden_size", 576},
          {"initializer_range", 0.041666666666666664},
          {"intermediate_size", 1536},
          {"is_llama_config", true},
          {"max_position_embeddings", 8192},
          {"mlp_bias", false},
          {"num_attention_heads", 9},
          {"num_hidden_layers", 30},
          {"num_key_value_heads", 3},
          {"num_labels", 5},
          {"pad_token_id", 2},
          {"rms_norm_eps", 1e-05},
          {"rope_interleaved", false},
          {"rope_scaling", nullptr},
          {"rope_theta", 100000},
          {"tie_word_embeddings", true},
          {"vocab_size", 49152}};
}

int64_t CountParameters(const nlohmann::json& config, size_t* tensors) {
  EXPECT_EQ(CheckModelConfig(config), "");
  int64_t count = 0;
  const std::vector<ParameterShape> shapes = FindModelKind(config)->shapes(config);
  for (const ParameterShape& shape : shapes) count += shape.Elements();
  *tensors = shapes.size();
  return count;
}

TEST(ModelShapesTest, DistilBertBaseHasThePublishedParameters) {
  size_t tensors = 0;
  EXPECT_EQ(CountParameters(DistilBertBase(), &tensors), 66957317);
  EXPECT_EQ(tensors, 104u);
}

TEST(ModelShapesTest, MiniLmFoldedHasThePublishedParameters) {
  nlohmann::json config = DistilBertBase();
  config["dim"] = 384;
  config["hidden_dim"] = 1536;
  size_t tensors = 0;
  EXPECT_EQ(CountParameters(config, &tensors), 22714373);
  EXPECT_EQ(tensors, 104u);
}

TEST(ModelShapesTest, SmolLm2HasThePublishedParameters) {
  size_t tensors = 0;
  EXPECT_EQ(CountParameters(SmolLm(), &tensors), 134517888);
  EXPECT_EQ(tensors, 273u);
  nlohmann::json larger = SmolLm();
  larger.update({{"hidden_size", 960},
                 {"intermediate_size", 2560},
                 {"num_attention_heads", 15},
                 {"num_hidden_layers", 32},
                 {"num_key_value_heads", 5}});
  EXPECT_EQ(CountParameters(larger, &tensors), 361825920);
  EXPECT_EQ(tensors, 291u);
}

TEST(ModelShapesTest, LlamaReadsRopeInBothPlacesAndTying) {
  nlohmann::json config = SmolLm();
  EXPECT_EQ(std::get<LlamaConfig>(ReadLlamaConfig(config)).rope_theta, 100000);
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5000}};
  EXPECT_EQ(std::get<LlamaConfig>(ReadLlamaConfig(config)).rope_theta, 5000);
  EXPECT_EQ(LlamaShapes(std::get<LlamaConfig>(ReadLlamaConfig(config)))[0].tied_to,
            "lm_head.weight");
}

// A checkpoint with a tied head may keep the one tensor under the head's name.
TEST(ModelShapesTest, ATiedEmbeddingIsFoundUnderTheHeadsName) {
  nlohmann::json config = SmolLm();
  config.update({{"hidden_size", 8},
                 {"intermediate_size", 8},
                 {"num_attention_heads", 2},
                 {"num_hidden_layers", 1},
                 {"num_key_value_heads", 1},
                 {"vocab_size", 16}});
  const TemporaryFolder folder;
  WriteModelFolder(folder, "tied", config);
  EXPECT_THAT(CheckModelFolder(folder.Path() + "/tied"), testing::IsEmpty());
  std::string weights = ZeroWeights(config);
  const std::string name = "\"model.embed_tokens.weight\"";
  const std::string other = "\"lm_head.weight\"           ";  // as long, so that the header stays
  ASSERT_EQ(name.size(), other.size());
  weights.replace(weights.find(name), name.size(), other);
  folder.Write("tied/model.safetensors", weights);
  EXPECT_THAT(CheckModelFolder(folder.Path() + "/tied"), testing::IsEmpty());
  config["tie_word_embeddings"] = false;
  folder.Write("tied/config.json", config.dump());
  EXPECT_THAT(
      CheckModelFolder(folder.Path() + "/tied"),
      testing::ElementsAre(testing::HasSubstr("has no tensor 'model.embed_tokens.weight'")));
}

TEST(ModelShapesTest, LabelsComeFromId2LabelToo) {
  nlohmann::json config = DistilBertBase();
  config.erase("num_labels");
  config["id2label"] = {{"0", "a"}, {"1", "b"}, {"2", "c"}};
  EXPECT_EQ(std::get<DistilBertConfig>(ReadDistilBertConfig(config)).labels, 3);
}

struct BadConfig {
  const char* key;
  nlohmann::json value;
  const char* sentence;
};

TEST(ModelShapesTest, BadLlamaConfigsGetASentence) {
  const BadConfig cases[] = {
      {"num_key_value_heads", 2,
       "model config: num_attention_heads 9 is no multiple of num_key_value_heads 2"},
      {"num_attention_heads", 7, "model config: hidden_size 576 does not divide into 7 heads"},
      {"head_dim", 63, "model config: head_dim 63 is odd; rotary embedding turns pairs"},
      {"rope_theta", -1, "model config: rope_theta is -1; a number above 0 is right"},
      {"rope_scaling",
       {{"rope_type", "llama3"}},
       "model config: rope_scaling is {\"rope_type\":\"llama3\"}; only null is built"},
      {"rope_parameters",
       {{"rope_type", "yarn"}},
       "model config: rope_type is \"yarn\"; only \"default\" is built"},
      {"attention_dropout", 1,
       "model config: attention_dropout is 1; a probability from 0 to below 1 is right"},
      {"attention_bias", true, "model config: attention_bias is true; only false is built"},
      {"hidden_act", "gelu", "model config: hidden_act is \"gelu\"; only \"silu\" is built"},
      {"pad_token_id", nullptr,
       "model config: pad_token_id is null; an integer of at least 0 is right"}};
  for (const BadConfig& bad : cases) {
    nlohmann::json config = SmolLm();
    config[bad.key] = bad.value;
    EXPECT_EQ(CheckModelConfig(config), bad.sentence);
  }
}

TEST(ModelShapesTest, BadConfigsGetASentence) {
  const BadConfig cases[] = {
      {"dim", nullptr, "model config: dim is null; an integer of at least 1 is right"},
      {"dim", 0, "model config: dim is 0; an integer of at least 1 is right"},
      {"dim", "64", "model config: dim is \"64\"; an integer of at least 1 is right"},
      {"dim", 1e30, "model config: dim is 1e+30; an integer of at least 1 is right"},
      {"n_heads", 7, "model config: dim 768 does not divide into 7 heads"},
      {"pad_token_id", 30522,
       "model config: pad_token_id 30522 is outside the vocabulary of 30522"},
      {"dropout", -0.1, "model config: dropout is -0.1; a probability from 0 to below 1 is right"},
      {"seq_classif_dropout", "no",
       "model config: seq_classif_dropout is \"no\"; a probability from 0 to below 1 is right"},
      {"activation", "relu", "model config: activation is \"relu\"; only \"gelu\" is built"},
      {"sinusoidal_pos_embds", true,
       "model config: sinusoidal_pos_embds is true; only false is built"},
      {"num_labels", 1, "model config: num_labels must be at least 2"},
      {"model_type", "distilbret",
       "model_type 'distilbret' is not built; did you mean 'distilbert'?"},
      {"model_type", 3, "model config lacks 'model_type'; built: distilbert, llama"}};
  for (const BadConfig& bad : cases) {
    nlohmann::json config = DistilBertBase();
    config[bad.key] = bad.value;
    EXPECT_EQ(CheckModelConfig(config), bad.sentence);
  }
  nlohmann::json config = DistilBertBase();
  config.erase("n_layers");
  EXPECT_EQ(CheckModelConfig(config), "model config lacks 'n_layers'");
  EXPECT_EQ(CheckModelConfig(DistilBertBase()), "");
}

}  // namespace
}  // namespace regatta
