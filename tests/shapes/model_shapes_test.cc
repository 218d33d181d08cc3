#include "worker/shapes/model_shapes.h"

#include <gtest/gtest.h>

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

int64_t CountParameters(const nlohmann::json& config, size_t* tensors) {
  const auto parsed = ReadDistilBertConfig(config);
  int64_t count = 0;
  const std::vector<ParameterShape> shapes = DistilBertShapes(std::get<DistilBertConfig>(parsed));
  for (const ParameterShape& shape : shapes) {
    int64_t elements = 1;
    for (const int64_t extent : shape.shape) elements *= extent;
    count += elements;
  }
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

TEST(ModelShapesTest, BadConfigsGetASentence) {
  const BadConfig cases[] = {
      {"dim", nullptr, "model config: dim is null; an integer of at least 1 is right"},
      {"dim", 0, "model config: dim is 0; an integer of at least 1 is right"},
      {"dim", "64", "model config: dim is \"64\"; an integer of at least 1 is right"},
      {"dim", 1e30, "model config: dim is 1e+30; an integer of at least 1 is right"},
      {"n_heads", 7, "model config: dim 768 does not divide into 7 heads"},
      {"pad_token_id", 30522,
       "model config: pad_token_id 30522 is outside the vocabulary of 30522"},
      {"activation", "relu", "model config: activation is \"relu\"; only \"gelu\" is built"},
      {"sinusoidal_pos_embds", true,
       "model config: sinusoidal_pos_embds is true; only false is built"},
      {"num_labels", 1, "model config: num_labels must be at least 2"},
      {"model_type", "distilbret",
       "model_type 'distilbret' is not built; did you mean 'distilbert'?"},
      {"model_type", 3, "model config lacks 'model_type'; built: distilbert"}};
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
