#include "coordinator/experiment/experiment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "coordinator/experiment/run_keys.h"
#include "tests/testing/temporary_folder.h"

namespace regatta {
namespace {

using testing::HasSubstr;

constexpr const char* kTiny =
    "  model: {name: distilbert, dim: 64, n_heads: 4, n_layers: 2, hidden_dim: 64, vocab_size: "
    "100, "
    "max_position_embeddings: 32, num_labels: 5}\n"
    "  dataset: {name: synthetic, rows: 8, max_length: 16}\n";

std::string WithTiny(const std::string& run_lines, const std::string& rest = "") {
  return std::string("name: t\nrun:\n") + kTiny + run_lines + rest;
}

class ExperimentTest : public testing::Test {
 protected:
  absl::StatusOr<Experiment> Parse(const std::string& text) {
    return ParseExperiment(text, {.file_name = "f.yaml",
                                  .folder = folder_.Path(),
                                  .material = folder_.Path() + "/material",
                                  .cores = 4});
  }
  std::string ErrorOf(const std::string& text) {
    return std::string(Parse(text).status().message());
  }

  TemporaryFolder folder_;
};

TEST_F(ExperimentTest, DefaultsGiveACompleteSpec) {
  const auto experiment = Parse(WithTiny(""));
  ASSERT_TRUE(experiment.ok()) << experiment.status();
  ASSERT_EQ(experiment->runs.size(), 1u);
  const v1::RunSpec& spec = experiment->runs[0].spec;
  EXPECT_EQ(experiment->runs[0].name, "t");
  EXPECT_EQ(spec.strategy().name(), "single");
  EXPECT_EQ(spec.ranks(), 1);
  EXPECT_EQ(spec.batch_size(), 16);
  EXPECT_EQ(spec.epochs(), 1);
  EXPECT_EQ(spec.steps(), 0);
  EXPECT_EQ(spec.threads_per_rank(), 4);
  EXPECT_EQ(spec.optimizer().name(), "adamw");
  EXPECT_EQ(spec.optimizer().learning_rate(), 5e-5);
  EXPECT_EQ(spec.optimizer().beta2(), 0.999);
  EXPECT_EQ(spec.optimizer().implementation(), "fused");
  EXPECT_EQ(spec.dataset().eval_rows(), 4) << "half of the synthetic rows";
  EXPECT_FALSE(spec.model().pretrained());
  EXPECT_EQ(experiment->limits.max_parallel, 1);
}

TEST_F(ExperimentTest, MatrixSetsDottedKeysAndNamesOnlyWhatIsSwept) {
  const auto experiment =
      Parse(WithTiny("  batch_size: 8\n",
                     "matrix:\n  strategy: [single, simple_ddp]\n  dataset.max_length: [8, 16]\n"
                     "  optimizer.name: [sgd]\n"));
  ASSERT_TRUE(experiment.ok()) << experiment.status();
  ASSERT_EQ(experiment->runs.size(), 4u);
  EXPECT_EQ(experiment->runs[1].name, "strategy=single dataset.max_length=16 optimizer.name=sgd");
  EXPECT_EQ(experiment->runs[2].spec.dataset().max_length(), 8);
  EXPECT_EQ(experiment->runs[2].spec.strategy().name(), "simple_ddp");
  EXPECT_EQ(experiment->runs[2].spec.optimizer().name(), "sgd");
}

TEST_F(ExperimentTest, IncludeAddsRowsAndNothingElse) {
  const auto experiment = Parse(
      WithTiny("  ranks: 2\n",
               "matrix: {strategy: [simple_ddp]}\ninclude:\n  - {strategy: single, ranks: 1}\n"));
  ASSERT_TRUE(experiment.ok()) << experiment.status();
  ASSERT_EQ(experiment->runs.size(), 2u);
  EXPECT_EQ(experiment->runs[0].spec.ranks(), 2);
  EXPECT_EQ(experiment->runs[1].name, "strategy=single ranks=1");
  EXPECT_EQ(ErrorOf(WithTiny("", "include: {ranks: 2}\n")),
            "f.yaml:5:10: include is '{ranks: 2}'; a list of maps is right");
  EXPECT_EQ(
      ErrorOf(WithTiny("", "include: [x]\n")),
      "f.yaml:5:11: include lists 'x'; a map of keys of run is right, such as {strategy: single}");
  EXPECT_EQ(ErrorOf(WithTiny("", "include: [{rank: 2}]\n")),
            "f.yaml:5:18: unknown key 'run.rank'; did you mean 'ranks'?");
}

TEST_F(ExperimentTest, StepsAloneAreNotCutByOneEpoch) {
  EXPECT_EQ(Parse(WithTiny("  steps: 500\n"))->runs[0].spec.epochs(), 0);
  EXPECT_EQ(Parse(WithTiny("  steps: 500\n  epochs: 2\n"))->runs[0].spec.epochs(), 2);
}

TEST_F(ExperimentTest, BatchSizePerRankIsTimesRanks) {
  EXPECT_EQ(Parse(WithTiny("  strategy: simple_ddp\n  ranks: 3\n  batch_size_per_rank: 5\n"))
                ->runs[0]
                .spec.batch_size(),
            15);
}

TEST_F(ExperimentTest, BadInputIsOneSentenceWithItsPlace) {
  const std::pair<std::string, std::string> cases[] = {
      {"name: x\nruns: {}\n", "f.yaml:2:7: unknown key 'runs'; did you mean 'run'?"},
      {"run: {}\n", "f.yaml:1:1: the experiment lacks 'name:'"},
      {"name: [a]\n", "f.yaml:1:7: name is '[a]'; some text is right"},
      {"[a, b]\n", "f.yaml:1:1: '[a, b]' is not a map of keys and values"},
      {"name: x\nrepeats: 3\n", "f.yaml:2:10: repeats: not built yet"},
      {"name: x\nlimits: {max_restarts: 1}\n", "f.yaml:2:24: limits.max_restarts: not built yet"},
      {"name: x\nlimits: {max_paralel: 1}\n",
       "f.yaml:2:23: unknown key 'limits.max_paralel'; did you mean 'max_parallel'?"},
      {"name: x\nlimits: {max_parallel: 0}\n",
       "f.yaml:2:24: limits.max_parallel is '0'; an integer from 1 to 1000000 is right"},
      {"name: x\nlimits: {join_timeout: 60}\n",
       "f.yaml:2:24: limits.join_timeout is '60'; a duration with its unit is right, such as 60s"},
      {WithTiny("  modle: x\n"), "f.yaml:5:10: unknown key 'run.modle'; did you mean 'model'?"},
      {WithTiny("  ranks: two\n"),
       "f.yaml:5:10: run.ranks is 'two'; an integer from 1 to 100000 is right"},
      {WithTiny("  ranks: 2.0\n"),
       "f.yaml:5:10: run.ranks is '2.0'; an integer from 1 to 100000 is right"},
      {WithTiny("  batch_size: 0\n"),
       "f.yaml:5:15: run.batch_size is '0'; an integer of at least 1 is right"},
      {WithTiny("  strategy: zreo1\n"),
       "f.yaml:5:13: unknown strategy 'zreo1'; known: single, simple_ddp"},
      {WithTiny("  strategy: singel\n"),
       "f.yaml:5:13: unknown strategy 'singel'; did you mean 'single'?"},
      {WithTiny("  ranks: 2\n"), "f.yaml:3:3: strategy 'single' runs on 1 rank, not on 2"},
      {WithTiny("  optimizer: {nmae: sgd}\n"),
       "f.yaml:5:21: unknown key 'run.optimizer.nmae'; did you mean 'name'?"},
      {WithTiny("  optimizer: {learning_rate: fast}\n"),
       "f.yaml:5:30: run.optimizer.learning_rate is 'fast'; a number of at least 0 is right"},
      {WithTiny("  optimizer: {betas: [0.9]}\n"),
       "f.yaml:5:22: run.optimizer.betas is '[0.9]'; two numbers from 0 to below 1 is right"},
      {WithTiny("  precision: bf16_mixed\n"),
       "f.yaml:5:14: run.precision 'bf16_mixed' is not built yet"},
      {WithTiny("  precision: fp64\n"),
       "f.yaml:5:14: run.precision 'fp64' is unknown; did you mean 'fp32'?"},
      {WithTiny("  dropout: model\n"), "f.yaml:5:12: run.dropout 'model' is not built yet"},
      {WithTiny("  clip_norm: 1.0\n"), "f.yaml:5:14: run.clip_norm: not built yet"},
      {WithTiny("  drop_last: yes\n"),
       "f.yaml:5:14: run.drop_last is 'yes'; true or false is right"},
      {WithTiny("  padding: {fixed: 0}\n"),
       "f.yaml:5:12: run.padding is '{fixed: 0}'; longest or {fixed: N} is right"},
      {WithTiny("  batch_size: 4\n  batch_size_per_rank: 2\n"),
       "f.yaml:5:15: run sets both batch_size and batch_size_per_rank; one of them is right"},
      {WithTiny("  strategy: simple_ddp\n  ranks: 4\n  batch_size: 3\n"),
       "f.yaml:7:15: run.batch_size 3 leaves some of the 4 ranks without a row; at least one row a "
       "rank is right"},
      {WithTiny("  weights: pretrained\n"),
       "f.yaml:3:10: run.weights is 'pretrained', but an inline model has no weights; random is "
       "right"},
      {WithTiny("", "matrix: {ranks: 2}\n"),
       "f.yaml:5:17: matrix.ranks is '2'; a list with at least one value is right"},
      {WithTiny("", "matrix: {ranks: []}\n"),
       "f.yaml:5:17: matrix.ranks is '[]'; a list with at least one value is right"},
      {WithTiny("", "matrix: {ranks: [1, 1]}\n"), "f.yaml:5:21: matrix.ranks lists '1' twice"},
      {WithTiny("", "matrix: {rank: [1, 2]}\n"),
       "f.yaml:5:17: unknown key 'run.rank'; did you mean 'ranks'?"},
      {"name: x\nrun: {model: nothing}\n", "is not prepared (no "},
      {"name: x\nrun: {model: org/nothing}\n", "models of a hub are not built yet"},
      {"name: x\nrun: {model: ./nowhere}\n", "nowhere/config.json cannot be read"},
      {"name: x\nrun: {model: {name: llama}}\n", "model_type 'llama' is not built"},
      {"name: x\nrun: {model: {name: distilbert, dims: 3}}\n",
       "unknown key 'run.model.dims'; did you mean 'dim'?"},
  };
  for (const auto& [text, sentence] : cases) {
    EXPECT_THAT(ErrorOf(text), HasSubstr(sentence)) << text;
    EXPECT_EQ(Parse(text).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(ExperimentTest, DatasetErrorsNameTheKey) {
  const auto with_dataset = [](const std::string& dataset) {
    return "name: t\nrun:\n  model: {name: distilbert, dim: 64, n_heads: 4, n_layers: 2, "
           "hidden_dim: 64, vocab_size: "
           "100, max_position_embeddings: 32, num_labels: 5}\n  dataset: " +
           dataset + "\n";
  };
  EXPECT_THAT(ErrorOf(with_dataset("{name: synthetic}")),
              HasSubstr("needs rows of at least 1 and max_length of at least 4"));
  EXPECT_THAT(ErrorOf(with_dataset("{name: synthetic, rows: x, max_length: 8}")),
              HasSubstr("run.dataset.rows is 'x'"));
  EXPECT_THAT(ErrorOf(with_dataset("{name: synthetic, rows: 8, max_length: 8, row: 3}")),
              HasSubstr("unknown key 'run.dataset.row'; did you mean 'rows'?"));
  EXPECT_THAT(ErrorOf(with_dataset("{rows: 8}")), HasSubstr("run.dataset lacks 'name'"));
  EXPECT_THAT(ErrorOf(with_dataset("reviews")),
              HasSubstr("is not prepared for model 'distilbert'"));
}

TEST_F(ExperimentTest, PreparedModelIsFoundByNameAndByFolder) {
  const std::string config =
      R"({"model_type": "distilbert", "dim": 8, "n_heads": 2, "n_layers": 1, "hidden_dim": 8, "vocab_size": 100,
          "max_position_embeddings": 16, "num_labels": 5})";
  for (const char* file : {"material/models/tiny/", "mine/"}) {
    folder_.Write(std::string(file) + "config.json", config);
    folder_.Write(std::string(file) + "model.safetensors", "x");
  }
  const std::string data = "  dataset: {name: synthetic, rows: 8, max_length: 16}\n";
  const auto named = Parse("name: t\nrun:\n  model: tiny\n" + data);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_TRUE(named->runs[0].spec.model().pretrained());
  EXPECT_EQ(named->runs[0].spec.model().folder(), folder_.Path() + "/material/models/tiny");
  const auto by_folder = Parse("name: t\nrun:\n  model: ./mine\n" + data);
  ASSERT_TRUE(by_folder.ok()) << by_folder.status();
  EXPECT_EQ(by_folder->runs[0].spec.model().name(), "mine");
  folder_.Write("mine/config.json", "{");
  EXPECT_THAT(ErrorOf("name: t\nrun:\n  model: ./mine\n" + data),
              HasSubstr("is not a JSON object"));
}

TEST_F(ExperimentTest, ABombOfRunsIsRefused) {
  std::string axes = "matrix:\n";
  for (const char* key : {"seed", "epochs", "steps", "gradient_accumulation", "batch_size"}) {
    axes += std::string("  ") + key + ": [1, 2, 3, 4, 5, 6, 7, 8, 9]\n";
  }
  EXPECT_EQ(ErrorOf(WithTiny("", axes)),
            "f.yaml: the matrix has more than 10000 combinations (limits.max_runs)");
  EXPECT_EQ(ErrorOf(WithTiny("", "limits: {max_runs: 2}\nmatrix: {seed: [1, 2, 3]}\n")),
            "f.yaml: the matrix has more than 2 combinations (limits.max_runs)");
}

TEST_F(ExperimentTest, EveryKeyOfTheTableIsDocumentedAndOnce) {
  std::set<std::string> paths;
  for (const RunKey& key : RunKeys()) {
    EXPECT_TRUE(paths.insert(key.path).second) << key.path;
    EXPECT_STRNE(key.meaning, "") << key.path;
    EXPECT_TRUE(key.read == nullptr || *key.right != '\0') << key.path;
  }
}

TEST(DurationTest, NeedsAUnit) {
  const std::pair<const char*, double> good[] = {
      {"500ms", 0.5}, {"90s", 90}, {"1.5m", 90}, {"2h", 7200}, {"1d", 86400}};
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  double seconds = 0;
  for (const auto& [text, expected] : good) {
    node.text = text;
    ASSERT_TRUE(ReadDuration(node, &seconds)) << text;
    EXPECT_DOUBLE_EQ(seconds, expected);
  }
  for (const char* bad : {"60", "", "s", "-1s", "0s", "1w", "nans", "infs", "1e400s"}) {
    node.text = bad;
    EXPECT_FALSE(ReadDuration(node, &seconds)) << bad;
  }
}

}  // namespace
}  // namespace regatta
