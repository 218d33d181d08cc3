#include "strategies/pipeline/pipeline.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "strategies/clipping.h"
#include "strategies/parameters.h"
#include "strategies/pipeline/block_times.h"
#include "strategies/scoring.h"
#include "strategies/weights.h"

namespace regatta {
namespace {

// What a split by cost looks at: seconds that rank 0 measures, or parameters.
std::vector<double> BlockCosts(const PipelinePlan& plan, const StrategyInputs& inputs) {
  if (plan.split.kind != SplitKind::kByTime) {
    return BlockElements(SizesOf(inputs.model, ParametersOf(inputs.model)));
  }
  std::vector<double> seconds(inputs.model.blocks.size());
  if (inputs.world->Rank() == 0) {
    seconds = MeasureBlocks(inputs.model, CutBatch(inputs.sample(), plan)[0]);
  }
  const auto length = static_cast<int64_t>(seconds.size());
  const at::Tensor same = at::from_blob(seconds.data(), {length}, at::kDouble);
  inputs.world->Broadcast(same, 0, Launch::kOnCallersStream).Wait();
  return seconds;
}

void TransferNow(Collectives& world, Transfer transfer) {
  for (PendingWork& work : world.StartTransfers({std::move(transfer)})) work.Wait();
}

// A span of the trace, and in it one that tells where: "pp.forward", "stage 0 chunk 3". Nothing is
// made where no profiler listens.
class ActionSpan {
 public:
  ActionSpan(const char* name, const Action& action) {
    if (what_.isActive()) what_.before(name);
    if (!where_.isActive()) return;
    where_.before("stage " + std::to_string(action.stage) + " chunk " +
                  std::to_string(action.micro_batch));
  }

 private:
  at::RecordFunction what_{at::RecordScope::USER_SCOPE};
  at::RecordFunction where_{at::RecordScope::USER_SCOPE};
};

// Spans of the parts of a 1F1B step, as the study names them; other programs have none.
class PhaseSpan {
 public:
  explicit PhaseSpan(const std::vector<Action>& program) {
    const auto is_forward = [](const Action& a) { return a.kind == ActionKind::kForward; };
    const auto is_backward = [](const Action& a) { return MakesInputGradient(a.kind); };
    const auto backward = std::find_if(program.begin(), program.end(), is_backward);
    const auto before = std::find_if(std::reverse_iterator(backward), program.rend(), is_forward);
    const auto last = std::find_if(program.rbegin(), program.rend(), is_forward);
    steady_ = static_cast<size_t>(program.rend() - before) - 1;
    drain_ = static_cast<size_t>(program.rend() - last);
  }

  // The action at this place comes next.
  void Enter(size_t at) {
    const char* name = at < steady_  ? "pp.forward_warmup"
                       : at < drain_ ? "pp.1f1b_steady"
                                     : "pp.backward_drain";
    if (name == name_) return;
    name_ = name;
    span_.reset();
    span_.emplace(at::RecordScope::USER_SCOPE);
    if (span_->isActive()) span_->before(name);
  }

 private:
  size_t steady_ = 0;  // begins with the forward before the first backward
  size_t drain_ = 0;   // begins after the last forward
  const char* name_ = nullptr;
  std::optional<at::RecordFunction> span_;
};

}  // namespace

std::vector<Batch> CutBatch(const Batch& batch, const PipelinePlan& plan) {
  const int parts = plan.shape.micro_batches;
  std::vector<Batch> cut;
  int64_t begin = 0;
  for (int part = 0; part < parts; ++part) {
    const int64_t left = batch.Rows() - begin;
    const int64_t rows = plan.chunk_sizes == ChunkSizes::kFull
                             ? std::min(left, (batch.Rows() + parts - 1) / parts)
                             : batch.Rows() / parts + (part < batch.Rows() % parts ? 1 : 0);
    Batch& mine = cut.emplace_back();
    mine.dropout = batch.dropout;
    if (rows == 0) continue;
    const double share = plan.mean_of_chunk_means
                             ? 1.0 / parts
                             : static_cast<double>(rows) / static_cast<double>(batch.Rows());
    mine.loss_weight = batch.loss_weight * share;
    mine.ids = batch.ids.narrow(0, begin, rows);
    mine.lengths = batch.lengths.narrow(0, begin, rows);
    mine.labels = batch.labels.narrow(0, begin, rows);
    mine.row_ids = batch.row_ids.narrow(0, begin, rows);
    mine.real_tokens = mine.lengths.sum().item<int64_t>();
    begin += rows;
  }
  return cut;
}

PipelineInputs PlanPipeline(const PipelinePlan& plan, const StrategyInputs& inputs) {
  auto firsts = SplitBlocks(plan.split, BlockCosts(plan, inputs), plan.shape.Stages());
  if (const auto* error = std::get_if<std::string>(&firsts)) TORCH_CHECK(false, *error);
  auto program = PlanProgram(plan.policy, plan.shape, plan.waits_at_once, plan.fusing);
  if (const auto* error = std::get_if<std::string>(&program)) TORCH_CHECK(false, *error);
  return {plan, std::get<Program>(std::move(program)),
          std::get<std::vector<int>>(std::move(firsts))};
}

Pipeline::Pipeline(PipelineInputs pipeline, StrategyInputs inputs)
    : pipeline_(std::move(pipeline)),
      inputs_(std::move(inputs)),
      rank_(inputs_.world->Rank() % Shape().ranks),
      first_rank_(inputs_.world->Rank() - rank_),
      parameters_(ParametersOf(inputs_.model)),
      owner_(FindOwners()) {
  for (size_t p = 0; p < parameters_.size(); ++p) {
    if (owner_[p] == rank_) own_.push_back(parameters_[p]);
  }
  LoadWeights(inputs_.model, own_);
  reducer_ = MakeGradReducer(kReplicaReduction, own_, {}, inputs_.replicas);
  inputs_.world->Connect({PeerOf(rank_ + 1), PeerOf(rank_ + Shape().ranks - 1)});
  optimizer_ = inputs_.optimizer(TensorsOf(own_));
  inputs_.observation->parameter_bytes = BytesOf(own_);
  inputs_.observation->gradient_bytes = BytesOf(own_);
  inputs_.observation->optimizer_bytes = optimizer_->StateBytes();
}

std::vector<int> Pipeline::FindOwners() const {
  std::vector<int> owners;
  for (const ParameterSize& size : SizesOf(inputs_.model, parameters_)) {
    const auto rank_of = [&](size_t block) {
      return Shape().RankOf(StageOf(pipeline_.first_block, block));
    };
    const int owner = owners.emplace_back(rank_of(size.blocks.at(0)));
    for (const size_t block : size.blocks) {
      TORCH_CHECK(rank_of(block) == owner, "parameter ", parameters_[owners.size() - 1].name,
                  " belongs to stages on ranks ", owner, " and ", rank_of(block),
                  "; a pipeline has each on one rank");
    }
  }
  return owners;
}

size_t Pipeline::EndOf(int stage) const {
  return IsLast(stage) ? inputs_.model.blocks.size()
                       : static_cast<size_t>(pipeline_.first_block[static_cast<size_t>(stage) + 1]);
}

at::Tensor Pipeline::ForwardStage(int stage, at::Tensor x, const Batch& batch) const {
  auto block = static_cast<size_t>(pipeline_.first_block[static_cast<size_t>(stage)]);
  for (; block < EndOf(stage); ++block) x = inputs_.model.blocks[block]->Forward(x, batch);
  return x;
}

at::Tensor Pipeline::EmptyActivation(const Batch& batch) const {
  return at::empty({batch.Rows(), batch.ids.size(1), inputs_.model.width},
                   batch.ids.options().dtype(at::kFloat));
}

// ---- a step ----

LossSum Pipeline::ComputeGradients(const std::vector<Batch>& batches) {
  sum_ = {};
  double step_seconds = 0;
  {
    const ScopedSeconds whole(step_seconds);
    RunStep(batches);
  }
  times_.EndStep(step_seconds);
  ++steps_;
  ReduceOverReplicas();
  return sum_;
}

void Pipeline::RunStep(const std::vector<Batch>& batches) {
  bool had_rows = false;
  const bool has_phases = pipeline_.plan.policy.warm_up != WarmUp::kAll;
  const std::vector<Action>& program = pipeline_.program[static_cast<size_t>(rank_)];
  reducer_->Begin(batches.size());
  for (const Batch& batch : batches) {
    had_rows = had_rows || batch.Rows() > 0;
    micro_batches_ = CutBatch(batch, pipeline_.plan);
    for (Batch& part : micro_batches_) {
      if (part.Rows() > 0) inputs_.model.prepare(part);
    }
    std::optional<PhaseSpan> phase;
    if (has_phases) phase.emplace(program);
    for (size_t i = 0; i < program.size();) {
      if (phase) phase->Enter(i);
      if (IsTransfer(program[i].kind)) {
        i = RunTransfers(program, i);
      } else {
        Run(program[i++]);
      }
    }
    AwaitAll();
    in_flight_.clear();
  }
  CheckGradients(had_rows);
}

// Every rank knows which micro-batches have no rows, and leaves them out.
void Pipeline::Run(const Action& action) {
  if (micro_batches_[static_cast<size_t>(action.micro_batch)].Rows() == 0) return;
  if (const auto receive = ReceiveBefore(action, Shape())) Await(*receive);
  double seconds = 0;
  const double cpu_begin = ThreadCpuSeconds();
  {
    const ScopedSeconds whole(seconds);
    Compute(action);
  }
  times_.Add(action, seconds, ThreadCpuSeconds() - cpu_begin);
}

// The one place that acts on a program.
void Pipeline::Compute(const Action& action) {
  Observation& observation = *inputs_.observation;
  const ScopedPhase scope =
      action.kind == ActionKind::kForward
          ? ScopedPhase(observation, observation.forward_seconds, observation.forward_peak_bytes)
          : ScopedPhase(observation, observation.backward_seconds, observation.backward_peak_bytes);
  switch (action.kind) {
    case ActionKind::kForward: {
      const ActionSpan span("pp.forward", action);
      return RunForward(action);
    }
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput: {
      const ActionSpan span("pp.backward", action);
      return RunBackward(action);
    }
    case ActionKind::kBackwardWeight: {
      const ActionSpan span("pp.backward_weight", action);
      return At(action).weights.Make();
    }
    default:
      TORCH_CHECK(false, ActionText(action), " is a transfer");
  }
}

void Pipeline::RunForward(const Action& action) {
  Batch& batch = micro_batches_[static_cast<size_t>(action.micro_batch)];
  InFlight& at = At(action);
  batch.weight_gradients = pipeline_.plan.policy.splits_backward ? &at.weights : &at_once_;
  if (at.input.defined()) at.input.set_requires_grad(true);
  at.output = ForwardStage(action.stage, at.input, batch);
  if (!IsLast(action.stage)) return;
  const at::Tensor loss = at::cross_entropy_loss(at.output, batch.labels);
  sum_.sum += loss.item<double>() * static_cast<double>(batch.Rows());
  sum_.rows += batch.Rows();
  at.output = loss * batch.loss_weight;
}

void Pipeline::RunBackward(const Action& action) {
  InFlight& at = At(action);
  at.output.backward(at.output_gradient);
  // Its graph and what came are freed here; the input stays until its gradient was sent.
  at.output.reset();
  at.output_gradient.reset();
}

size_t Pipeline::RunTransfers(const std::vector<Action>& program, size_t begin) {
  const size_t end = EndOfBatch(program, begin, pipeline_.plan.fusing, Shape());
  std::vector<Transfer> transfers;
  std::vector<Action> actions;
  for (size_t i = begin; i < end; ++i) {
    if (micro_batches_[static_cast<size_t>(program[i].micro_batch)].Rows() == 0) continue;
    transfers.push_back(MakeTransfer(program[i]));
    actions.push_back(program[i]);
  }
  if (actions.empty()) return end;
  AwaitSends();
  std::vector<PendingWork> works = inputs_.world->StartTransfers(std::move(transfers));
  for (size_t i = 0; i < works.size(); ++i) {
    pending_.emplace(actions[i], std::move(works[i]));
  }
  if (pipeline_.plan.waits_at_once) {
    for (const Action& action : actions) Await(action);
  }
  return end;
}

Transfer Pipeline::MakeTransfer(const Action& action) {
  const Batch& batch = micro_batches_[static_cast<size_t>(action.micro_batch)];
  const bool sends = IsSend(action.kind);
  const Action other = OtherEnd(action);
  InFlight& at = At(action);
  at::Tensor tensor;
  switch (action.kind) {
    case ActionKind::kSendActivation:
      tensor = at.output.detach().contiguous();
      break;
    case ActionKind::kReceiveActivation:
      tensor = at.input = EmptyActivation(batch);
      break;
    case ActionKind::kSendGradient:
      tensor = at.input.grad().contiguous();
      at.input.reset();
      break;
    default:
      tensor = at.output_gradient = EmptyActivation(batch);
  }
  transferred_bytes_ = static_cast<int64_t>(tensor.nbytes());
  // No tag: both ends have the transfers between two ranks in one order (CheckProgram).
  return {sends ? Transfer::Direction::kSend : Transfer::Direction::kReceive, std::move(tensor),
          PeerOf(other.stage)};
}

void Pipeline::Await(const Action& action) {
  auto work = pending_.extract(action);
  if (work.empty()) return;
  const ScopedSeconds scope(inputs_.observation->exposed_communication_seconds);
  const ActionSpan span(IsSend(action.kind) ? "pp.comm.send" : "pp.comm.recv", action);
  work.mapped().Wait();
}

// Earlier ones: what they send is kept until they are done.
void Pipeline::AwaitSends() {
  std::vector<Action> sends;
  for (const auto& [action, work] : pending_) {
    if (IsSend(action.kind)) sends.push_back(action);
  }
  for (const Action& action : sends) Await(action);
}

void Pipeline::AwaitAll() {
  const ScopedSeconds scope(inputs_.observation->exposed_communication_seconds);
  for (auto& [action, work] : pending_) work.Wait();
  pending_.clear();
}

void Pipeline::CheckGradients(bool had_rows) const {
  for (const NamedTensor& parameter : own_) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (gradient.defined()) continue;
    TORCH_CHECK(!had_rows, "parameter ", parameter.name,
                " got no gradient in backward; every parameter must take part in every step");
    gradient = at::zeros_like(parameter.tensor);  // a replica without rows adds nothing
  }
}

void Pipeline::ReduceOverReplicas() {
  if (inputs_.replicas == nullptr) return;
  const ScopedSeconds scope(inputs_.observation->exposed_communication_seconds);
  RECORD_USER_SCOPE("grad_sync");
  (void)reducer_->Finish();
}

void Pipeline::ApplyGradients(double learning_rate) {
  Observation& observation = *inputs_.observation;
  const ScopedPhase scope(observation, observation.optimizer_seconds,
                          observation.optimizer_peak_bytes);
  {
    RECORD_USER_SCOPE("pp.optimizer_step");
    if (inputs_.clip_norm > 0) {
      observation.gradient_norm = ClipSlices(GradientsOf(TensorsOf(own_)), inputs_.clip_norm,
                                             inputs_.world, pipeline_.plan.replicas);
    }
    optimizer_->Step(learning_rate);
  }
  RECORD_USER_SCOPE("pp.optimizer_zero_grad");
  for (const NamedTensor& parameter : own_) parameter.tensor.mutable_grad().reset();
}

// ---- what the run was like ----

double Pipeline::MeasureTransfer(int64_t bytes) const {
  constexpr int kTries = 5;
  const at::Tensor tensor =
      at::zeros({std::max<int64_t>(1, bytes / int64_t{sizeof(float)})}, inputs_.world->Device());
  Latest seconds;
  for (int i = 0; rank_ < 2 && i < kTries; ++i) {
    double both_ways = 0;
    {
      const ScopedSeconds scope(both_ways);
      for (const bool sends : {rank_ == 0, rank_ == 1}) {
        TransferNow(*inputs_.world,
                    {sends ? Transfer::Direction::kSend : Transfer::Direction::kReceive, tensor,
                     PeerOf(1 - rank_)});
      }
    }
    seconds.Add(both_ways / 2);
  }
  return seconds.Median();
}

SeenPipeline Pipeline::GatherSeen() const {
  constexpr int kCosts = 3;
  std::vector<double> mine = {times_.BusySeconds(), times_.StepSeconds(),
                              static_cast<double>(transferred_bytes_)};
  for (int stage = rank_; stage < Shape().Stages(); stage += Shape().ranks) {
    const StageCosts costs = times_.CostsOf(stage);
    mine.insert(mine.end(), {costs.forward, costs.backward_input, costs.backward_weight});
  }
  const std::vector<at::Tensor> all = inputs_.world->AllGather(at::tensor(mine, at::kDouble));
  SeenPipeline seen{.stages = std::vector<StageCosts>(static_cast<size_t>(Shape().Stages()))};
  for (int rank = 0; rank < Shape().ranks; ++rank) {
    const double* numbers = all[static_cast<size_t>(first_rank_ + rank)].const_data_ptr<double>();
    seen.busy += numbers[0];
    seen.step = std::max(seen.step, numbers[1]);
    numbers += 3;
    for (int stage = rank; stage < Shape().Stages(); stage += Shape().ranks, numbers += kCosts) {
      seen.stages[static_cast<size_t>(stage)] = {numbers[0], numbers[1], numbers[2]};
    }
  }
  // The first rank's bytes: others may have sent another micro-batch last.
  const double bytes = all[static_cast<size_t>(first_rank_)][2].item<double>();
  seen.transfer = MeasureTransfer(static_cast<int64_t>(bytes));
  return seen;
}

ToldAtEnd Pipeline::Drain() {
  std::string begins;
  for (const int block : pipeline_.first_block) {
    begins += (begins.empty() ? "" : ", ") + std::to_string(block);
  }
  ToldAtEnd told{{}, {{"stages_begin_at_blocks", begins}}};
  if (!inputs_.observation->times_parts) return told;
  told.numbers = times_.Medians();
  if (steps_ == 0) return told;
  const SeenPipeline seen = GatherSeen();
  if (inputs_.world->Rank() > 0) return told;
  const Bubble bubble = ExplainBubble(pipeline_.program, Shape(), seen);
  told.numbers.insert(told.numbers.end(), {{"transfer_seconds", seen.transfer},
                                           {"bubble_measured", bubble.measured},
                                           {"bubble_program", bubble.program},
                                           {"bubble_imbalance", bubble.imbalance},
                                           {"bubble_transfer", bubble.transfer},
                                           {"bubble_rest", bubble.rest}});
  return told;
}

// Forwards of the whole batch, one stage after another.
Evaluation Pipeline::Evaluate(const Batch& batch) {
  if (batch.Rows() == 0) return {};
  const at::NoGradGuard no_grad;
  Batch prepared = batch;
  inputs_.model.prepare(prepared);
  micro_batches_ = {prepared};
  Evaluation evaluation;
  for (int stage = rank_; stage < Shape().Stages(); stage += Shape().ranks) {
    const auto transfer = [&](ActionKind kind) { (void)RunTransfers({{kind, stage, 0}}, 0); };
    InFlight& at = At({ActionKind::kForward, stage, 0});
    if (stage > 0) transfer(ActionKind::kReceiveActivation);
    AwaitAll();
    at.output = ForwardStage(stage, at.input, prepared);
    if (!IsLast(stage)) {
      transfer(ActionKind::kSendActivation);
      AwaitAll();
      continue;
    }
    evaluation = Score(at.output, batch.labels);
  }
  in_flight_.clear();
  return evaluation;
}

std::vector<at::Tensor> Pipeline::GatherParameters() {
  if (first_rank_ > 0) return {};  // another replica has the same
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> whole(rank_ == 0 ? parameters_.size() : 0);
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const at::Tensor& tensor = parameters_[p].tensor;
    if (rank_ == 0 && owner_[p] == 0) {
      whole[p] = tensor;
    } else if (rank_ == 0) {
      whole[p] = at::empty(tensor.sizes(), tensor.options().requires_grad(false));
      TransferNow(*inputs_.world, {Transfer::Direction::kReceive, whole[p], owner_[p]});
    } else if (rank_ == owner_[p]) {
      TransferNow(*inputs_.world, {Transfer::Direction::kSend, tensor.detach(), 0});
    }
  }
  return whole;
}

}  // namespace regatta
