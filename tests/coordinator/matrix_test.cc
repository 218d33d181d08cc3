#include "coordinator/experiment/matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace regatta {
namespace {

using testing::ElementsAre;

// The expansion of a file's matrix keys alone. Values of a run are those that a row sets.
class MatrixTest : public testing::Test {
 protected:
  absl::StatusOr<Expansion> Expand(const std::string& text, int64_t repeats = 1,
                                   int64_t max_runs = 10000) {
    tree_ = ParseYaml(text, "f.yaml").value();
    absl::StatusOr<MatrixPlan> plan = ReadMatrix(tree_, "f.yaml");
    if (!plan.ok()) return plan.status();
    return ExpandMatrix(*plan, repeats, max_runs,
                        [](const std::vector<Assignment>& set, const std::string& key) {
                          const YamlNode* found = nullptr;
                          for (const Assignment& assignment : set) {
                            if (assignment.key == key) found = assignment.value;
                          }
                          return found;
                        });
  }
  std::vector<std::string> Names(const std::string& text) {
    std::vector<std::string> names;
    const absl::StatusOr<Expansion> expansion = Expand(text);
    EXPECT_TRUE(expansion.ok()) << expansion.status();
    if (!expansion.ok()) return names;
    for (const MatrixRow& row : expansion->rows) names.push_back(RowName(row));
    return names;
  }
  std::string ErrorOf(const std::string& text) {
    return std::string(Expand(text).status().message());
  }

 private:
  YamlNode tree_;  // what expansions point into
};

TEST_F(MatrixTest, LastAxisVariesFastest) {
  EXPECT_THAT(Names("matrix: {strategy: [a, b], ranks: [1, 2, 3]}"),
              ElementsAre("strategy=a ranks=1", "strategy=a ranks=2", "strategy=a ranks=3",
                          "strategy=b ranks=1", "strategy=b ranks=2", "strategy=b ranks=3"));
}

TEST_F(MatrixTest, NoAxisIsOneCombination) { EXPECT_THAT(Names("name: x"), ElementsAre("")); }

// The fruit and animal example of GitHub's documentation, in regatta's words: there, an include
// that contradicts nothing extends rows, which surprises people; here overrides does that, and
// include only adds.
TEST_F(MatrixTest, GitHubsDocumentedExample) {
  const std::string matrix = "matrix: {model: [apple, pear], dataset: [cat, dog]}\n";
  EXPECT_THAT(Names(matrix), ElementsAre("model=apple dataset=cat", "model=apple dataset=dog",
                                         "model=pear dataset=cat", "model=pear dataset=dog"));
  EXPECT_THAT(
      Names(matrix + "include:\n  - {model: banana}\n  - {model: banana, dataset: cat}\n"),
      ElementsAre("model=apple dataset=cat", "model=apple dataset=dog", "model=pear dataset=cat",
                  "model=pear dataset=dog", "model=banana", "model=banana dataset=cat"));
  const auto expansion =
      Expand(matrix +
             "overrides:\n"
             "  - {match: {}, set: {seed: 1}}\n"                        // color: green, to all
             "  - {match: {dataset: cat}, set: {seed: 2}}\n"            // color: pink, to cats
             "  - {match: {model: apple}, set: {weights: random}}\n");  // shape: circle, to apples
  ASSERT_TRUE(expansion.ok()) << expansion.status();
  std::vector<std::string> rows;
  for (const MatrixRow& row : expansion->rows) {
    std::string text;
    for (const Assignment& set : row.set)
      text += std::string(set.key) + ":" + set.value->text + " ";
    rows.push_back(text);
  }
  EXPECT_THAT(
      rows, ElementsAre("model:apple dataset:cat seed:1 seed:2 weights:random ",
                        "model:apple dataset:dog seed:1 weights:random ",
                        "model:pear dataset:cat seed:1 seed:2 ", "model:pear dataset:dog seed:1 "));
  EXPECT_THAT(expansion->overridden, ElementsAre(4, 2, 2));
}

TEST_F(MatrixTest, ExcludeWithSetsAndComparisons) {
  const std::string matrix = "matrix: {strategy: [a, b, c], ranks: [1, 2, 4]}\nexclude:\n";
  EXPECT_THAT(Names(matrix + "  - {strategy: [a, b], ranks: \"<4\"}\n"),
              ElementsAre("strategy=a ranks=4", "strategy=b ranks=4", "strategy=c ranks=1",
                          "strategy=c ranks=2", "strategy=c ranks=4"));
  EXPECT_THAT(Names(matrix + "  - {ranks: \">=2\"}\n  - {strategy: \"!=b\"}\n"),
              ElementsAre("strategy=b ranks=1"));
  EXPECT_THAT(
      Names(matrix + "  - {ranks: [\"<=1\", \"> 2\"], strategy: a}\n  - {strategy: [b, c]}\n"),
      ElementsAre("strategy=a ranks=2"));
  EXPECT_THAT(Names("matrix: {optimizer.learning_rate: [1e-3, 0.01]}\n"
                    "exclude: [{optimizer.learning_rate: 0.001}]"),
              ElementsAre("optimizer.learning_rate=0.01"))
      << "numbers are equal as numbers";
  EXPECT_THAT(Names("matrix: {strategy: [{name: a, bucket_mib: 1}, {name: b, bucket_mib: 1}]}\n"
                    "exclude: [{strategy: a}]"),
              ElementsAre("strategy=b(bucket_mib=1)"))
      << "a strategy with parameters matches by its name";
}

TEST_F(MatrixTest, ExcludeCountsEveryRuleAndLeavesIncludes) {
  const auto expansion = Expand(
      "matrix: {ranks: [1, 2]}\ninclude: [{ranks: 3}]\n"
      "exclude: [{ranks: 1}, {ranks: \"<2\"}, {ranks: 3}]");
  ASSERT_TRUE(expansion.ok());
  EXPECT_THAT(expansion->excluded, ElementsAre(1, 1, 0));
  EXPECT_EQ(expansion->rows.size(), 2u);
}

TEST_F(MatrixTest, ZipTravelsTogetherAfterTheAxesOfMatrix) {
  EXPECT_THAT(Names("matrix: {ranks: [1, 2]}\nzip: [{model: [a, b], batch_size: [8, 4]}]"),
              ElementsAre("ranks=1 model=a batch_size=8", "ranks=1 model=b batch_size=4",
                          "ranks=2 model=a batch_size=8", "ranks=2 model=b batch_size=4"));
  EXPECT_THAT(
      Names("zip: [{model: [a, b], seed: [1, 1]}, {ranks: [1, 2]}]\n"
            "exclude: [{seed: 1, model: a, ranks: 2}]"),
      ElementsAre("model=a seed=1 ranks=1", "model=b seed=1 ranks=1", "model=b seed=1 ranks=2"));
}

TEST_F(MatrixTest, NamesOfAwkwardValues) {
  EXPECT_THAT(
      Names("matrix:\n  model: [org/name, 'a b', \"a\\nb\", 'k=v', '', 'größe', 'it''s', '\"q\"', "
            "{name: llama, layers: [1, 2]}, ~]\n"),
      ElementsAre("model=org/name", "model=\"a b\"", "model=\"a\\nb\"", "model=\"k=v\"",
                  "model=\"\"", "model=größe", "model=\"it's\"", "model=\"\\\"q\\\"\"",
                  "model=llama(layers=[1,2])", "model=null"));
}

TEST_F(MatrixTest, ABombIsCountedBeforeItIsBuilt) {
  std::string axes = "matrix:\n";
  for (const char* key : {"seed", "epochs", "steps", "ranks", "batch_size"}) {
    axes += std::string("  ") + key + ": [";
    for (int i = 1; i <= 63; ++i) axes += std::to_string(i) + (i < 63 ? ", " : "]\n");
  }
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(ErrorOf(axes), "the matrix has 992436543 combinations; limits.max_runs is 10000");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(500));
  EXPECT_EQ(Expand("matrix: {seed: [1, 2, 3]}\ninclude: [{seed: 4}]", 3, 10).status().message(),
            "the matrix has 3 combinations and 1 included runs, 3 times each; limits.max_runs is "
            "10");
  EXPECT_TRUE(Expand("matrix: {seed: [1, 2, 3]}\ninclude: [{seed: 4}]", 3, 12).ok());
}

TEST_F(MatrixTest, BadRulesAreOneSentenceWithItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"matrix: 3",
       "f.yaml:1:9: matrix is '3'; a map from a key of run to a list of values is right"},
      {"matrix: {ranks: 2}",
       "f.yaml:1:17: matrix.ranks is '2'; a list with at least one value is right"},
      {"matrix: {ranks: []}",
       "f.yaml:1:17: matrix.ranks is '[]'; a list with at least one value is right"},
      {"matrix: {ranks: [1, 1]}", "f.yaml:1:21: matrix.ranks lists '1' twice"},
      {"matrix: {rank: [1]}", "f.yaml:1:16: unknown key 'run.rank'; did you mean 'ranks'?"},
      {"matrix: {link: [none]}", "f.yaml:1:16: run.link: not built yet"},
      {"zip: {ranks: [1]}", "f.yaml:1:6: zip is '{ranks: [1]}'; a list of maps is right"},
      {"zip: [{model: [a, b], batch_size: [8]}]",
       "f.yaml:1:35: zip.batch_size has 1 values and zip.model has 2; equally many are right"},
      {"matrix: {seed: [1]}\nzip: [{seed: [1]}]",
       "f.yaml:2:15: 'seed' is an axis twice; once in matrix or zip is right"},
      {"exclude: {ranks: 1}", "f.yaml:1:10: exclude is '{ranks: 1}'; a list of maps is right"},
      {"exclude: [ranks]",
       "f.yaml:1:11: exclude lists 'ranks'; a map is right, such as {strategy: simple_ddp, ranks: "
       "\"<2\"}"},
      {"matrix: {ranks: [1]}\nexclude: [{rank: 1}]",
       "f.yaml:2:18: exclude names 'rank', which is no axis of matrix or zip; did you mean "
       "'ranks'?"},
      {"matrix: {ranks: [1]}\nexclude: [{ranks: \"<two\"}]",
       "f.yaml:2:19: exclude: ranks '<two' compares with something that is no number"},
      {"matrix: {ranks: [1]}\nexclude: [{ranks: []}]",
       "f.yaml:2:19: exclude: ranks '[]' matches nothing"},
      {"include: {ranks: 2}", "f.yaml:1:10: include is '{ranks: 2}'; a list of maps is right"},
      {"include: [x]",
       "f.yaml:1:11: include lists 'x'; a map is right, such as {strategy: single, ranks: 1}"},
      {"include: [{rank: 2}]", "f.yaml:1:18: unknown key 'run.rank'; did you mean 'ranks'?"},
      {"overrides: [{match: {ranks: 1}}]",
       "f.yaml:1:13: overrides lists '{match: {ranks: 1}}'; match and set are right, such as "
       "{match: {strategy: simple_ddp}, set: {batch_size: 8}}"},
      {"overrides: [{match: {rank: 1}, set: {seed: 2}}]",
       "f.yaml:1:28: unknown key 'run.rank'; did you mean 'ranks'?"},
      {"overrides: [{match: {ranks: 1}, set: {sede: 2}}]",
       "f.yaml:1:45: unknown key 'run.sede'; did you mean 'seed'?"},
  };
  for (const auto& [text, sentence] : cases) EXPECT_EQ(ErrorOf(text), sentence) << text;
}

}  // namespace
}  // namespace regatta
