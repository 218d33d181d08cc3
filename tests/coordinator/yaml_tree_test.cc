#include "coordinator/experiment/yaml_tree.h"

#include <gtest/gtest.h>

namespace regatta {
namespace {

std::string ErrorOf(const std::string& text) {
  return std::string(ParseYaml(text, "f.yaml").status().message());
}

TEST(YamlTreeTest, KeepsPlacesAndOrder) {
  const auto tree = ParseYaml("b: 1\na:\n  - x\n  - {k: v}\n", "f.yaml");
  ASSERT_TRUE(tree.ok()) << tree.status();
  ASSERT_EQ(tree->entries.size(), 2u);
  EXPECT_EQ(tree->entries[0].key, "b");
  EXPECT_EQ(tree->entries[1].value.items[1].line, 4);
  EXPECT_EQ(OneLine(*tree), "{b: 1, a: [x, {k: v}]}");
}

TEST(YamlTreeTest, TrapsOfYamlAreErrorsWithTheirPlace) {
  EXPECT_EQ(ErrorOf("a: 1\nb: 2\na: 3\n"), "f.yaml:3:1: key 'a' is there twice");
  EXPECT_EQ(ErrorOf("a: 010\n"),
            "f.yaml:1:4: '010' looks like an octal number; write it without the leading zero, or "
            "in quotes if it is text");
  EXPECT_EQ(ErrorOf("base: &b {x: 1}\nrun:\n  <<: *b\n"),
            "f.yaml:3:3: merge keys ('<<') are not supported; write the keys out");
  EXPECT_EQ(ErrorOf("a: 1\n---\nb: 2\n"),
            "f.yaml:1:1: the file holds several documents ('---'); one is right");
  for (const char* empty : {"", "# a comment\n", "---\n", ", name: x\n"}) {
    EXPECT_EQ(ErrorOf(empty),
              "f.yaml:1:1: the file holds no keys and values; an experiment needs at least 'name:'")
        << empty;
  }
  EXPECT_EQ(ErrorOf("? [a, b]\n: 1\n"), "f.yaml:1:3: a key must be text");
  EXPECT_TRUE(ErrorOf("a: [1, 2\n").starts_with("f.yaml:")) << ErrorOf("a: [1, 2\n");
  EXPECT_TRUE(ErrorOf("a: *nowhere\n").starts_with("f.yaml:1:"));
  EXPECT_TRUE(ErrorOf("a:\n\t- b\n").starts_with("f.yaml:2:")) << ErrorOf("a:\n\t- b\n");
}

TEST(YamlTreeTest, OnlyUtf8IsRead) {
  EXPECT_TRUE(ParseYaml("name: größe 模型 🚣\n", "f.yaml").ok());
  EXPECT_EQ(ErrorOf("name: x\nrun: {model: {vocab_size: \xb2}}\n"),
            "f.yaml:2:27: the file is not UTF-8 here; save it as UTF-8");
  EXPECT_EQ(ErrorOf("name: gr\xf6\xdf"
                    "e\n"),
            "f.yaml:1:9: the file is not UTF-8 here; save it as UTF-8");
}

TEST(YamlTreeTest, QuotedOctalIsText) {
  const auto tree = ParseYaml("a: '010'\n", "f.yaml");
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(tree->entries[0].value.text, "010");
}

TEST(YamlTreeTest, AliasBombEndsAtTheLimit) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string last = std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 9; ++k) text += "*a" + last + (k < 8 ? ", " : "]\n");
  }
  EXPECT_NE(ErrorOf(text).find("more than 100000 values"), std::string::npos) << ErrorOf(text);
}

TEST(YamlTreeTest, DeepNestingAndLargeFilesAreRefused) {
  EXPECT_NE(ErrorOf("a: " + std::string(100, '[') + std::string(100, ']')).find("levels deep"),
            std::string::npos);
  EXPECT_NE(ErrorOf("a: " + std::string(20000, '[')).find("f.yaml:"), std::string::npos);
  EXPECT_NE(ErrorOf("a: " + std::string(2 << 20, 'x')).find("at most"), std::string::npos);
}

// Not a fuzzer, but the kind of damage a bad editor or a cut file does: never a crash, always an
// answer.
TEST(YamlTreeTest, EveryPrefixAndEveryFlippedByteIsAnswered) {
  const std::string text =
      "name: x\nrun: {ranks: 2, model: [a, 'b', \"c\"]}\nmatrix:\n  strategy: [single, &q zero1, "
      "*q]\n";
  for (size_t i = 0; i < text.size(); ++i) {
    (void)ParseYaml(text.substr(0, i), "f.yaml");
    for (const char c : {'\0', '\n', '{', ':', '*', '\xff'}) {
      std::string broken = text;
      broken[i] = c;
      (void)ParseYaml(broken, "f.yaml");
    }
  }
}

}  // namespace
}  // namespace regatta
