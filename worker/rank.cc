#include "worker/rank.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <sched.h>
#include <torch/version.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <set>

#include "strategies/collectives/agreement.h"
#include "strategies/collectives/collectives.h"
#include "strategies/parameters.h"
#include "strategies/strategy.h"
#include "worker/chaos/fault.h"
#include "worker/client/coordinator_client.h"
#include "worker/data/loader.h"
#include "worker/data/shard.h"
#include "worker/exit_codes.h"
#include "worker/grpc_store.h"
#include "worker/metrics/counting_allocator.h"
#include "worker/metrics/process.h"
#include "worker/metrics/recorder.h"
#include "worker/models/model_table.h"
#include "worker/models/saver.h"
#include "worker/optimizer.h"
#include "worker/placement.h"
#include "worker/trainer.h"

namespace regatta {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr auto kReportPeriod = std::chrono::milliseconds(500);

// Threads that are made meanwhile may run on all cores: on the cores of a rank, Gloo's own threads
// would take turns with its operators (a call per parameter was 5 % slower so).
class UnpinnedScope {
 public:
  UnpinnedScope() {
    sched_getaffinity(0, sizeof(pinned_), &pinned_);
    cpu_set_t all;
    std::memset(&all, 0xff, sizeof(all));
    sched_setaffinity(0, sizeof(all), &all);  // the system keeps to the cores that it allows
  }
  ~UnpinnedScope() { sched_setaffinity(0, sizeof(pinned_), &pinned_); }
  UnpinnedScope(const UnpinnedScope&) = delete;
  UnpinnedScope& operator=(const UnpinnedScope&) = delete;

 private:
  cpu_set_t pinned_;
};

// Sends records to the coordinator, at most every half second: a call costs about 0.3 ms.
class Reporter {
 public:
  Reporter(CoordinatorClient& client, Recorder& recorder, int64_t planned_steps)
      : client_(client), recorder_(recorder), planned_steps_(planned_steps) {}

  void AfterStep() {
    if (SteadyClock::now() - last_ >= kReportPeriod) Flush();
  }
  void Flush() {
    last_ = SteadyClock::now();
    const std::vector<StepRecord> records = recorder_.TakeRecords();
    const std::vector<TraceFile> traces = std::exchange(traces_, {});
    if (!records.empty() || !traces.empty()) client_.Report(records, planned_steps_, traces);
  }
  void Add(const TraceFile& file) { traces_.push_back(file); }

 private:
  CoordinatorClient& client_;
  Recorder& recorder_;
  const int64_t planned_steps_;
  SteadyClock::time_point last_;
  std::vector<TraceFile> traces_;
};

void PutEvaluation(const Evaluation& evaluation, Recorder::Values& values) {
  values.emplace_back("eval_loss_sum", evaluation.loss_sum);
  values.emplace_back("eval_correct", static_cast<double>(evaluation.correct));
  values.emplace_back("eval_rows", static_cast<double>(evaluation.rows));
}

std::string Dtypes(const std::vector<NamedTensor>& parameters) {
  std::set<std::string> names;
  for (const NamedTensor& parameter : parameters)
    names.insert(c10::toString(parameter.tensor.scalar_type()));
  std::string joined;
  for (const std::string& name : names) joined += (joined.empty() ? "" : ", ") + name;
  return joined;
}

// Ranks read models and data themselves, on their own machine: they may find other files there.
AgreementItems WhatAllMustHave(const RunSpec& spec, const Model& model, const Loader& loader) {
  AgreementItems items = {{"libtorch", TORCH_VERSION},
                          {"data set " + spec.dataset.name, loader.Fingerprint()}};
  const AgreementItems described = DescribeParameters(model);
  items.insert(items.end(), described.begin(), described.end());
  return items;
}

// Collective: all ranks gather, rank 0 writes.
void SaveTrained(const RunSpec& spec, std::vector<NamedTensor> parameters, Strategy& strategy) {
  const std::vector<at::Tensor> whole = strategy.GatherParameters();
  if (whole.empty()) return;
  for (size_t i = 0; i < whole.size(); ++i) parameters.at(i).tensor = whole[i];
  SaveModel(spec.save_folder, spec.model, parameters);
}

// One rank's whole life after it has joined.
RankResult TrainRank(const std::shared_ptr<CoordinatorClient>& client, const RunSpec& spec,
                     SteadyClock::time_point joined, const AfterTraining& after_training) {
  const int rank = client->Identity().rank;
  const Placement place = ChoosePlacement(spec, rank);
  at::set_num_threads(spec.threads_per_rank);
  if (place.gpu == nullptr) LimitTensorBytes(spec.memory_limit);
  const StrategyPlan plan = PlanOf(spec);
  const RowShare share = ShareOf(plan, rank, spec.ranks);
  std::unique_ptr<Collectives> world;
  std::unique_ptr<Collectives> replicas;
  if (spec.ranks > 1) {
    const auto store = c10::make_intrusive<GrpcStore>(client);
    store->setTimeout(kGroupTimeout);
    const UnpinnedScope helpers_run_anywhere;
    world = std::make_unique<Collectives>(MakeWorld(spec, rank, store, place));
    replicas = MakeReplicaGroup(plan, world.get());
  }
  GpuGroupEnd replicas_end(replicas.get());
  GpuGroupEnd world_end(world.get());
  BuiltModel built = BuildModel(spec, place.device);
  const ModelLimits limits = built.limits;
  Loader loader(spec, LoadSplit(spec.dataset, Split::kTrain, limits), limits.pad_id, share,
                place.device);
  std::vector<NamedTensor> parameters = ParametersOf(built.model);
  const int64_t model_bytes = BytesOf(parameters);
  if (world != nullptr) CheckAgreement(WhatAllMustHave(spec, built.model, loader), *world);
  Observation observation;
  observation.take_peak_bytes = place.TakePhasePeakBytes();
  observation.times_parts = place.gpu == nullptr;
  const std::unique_ptr<Strategy> strategy =
      BuildStrategy(plan, {.model = std::move(built.model),
                           .world = world.get(),
                           .replicas = replicas.get(),
                           .optimizer = MakeOptimizerFactory(spec.optimizer),
                           .clip_norm = spec.clip_norm,
                           .observation = &observation,
                           .sample = [&loader] { return loader.Sample(); }});
  const int64_t peak_load_bytes = place.PeakBytes();
  Recorder recorder(world.get());
  Reporter reporter(*client, recorder, loader.PlannedSteps());
  double first_step_seconds = 0;
  const Chaos chaos(spec.chaos, rank);
  chaos.At(0);
  const std::string backend = spec.ranks > 1 ? spec.backend : "none";
  StepProfiler profiler(spec.profile, rank, spec.ranks, backend, place.gpu != nullptr);
  const ToldAtEnd told =
      Train({spec, loader, *strategy, observation, recorder, profiler,
             [&](int64_t step) {
               if (step == 0) {
                 first_step_seconds =
                     std::chrono::duration<double>(SteadyClock::now() - joined).count();
               }
               reporter.AfterStep();
               chaos.At(step + 1);
             },
             [&](const TraceFile& file) { reporter.Add(file); }, [&] { place.AwaitDevice(); }});
  reporter.Flush();
  if (!spec.save_folder.empty()) SaveTrained(spec, parameters, *strategy);
  if (after_training) after_training(*strategy, client->Identity());
  RankResult result{.ok = true,
                    .sentence = "",
                    .exit_code = kExitOk,
                    .values = recorder.Summarize(),
                    .facts = {}};
  for (auto& [name, value] : result.values) {
    if (name == "peak_tensor_bytes") value = static_cast<double>(place.PeakBytes());
  }
  result.values.insert(result.values.end(), told.numbers.begin(), told.numbers.end());
  result.values.emplace_back("joined_to_first_step_seconds", first_step_seconds);
  result.values.emplace_back("peak_load_bytes", static_cast<double>(peak_load_bytes));
  result.values.emplace_back("param_bytes_total", static_cast<double>(model_bytes));
  result.values.emplace_back("store_calls", static_cast<double>(client->StoreCalls()));
  const Shard eval = LoadSplit(spec.dataset, Split::kEval, limits);
  if (eval.Rows() > 0) {
    const int64_t batch_rows = std::max<int64_t>(1, spec.batch_size / share.of);
    const EvaluationPlan how = {.batch_rows = batch_rows,
                                .padded_length = spec.padded_length,
                                .pad_id = limits.pad_id,
                                .device = place.device,
                                .wraps = spec.original};
    PutEvaluation(EvaluateAll(*strategy, EvaluationBatches(eval, how, share)), result.values);
  }
  result.facts = {{"threads", std::to_string(at::get_num_threads())},
                  {"parameter_dtype", Dtypes(parameters)},
                  {"backend", backend},
                  {"interface", spec.ranks > 1 ? kGlooAddress : "none"}};
  if (place.gpu != nullptr) {
    result.facts.emplace_back("gpu", place.gpu->DeviceName(place.device.index()));
  }
  if (spec.precision == "bf16_mixed") {
    result.facts.emplace_back("bf16_instructions",
                              __builtin_cpu_supports("avx512bf16") != 0 ? "avx512_bf16" : "none");
  }
  const int64_t uneven = eval.Rows() % share.of;
  if (spec.original && uneven != 0) {
    result.facts.emplace_back("evaluation_rows_counted_twice", std::to_string(share.of - uneven));
  }
  result.facts.insert(result.facts.end(), told.facts.begin(), told.facts.end());
  if (!spec.save_folder.empty() && rank == 0) {
    result.facts.emplace_back("saved_model", spec.save_folder);
  }
  world_end.Done();
  replicas_end.Done();
  return result;
}

// The sentence of an exception without LibTorch's stack, and the exit code that says its kind.
RankResult Describe(const std::exception& error, int* code) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const bool collective = dynamic_cast<const c10::DistError*>(&error) != nullptr;
  const bool memory = dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr;
  *code = memory ? kExitDeviceMemory : collective ? kExitCollective : kExitFailed;
  std::string sentence =
      torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  return {
      .ok = false, .sentence = std::move(sentence), .exit_code = *code, .values = {}, .facts = {}};
}

}  // namespace

int RunRank(const AfterTraining& after_training) {
  // Fewer store calls to meet: 2 a rank instead of one a peer. LibTorch reads it once, when the
  // group is made.
  setenv("GLOO_ENABLE_STORE_V2_API", "1", 1);
  // A peer that is gone shall be an error of the collective that names it, not a signal.
  signal(SIGPIPE, SIG_IGN);
  InstallCountingAllocator();
  ActBeforeJoin();
  int code = kExitOk;
  std::shared_ptr<CoordinatorClient> client;
  try {
    client = std::make_shared<CoordinatorClient>(ReadRankIdentity());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "regatta-worker: %s\n", e.what());
    return kExitUsage;
  }
  try {
    const RunSpec spec = client->Join(ProcessFacts());
    const auto joined = SteadyClock::now();
    RankResult result;
    try {
      result = TrainRank(client, spec, joined, after_training);
    } catch (const std::exception& e) {
      result = Describe(e, &code);
      std::fprintf(stderr, "regatta-worker: rank %d: %s\n", client->Identity().rank,
                   result.sentence.c_str());
    }
    client->Finish(result);
    if (result.ok) Chaos(spec.chaos, client->Identity().rank).At(kAfterFinish);
  } catch (const CoordinatorError& e) {
    std::fprintf(stderr, "regatta-worker: rank %d: %s\n", client->Identity().rank, e.what());
    if (code == kExitOk)
      code = e.GetKind() == CoordinatorError::Kind::kRefused ? kExitRefused : kExitFailed;
  }
  return code;
}

}  // namespace regatta
