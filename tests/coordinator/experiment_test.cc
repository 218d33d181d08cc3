#include "coordinator/experiment/experiment.h"

#include <absl/strings/str_replace.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <set>

#include "coordinator/experiment/schema.h"
#include "coordinator/experiment/values.h"
#include "tests/testing/model_folder.h"
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

v1::RunSpec SpecOf(const PlannedRun& run) {
  v1::RunSpec spec;
  EXPECT_TRUE(spec.ParseFromString(*run.spec));
  return spec;
}

class ExperimentTest : public testing::Test {
 protected:
  absl::StatusOr<Experiment> Parse(const std::string& text,
                                   const std::vector<std::string>& sets = {}, bool strict = false) {
    return ParseExperiment({.text = text, .sets = sets, .strict = strict},
                           {.file_name = "f.yaml",
                            .folder = folder_.Path(),
                            .material = folder_.Path() + "/material",
                            .cores = 4,
                            .environment = {{"TOKEN", "hush"}, {"PLAIN", "x y"}}});
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
  const v1::RunSpec spec = SpecOf(experiment->runs[0]);
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
  EXPECT_EQ(experiment->head.limits.max_parallel, 1);
}

TEST_F(ExperimentTest, MatrixSetsDottedKeysAndNamesOnlyWhatIsSwept) {
  const auto experiment =
      Parse(WithTiny("  batch_size: 8\n",
                     "matrix:\n  strategy: [single, simple_ddp]\n  dataset.max_length: [8, 16]\n"
                     "  optimizer.name: [sgd]\n"));
  ASSERT_TRUE(experiment.ok()) << experiment.status();
  ASSERT_EQ(experiment->runs.size(), 4u);
  EXPECT_EQ(experiment->runs[1].name, "strategy=single dataset.max_length=16 optimizer.name=sgd");
  EXPECT_EQ(SpecOf(experiment->runs[2]).dataset().max_length(), 8);
  EXPECT_EQ(SpecOf(experiment->runs[2]).strategy().name(), "simple_ddp");
  EXPECT_EQ(SpecOf(experiment->runs[2]).optimizer().name(), "sgd");
}

TEST_F(ExperimentTest, IncludeAddsRowsAndNothingElse) {
  const auto experiment = Parse(
      WithTiny("  ranks: 2\n",
               "matrix: {strategy: [simple_ddp]}\ninclude:\n  - {strategy: single, ranks: 1}\n"));
  ASSERT_TRUE(experiment.ok()) << experiment.status();
  ASSERT_EQ(experiment->runs.size(), 2u);
  EXPECT_EQ(SpecOf(experiment->runs[0]).ranks(), 2);
  EXPECT_EQ(experiment->runs[1].name, "strategy=single ranks=1");
}

TEST_F(ExperimentTest, StepsAloneAreNotCutByOneEpoch) {
  EXPECT_EQ(SpecOf(Parse(WithTiny("  steps: 500\n"))->runs[0]).epochs(), 0);
  EXPECT_EQ(SpecOf(Parse(WithTiny("  steps: 500\n  epochs: 2\n"))->runs[0]).epochs(), 2);
}

TEST_F(ExperimentTest, BatchSizePerRankIsTimesRanks) {
  EXPECT_EQ(SpecOf(Parse(WithTiny("  strategy: simple_ddp\n  ranks: 3\n  batch_size_per_rank: 5\n"))
                       ->runs[0])
                .batch_size(),
            15);
}

TEST_F(ExperimentTest, BadInputIsOneSentenceWithItsPlace) {
  const std::pair<std::string, std::string> cases[] = {
      {"name: x\nruns: {}\n", "f.yaml:2:7: unknown key 'runs'; did you mean 'run'?"},
      {"run: {}\n", "f.yaml:1:1: the experiment lacks 'name:'"},
      {"name: [a]\n", "f.yaml:1:7: name is '[a]'; some text is right"},
      {"name:\n", "f.yaml:1:1: name is 'null'; some text is right"},
      {"name: ''\n", "f.yaml:1:7: name is ''; some text is right"},
      {"[a, b]\n", "f.yaml:1:1: '[a, b]' is not a map of keys and values"},
      {"just text\n", "f.yaml:1:1: 'just text' is not a map of keys and values"},
      {"name: x\ndescription: {a: b}\n",
       "f.yaml:2:14: description is '{a: b}'; some text is right"},
      {"name: x\nlabels: [a]\n",
       "f.yaml:2:9: labels is '[a]'; a map of texts such as {machine: workstation} is right"},
      {"name: x\nlabels: {a: [b]}\n",
       "f.yaml:2:9: labels is '{a: [b]}'; a map of texts such as {machine: workstation} is right"},
      {"name: x\nrun: 3\n", "f.yaml:2:6: run is '3'; a map is right"},
      {"name: x\nlimits: 3\n", "f.yaml:2:9: limits is '3'; a map is right"},
      {"name: x\nlimits: {max_restarts: 1}\n", "f.yaml:2:24: limits.max_restarts: not built yet"},
      {"name: x\nlimits: {max_paralel: 1}\n",
       "f.yaml:2:23: unknown key 'limits.max_paralel'; did you mean 'max_parallel'?"},
      {"name: x\nlimits: {max_parallel: 0}\n",
       "f.yaml:2:24: limits.max_parallel is '0'; an integer from 1 to 1000000 is right"},
      {"name: x\nlimits: {max_runs: 1e3}\n",
       "f.yaml:2:20: limits.max_runs is '1e3'; an integer from 1 to 1000000 is right"},
      {"name: x\nlimits: {join_timeout: 60}\n",
       "f.yaml:2:24: limits.join_timeout is '60'; a duration with its unit, such as 60s is right"},
      {"name: x\nlimits: {stall_timeout: 2h}\n",
       "f.yaml:2:25: limits.stall_timeout: not built yet"},
      {"name: x\nlimits: {timeout: 2}\n",
       "f.yaml:2:19: limits.timeout is '2'; none or a duration with its unit, such as 2h is right"},
      {"name: x\nrepeats: 0\n", "f.yaml:2:10: repeats is '0'; an integer from 1 to 1000 is right"},
      {"name: x\nrepeats: many\n",
       "f.yaml:2:10: repeats is 'many'; an integer from 1 to 1000 is right"},
      {"name: x\non_invalid: ignore\n",
       "f.yaml:2:13: on_invalid 'ignore' is unknown; known: error, skip"},
      {"name: x\nlauncher: slurm\n", "f.yaml:2:11: launcher 'slurm' is not built yet"},
      {"name: x\nlauncher: pbs\n", "f.yaml:2:11: launcher 'pbs' is unknown; known: local"},
      {"name: x\ncost: {usd_per_hour: 0.79}\n", "f.yaml:2:22: cost.usd_per_hour: not built yet"},
      {"name: x\non_finish: ./tell\n", "f.yaml:2:12: on_finish: not built yet"},
      {"name: x\nname: y\n", "f.yaml:2:1: key 'name' is there twice"},
      {"name: x\nrun: {ranks: 010}\n",
       "f.yaml:2:14: '010' looks like an octal number; write it without the leading zero, or in "
       "quotes if it is text"},
      {"name: x\nrun: {ranks: 0x2}\n",
       "f.yaml:2:14: run.ranks is '0x2'; an integer from 1 to 100000 is right"},
      {"name: x\nrun: {ranks: 1_000}\n",
       "f.yaml:2:14: run.ranks is '1_000'; an integer from 1 to 100000 is right"},
      {"name: x\nrun: {ranks: ~}\n",
       "f.yaml:2:7: run.ranks is 'null'; an integer from 1 to 100000 is right"},
      {"name: x\nrun: {ranks: [2]}\n",
       "f.yaml:2:14: run.ranks is '[2]'; an integer from 1 to 100000 is right"},
      {WithTiny("  modle: x\n"), "f.yaml:5:10: unknown key 'run.modle'; did you mean 'model'?"},
      {WithTiny("  ranks: two\n"),
       "f.yaml:5:10: run.ranks is 'two'; an integer from 1 to 100000 is right"},
      {WithTiny("  ranks: 2.0\n"),
       "f.yaml:5:10: run.ranks is '2.0'; an integer from 1 to 100000 is right"},
      {WithTiny("  ranks: 100001\n"),
       "f.yaml:5:10: run.ranks is '100001'; an integer from 1 to 100000 is right"},
      {WithTiny("  ranks: 99999999999999999999\n"),
       "f.yaml:5:10: run.ranks is '99999999999999999999'; an integer from 1 to 100000 is right"},
      {WithTiny("  batch_size: 0\n"),
       "f.yaml:5:15: run.batch_size is '0'; auto or an integer of at least 1 is right"},
      {WithTiny("  batch_size: 12:30\n"),
       "f.yaml:5:15: run.batch_size is '12:30'; auto or an integer of at least 1 is right"},
      {WithTiny("  gradient_accumulation: yes\n"),
       "f.yaml:5:26: run.gradient_accumulation is 'yes'; auto or an integer of at least 1 is "
       "right"},
      {WithTiny("  micro_batches: 4\n"),
       "f.yaml:5:18: strategy 'single': micro_batches is 4, but it is no pipeline and cuts no "
       "batch; auto is right"},
      {WithTiny("  data_parallel: 2\n"),
       "f.yaml:5:18: strategy 'single': data_parallel is 2, but it is no pipeline of which there "
       "could be several; 1 is right"},
      {WithTiny("  strategy: 1f1b_pp\n"),
       "f.yaml:5:13: strategy '1f1b_pp': a pipeline has stages on 2 ranks at least, not on 1"},
      {WithTiny("  strategy: 1f1b_pp\n  ranks: 3\n"),
       "f.yaml:5:13: strategy '1f1b_pp': a model of 2 layers cannot be cut into 3 stages; 2 or "
       "fewer is right"},
      {WithTiny("  strategy: {name: 1f1b_pp, split: [2, 1]}\n  ranks: 3\n"),
       "f.yaml:5:13: strategy '1f1b_pp': split is [2, 1]; [1, 2] is right: cut points ascend"},
      {WithTiny("  strategy: {name: 1f1b_pp, split: [4]}\n  ranks: 2\n"),
       "f.yaml:5:13: strategy '1f1b_pp': split is [4]; the model's 4 blocks are cut before a "
       "block from 1 to 3"},
      {WithTiny("  strategy: 1f1b_pp\n  ranks: 2\n  batch_size: 8\n  micro_batches: 9\n"),
       "f.yaml:8:18: strategy '1f1b_pp': micro_batches is 9, but a pipeline has 8 rows of a batch; "
       "8 or fewer is right"},
      {WithTiny("  strategy: interleaved_1f1b_pp\n  ranks: 3\n  micro_batches: 7\n"),
       "f.yaml:5:13: strategy 'interleaved_1f1b_pp': 7 micro-batches do not divide into rounds of "
       "3 ranks; 6 or 8 is right"},
      {WithTiny("  strategy: 1f1b_pp\n  ranks: 3\n  data_parallel: 2\n"),
       "f.yaml:7:18: strategy '1f1b_pp': data_parallel is 2, but 3 ranks do not divide into so "
       "many pipelines"},
      {WithTiny("  steps: -1\n"),
       "f.yaml:5:10: run.steps is '-1'; none or an integer of at least 1 is right"},
      {WithTiny("  strategy: zreo1\n"),
       "f.yaml:5:13: unknown strategy 'zreo1'; did you mean 'zero1'?"},
      {WithTiny("  strategy: on\n"),
       "f.yaml:5:13: unknown strategy 'on'; known: single, simple_ddp, "},
      {WithTiny("  strategy: singel\n"),
       "f.yaml:5:13: unknown strategy 'singel'; did you mean 'single'?"},
      {WithTiny("  strategy: {bucket_mib: 3}\n"),
       "f.yaml:5:13: run.strategy is '{bucket_mib: 3}'; a name, or {name: ..., and its parameters} "
       "is right"},
      {WithTiny("  strategy: {name: simple_ddp, bucket_mib: 3}\n"),
       "f.yaml:5:13: strategy 'simple_ddp' has no parameter 'bucket_mib'; it has none"},
      {WithTiny("  strategy: {name: bucket_ddp_async, bucket: 3}\n"),
       "f.yaml:5:13: strategy 'bucket_ddp_async' has no parameter 'bucket'; it has bucket_mib"},
      {WithTiny("  strategy: {name: bucket_ddp_async, bucket_mib: 0}\n"),
       "f.yaml:5:13: strategy 'bucket_ddp_async': bucket_mib is '0'; a number above 0, at most "
       "65536 is right"},
      {WithTiny("  ranks: 2\n"), "f.yaml:3:3: strategy 'single' runs on 1 rank, not on 2"},
      {WithTiny("  optimizer: {nmae: sgd}\n"),
       "f.yaml:5:21: unknown key 'run.optimizer.nmae'; did you mean 'name'?"},
      {WithTiny("  optimizer: [sgd]\n"), "f.yaml:5:14: run.optimizer is '[sgd]'; a map is right"},
      {WithTiny("  optimizer: adam\n"),
       "f.yaml:5:14: run.optimizer.name 'adam' is unknown; did you mean 'adamw'?"},
      {WithTiny("  optimizer: {learning_rate: fast}\n"),
       "f.yaml:5:30: run.optimizer.learning_rate is 'fast'; a number of at least 0 is right"},
      {WithTiny("  optimizer: {learning_rate: .nan}\n"),
       "f.yaml:5:30: run.optimizer.learning_rate is '.nan'; a number of at least 0 is right"},
      {WithTiny("  optimizer: {learning_rate: 1e400}\n"),
       "f.yaml:5:30: run.optimizer.learning_rate is '1e400'; a number of at least 0 is right"},
      {WithTiny("  optimizer: {betas: [0.9]}\n"),
       "f.yaml:5:22: run.optimizer.betas is '[0.9]'; two numbers from 0 to below 1 is right"},
      {WithTiny("  optimizer: {betas: [0.9, 1]}\n"),
       "f.yaml:5:22: run.optimizer.betas is '[0.9, 1]'; two numbers from 0 to below 1 is right"},
      {WithTiny("  precision: bf16\n"),
       "f.yaml:5:14: run.precision 'bf16' is unknown; known: fp32, tf32, bf16_mixed"},
      {WithTiny("  precision: fp64\n"),
       "f.yaml:5:14: run.precision 'fp64' is unknown; did you mean 'fp32'?"},
      {WithTiny("  dropout: 0.1\n"), "f.yaml:5:12: run.dropout '0.1' is unknown; known: 0, model"},
      {WithTiny("  clip_norm: 0\n"), "f.yaml:5:14: run.clip_norm is '0'; none or a number above 0"},
      {WithTiny("  clip_norm: -1\n"),
       "f.yaml:5:14: run.clip_norm is '-1'; none or a number above 0"},
      {WithTiny("  profile: {active: 0}\n"),
       "f.yaml:5:12: run.profile is '{active: 0}'; false, true or"},
      {WithTiny("  profile: {steps: 3}\n"),
       "f.yaml:5:12: run.profile is '{steps: 3}'; false, true or"},
      {WithTiny("  profile: {separate: 3}\n"),
       "f.yaml:5:12: run.profile is '{separate: 3}'; false, true or"},
      {WithTiny("  profile: {separate: true}\n", "repeats: 2\nlimits: {max_runs: 2}\n"),
       "f.yaml: with a profiled repeat of each, there are 3 runs; limits.max_runs is 2"},
      {WithTiny("  memory_limit: 0\n"),
       "f.yaml:5:17: run.memory_limit is '0'; none or a size such as 1.5GiB is right"},
      {WithTiny("  memory_limit: much\n"),
       "f.yaml:5:17: run.memory_limit is 'much'; none or a size such as 1.5GiB is right"},
      {WithTiny("  device: auto\n"), "f.yaml:5:11: run.device 'auto' is not built yet"},
      {WithTiny("  drop_last: yes\n"),
       "f.yaml:5:14: run.drop_last is 'yes'; true or false is right"},
      {WithTiny("  padding: {fixed: 0}\n"),
       "f.yaml:5:12: run.padding is '{fixed: 0}'; longest or {fixed: N} is right"},
      {WithTiny("  seed: -1\n"), "f.yaml:5:9: run.seed is '-1'; an integer of at least 0 is right"},
      {WithTiny("  save: best\n"), "f.yaml:5:9: run.save 'best' is unknown; known: none, final"},
      {WithTiny("  env: [A]\n"),
       "f.yaml:5:8: run.env is '[A]'; a map {NAME: text}; NAME: null takes the text from your "
       "environment, NAME: {secret: true} does so and is never shown is right"},
      {WithTiny("  env: {RANK: 3}\n"), "f.yaml:5:8: run.env sets RANK, which regatta sets itself"},
      {WithTiny("  env: {A B: 3}\n"),
       "f.yaml:5:8: run.env has 'A B', which is no name of a variable"},
      {WithTiny("  env: {A: {secret: hush}}\n"),
       "f.yaml:5:8: run.env gives A {secret: hush}; {secret: true} is right: the value comes from "
       "the environment of the one who submits, never from the file"},
      {WithTiny("  env: {MISSING: }\n"),
       "f.yaml:5:8: run.env.MISSING takes its value from your environment, where it is not set"},
      {WithTiny("  batch_size: 4\n  batch_size_per_rank: 2\n"),
       "f.yaml:5:15: run sets both batch_size and batch_size_per_rank; one of them is right"},
      {WithTiny("  strategy: simple_ddp\n  ranks: 4\n  batch_size: 3\n"),
       "f.yaml:7:15: run.batch_size 3 leaves some of the 4 ranks without a row; at least one row a "
       "rank is right"},
      {WithTiny("  weights: pretrained\n"),
       "f.yaml:3:10: run.weights is 'pretrained', but an inline model has no weights; random is "
       "right"},
      {WithTiny("", "matrix: {strategy: [single, singel]}\n"),
       "f.yaml:5:29: unknown strategy 'singel'; did you mean 'single'?"},
      {WithTiny("", "matrix: {ranks: [1]}\nexclude: [{ranks: 1}]\n"),
       "f.yaml: exclude leaves no run"},
      {WithTiny("", "overrides: [{match: {ranks: 1}, set: {ranks: x}}]\n"),
       "f.yaml:5:46: run.ranks is 'x'; an integer from 1 to 100000 is right"},
      {"name: x\nrun: {model: nothing}\n",
       "f.yaml:2:14: run.model 'nothing' is not prepared and not known; known: minilm-distil, "
       "smollm2-135m; a hub id is written org/name, a folder ./name"},
      {"name: x\nrun: {model: minilm-distill}\n",
       "f.yaml:2:14: run.model 'minilm-distill' is not prepared and not known; did you mean "
       "'minilm-distil'?; a hub id is written org/name, a folder ./name"},
      {"name: x\nrun: {model: ./nowhere}\n", "nowhere/config.json cannot be read"},
      {"name: x\nrun: {model: {dim: 3}}\n", "f.yaml:2:14: run.model lacks 'name'"},
      {"name: x\nrun: {model: {name: llama}}\n", "f.yaml:2:14: model config lacks 'hidden_size'"},
      {"name: x\nrun: {model: {name: gpt}}\n",
       "f.yaml:2:14: run.model: model_type 'gpt' is not built; known: distilbert, llama"},
      {"name: x\nrun: {model: {name: distilbert, dims: 3}}\n",
       "f.yaml:2:14: unknown key 'run.model.dims'; did you mean 'dim'?"},
  };
  EXPECT_GE(std::size(cases), 60u);
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
  EXPECT_THAT(ErrorOf(with_dataset("{name: reviews, rows: 8}")),
              HasSubstr("run.dataset.rows belongs to a synthetic dataset; train_rows is right"));
  EXPECT_THAT(ErrorOf(with_dataset("reviews")),
              HasSubstr("run.dataset 'reviews' needs a tokenizer, which the inline model "
                        "'distilbert' lacks"));
  EXPECT_THAT(ErrorOf(with_dataset("revews")),
              HasSubstr("run.dataset 'revews' is not prepared and not known; did you mean "
                        "'reviews'?"));
}

TEST_F(ExperimentTest, UnpreparedMaterialIsNamedForPreparation) {
  const auto parsed = Parse(
      "name: t\nmatrix: {model: [minilm-distil, org/model@main]}\nrun: {dataset: "
      "Yelp/yelp_review_full}\n");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->runs[0].to_prepare,
              testing::ElementsAre("minilm-distil", "Yelp/yelp_review_full:minilm-distil"));
  EXPECT_THAT(parsed->runs[1].to_prepare,
              testing::ElementsAre("org/model@main", "Yelp/yelp_review_full:org/model@main"));
  EXPECT_EQ(SpecOf(parsed->runs[1]).model().folder(),
            folder_.Path() + "/material/models/org--model--main");
  EXPECT_EQ(
      SpecOf(parsed->runs[1]).dataset().train_file(),
      folder_.Path() + "/material/data/Yelp--yelp_review_full/org--model--main/train.safetensors");
  EXPECT_EQ(parsed->runs[0].predicted->most.parameter_bytes, 0) << "not known yet";
}

TEST_F(ExperimentTest, RowsBringTheirOwnAccumulation) {
  const auto parsed = Parse(WithTiny("  ranks: 2\n",
                                     "matrix: {strategy: [simple_ddp, "
                                     "simple_ddp_ga]}\ninclude: [{strategy: "
                                     "simple_ddp_ga, gradient_accumulation: 2}]\n"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(SpecOf(parsed->runs[0]).gradient_accumulation(), 1);
  EXPECT_EQ(SpecOf(parsed->runs[1]).gradient_accumulation(), 4);
  EXPECT_EQ(SpecOf(parsed->runs[2]).gradient_accumulation(), 2);
}

TEST_F(ExperimentTest, RepeatsGoBackAndForthSoThatDriftFavoursNone) {
  const auto parsed = Parse(WithTiny("", "matrix: {seed: [1, 2, 3]}\nrepeats: 3\n"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  std::string order;
  for (const PlannedRun& run : parsed->runs) {
    order += run.name.substr(5) + "/" + std::to_string(run.repeat) + " ";
  }
  EXPECT_EQ(order, "1/1 2/1 3/1 3/2 2/2 1/2 1/3 2/3 3/3 ");
}

TEST_F(ExperimentTest, ASeparateProfileIsARepeatOfItsOwn) {
  const auto parsed = Parse(WithTiny(
      "", "matrix: {profile: [false, {separate: true, active: 3}, {active: 4}]}\nrepeats: 2\n"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  std::string order;
  for (const PlannedRun& run : parsed->runs) {
    order +=
        std::to_string(run.repeat) + ":" + std::to_string(SpecOf(run).profile().active()) + " ";
  }
  EXPECT_EQ(order, "1:0 1:0 1:4 2:4 2:0 2:0 0:3 ");
  EXPECT_EQ(parsed->runs[6].name, parsed->runs[1].name);
}

TEST_F(ExperimentTest, WhatCannotRunIsSkippedWhereTheFileSaysSo) {
  const std::string text =
      WithTiny("", "matrix: {strategy: [single, simple_ddp], ranks: [1, 2]}\n");
  EXPECT_EQ(ErrorOf(text), "f.yaml:5:21: strategy 'single' runs on 1 rank, not on 2");
  const auto parsed = Parse(text + "on_invalid: skip\n");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->runs.size(), 4u);
  EXPECT_EQ(parsed->runs[1].skipped, "f.yaml:5:21: strategy 'single' runs on 1 rank, not on 2");
  EXPECT_EQ(parsed->runs[1].ranks, 2);
  EXPECT_EQ(parsed->runs[1].strategy, "single");
  EXPECT_EQ(parsed->runs[1].dataset, "synthetic");
  EXPECT_EQ(parsed->runs[3].skipped, "");
  EXPECT_THAT(ErrorOf(WithTiny("  ranks: x\n", "on_invalid: skip\n")),
              HasSubstr("run.ranks is 'x'"))
      << "a mistake is no combination that cannot run";
}

TEST_F(ExperimentTest, RulesThatDoNothingAreWarnedAbout) {
  const std::string text =
      WithTiny("",
               "matrix: {seed: [1, 2]}\ninclude: [{seed: 3}]\nexclude: [{seed: 3}]\n"
               "overrides: [{match: {seed: \">5\"}, set: {ranks: 1}}]\n");
  const auto parsed = Parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(
      parsed->warnings,
      testing::ElementsAre("f.yaml:7:11: exclude {seed: 3} matches nothing; a run of include "
                           "would match, but exclude leaves those",
                           "f.yaml:8:21: override {seed: >5} matches nothing"));
  EXPECT_EQ(Parse(text, {}, true).status().message(), parsed->warnings[0] + " (--strict)");
  const auto twins = Parse(WithTiny("", "matrix: {seed: [1]}\ninclude: [{seed: 1}]\n"));
  EXPECT_THAT(twins->warnings,
              testing::ElementsAre("f.yaml: run 'seed=1' is there twice; repeats: 2 is for that"));
}

TEST_F(ExperimentTest, OverridesSeeWhatARunWouldHave) {
  const auto parsed = Parse(WithTiny(
      "  optimizer: {name: sgd}\n",
      "matrix: {strategy: [single, {name: bucket_ddp_async, bucket_mib: 3}]}\n"
      "overrides:\n"
      "  - {match: {strategy: bucket_ddp_async, ranks: 1}, set: {strategy.bucket_mib: 5, seed: 7}}\n"
      "  - {match: {seed: 7, optimizer.name: sgd}, set: {optimizer.learning_rate: 0.5}}\n"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->runs[1].name, "strategy=bucket_ddp_async(bucket_mib=3)")
      << "the name tells what was swept";
  const v1::RunSpec changed = SpecOf(parsed->runs[1]);
  EXPECT_EQ(changed.strategy().params(0).text(), "5");
  EXPECT_EQ(changed.seed(), 7);
  EXPECT_EQ(changed.optimizer().learning_rate(), 0.5)
      << "a later rule sees what an earlier one set";
  EXPECT_EQ(changed.optimizer().name(), "sgd") << "the rest of the group stays";
  EXPECT_EQ(SpecOf(parsed->runs[0]).seed(), 42);
}

TEST_F(ExperimentTest, EnvironmentIsTakenAndSecretsAreKeptApart) {
  const auto parsed =
      Parse(WithTiny("  env: {B: 'two words', PLAIN: , TOKEN: {secret: true}, EMPTY: ''}\n"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const v1::RunSpec spec = SpecOf(parsed->runs[0]);
  ASSERT_EQ(spec.environment_size(), 4);
  EXPECT_EQ(spec.environment(0).text(), "two words");
  EXPECT_EQ(spec.environment(1).name(), "EMPTY");
  EXPECT_EQ(spec.environment(2).text(), "x y");
  EXPECT_EQ(spec.environment(3).name(), "TOKEN");
  EXPECT_TRUE(spec.environment(3).secret());
  EXPECT_EQ(spec.environment(3).text(), "");
  EXPECT_THAT(parsed->secrets, testing::ElementsAre(std::pair("TOKEN", "hush")));
  EXPECT_EQ(parsed->runs[0].spec->find("hush"), std::string::npos);
  EXPECT_THAT(WantedEnvironment({.text = "run: {env: {A: }}\nmatrix: {env.B: [x]}\n"}),
              testing::ElementsAre("A", "B"));
}

TEST_F(ExperimentTest, SetChangesKeysOfTheFile) {
  const std::string text = WithTiny("", "matrix: {seed: [1, 2]}\nlabels: {a: b}\n");
  const auto parsed = Parse(
      text, {"run.optimizer.learning_rate=0.25", "matrix.seed=[5]", "repeats=2", "labels.c=d"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->runs.size(), 2u);
  EXPECT_EQ(SpecOf(parsed->runs[0]).optimizer().learning_rate(), 0.25);
  EXPECT_EQ(SpecOf(parsed->runs[0]).seed(), 5);
  EXPECT_EQ(parsed->head.labels.size(), 2u);
  EXPECT_TRUE(parsed->text.starts_with("# --set run.optimizer.learning_rate=0.25\n# --set matrix"));
  const std::pair<const char*, const char*> cases[] = {
      {"ranks=2", "--set 'ranks=2': keys of a run begin with run., so run.ranks=2 is right"},
      {"run.seed=3", "--set run.seed: the matrix sweeps it; matrix.seed=[3] is right"},
      {"run.rank=3", "f.yaml (with --set): unknown key 'run.rank'; did you mean 'ranks'?"},
      {"run.ranks=x",
       "f.yaml (with --set): run.ranks is 'x'; an integer from 1 to 100000 is right"},
      {"run.ranks=[1", "--set run.ranks: '[1' is not one YAML value"},
      {"run.ranks", "--set 'run.ranks' is no KEY=VALUE, such as run.ranks=4"},
  };
  for (const auto& [set, sentence] : cases)
    EXPECT_EQ(Parse(text, {set}).status().message(), sentence);
}

// A hub's model is predicted before it is there where the experiment states its shape.
TEST_F(ExperimentTest, AModelOfAHubMayBeStated) {
  const std::string text =
      "name: t\nrun:\n"
      "  model: {name: org/tiny, model_type: distilbert, dim: 8, n_heads: 2, n_layers: 1, "
      "hidden_dim: 8, vocab_size: 64, max_position_embeddings: 16, num_labels: 5}\n"
      "  dataset: yelp-subset\n";
  const auto stated = Parse(text);
  ASSERT_TRUE(stated.ok()) << stated.status();
  const PlannedRun& run = stated->runs[0];
  EXPECT_EQ(run.to_prepare, (std::vector<std::string>{"org/tiny", "yelp-subset:org/tiny"}));
  EXPECT_GT(run.predicted->most.parameter_bytes, 0);
  EXPECT_TRUE(SpecOf(run).model().pretrained());
  EXPECT_EQ(ErrorOf(absl::StrReplaceAll(text, {{"hidden_dim", "hidden_dmi"}})),
            "f.yaml:3:10: unknown key 'run.model.hidden_dmi'; did you mean 'hidden_dim'?");
  EXPECT_EQ(ErrorOf(absl::StrReplaceAll(text, {{"distilbert, dim", "bert, dim"}})),
            "f.yaml:3:10: run.model: model_type 'bert' is not built; known: distilbert, llama");
}

TEST_F(ExperimentTest, TheStudysOwnPipelinesHaveRowsOfOneLength) {
  const auto parsed =
      Parse(WithTiny("  ranks: 2\n  compat: original\n",
                     "matrix: {strategy: [gpipe_pp, pytorch_gpipe_pp, simple_ddp_ga,"
                     " pytorch_ddp]}\n"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto spec = [&](size_t i) { return SpecOf(parsed->runs[i]); };
  EXPECT_EQ(spec(0).padded_length(), 32) << "as many as the model has positions, at most 256";
  EXPECT_TRUE(spec(0).drop_last());
  EXPECT_EQ(spec(1).padded_length(), 0);
  EXPECT_FALSE(spec(1).drop_last());
  EXPECT_EQ(spec(2).gradient_accumulation(), 4);
  EXPECT_EQ(spec(3).gradient_accumulation(), 1);
}

TEST_F(ExperimentTest, WhatOnlyAGpuHasIsRefusedOnACpu) {
  EXPECT_EQ(ErrorOf(WithTiny("  backend: nccl\n")),
            "f.yaml:5:12: run.backend nccl is between GPUs, run.device is cpu; gloo is right");
  EXPECT_EQ(ErrorOf(WithTiny("  precision: tf32\n")),
            "f.yaml:5:14: run.precision tf32 is of GPUs, run.device is cpu; fp32 is right");
  EXPECT_EQ(ErrorOf(WithTiny("  precision: bf16_mixed\n  ranks: 2\n  strategy: zb1p_pp\n")),
            "f.yaml:5:14: strategy 'zb1p_pp' makes gradients of weights itself, in fp32; precision "
            "bf16_mixed is not built for it, fp32 is right");
  EXPECT_EQ(ErrorOf(WithTiny(
                "  device: cuda\n  ranks: 2\n  strategy: {name: 1f1b_pp, split: by_time}\n")),
            "f.yaml:7:13: split by_time is measured on CPUs, run.device is cuda; even is right");
  const auto parsed = Parse(WithTiny("  precision: tf32\n  device: cuda\n"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->runs[0].gpus, 1);
  EXPECT_EQ(SpecOf(parsed->runs[0]).backend(), "nccl");
}

TEST_F(ExperimentTest, PredictionsComeWithTheRun) {
  const auto parsed =
      Parse(WithTiny("  ranks: 2\n", "matrix: {strategy: [simple_ddp, bucket_ddp_async]}\n"));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const Prediction& simple = parsed->runs[0].predicted->most;
  EXPECT_EQ(simple.calls_per_step, 4 + 2 * 16 + 4);
  EXPECT_EQ(simple.payload_bytes_per_step, simple.parameter_bytes);
  EXPECT_EQ(simple.sent_bytes_per_step, static_cast<double>(simple.parameter_bytes))
      << "2 (W - 1) / W at two ranks";
  EXPECT_EQ(simple.StateBytes(), 4 * simple.parameter_bytes) << "AdamW keeps two";
  EXPECT_EQ(parsed->runs[1].predicted->most.calls_per_step, 1);
}

// Defaults as printed are a file: read back, they change nothing.
TEST_F(ExperimentTest, DefaultsReadBackAreTheDefaults) {
  const std::vector<std::string> sets = {
      "name=t",
      "run.model={name: distilbert, dim: 64, n_heads: 4, n_layers: 2, hidden_dim: 64, vocab_size: "
      "100, max_position_embeddings: 32, num_labels: 5}",
      "run.dataset={name: synthetic, rows: 8, max_length: 16}"};
  const auto printed = Parse(DefaultsAsYaml(), sets);
  ASSERT_TRUE(printed.ok()) << printed.status() << "\n" << DefaultsAsYaml();
  const auto written = Parse("name: t\n", sets);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(SpecOf(printed->runs[0]).DebugString(), SpecOf(written->runs[0]).DebugString());
}

TEST_F(ExperimentTest, TheDocumentedTableIsTheSchema) {
  std::ifstream file(std::string(REGATTA_TEST_DATA) + "/../../docs/experiment.md");
  const std::string document((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(document.find(SchemaAsMarkdown()), std::string::npos)
      << "docs/experiment.md must hold the output of: regatta defaults --markdown";
}

TEST_F(ExperimentTest, AHundredThousandRunsInASecond) {
  std::string axes = "limits: {max_runs: 100000}\nmatrix:\n";
  for (const char* key : {"seed", "batch_size", "steps", "epochs", "gradient_accumulation"}) {
    axes += std::string("  ") + key + ": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n";
  }
  const auto start = std::chrono::steady_clock::now();
  const auto parsed = Parse(WithTiny("", axes));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->runs.size(), 100000u);
  EXPECT_LT(seconds, 20) << "a gate against a change of order, not a measurement";
  RecordProperty("seconds", std::to_string(seconds));
  std::printf("100,000 runs in %.2f s\n", seconds);
}

TEST_F(ExperimentTest, PreparedModelIsFoundByNameAndByFolder) {
  nlohmann::json config = {{"model_type", "distilbert"},
                           {"dim", 8},
                           {"n_heads", 2},
                           {"n_layers", 1},
                           {"hidden_dim", 8},
                           {"vocab_size", 100},
                           {"max_position_embeddings", 16},
                           {"num_labels", 5}};
  WriteModelFolder(folder_, "material/models/tiny", config);
  WriteModelFolder(folder_, "mine", config);
  const std::string data = "  dataset: {name: synthetic, rows: 8, max_length: 16}\n";
  const auto named = Parse("name: t\nrun:\n  model: tiny\n" + data);
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_TRUE(SpecOf(named->runs[0]).model().pretrained());
  EXPECT_EQ(SpecOf(named->runs[0]).model().folder(), folder_.Path() + "/material/models/tiny");
  const auto by_folder = Parse("name: t\nrun:\n  model: ./mine\n" + data);
  ASSERT_TRUE(by_folder.ok()) << by_folder.status();
  EXPECT_EQ(SpecOf(by_folder->runs[0]).model().name(), "mine");
  config["dim"] = 10;
  folder_.Write("mine/config.json", config.dump());
  EXPECT_THAT(ErrorOf("name: t\nrun:\n  model: ./mine\n" + data),
              HasSubstr("has shape [100,8]; config.json says [100,10] (and 21 more: regatta models "
                        "check "));
  folder_.Write("mine/config.json", "{");
  EXPECT_THAT(ErrorOf("name: t\nrun:\n  model: ./mine\n" + data),
              HasSubstr("is not a JSON object"));
}

TEST_F(ExperimentTest, ABombOfRunsIsRefused) {
  EXPECT_EQ(ErrorOf(WithTiny("", "limits: {max_runs: 2}\nmatrix: {seed: [1, 2, 3]}\n")),
            "f.yaml: the matrix has 3 combinations; limits.max_runs is 2");
}

TEST_F(ExperimentTest, EveryKeyOfTheTableIsDocumentedAndOnce) {
  std::set<std::string> paths;
  for (const SchemaKey& key : Schema()) {
    EXPECT_TRUE(paths.insert(key.path).second) << key.path;
    EXPECT_STRNE(key.meaning, "") << key.path;
    EXPECT_STRNE(key.right, "") << key.path;
    EXPECT_STRNE(key.default_text, "") << key.path;
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
