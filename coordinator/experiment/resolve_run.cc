#include "coordinator/experiment/resolve_run.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <deque>

#include "coordinator/experiment/values.h"

namespace regatta {
namespace {

// "optimizer" of "optimizer.name".
std::string_view TopOf(std::string_view key) { return key.substr(0, key.find('.')); }

// `shares`: into so many parts the ranks cut a batch's rows.
std::string FinishBatch(RunDraft& draft, int64_t default_accumulation, int shares) {
  v1::RunSpec& spec = draft.spec;
  spec.set_gradient_accumulation(draft.gradient_accumulation.value_or(default_accumulation));
  spec.set_epochs(draft.epochs.value_or(spec.steps() != 0 ? 0 : 1));
  if (draft.batch_size && draft.batch_size_per_rank) {
    return "run sets both batch_size and batch_size_per_rank; one of them is right";
  }
  spec.set_batch_size(draft.batch_size_per_rank ? *draft.batch_size_per_rank * shares
                                                : draft.batch_size.value_or(16));
  return "";
}

std::string FinishSynthetic(const RunDraft& draft, v1::DatasetSpec* spec) {
  if (!draft.synthetic_rows || spec->max_length() < 4) {
    return "run.dataset synthetic needs rows of at least 1 and max_length of at least 4";
  }
  if (spec->train_rows() != 0) return "run.dataset synthetic has 'rows', not 'train_rows'";
  spec->set_train_rows(*draft.synthetic_rows);
  if (spec->eval_rows() < 0) spec->set_eval_rows(std::max<int64_t>(1, *draft.synthetic_rows / 2));
  if (spec->stream().empty()) spec->set_stream("synthetic");
  return "";
}

// Rows of one length, cut where they are longer, in whole batches only.
void FixLength(const nlohmann::json& config, v1::RunSpec& spec) {
  if (spec.padded_length() == 0) {
    spec.set_padded_length(
        std::min(kStudyLength, config.value("max_position_embeddings", kStudyLength)));
  }
  v1::DatasetSpec& dataset = *spec.mutable_dataset();
  if (dataset.max_length() == 0 || dataset.max_length() > spec.padded_length()) {
    dataset.set_max_length(spec.padded_length());
  }
  spec.set_drop_last(true);
}

// Whether the model has enough blocks for the stages; nothing where it must be prepared first.
std::string CheckStages(const ResolvedRun& run) {
  if (!run.plan.pipeline || run.model->parameters.empty()) return "";
  const auto split = SplitBlocks(run.plan.pipeline->split, BlockElements(run.model->parameters),
                                 run.plan.pipeline->shape.Stages());
  const auto* wrong = std::get_if<std::string>(&split);
  return wrong == nullptr ? "" : absl::StrCat("strategy '", run.plan.name, "': ", *wrong);
}

}  // namespace

RunResolver::RunResolver(const YamlNode& run, const Surroundings& surroundings)
    : run_(run), surroundings_(surroundings) {
  for (const SchemaKey& key : Schema()) {
    std::string_view path = key.path;
    const ReadRun* read = std::get_if<ReadRun>(&key.read);
    if (!path.starts_with("run.") || read == nullptr) continue;
    path.remove_prefix(4);
    const size_t dot = path.find('.');
    const std::string_view leaf = dot == std::string_view::npos ? "" : path.substr(dot + 1);
    keys_by_top_[path.substr(0, dot)].push_back({&key, leaf, &DefaultOf(key), *read});
  }
}

absl::Status RunResolver::ReadBase() {
  if (absl::Status status = CheckKeys(run_, "run.", surroundings_.file_name); !status.ok()) {
    return status;
  }
  for (const auto& [top, keys] : keys_by_top_) {
    if (absl::Status status = ReadTop(top, run_.Find(top), base_); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// All keys of the table below run.TOP, from `value` where it has them, else from their defaults.
absl::Status RunResolver::ReadTop(std::string_view top, const YamlNode* value, RunDraft& draft) {
  const auto keys = keys_by_top_.find(top);
  if (keys == keys_by_top_.end()) return absl::OkStatus();  // CheckKeys refused it where written
  for (const TopKey& key : keys->second) {
    const YamlNode* written = value;
    if (value != nullptr && !key.leaf.empty()) written = FindBelow(*value, key.leaf);
    const YamlNode& node = written == nullptr ? *key.fallback : *written;
    const std::string wrong = key.read(node, draft);
    if (!wrong.empty()) return WrongValue(*key.key, node, wrong, surroundings_.file_name);
  }
  return absl::OkStatus();
}

const YamlNode* RunResolver::ValueOf(const std::vector<Assignment>& set,
                                     const std::string& key) const {
  const YamlNode* found = FindPath(run_, key);
  for (const Assignment& assignment : set) {
    if (assignment.key == key) {
      found = assignment.value;
    } else if (key.size() > assignment.key.size() && key.starts_with(assignment.key) &&
               key[assignment.key.size()] == '.') {
      const std::string_view rest = std::string_view(key).substr(assignment.key.size() + 1);
      found = FindBelow(*assignment.value, rest);
    }
  }
  if (found != nullptr) return found;
  const SchemaKey* schema_key = FindKey(absl::StrCat("run.", key));
  return schema_key != nullptr && schema_key->path == absl::StrCat("run.", key)
             ? &DefaultOf(*schema_key)
             : nullptr;
}

absl::StatusOr<ResolvedRun> RunResolver::Resolve(const std::vector<Assignment>& set) {
  RunDraft draft = base_;
  std::deque<YamlNode> changed;  // what the draft points to lives until it is finished
  std::vector<std::string_view> done;
  for (const Assignment& first : set) {
    const std::string_view top = TopOf(first.key);
    if (std::find(done.begin(), done.end(), top) != done.end()) continue;
    done.push_back(top);
    const YamlNode* value = nullptr;
    const auto of_top = [&](const Assignment& assignment) { return TopOf(assignment.key) == top; };
    if (first.key == top && std::count_if(set.begin(), set.end(), of_top) == 1) {
      value = first.value;
    } else {
      YamlNode& whole = changed.emplace_back();  // the base's value, with all that is set in it
      if (const YamlNode* base = run_.Find(top); base != nullptr) {
        whole.entries.push_back({std::string(top), *base});
      }
      for (const Assignment& assignment : set) {
        if (of_top(assignment)) SetPath(&whole, assignment.key, *assignment.value);
      }
      value = whole.Find(top);
    }
    if (absl::Status status = ReadTop(top, value, draft); !status.ok()) return status;
  }
  ResolvedRun run;
  const Problem problem = Finish(draft, &run);
  if (problem.sentence.empty()) {
    run.spec = std::move(draft.spec);
    return run;
  }
  const YamlNode* place = &run_;
  if (const YamlNode* written = run_.Find(problem.key); written != nullptr) place = written;
  for (const Assignment& assignment : set) {
    if (TopOf(assignment.key) == problem.key) place = assignment.value;
  }
  const std::string sentence = At(surroundings_.file_name, *place, problem.sentence);
  return problem.cannot_run ? absl::FailedPreconditionError(sentence)
                            : absl::InvalidArgumentError(sentence);
}

// What only the whole run can tell.
RunResolver::Problem RunResolver::Finish(RunDraft& draft, ResolvedRun* run) {
  v1::RunSpec& spec = draft.spec;
  spec.set_threads_per_rank(
      draft.threads_per_rank.value_or(std::max(1, surroundings_.cores / spec.ranks())));
  StrategyParams params;
  for (const v1::Param& param : spec.strategy().params()) {
    params.emplace_back(param.name(), param.text());
  }
  const StrategyRow* row = FindStrategy(spec.strategy().name());
  const bool is_pipeline = row != nullptr && row->pipeline;
  const int shares = is_pipeline ? draft.data_parallel : spec.ranks();
  const bool as_studied = spec.original() && row != nullptr && row->study;
  const int64_t accumulation = row == nullptr ? 1
                               : as_studied   ? row->study->gradient_accumulation
                                              : row->gradient_accumulation;
  if (std::string wrong = FinishBatch(draft, accumulation, shares); !wrong.empty()) {
    return {"batch_size", wrong};
  }
  auto plan = ParseStrategy(spec.strategy().name(), params,
                            {.ranks = spec.ranks(),
                             .replicas = draft.data_parallel,
                             .batch_rows = spec.batch_size(),
                             .micro_batches = draft.micro_batches.value_or(0),
                             .accumulation = spec.gradient_accumulation(),
                             .original = spec.original()});
  if (const PlanError* error = std::get_if<PlanError>(&plan); error != nullptr) {
    return {error->key, error->sentence, error->cannot_run};
  }
  run->plan = std::get<StrategyPlan>(std::move(plan));
  const bool on_gpu = spec.device() == "cuda";
  if (spec.backend() == "auto") spec.set_backend(on_gpu ? "nccl" : "gloo");
  if (!on_gpu && spec.backend() == "nccl") {
    return {"backend", "run.backend nccl is between GPUs, run.device is cpu; gloo is right", true};
  }
  if (on_gpu && is_pipeline && run->plan.pipeline->split.kind == SplitKind::kByTime) {
    return {"strategy", "split by_time is measured on CPUs, run.device is cuda; even is right",
            true};
  }
  if (!on_gpu && spec.precision() == "tf32") {
    return {"precision", "run.precision tf32 is of GPUs, run.device is cpu; fp32 is right", true};
  }
  if (is_pipeline && run->plan.pipeline->policy.splits_backward &&
      spec.precision() == "bf16_mixed") {
    return {"precision",
            absl::StrCat("strategy '", std::string(row->name),
                         "' makes gradients of weights itself, in fp32; ", "precision ",
                         spec.precision(), " is not built for it, fp32 is right"),
            true};
  }
  if (spec.batch_size() < shares) {
    const char* const part = is_pipeline ? "pipeline" : "rank";
    return {"batch_size",
            absl::StrCat("run.batch_size ", spec.batch_size(), " leaves some of the ", shares, " ",
                         part, "s without a row; at least one row a ", part, " is right"),
            true};
  }
  spec.set_data_parallel(draft.data_parallel);
  spec.set_micro_batches(is_pipeline ? run->plan.pipeline->shape.micro_batches : 1);
  for (const v1::Fault& fault : spec.chaos()) {
    if (fault.rank() < spec.ranks()) continue;
    return {"chaos",
            absl::StrCat("run.chaos names rank ", fault.rank(), "; the run has ", spec.ranks(),
                         ", counted from 0"),
            true};
  }
  run->profiles_apart = draft.profiles_apart;
  if (std::string wrong = FinishModel(draft, run); !wrong.empty()) return {"model", wrong};
  if (as_studied && row->study->fixed_length) FixLength(run->model->config, spec);
  if (std::string wrong = CheckStages(*run); !wrong.empty()) return {"strategy", wrong, true};
  if (std::string wrong = FinishDataset(draft); !wrong.empty()) return {"dataset", wrong};
  return {"env", FinishEnvironment(draft)};
}

std::string RunResolver::FinishModel(RunDraft& draft, ResolvedRun* run) {
  auto [entry, is_new] = models_.try_emplace(draft.model_text);
  auto& [error, model] = entry->second;
  if (is_new) error = ResolveModel(*draft.model, Place(), &model);
  if (!error.empty()) return error;
  const bool is_inline = model.spec.folder().empty();
  if (is_inline && draft.pretrained.value_or(false)) {
    return "run.weights is 'pretrained', but an inline model has no weights; random is right";
  }
  *draft.spec.mutable_model() = model.spec;
  draft.spec.mutable_model()->set_pretrained(draft.pretrained.value_or(!is_inline));
  if (!model.to_prepare.empty()) draft.spec.add_to_prepare(model.to_prepare);
  run->model = &model;
  return "";
}

std::string RunResolver::FinishDataset(RunDraft& draft) {
  v1::DatasetSpec* spec = draft.spec.mutable_dataset();
  if (spec->name() == "synthetic") return FinishSynthetic(draft, spec);
  if (draft.synthetic_rows) {
    return "run.dataset.rows belongs to a synthetic dataset; train_rows is right";
  }
  if (!spec->stream().empty()) return "run.dataset.stream belongs to a synthetic dataset";
  auto [entry, is_new] =
      datasets_.try_emplace(absl::StrCat(spec->name(), "\n", draft.spec.model().name()));
  auto& [error, dataset] = entry->second;
  if (is_new) error = ResolveDataset(spec->name(), draft.spec.model(), Place(), &dataset);
  if (!error.empty()) return error;
  spec->set_train_file(dataset.train_file);
  spec->set_eval_file(dataset.eval_file);
  if (!dataset.to_prepare.empty()) draft.spec.add_to_prepare(dataset.to_prepare);
  return "";
}

std::string RunResolver::FinishEnvironment(RunDraft& draft) {
  for (v1::EnvironmentVariable& variable : *draft.spec.mutable_environment()) {
    if (!draft.from_client.contains(variable.name())) continue;
    const auto found = surroundings_.environment.find(variable.name());
    if (found == surroundings_.environment.end()) {
      return absl::StrCat("run.env.", variable.name(),
                          " takes its value from your environment, where it is not set");
    }
    if (variable.secret()) {
      secrets_[variable.name()] = found->second;
    } else {
      variable.set_text(found->second);
    }
  }
  return "";
}

}  // namespace regatta
