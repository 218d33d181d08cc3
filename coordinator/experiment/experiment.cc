#include "coordinator/experiment/experiment.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>

#include <algorithm>
#include <future>
#include <iterator>
#include <span>
#include <thread>
#include <unordered_map>

#include "coordinator/experiment/matrix.h"
#include "coordinator/experiment/values.h"
#include "strategies/plan/memory.h"
#include "worker/shapes/model_shapes.h"

namespace regatta {
namespace {

using Kind = YamlNode::Kind;

// --set run.ranks=4: as if the file said so. A key that the file sweeps would win in silence.
absl::Status ApplySet(const std::string& set, YamlNode* top) {
  const size_t equals = set.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--set '", set, "' is no KEY=VALUE, such as run.ranks=4"));
  }
  const std::string key = set.substr(0, equals);
  const absl::StatusOr<YamlNode> value = ParseYamlValue(set.substr(equals + 1));
  if (!value.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--set ", key, ": ", value.status().message()));
  }
  if (FindKey(key) == nullptr && FindKey("run." + key) != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--set '", set, "': keys of a run begin with run., so run.", set, " is right"));
  }
  const YamlNode* matrix = top->Find("matrix");
  if (key.starts_with("run.") && matrix != nullptr && matrix->Find(key.substr(4)) != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("--set ", key, ": the matrix sweeps it; matrix.",
                                                   key.substr(4), "=[", OneLine(*value),
                                                   "] is right"));
  }
  // An axis is one key of the map below matrix, dots and all.
  if (key.starts_with("matrix.")) {
    YamlNode axes;
    if (matrix != nullptr) axes = *matrix;
    axes.kind = Kind::kMap;
    auto found = std::find_if(axes.entries.begin(), axes.entries.end(),
                              [&](const auto& entry) { return entry.key == key.substr(7); });
    if (found == axes.entries.end()) {
      axes.entries.push_back({key.substr(7), *value});
    } else {
      found->value = *value;
    }
    SetPath(top, "matrix", axes);
    return absl::OkStatus();
  }
  SetPath(top, key, *value);
  return absl::OkStatus();
}

absl::StatusOr<YamlNode> ReadTree(const ExperimentSource& source, const std::string& file_name) {
  absl::StatusOr<YamlNode> top = ParseYaml(source.text, file_name);
  if (!top.ok()) return top;
  if (top->kind != Kind::kMap) {
    return ErrorAt(file_name, *top,
                   absl::StrCat("'", OneLine(*top), "' is not a map of keys and values"));
  }
  for (const std::string& set : source.sets) {
    if (absl::Status status = ApplySet(set, &*top); !status.ok()) return status;
  }
  return top;
}

absl::Status ReadHeadKeys(const YamlNode& top, const std::string& file_name, ExperimentHead* head) {
  if (top.Find("name") == nullptr) {
    return ErrorAt(file_name, top, "the experiment lacks 'name:'");
  }
  for (const SchemaKey& key : Schema()) {
    const ReadHead* read = std::get_if<ReadHead>(&key.read);
    if (read == nullptr) continue;
    const YamlNode* written = FindPath(top, key.path);
    const YamlNode& value = written == nullptr ? DefaultOf(key) : *written;
    const std::string wrong = (*read)(value, *head);
    if (!wrong.empty()) return WrongValue(key, value, wrong, file_name);
  }
  return absl::OkStatus();
}

// What `regatta plan` tells of the rules, and the warnings about those that do nothing.
void ReportRules(const MatrixPlan& plan, const Expansion& expansion, const std::string& file_name,
                 Experiment* experiment) {
  const auto report = [&](const char* kind, const YamlNode& node, int64_t matched) {
    experiment->rules.push_back({kind, node.line, OneLine(node), matched});
    if (matched > 0) return;
    experiment->warnings.push_back(
        At(file_name, node, absl::StrCat(kind, " ", OneLine(node), " matches nothing")));
  };
  for (size_t i = 0; i < plan.excludes.size(); ++i) {
    const Rule& rule = plan.excludes[i];
    report("exclude", *rule.node, expansion.excluded[i]);
    if (expansion.excluded[i] > 0) continue;
    const bool names_include =
        std::any_of(plan.includes.begin(), plan.includes.end(), [&](const auto& row) {
          return std::all_of(rule.patterns.begin(), rule.patterns.end(), [&](const auto& pattern) {
            return std::any_of(row.begin(), row.end(), [&](const Assignment& set) {
              return set.key == pattern.key && Matches(*pattern.value, *set.value);
            });
          });
        });
    if (names_include) {
      experiment->warnings.back() += "; a run of include would match, but exclude leaves those";
    }
  }
  for (size_t i = 0; i < plan.overrides.size(); ++i) {
    report("override", *plan.overrides[i].match.node, expansion.overridden[i]);
  }
}

// Loader batches of most steps: an epoch may have fewer than one is to have.
int64_t BatchesOfAStep(const v1::RunSpec& spec, const StrategyPlan& plan) {
  const int64_t wanted = spec.gradient_accumulation();
  int64_t rows = spec.dataset().train_rows();
  if (rows == 0) return wanted;  // all that there are
  const int shares = RowShares(plan, spec.ranks());
  if (spec.original()) rows = (rows + shares - 1) / shares * shares;
  const int64_t whole = rows / spec.batch_size();
  const bool tail = !spec.drop_last() && rows % spec.batch_size() != 0;
  return std::clamp<int64_t>(whole + (tail ? 1 : 0), 1, wanted);
}

// Predictions of runs, each made once: most runs of a large matrix differ in what it ignores.
class Predictor {
 public:
  std::shared_ptr<const PredictedRun> Predict(const ResolvedRun& run) {
    const v1::RunSpec& spec = run.spec;
    const bool clips = spec.clip_norm() > 0;
    const int64_t parts =
        RowShares(run.plan, spec.ranks()) * std::max<int64_t>(1, spec.micro_batches());
    const int64_t rows = (spec.batch_size() + parts - 1) / parts;  // of one forward
    const int64_t accumulation = BatchesOfAStep(spec, run.plan);
    const int64_t length =
        spec.padded_length() > 0 ? spec.padded_length() : spec.dataset().max_length();
    std::string key = absl::StrCat(
        spec.ranks(), "\n", spec.data_parallel(), "\n", spec.micro_batches(), "\n",
        spec.batch_size(), "\n", spec.optimizer().name(), "\n", accumulation, "\n", clips,
        spec.dropout(), spec.original(), spec.recompute(), spec.precision(), "\n", rows, "\n",
        length, "\n", absl::Hex(reinterpret_cast<uintptr_t>(run.model)), "\n");
    spec.strategy().AppendToString(&key);
    auto [entry, is_new] = predictions_.try_emplace(std::move(key));
    if (!is_new) return entry->second;
    const auto predicted = std::make_shared<PredictedRun>();
    entry->second = predicted;
    if (run.model->parameters.empty()) return predicted;
    const ModelKind& kind = *FindModelKind(run.model->config);
    PredictionInputs inputs = {.parameters = run.model->parameters,
                               .ranks = spec.ranks(),
                               .optimizer_tensors = spec.optimizer().name() == "adamw" ? 2 : 0,
                               .accumulation = accumulation,
                               .clips = clips,
                               .batch_rows = spec.batch_size(),
                               .padded_length = spec.padded_length(),
                               .width = run.model->config.at(kind.width_key)};
    predicted->ranks = PredictRanks(run.plan, inputs);
    predicted->most = MostOf(predicted->ranks);
    // What masks keep, and what autocast does, is not predicted.
    if (length > 0 && !spec.dropout() && spec.precision() == "fp32") {
      inputs.padded_length = length;
      std::vector<BlockActivations> blocks = kind.activations(run.model->config, rows, length);
      if (spec.recompute()) {
        blocks = Recomputed(blocks, rows * length * inputs.width * int64_t{sizeof(float)});
      }
      const PeakPrediction peaks = PredictPeaks(run.plan, inputs, blocks);
      predicted->peak_bytes = peaks.Largest();
    }
    return predicted;
  }

 private:
  std::map<std::string, std::shared_ptr<const PredictedRun>> predictions_;
};

PlannedRun MakePlannedRun(std::string name, const ResolvedRun& resolved, Predictor& predictor) {
  const v1::RunSpec& spec = resolved.spec;
  PlannedRun run;
  run.name = std::move(name);
  run.strategy = spec.strategy().name();
  run.model = spec.model().name();
  run.dataset = spec.dataset().name();
  run.ranks = spec.ranks();
  run.threads_per_rank = spec.threads_per_rank();
  run.to_prepare.assign(spec.to_prepare().begin(), spec.to_prepare().end());
  run.spec = std::make_shared<const std::string>(spec.SerializeAsString());
  if (resolved.profiles_apart) {
    v1::RunSpec measured = spec;
    measured.clear_profile();
    run.profiled_spec =
        std::exchange(run.spec, std::make_shared<const std::string>(measured.SerializeAsString()));
  }
  run.predicted = predictor.Predict(resolved);
  run.memory_limit = spec.memory_limit();
  run.gpus = GpusOf(spec);
  return run;
}

// A combination that cannot run, with what can be told of it.
PlannedRun MakeSkippedRun(std::string name, const RunResolver& resolver, const MatrixRow& row,
                          std::string sentence) {
  const auto text = [&](const char* key) {
    const YamlNode* value = resolver.ValueOf(row.set, key);
    if (value == nullptr) return std::string();
    const YamlNode* own_name = value->Find("name");
    return own_name == nullptr ? OneLine(*value) : own_name->text;
  };
  PlannedRun run;
  run.name = std::move(name);
  run.strategy = text("strategy");
  run.model = text("model");
  run.dataset = text("dataset.name");
  int64_t ranks = 1;
  if (const YamlNode* value = resolver.ValueOf(row.set, "ranks"); value != nullptr) {
    (void)ReadInteger(*value, 1, &ranks);
  }
  run.ranks = static_cast<int32_t>(ranks);
  run.spec = std::make_shared<const std::string>();
  run.skipped = std::move(sentence);
  return run;
}

struct ResolvedRows {
  std::vector<PlannedRun> runs;
  std::map<std::string, std::string> secrets;
};

absl::StatusOr<ResolvedRows> ResolveSome(std::span<const MatrixRow> rows,
                                         const ExperimentHead& head, RunResolver resolver) {
  ResolvedRows some;
  Predictor predictor;
  some.runs.reserve(rows.size());
  for (const MatrixRow& row : rows) {
    std::string name = RowName(row);
    if (name.empty()) name = head.name;
    const absl::StatusOr<ResolvedRun> resolved = resolver.Resolve(row.set);
    if (resolved.ok()) {
      some.runs.push_back(MakePlannedRun(std::move(name), *resolved, predictor));
    } else if (absl::IsFailedPrecondition(resolved.status()) && head.skip_invalid) {
      some.runs.push_back(
          MakeSkippedRun(std::move(name), resolver, row, std::string(resolved.status().message())));
    } else {
      return absl::InvalidArgumentError(resolved.status().message());
    }
  }
  some.secrets = resolver.Secrets();
  return some;
}

// Rows are independent: a large matrix is resolved on all cores, in parts of which each has a
// resolver of its own. The first part with a mistake tells it, as one part would.
absl::StatusOr<ResolvedRows> ResolveRows(const std::vector<MatrixRow>& rows,
                                         const ExperimentHead& head, const RunResolver& resolver) {
  constexpr size_t kRowsWorthAThread = 10000;
  const size_t cores = std::max(1U, std::thread::hardware_concurrency());
  const size_t parts = std::clamp<size_t>(rows.size() / kRowsWorthAThread, 1, cores);
  std::vector<std::future<absl::StatusOr<ResolvedRows>>> others;
  const auto part = [&](size_t i) {
    const size_t begin = rows.size() * i / parts;
    return std::span(rows).subspan(begin, rows.size() * (i + 1) / parts - begin);
  };
  for (size_t i = 1; i < parts; ++i) {
    others.push_back(std::async(std::launch::async, ResolveSome, part(i), head, resolver));
  }
  absl::StatusOr<ResolvedRows> all = ResolveSome(part(0), head, resolver);
  for (auto& other : others) {
    absl::StatusOr<ResolvedRows> more = other.get();
    if (!all.ok()) continue;
    if (!more.ok()) {
      all = more.status();
      continue;
    }
    all->runs.insert(all->runs.end(), std::make_move_iterator(more->runs.begin()),
                     std::make_move_iterator(more->runs.end()));
    all->secrets.merge(more->secrets);
  }
  return all;
}

// Every run `repeats` times; each round goes the other way, so that a machine that slowly drifts
// favours no run. Those that are profiled apart come once more, at the end.
std::vector<PlannedRun> Repeat(std::vector<PlannedRun> runs, int64_t repeats) {
  const size_t once = runs.size();
  runs.reserve(once * static_cast<size_t>(repeats));
  for (int64_t repeat = 2; repeat <= repeats; ++repeat) {
    for (size_t i = 0; i < once; ++i) {
      runs.push_back(runs[repeat % 2 == 0 ? once - 1 - i : i]);
      runs.back().repeat = repeat;
    }
  }
  for (size_t i = 0; i < once; ++i) {
    if (runs[i].profiled_spec == nullptr) continue;
    runs.push_back(runs[i]);
    runs.back().spec = runs[i].profiled_spec;
    runs.back().repeat = 0;
  }
  return runs;
}

void WarnOfTwins(const std::vector<PlannedRun>& runs, const std::string& file_name,
                 std::vector<std::string>* warnings) {
  std::unordered_map<std::string_view, const std::string*> spec_of;
  spec_of.reserve(runs.size());
  for (const PlannedRun& run : runs) {
    const auto [seen, is_new] = spec_of.try_emplace(run.name, run.spec.get());
    if (is_new || !run.skipped.empty() || *seen->second != *run.spec) continue;
    warnings->push_back(
        absl::StrCat(file_name, ": run '", run.name, "' is there twice; repeats: 2 is for that"));
  }
}

}  // namespace

int GpusOf(const v1::RunSpec& spec) {
  if (spec.device() != "cuda") return 0;
  return spec.backend() == "gloo" ? 1 : spec.ranks();
}

absl::StatusOr<Experiment> ParseExperiment(const ExperimentSource& source,
                                           const Surroundings& surroundings) {
  const std::string& file_name = surroundings.file_name;
  const absl::StatusOr<YamlNode> top = ReadTree(source, file_name);
  if (!top.ok()) return top.status();
  if (absl::Status status = CheckKeys(*top, "", file_name); !status.ok()) return status;

  Experiment experiment;
  for (const std::string& set : source.sets) {
    absl::StrAppend(&experiment.text, "# --set ", absl::StrReplaceAll(set, {{"\n", " "}}), "\n");
  }
  absl::StrAppend(&experiment.text, source.text);
  if (absl::Status s = ReadHeadKeys(*top, file_name, &experiment.head); !s.ok()) return s;
  const absl::StatusOr<MatrixPlan> plan = ReadMatrix(*top, file_name);
  if (!plan.ok()) return plan.status();

  YamlNode run;
  run.kind = Kind::kMap;
  run.line = run.column = 1;
  if (const YamlNode* written = top->Find("run"); written != nullptr) run = *written;
  RunResolver resolver(run, surroundings);
  if (absl::Status status = resolver.ReadBase(); !status.ok()) return status;
  const ExperimentHead& head = experiment.head;
  const absl::StatusOr<Expansion> expansion =
      ExpandMatrix(*plan, head.repeats, head.limits.max_runs,
                   [&](const std::vector<Assignment>& set, const std::string& key) {
                     return resolver.ValueOf(set, key);
                   });
  if (!expansion.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ": ", expansion.status().message()));
  }
  if (expansion->rows.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ": exclude leaves no run"));
  }
  ReportRules(*plan, *expansion, file_name, &experiment);
  absl::StatusOr<ResolvedRows> resolved = ResolveRows(expansion->rows, head, resolver);
  if (!resolved.ok()) return resolved.status();
  WarnOfTwins(resolved->runs, file_name, &experiment.warnings);
  if (source.strict && !experiment.warnings.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(experiment.warnings[0], " (--strict)"));
  }
  experiment.runs = Repeat(std::move(resolved->runs), head.repeats);
  if (const auto count = static_cast<int64_t>(experiment.runs.size());
      count > head.limits.max_runs) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": with a profiled repeat of each, there are ", count,
                     " runs; limits.max_runs is ", head.limits.max_runs));
  }
  experiment.secrets = std::move(resolved->secrets);
  return experiment;
}

std::vector<std::string> WantedEnvironment(const ExperimentSource& source) {
  std::vector<std::string> names;
  const absl::StatusOr<YamlNode> top = ReadTree(source, "");
  if (!top.ok()) return names;
  const auto collect = [&names](auto& self, const YamlNode& node) -> void {
    for (const auto& [key, value] : node.entries) {
      if (key.starts_with("env.")) names.push_back(key.substr(4));
      if (key == "env") {
        for (const auto& entry : value.entries) names.push_back(entry.key);
      }
      self(self, value);
    }
    for (const YamlNode& item : node.items) self(self, item);
  };
  collect(collect, *top);
  return names;
}

}  // namespace regatta
