#include "coordinator/experiment/run_keys.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>

#include "strategies/plan/strategy_table.h"
#include "strategies/plan/suggest.h"

namespace regatta {
namespace {

using Kind = YamlNode::Kind;

// ---- reads of the table: each returns what is wrong, or an empty string ----

std::string IntegerInto(const YamlNode& value, int64_t least, int64_t* to) {
  return ReadInteger(value, least, to) ? "" : kNotRight;
}

std::string NumberInto(const YamlNode& value, double least, double* to) {
  return ReadNumber(value, least, to) ? "" : kNotRight;
}

// One of `built`; a value of `planned` is refused by name.
std::string ChoiceInto(const YamlNode& value, const std::vector<std::string>& built,
                       const std::vector<std::string>& planned, std::string* to) {
  if (value.kind != Kind::kScalar) return kNotRight;
  for (const std::string& name : planned) {
    if (value.text == name) return absl::StrCat("'", name, "' is not built yet");
  }
  if (std::find(built.begin(), built.end(), value.text) == built.end()) {
    return absl::StrCat("'", value.text, "' is unknown", SuggestName(value.text, built));
  }
  if (to != nullptr) *to = value.text;
  return "";
}

std::string ReadStrategy(const YamlNode& value, RunDraft& draft) {
  v1::StrategySpec* strategy = draft.spec.mutable_strategy();
  strategy->Clear();
  if (value.kind == Kind::kScalar) {
    strategy->set_name(value.text);
    return "";
  }
  const YamlNode* name = value.Find("name");
  if (name == nullptr || name->kind != Kind::kScalar) return kNotRight;
  strategy->set_name(name->text);
  StrategyParams params;
  for (const auto& [key, param] : value.entries) {
    if (key != "name") params.emplace_back(key, OneLine(param));
  }
  std::sort(params.begin(), params.end());
  for (const auto& [key, text] : params) {
    v1::Param* param = strategy->add_params();
    param->set_name(key);
    param->set_text(text);
  }
  return "";
}

std::string ReadBetas(const YamlNode& value, RunDraft& draft) {
  double beta1 = 0;
  double beta2 = 0;
  if (value.kind != Kind::kList || value.items.size() != 2 ||
      !ReadNumber(value.items[0], 0, &beta1) || !ReadNumber(value.items[1], 0, &beta2) ||
      beta1 >= 1 || beta2 >= 1) {
    return kNotRight;
  }
  draft.spec.mutable_optimizer()->set_beta1(beta1);
  draft.spec.mutable_optimizer()->set_beta2(beta2);
  return "";
}

std::string ReadPadding(const YamlNode& value, RunDraft& draft) {
  if (value.kind == Kind::kScalar && value.text == "longest") {
    draft.spec.set_padded_length(0);
    return "";
  }
  const YamlNode* fixed = value.Find("fixed");
  int64_t length = 0;
  if (fixed == nullptr || value.entries.size() != 1 || !ReadInteger(*fixed, 1, &length)) {
    return kNotRight;
  }
  draft.spec.set_padded_length(length);
  return "";
}

std::string ReadRanks(const YamlNode& value, RunDraft& draft) {
  int64_t ranks = 0;
  if (!ReadInteger(value, 1, &ranks) || ranks > 100000) return kNotRight;
  draft.spec.set_ranks(static_cast<int32_t>(ranks));
  return "";
}

std::string ReadThreads(const YamlNode& value, RunDraft& draft) {
  if (value.kind == Kind::kScalar && value.text == "auto") {
    draft.threads_per_rank.reset();
    return "";
  }
  int64_t threads = 0;
  if (!ReadInteger(value, 1, &threads) || threads > 4096) return kNotRight;
  draft.threads_per_rank = static_cast<int32_t>(threads);
  return "";
}

std::string ReadFlag(const YamlNode& value, RunDraft& draft) {
  if (value.kind != Kind::kScalar || (value.text != "true" && value.text != "false"))
    return kNotRight;
  draft.spec.set_drop_last(value.text == "true");
  return "";
}

template <auto kSetter>
std::string ReadCount(const YamlNode& value, RunDraft& draft) {
  int64_t count = 0;
  std::string wrong = IntegerInto(value, 1, &count);
  (draft.spec.*kSetter)(count);
  return wrong;
}

template <auto kSetter>
std::string ReadOptimizerNumber(const YamlNode& value, RunDraft& draft) {
  double number = 0;
  std::string wrong = NumberInto(value, 0, &number);
  (draft.spec.mutable_optimizer()->*kSetter)(number);
  return wrong;
}

std::string OnlyValue(const YamlNode& value, const std::string& built,
                      const std::vector<std::string>& planned) {
  return ChoiceInto(value, {built}, planned, nullptr);
}

}  // namespace

bool ReadInteger(const YamlNode& node, int64_t least, int64_t* to) {
  return node.kind == Kind::kScalar && absl::SimpleAtoi(node.text, to) && *to >= least;
}

bool ReadNumber(const YamlNode& node, double least, double* to) {
  return node.kind == Kind::kScalar && absl::SimpleAtod(node.text, to) && std::isfinite(*to) &&
         *to >= least;
}

bool ReadDuration(const YamlNode& node, double* seconds) {
  if (node.kind != Kind::kScalar) return false;
  constexpr std::pair<const char*, double> kUnits[] = {
      {"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
  for (const auto& [unit, factor] : kUnits) {
    const size_t length = std::string_view(unit).size();
    if (node.text.size() <= length || !node.text.ends_with(unit)) continue;
    double number = 0;
    const std::string digits = node.text.substr(0, node.text.size() - length);
    if (!absl::SimpleAtod(digits, &number) || !std::isfinite(number) || number <= 0) continue;
    *seconds = number * factor;
    return true;
  }
  return false;
}

const std::vector<RunKey>& RunKeys() {
  static const std::vector<RunKey> keys = {
      {"strategy", "single", "a name, or {name: ..., and its parameters}",
       "row of `regatta strategies`", ReadStrategy},
      {"model", "minilm-distil",
       "a prepared name, a folder, or {name: distilbert, and config.json's keys}",
       "what is trained",
       [](const YamlNode& value, RunDraft& draft) -> std::string {
         draft.model = value;
         return value.kind == Kind::kScalar || value.kind == Kind::kMap ? "" : kNotRight;
       }},
      {"dataset", "reviews",
       "a prepared name, or {name: ..., max_length: N, train_rows: N, eval_rows: N | all | none}",
       "rows to train and evaluate on; {name: synthetic, rows: N, max_length: N} is made on the "
       "spot",
       [](const YamlNode& value, RunDraft& draft) -> std::string {
         draft.dataset = value;
         return value.kind == Kind::kScalar || value.kind == Kind::kMap ? "" : kNotRight;
       }},
      {"weights", "", "pretrained or random",
       "pretrained unless the model is inline; random: drawn by the fixture recipe",
       [](const YamlNode& value, RunDraft& draft) -> std::string {
         draft.pretrained = value.text == "pretrained";
         return ChoiceInto(value, {"pretrained", "random"}, {}, nullptr);
       }},
      {"ranks", "1", "an integer from 1 to 100000", "worker processes", ReadRanks},
      {"data_parallel", "", "", "replicas of a pipeline", nullptr},
      {"batch_size", "", "an integer of at least 1",
       "rows of one loader batch over all ranks; 16 unless batch_size_per_rank is set",
       [](const YamlNode& value, RunDraft& draft) -> std::string {
         return IntegerInto(value, 1, &draft.batch_size.emplace());
       }},
      {"batch_size_per_rank", "", "an integer of at least 1", "the same, as rows of one rank",
       [](const YamlNode& value, RunDraft& draft) -> std::string {
         return IntegerInto(value, 1, &draft.batch_size_per_rank.emplace());
       }},
      {"gradient_accumulation", "1", "an integer of at least 1",
       "loader batches of one optimizer step", ReadCount<&v1::RunSpec::set_gradient_accumulation>},
      {"micro_batches", "", "", "chunks of a batch in a pipeline", nullptr},
      {"epochs", "1", "an integer of at least 1", "passes over the rows",
       ReadCount<&v1::RunSpec::set_epochs>},
      {"steps", "", "an integer of at least 1",
       "optimizer steps; alone it repeats the rows as often as needed, with epochs the sooner ends",
       ReadCount<&v1::RunSpec::set_steps>},
      {"optimizer.name", "adamw", "sgd or adamw", "update rule",
       [](const YamlNode& value, RunDraft& draft) -> std::string {
         return ChoiceInto(value, {"sgd", "adamw"}, {},
                           draft.spec.mutable_optimizer()->mutable_name());
       }},
      {"optimizer.learning_rate", "5e-5", "a number of at least 0", "peak learning rate",
       ReadOptimizerNumber<&v1::OptimizerSpec::set_learning_rate>},
      {"optimizer.betas", "[0.9, 0.999]", "two numbers from 0 to below 1", "adamw: decay rates",
       ReadBetas},
      {"optimizer.eps", "1e-8", "a number of at least 0", "adamw: added to the denominator",
       ReadOptimizerNumber<&v1::OptimizerSpec::set_eps>},
      {"optimizer.weight_decay", "0.01", "a number of at least 0", "adamw: decoupled decay",
       ReadOptimizerNumber<&v1::OptimizerSpec::set_weight_decay>},
      {"optimizer.warmup_steps", "0", "an integer of at least 0",
       "steps over which the learning rate rises linearly",
       [](const YamlNode& value, RunDraft& draft) -> std::string {
         int64_t steps = 0;
         std::string wrong = IntegerInto(value, 0, &steps);
         draft.spec.mutable_optimizer()->set_warmup_steps(steps);
         return wrong;
       }},
      {"optimizer.decay", "none", "none or linear",
       "learning rate after warm-up; linear falls to 0 at the last step",
       [](const YamlNode& value, RunDraft& draft) -> std::string {
         return ChoiceInto(value, {"none", "linear"}, {},
                           draft.spec.mutable_optimizer()->mutable_decay());
       }},
      {"optimizer.implementation", "fused", "single, foreach or fused",
       "ATen kernels of adamw; sgd has one",
       [](const YamlNode& value, RunDraft& draft) -> std::string {
         return ChoiceInto(value, {"single", "foreach", "fused"}, {},
                           draft.spec.mutable_optimizer()->mutable_implementation());
       }},
      {"clip_norm", "", "", "largest norm of a step's gradient", nullptr},
      {"dropout", "0", "0", "masks of a training forward",
       [](const YamlNode& value, RunDraft&) { return OnlyValue(value, "0", {"model"}); }},
      {"precision", "fp32", "fp32", "number format",
       [](const YamlNode& value, RunDraft&) {
         return OnlyValue(value, "fp32", {"tf32", "bf16_mixed"});
       }},
      {"recompute", "none", "none", "activations to compute again in backward",
       [](const YamlNode& value, RunDraft&) { return OnlyValue(value, "none", {"block"}); }},
      {"sampler", "distributed", "distributed or sequential",
       "order of the rows: PyTorch's DistributedSampler, shuffled or not",
       [](const YamlNode& value, RunDraft& draft) -> std::string {
         return ChoiceInto(value, {"distributed", "sequential"},
                           {"length_grouped", "token_balanced"}, draft.spec.mutable_sampler());
       }},
      {"padding", "longest", "longest or {fixed: N}", "length of a batch's rows", ReadPadding},
      {"drop_last", "false", "true or false", "leave out an epoch's short last batch", ReadFlag},
      {"seed", "42", "an integer of at least 0", "of the sampler",
       [](const YamlNode& value, RunDraft& draft) -> std::string {
         int64_t seed = 0;
         std::string wrong = IntegerInto(value, 0, &seed);
         draft.spec.set_seed(seed);
         return wrong;
       }},
      {"device", "cpu", "cpu", "where tensors live",
       [](const YamlNode& value, RunDraft& draft) -> std::string {
         return ChoiceInto(value, {"cpu"}, {"cuda", "auto"}, draft.spec.mutable_device());
       }},
      {"backend", "gloo", "gloo", "what carries collectives",
       [](const YamlNode& value, RunDraft& draft) -> std::string {
         return ChoiceInto(value, {"gloo"}, {"auto", "shm", "nccl"}, draft.spec.mutable_backend());
       }},
      {"link", "", "", "emulated link", nullptr},
      {"threads_per_rank", "auto", "auto or an integer of at least 1",
       "threads of one rank's operators; auto: cores / ranks", ReadThreads},
      {"pin", "", "", "cores of a rank", nullptr},
      {"memory_limit", "", "", "bytes a rank may use", nullptr},
      {"profile", "", "", "traces of some steps", nullptr},
      {"save", "", "", "keep the trained model", nullptr},
      {"compat", "", "", "the study's own quirks", nullptr},
  };
  return keys;
}

}  // namespace regatta
