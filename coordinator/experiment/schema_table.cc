#include "coordinator/experiment/schema.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <map>

#include "coordinator/experiment/values.h"
#include "strategies/plan/suggest.h"
#include "worker/chaos/fault.h"

namespace regatta {
namespace {

using Kind = YamlNode::Kind;

// ---- reads of the table: each sets its field whatever stood there, so that it can be read again
// ----

std::string IntegerInto(const YamlNode& value, int64_t least, int64_t* to) {
  return ReadInteger(value, least, to) ? "" : kNotRight;
}

// One of `built`; a value of `planned` is refused by name.
std::string ChoiceInto(const YamlNode& value, const std::vector<std::string>& built,
                       const std::vector<std::string>& planned, std::string* to) {
  if (value.kind != Kind::kScalar) return kNotRight;
  if (std::find(planned.begin(), planned.end(), value.text) != planned.end()) {
    return absl::StrCat("'", value.text, "' is not built yet");
  }
  if (std::find(built.begin(), built.end(), value.text) == built.end()) {
    return absl::StrCat("'", value.text, "' is unknown", SuggestName(value.text, built));
  }
  if (to != nullptr) *to = value.text;
  return "";
}

bool IsWord(const YamlNode& value, const char* word) {
  return value.kind == Kind::kScalar && value.text == word;
}

std::string TextInto(const YamlNode& value, std::string* to) {
  if (value.kind != Kind::kScalar) return kNotRight;
  *to = value.text;
  return "";
}

// "auto" or "none" for no value, else an integer of at least 1.
template <auto kField>
std::string ReadOptional(const YamlNode& value, RunDraft& draft) {
  (draft.*kField).reset();
  if (IsWord(value, "auto") || IsWord(value, "none")) return "";
  int64_t number = 0;
  if (!ReadInteger(value, 1, &number) || number > 1'000'000'000) return kNotRight;
  draft.*kField = static_cast<typename std::decay_t<decltype(draft.*kField)>::value_type>(number);
  return "";
}

template <auto kSetter>
std::string ReadDatasetRows(const YamlNode& value, RunDraft& draft, const char* word,
                            int64_t of_word) {
  int64_t number = of_word;
  if (!IsWord(value, word) && !ReadInteger(value, 1, &number)) return kNotRight;
  (draft.spec.mutable_dataset()->*kSetter)(number);
  return "";
}

template <auto kSetter>
std::string ReadOptimizerNumber(const YamlNode& value, RunDraft& draft) {
  double number = 0;
  if (!ReadNumber(value, 0, &number)) return kNotRight;
  (draft.spec.mutable_optimizer()->*kSetter)(number);
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
  std::map<std::string, std::string> params;
  for (const auto& [key, param] : value.entries) {
    if (key != "name") params[key] = OneLine(param);
  }
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

std::string ReadRanks(const YamlNode& value, RunDraft& draft) {
  int64_t ranks = 0;
  if (!ReadInteger(value, 1, &ranks) || ranks > 100000) return kNotRight;
  draft.spec.set_ranks(static_cast<int32_t>(ranks));
  return "";
}

std::string ReadSteps(const YamlNode& value, RunDraft& draft) {
  int64_t steps = 0;
  if (!IsWord(value, "none") && !ReadInteger(value, 1, &steps)) return kNotRight;
  draft.spec.set_steps(steps);
  return "";
}

std::string ReadFlag(const YamlNode& value, bool* flag) {
  if (!IsWord(value, "true") && !IsWord(value, "false")) return kNotRight;
  *flag = value.text == "true";
  return "";
}

// Names that regatta gives to ranks itself, or that would change what a rank computes.
bool IsReservedVariable(const std::string& name) {
  static const std::vector<std::string> names = {
      "RANK",        "WORLD_SIZE",  "LOCAL_RANK",      "LOCAL_WORLD_SIZE", "GROUP_RANK",
      "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "MKL_NUM_THREADS"};
  return name.starts_with("REGATTA_") || std::find(names.begin(), names.end(), name) != names.end();
}

// {NAME: text}; null takes the text from the client's environment, {secret: true} does so without
// showing it anywhere. RunResolver fills those in.
std::string ReadEnvironment(const YamlNode& value, RunDraft& draft) {
  draft.spec.clear_environment();
  draft.from_client.clear();
  if (value.kind != Kind::kMap) return kNotRight;
  std::map<std::string, const YamlNode*> sorted;
  for (const auto& [name, entry] : value.entries) sorted[name] = &entry;
  for (const auto& [name, entry] : sorted) {
    if (name.empty() || name.find_first_of("= ") != std::string::npos) {
      return absl::StrCat("has '", name, "', which is no name of a variable");
    }
    if (IsReservedVariable(name)) {
      return absl::StrCat("sets ", name, ", which regatta sets itself");
    }
    v1::EnvironmentVariable* variable = draft.spec.add_environment();
    variable->set_name(name);
    if (entry->kind == Kind::kScalar) {
      variable->set_text(entry->text);
    } else {
      draft.from_client.insert(name);
    }
    const YamlNode* secret = entry->Find("secret");
    const bool is_secret = secret != nullptr && entry->entries.size() == 1;
    if (entry->kind == Kind::kList || (entry->kind == Kind::kMap && !is_secret)) return kNotRight;
    if (is_secret && !IsWord(*secret, "true")) {
      return absl::StrCat("gives ", name, " {secret: ", OneLine(*secret),
                          "}; {secret: true} is right: the value comes from the environment of "
                          "the one who submits, never from the file");
    }
    variable->set_secret(is_secret);
  }
  return "";
}

// {rank: 1, at_step: 20, what: exit 3}; at_step may be join or finish.
std::string ReadFault(const YamlNode& value, v1::Fault* fault) {
  const YamlNode* rank = value.Find("rank");
  const YamlNode* at_step = value.Find("at_step");
  const YamlNode* what = value.Find("what");
  const size_t known = 1 + (rank != nullptr) + (at_step != nullptr);
  if (what == nullptr || value.entries.size() != known) return kNotRight;
  int64_t number = 0;
  if (rank != nullptr && (!ReadInteger(*rank, 0, &number) || number > 100000)) return kNotRight;
  fault->set_rank(static_cast<int32_t>(number));
  number = 0;
  if (at_step != nullptr && IsWord(*at_step, "join")) {
    number = kBeforeJoin;
  } else if (at_step != nullptr && IsWord(*at_step, "finish")) {
    number = kAfterFinish;
  } else if (at_step != nullptr && !ReadInteger(*at_step, 0, &number)) {
    return kNotRight;
  }
  fault->set_step(number);
  if (what->kind != Kind::kScalar || !ParseFault(what->text)) {
    return absl::StrCat("has what: '", OneLine(*what), "'; ", FaultWords(), " is right");
  }
  fault->set_what(what->text);
  return "";
}

std::string ReadChaos(const YamlNode& value, RunDraft& draft) {
  draft.spec.clear_chaos();
  if (IsWord(value, "none")) return "";
  if (value.kind == Kind::kMap) return ReadFault(value, draft.spec.add_chaos());
  if (value.kind != Kind::kList) return kNotRight;
  for (const YamlNode& item : value.items) {
    if (std::string wrong = ReadFault(item, draft.spec.add_chaos()); !wrong.empty()) return wrong;
  }
  return "";
}

std::string ReadPadding(const YamlNode& value, RunDraft& draft) {
  draft.spec.set_padded_length(0);
  if (IsWord(value, "longest")) return "";
  const YamlNode* fixed = value.Find("fixed");
  int64_t length = 0;
  if (fixed == nullptr || value.entries.size() != 1 || !ReadInteger(*fixed, 1, &length)) {
    return kNotRight;
  }
  draft.spec.set_padded_length(length);
  return "";
}

std::string ReadProfile(const YamlNode& value, RunDraft& draft) {
  v1::ProfileSpec& profile = *draft.spec.mutable_profile();
  profile.Clear();
  draft.profiles_apart = false;
  if (IsWord(value, "false")) return "";
  profile.set_wait(1);
  profile.set_warmup(2);
  profile.set_active(10);
  profile.set_repeat(1);
  if (IsWord(value, "true")) return "";
  if (value.kind != Kind::kMap || value.entries.empty()) return kNotRight;
  for (const auto& [name, part] : value.entries) {
    int64_t number = 0;
    bool flag = false;
    const bool steps = ReadInteger(part, name == "wait" || name == "warmup" ? 0 : 1, &number);
    const bool yes_or_no = ReadFlag(part, &flag).empty();
    if (name == "wait" && steps) {
      profile.set_wait(number);
    } else if (name == "warmup" && steps) {
      profile.set_warmup(number);
    } else if (name == "active" && steps) {
      profile.set_active(number);
    } else if (name == "repeat" && steps) {
      profile.set_repeat(number);
    } else if (name == "memory" && yes_or_no) {
      profile.set_memory(flag);
    } else if (name == "shapes" && yes_or_no) {
      profile.set_shapes(flag);
    } else if (name == "separate" && yes_or_no) {
      draft.profiles_apart = flag;
    } else {
      return kNotRight;
    }
  }
  return "";
}

std::string ReadLabels(const YamlNode& value, ExperimentHead& head) {
  head.labels.clear();
  if (value.kind != Kind::kMap) return kNotRight;
  for (const auto& [name, text] : value.entries) {
    if (text.kind != Kind::kScalar) return kNotRight;
    head.labels.emplace_back(name, text.text);
  }
  return "";
}

std::string CountInto(const YamlNode& value, int64_t most, int64_t* to) {
  return ReadInteger(value, 1, to) && *to <= most ? "" : kNotRight;
}

// "none" is 0.
std::string ReadLimit(const YamlNode& value, double* seconds) {
  *seconds = 0;
  return IsWord(value, "none") || ReadDuration(value, seconds) ? "" : kNotRight;
}

constexpr int64_t kMillion = 1'000'000;

}  // namespace

const std::vector<SchemaKey>& Schema() {
  static const std::vector<SchemaKey> keys = {
      {"name", "text", "", "required", "some text", "what the experiment is called",
       ReadHead([](const YamlNode& v, ExperimentHead& h) -> std::string {
         return v.text.empty() ? kNotRight : TextInto(v, &h.name);
       })},
      {"description", "text", "", "\"\"", "some text", "one line for people",
       ReadHead([](const YamlNode& v, ExperimentHead& h) -> std::string {
         return TextInto(v, &h.description);
       })},
      {"labels", "map of text", "", "{}", "a map of texts such as {machine: workstation}",
       "free marks, kept with the experiment",
       ReadHead(
           [](const YamlNode& v, ExperimentHead& h) -> std::string { return ReadLabels(v, h); }),
       true},
      {"run.strategy", "text or map", "", "single", "a name, or {name: ..., and its parameters}",
       "row of `regatta strategies`, with parameters of its own", ReadRun(ReadStrategy), true},
      {"run.model", "text or map", "", "minilm-distil",
       "a prepared name, a hub id, a folder such as ./mine, or {name: distilbert or llama, and config.json's keys}",
       "what is trained", ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         d.model = &v;
         d.model_text = OneLine(v);
         return v.kind == Kind::kScalar || v.kind == Kind::kMap ? "" : kNotRight;
       }),
       true},
      {"run.dataset.name", "text", "", "reviews",
       "a prepared name, a hub id, a folder of shards, or synthetic",
       "rows to train and evaluate on; `dataset: NAME` is short for it",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         return TextInto(v, d.spec.mutable_dataset()->mutable_name());
       })},
      {"run.dataset.max_length", "integer", "tokens", "none", "none or an integer of at least 1",
       "longer rows are cut; none: as stored",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         return ReadDatasetRows<&v1::DatasetSpec::set_max_length>(v, d, "none", 0);
       })},
      {"run.dataset.train_rows", "integer", "rows", "all", "all or an integer of at least 1",
       "the first rows of the training split",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         return ReadDatasetRows<&v1::DatasetSpec::set_train_rows>(v, d, "all", 0);
       })},
      {"run.dataset.eval_rows", "integer", "rows", "all", "an integer of at least 1, all or none",
       "the first rows of the evaluation split; synthetic has half of its rows",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         if (IsWord(v, "none")) {
           d.spec.mutable_dataset()->set_eval_rows(0);
           return "";
         }
         return ReadDatasetRows<&v1::DatasetSpec::set_eval_rows>(v, d, "all", -1);
       })},
      {"run.dataset.rows", "integer", "rows", "none", "none or an integer of at least 1",
       "synthetic only, where it is needed", ReadRun(ReadOptional<&RunDraft::synthetic_rows>)},
      {"run.dataset.stream", "text", "", "none", "some text", "synthetic only: which made-up rows",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         d.spec.mutable_dataset()->clear_stream();
         return IsWord(v, "none") ? "" : TextInto(v, d.spec.mutable_dataset()->mutable_stream());
       })},
      {"run.weights", "text", "", "auto", "auto, pretrained or random",
       "auto: pretrained unless the model is inline; random: drawn by the fixture recipe",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         d.pretrained.reset();
         if (!IsWord(v, "auto")) d.pretrained = v.text == "pretrained";
         return ChoiceInto(v, {"auto", "pretrained", "random"}, {}, nullptr);
       })},
      {"run.ranks", "integer", "processes", "1", "an integer from 1 to 100000",
       "worker processes of a run", ReadRun(ReadRanks)},
      {"run.data_parallel", "integer", "replicas", "1", "an integer of at least 1",
       "pipelines beside each other, ranks divide among them; 1 where the strategy is no pipeline",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         int64_t replicas = 0;
         if (!ReadInteger(v, 1, &replicas) || replicas > 100000) return kNotRight;
         d.data_parallel = static_cast<int32_t>(replicas);
         return "";
       })},
      {"run.batch_size", "integer", "rows", "auto", "auto or an integer of at least 1",
       "rows of one loader batch over all ranks; auto: 16, or batch_size_per_rank times ranks",
       ReadRun(ReadOptional<&RunDraft::batch_size>)},
      {"run.batch_size_per_rank", "integer", "rows", "none", "none or an integer of at least 1",
       "the same, as rows of one rank, or of one pipeline",
       ReadRun(ReadOptional<&RunDraft::batch_size_per_rank>)},
      {"run.gradient_accumulation", "integer", "batches", "auto",
       "auto or an integer of at least 1",
       "loader batches of one optimizer step; auto: the strategy's own, mostly 1",
       ReadRun(ReadOptional<&RunDraft::gradient_accumulation>)},
      {"run.micro_batches", "integer", "chunks", "auto", "auto or an integer of at least 1",
       "chunks of a batch in a pipeline; auto: 4 a stage there, or as many below that as divide its "
       "rows evenly; 1 elsewhere",
       ReadRun(ReadOptional<&RunDraft::micro_batches>)},
      {"run.epochs", "integer", "passes", "auto", "auto or an integer of at least 1",
       "passes over the rows; auto: 1, or as many as steps needs",
       ReadRun(ReadOptional<&RunDraft::epochs>)},
      {"run.steps", "integer", "steps", "none", "none or an integer of at least 1",
       "optimizer steps; with epochs the sooner ends", ReadRun(ReadSteps)},
      {"run.optimizer.name", "text", "", "adamw", "sgd or adamw",
       "update rule; `optimizer: NAME` is short for it",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         return ChoiceInto(v, {"sgd", "adamw"}, {}, d.spec.mutable_optimizer()->mutable_name());
       })},
      {"run.optimizer.learning_rate", "number", "", "5e-5", "a number of at least 0",
       "peak learning rate", ReadRun(ReadOptimizerNumber<&v1::OptimizerSpec::set_learning_rate>)},
      {"run.optimizer.betas", "two numbers", "", "[0.9, 0.999]", "two numbers from 0 to below 1",
       "adamw: decay rates", ReadRun(ReadBetas)},
      {"run.optimizer.eps", "number", "", "1e-8", "a number of at least 0",
       "adamw: added to the denominator",
       ReadRun(ReadOptimizerNumber<&v1::OptimizerSpec::set_eps>)},
      {"run.optimizer.weight_decay", "number", "", "0.01", "a number of at least 0",
       "adamw: decoupled decay",
       ReadRun(ReadOptimizerNumber<&v1::OptimizerSpec::set_weight_decay>)},
      {"run.optimizer.warmup_steps", "integer", "steps", "0", "an integer of at least 0",
       "steps over which the learning rate rises linearly",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         int64_t steps = 0;
         std::string wrong = IntegerInto(v, 0, &steps);
         d.spec.mutable_optimizer()->set_warmup_steps(steps);
         return wrong;
       })},
      {"run.optimizer.decay", "text", "", "none", "none or linear",
       "learning rate after warm-up; linear falls to 0 at the last step",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         return ChoiceInto(v, {"none", "linear"}, {}, d.spec.mutable_optimizer()->mutable_decay());
       })},
      {"run.optimizer.implementation", "text", "", "fused", "single, foreach or fused",
       "ATen kernels of adamw; sgd has one",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         return ChoiceInto(v, {"single", "foreach", "fused"}, {},
                           d.spec.mutable_optimizer()->mutable_implementation());
       })},
      {"run.clip_norm", "number", "", "none", "none or a number above 0",
       "largest norm of a step's gradient; larger ones are scaled down to it",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         double norm = 0;
         if (!IsWord(v, "none") && (!ReadNumber(v, 0, &norm) || norm == 0)) return kNotRight;
         d.spec.set_clip_norm(norm);
         return "";
       })},
      {"run.dropout", "text", "", "0", "0 or model",
       "masks of a training forward; model: as its config says, the same ones whatever the "
       "strategy: they follow from seed, step, layer and row alone",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         d.spec.set_dropout(IsWord(v, "model"));
         return ChoiceInto(v, {"0", "model"}, {}, nullptr);
       })},
      {"run.precision", "text", "", "fp32", "fp32, tf32 or bf16_mixed",
       "bf16_mixed: matrix products and attention in bfloat16, as autocast has it; parameters, "
       "gradients and optimizer stay fp32; tf32: matrix products of a GPU with 10 bits of fraction",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         return ChoiceInto(v, {"fp32", "tf32", "bf16_mixed"}, {}, d.spec.mutable_precision());
       })},
      {"run.recompute", "text", "", "none", "none or block",
       "block: a layer keeps its input alone, and goes forward again in backward",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         d.spec.set_recompute(IsWord(v, "block"));
         return ChoiceInto(v, {"none", "block"}, {}, nullptr);
       })},
      {"run.sampler", "text", "", "distributed", "distributed, sequential or length_grouped",
       "order of the rows: PyTorch's DistributedSampler, shuffled or not; or shuffled so that rows "
       "of a batch are about equally long",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         return ChoiceInto(v, {"distributed", "sequential", "length_grouped"}, {"token_balanced"},
                           d.spec.mutable_sampler());
       })},
      {"run.padding", "text or map", "tokens", "longest", "longest or {fixed: N}",
       "length of a batch's rows", ReadRun(ReadPadding), true},
      {"run.drop_last", "flag", "", "false", "true or false",
       "leave out an epoch's short last batch",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         bool flag = false;
         std::string wrong = ReadFlag(v, &flag);
         d.spec.set_drop_last(flag);
         return wrong;
       })},
      {"run.seed", "integer", "", "42", "an integer of at least 0", "of the sampler",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         int64_t seed = 0;
         std::string wrong = IntegerInto(v, 0, &seed);
         d.spec.set_seed(seed);
         return wrong;
       })},
      {"run.device", "text", "", "cpu", "cpu or cuda",
       "where tensors live; cuda: rank r on the GPU of that number",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         return ChoiceInto(v, {"cpu", "cuda"}, {"auto"}, d.spec.mutable_device());
       })},
      {"run.backend", "text", "", "auto", "auto, gloo or nccl",
       "what carries collectives; auto: nccl between GPUs, else gloo",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         return ChoiceInto(v, {"auto", "gloo", "nccl"}, {"shm"}, d.spec.mutable_backend());
       })},
      {"run.link", "map", "", "none", "none", "emulated link", NotBuilt{}, true},
      {"run.threads_per_rank", "integer", "threads", "auto", "auto or an integer of at least 1",
       "threads of one rank's operators; auto: cores / ranks",
       ReadRun(ReadOptional<&RunDraft::threads_per_rank>)},
      {"run.pin", "text", "", "auto", "auto or none",
       "auto: each rank on threads_per_rank cores of its own, where enough are free",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         d.spec.set_pin(!IsWord(v, "none"));
         return ChoiceInto(v, {"auto", "none"}, {}, nullptr);
       })},
      {"run.memory_limit", "size", "bytes", "none", "none or a size such as 1.5GiB",
       "what a rank's tensors may take; a run that needs more fails as oom_device and says how much",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         int64_t bytes = 0;
         if (!IsWord(v, "none") && (!ParseSize(v.text, &bytes) || bytes == 0)) return kNotRight;
         d.spec.set_memory_limit(bytes);
         return "";
       })},
      {"run.profile", "flag or map", "steps", "false",
       "false, true or {wait: 1, warmup: 2, active: 10, repeat: 1, memory: false, shapes: false, "
       "separate: false}",
       "Kineto traces of `active` steps, after `wait` steps and `warmup` armed ones; such steps do "
       "not count for speeds",
       ReadRun(ReadProfile), true},
      {"run.save", "text", "", "none", "none or final",
       "final: keep the trained model in a folder that transformers loads",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         d.spec.set_save(IsWord(v, "final"));
         return ChoiceInto(v, {"none", "final"}, {}, nullptr);
       })},
      {"run.compat", "text", "", "none", "none or original",
       "original: as the study computed, of the rows that it has (docs/from_the_study.md)",
       ReadRun([](const YamlNode& v, RunDraft& d) -> std::string {
         d.spec.set_original(v.text == "original");
         return ChoiceInto(v, {"none", "original"}, {}, nullptr);
       })},
      {"run.env", "map", "", "{}",
       "a map {NAME: text}; NAME: null takes the text from your environment, NAME: {secret: true} does so and is never shown",
       "environment variables of every rank", ReadRun(ReadEnvironment), true},
      {"run.chaos", "map or list", "", "none",
       "none, {rank: 1, at_step: 20, what: exit 3}, or a list of such; at_step: join and finish too",
       "faults on purpose, to see what happens then", ReadRun(ReadChaos), true},
      {"matrix", "map of lists", "", "{}", "a map from a key of run to a list of values",
       "axes; all combinations run, the last axis varies fastest", ReadByExpansion{}, true},
      {"zip", "list of maps", "", "[]", "a list of maps from keys of run to lists of equal length",
       "values that travel together: one more axis each, after those of matrix", ReadByExpansion{},
       true},
      {"exclude", "list of maps", "", "[]", "a list of maps from axes to values",
       "combinations of matrix and zip to drop; lists mean any of, and \"<2\", \">=4\", \"!=x\" compare",
       ReadByExpansion{}, true},
      {"include", "list of maps", "", "[]", "a list of maps of keys of run",
       "further runs; exclude does not touch them", ReadByExpansion{}, true},
      {"overrides", "list of maps", "", "[]", "a list of {match: {key: value}, set: {key: value}}",
       "changes matching runs, in order, those of include too", ReadByExpansion{}, true},
      {"on_invalid", "text", "", "error", "error or skip",
       "skip: combinations that cannot run become SKIPPED, with the reason",
       ReadHead([](const YamlNode& v, ExperimentHead& h) -> std::string {
         h.skip_invalid = IsWord(v, "skip");
         return ChoiceInto(v, {"error", "skip"}, {}, nullptr);
       })},
      {"repeats", "integer", "", "1", "an integer from 1 to 1000",
       "every run that often; each round goes the other way, so that drift favours none",
       ReadHead([](const YamlNode& v, ExperimentHead& h) -> std::string {
         return CountInto(v, 1000, &h.repeats);
       })},
      {"limits.max_parallel", "integer", "runs", "1", "an integer from 1 to 1000000",
       "runs of this experiment at once",
       ReadHead([](const YamlNode& v, ExperimentHead& h) -> std::string {
         return CountInto(v, kMillion, &h.limits.max_parallel);
       })},
      {"limits.max_runs", "integer", "runs", "10000", "an integer from 1 to 1000000",
       "a larger matrix is refused",
       ReadHead([](const YamlNode& v, ExperimentHead& h) -> std::string {
         return CountInto(v, kMillion, &h.limits.max_runs);
       })},
      {"limits.join_timeout", "duration", "", "60s", "a duration with its unit, such as 60s",
       "time for all ranks to come together",
       ReadHead([](const YamlNode& v, ExperimentHead& h) -> std::string {
         return ReadDuration(v, &h.limits.join_timeout_seconds) ? "" : kNotRight;
       })},
      {"limits.max_restarts", "integer", "", "0", "0", "further attempts of a failed run",
       NotBuilt{}},
      {"limits.fail_fast", "flag", "", "false", "false", "end the experiment at the first failure",
       NotBuilt{}},
      {"limits.timeout", "duration", "", "none", "none or a duration with its unit, such as 2h",
       "longest time of a run; then it is stopped and TIMED_OUT",
       ReadHead([](const YamlNode& v, ExperimentHead& h) -> std::string {
         return ReadLimit(v, &h.limits.timeout_seconds);
       })},
      {"limits.stall_timeout", "duration", "", "5m", "5m", "longest time without a step",
       NotBuilt{}},
      {"limits.queue_timeout", "duration", "", "none",
       "none or a duration with its unit, such as 2h",
       "longest time in the queue; then a run is TIMED_OUT without having started",
       ReadHead([](const YamlNode& v, ExperimentHead& h) -> std::string {
         return ReadLimit(v, &h.limits.queue_timeout_seconds);
       })},
      {"cost.usd_per_hour", "number", "USD", "none", "a number above 0", "price of the machine",
       NotBuilt{}},
      {"cost.budget_usd", "number", "USD", "none", "a number above 0", "no run starts beyond it",
       NotBuilt{}},
      {"on_finish", "text", "", "none", "none", "command or URL that gets the summary", NotBuilt{}},
      {"on_failure", "text", "", "none", "none", "the same, after a failure", NotBuilt{}},
      {"launcher", "text or map", "", "local", "local", "where ranks are started",
       ReadHead([](const YamlNode& v, ExperimentHead&) -> std::string {
         return ChoiceInto(v, {"local"}, {"slurm"}, nullptr);
       }),
       true},
  };
  return keys;
}

}  // namespace regatta
