#include "strategies/sharded/sharded.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "strategies/clipping.h"
#include "strategies/parameters.h"
#include "strategies/scoring.h"

namespace regatta {
namespace {

std::vector<at::Tensor> ShardsOf(const std::vector<std::unique_ptr<Unit>>& units) {
  std::vector<at::Tensor> shards;
  for (const auto& unit : units) {
    shards.insert(shards.end(), unit->Shards().begin(), unit->Shards().end());
  }
  return shards;
}

// Time that only passes: it is no part of the phase it falls into.
class WaitScope {
 public:
  WaitScope(Observation& observation, double* phase_seconds)
      : observation_(observation), phase_seconds_(phase_seconds) {}
  ~WaitScope() {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    observation_.exposed_communication_seconds += seconds;
    if (phase_seconds_ != nullptr) *phase_seconds_ -= seconds;
  }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  Observation& observation_;
  double* const phase_seconds_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

Sharded::Sharded(const std::string& row, const ShardedPlan& plan, StrategyInputs inputs)
    : gather_span_(row + "_param_gather"),
      reduce_span_(row + "_reduce_scatter"),
      plan_(plan),
      inputs_(std::move(inputs)),
      parameters_(ParametersOf(inputs_.model)),
      unit_of_block_(inputs_.model.blocks.size()),
      places_(parameters_.size()) {
  const std::vector<ParameterSize> sizes = SizesOf(inputs_.model, parameters_);
  for (const UnitMembers& members : MakeUnits(plan_.unit, sizes)) {
    units_.push_back(
        std::make_unique<Unit>(plan_, members, parameters_, sizes, inputs_.model, inputs_.world));
    Unit& unit = *units_.back();
    forward_order_.push_back(&unit);
    for (const size_t block : unit.Blocks()) unit_of_block_[block] = &unit;
    for (size_t m = 0; m < unit.Members().size(); ++m) places_[unit.Members()[m]] = {&unit, m};
    inputs_.observation->parameter_bytes += unit.ParameterBytes();
  }
  backward_order_ = forward_order_;
  std::sort(backward_order_.begin(), backward_order_.end(),
            [](const Unit* a, const Unit* b) { return a->LastBlock() > b->LastBlock(); });
  // After the units: parameters have their full shapes in buffers now.
  hooks_ = std::make_unique<GradientHooks>(parameters_, [this](size_t i) { OnGradient(i); });
  optimizer_ = inputs_.optimizer(ShardsOf(units_));
  inputs_.observation->optimizer_bytes = optimizer_->StateBytes();
}

// ---- verbs ----

void Sharded::Gather(Unit& unit) {
  if (unit.Resident()) return;
  RECORD_USER_SCOPE(gather_span_);
  unit.StartGather();
  const WaitScope wait(*inputs_.observation, phase_seconds_);
  unit.AwaitGather();
}

void Sharded::Release(Unit& unit) { unit.Release(); }

void Sharded::ReduceGradients(Unit& unit) {
  RECORD_USER_SCOPE(reduce_span_);
  unit.StartReduction();
}

void Sharded::SlicesChanged(Unit& unit) { unit.SlicesChanged(); }

// ---- moments ----

void Sharded::Prefetch(const std::vector<Unit*>& order, const Unit& current) {
  auto next = std::find(order.begin(), order.end(), &current);
  for (int64_t i = 0; i < plan_.prefetch && ++next < order.end(); ++i) (*next)->StartGather();
}

void Sharded::BeforeForward(size_t block) {
  Unit* unit = UnitOf(block);
  if (unit == nullptr) return;
  if (block == unit->FirstBlock()) {
    Gather(*unit);
    Prefetch(forward_order_, *unit);
  }
  TORCH_CHECK(unit->Resident(), "block ", block, " read while released");
}

void Sharded::AfterForward(size_t block) {
  Unit* unit = UnitOf(block);
  if (unit != nullptr && plan_.reshard_after_forward && block == unit->LastBlock()) {
    Release(*unit);
  }
}

void Sharded::BeforeBackward(size_t block) {
  Unit* unit = UnitOf(block);
  if (unit == nullptr) return;
  if (block == unit->LastBlock()) {
    Gather(*unit);
    if (plan_.reshard_after_forward) Prefetch(backward_order_, *unit);
  }
  TORCH_CHECK(unit->Resident(), "block ", block, " read while released, in backward");
}

// All gradients of the unit are there: nothing of it is read any more.
void Sharded::AfterBackward(Unit& unit) {
  Release(unit);
  if (!reduces_) return;
  if (reducing_ != nullptr) {
    const WaitScope wait(*inputs_.observation, phase_seconds_);
    reducing_->AwaitReduction();
  }
  reducing_ = &unit;
  ReduceGradients(unit);
  if (hooks_->Missing() > 0) ++inputs_.observation->launched_early;
}

void Sharded::OnGradient(size_t parameter) {
  const Place& place = places_[parameter];
  if (place.unit->TakeGradient(place.member)) AfterBackward(*place.unit);
}

// ---- a step ----

at::Tensor Sharded::ForwardBlocks(const Batch& batch, bool for_backward) {
  const bool works = batch.Rows() > 0;
  Batch prepared = batch;
  if (works) inputs_.model.prepare(prepared);
  at::Tensor x;
  for (size_t block = 0; block < inputs_.model.blocks.size(); ++block) {
    BeforeForward(block);
    if (works) {
      x = inputs_.model.blocks[block]->Forward(x, prepared);
      if (for_backward && plan_.parameters_sharded) {
        x.register_hook([this, block](const at::Tensor&) { BeforeBackward(block); });
      }
    }
    AfterForward(block);
  }
  return x;
}

LossSum Sharded::ForwardBackward(const Batch& batch) {
  Observation& observation = *inputs_.observation;
  at::Tensor loss;
  phase_seconds_ = &observation.forward_seconds;
  {
    const ScopedPhase scope(observation, observation.forward_seconds,
                            observation.forward_peak_bytes);
    RECORD_USER_SCOPE("forward");
    const at::Tensor logits = ForwardBlocks(batch, /*for_backward=*/true);
    if (batch.Rows() > 0) loss = at::cross_entropy_loss(logits, batch.labels);
  }
  for (const auto& unit : units_) unit->ExpectGradients();
  phase_seconds_ = &observation.backward_seconds;
  LossSum sum;
  {
    const ScopedPhase scope(observation, observation.backward_seconds,
                            observation.backward_peak_bytes);
    RECORD_USER_SCOPE("backward");
    if (batch.Rows() == 0) {
      BackwardWithoutRows();
    } else {
      hooks_->Arm();
      (batch.loss_weight == 1 ? loss : loss * batch.loss_weight).backward();
      sum = {loss.item<double>() * static_cast<double>(batch.Rows()), batch.Rows()};
    }
  }
  phase_seconds_ = nullptr;
  hooks_->Check();
  return sum;
}

// The same calls in the same order as on ranks with rows.
void Sharded::BackwardWithoutRows() {
  for (size_t block = inputs_.model.blocks.size(); block-- > 0;) {
    Unit* unit = UnitOf(block);
    if (unit == nullptr) continue;
    if (plan_.parameters_sharded) BeforeBackward(block);
    if (block == unit->FirstBlock()) AfterBackward(*unit);
  }
}

LossSum Sharded::ComputeGradients(const std::vector<Batch>& batches) {
  LossSum total;
  for (size_t i = 0; i < batches.size(); ++i) {
    const bool last = i + 1 == batches.size();
    reduces_ = last || (plan_.gradients_sharded && plan_.accumulate == Accumulate::kSharded);
    const LossSum part = ForwardBackward(batches[i]);
    total.sum += part.sum;
    total.rows += part.rows;
  }
  {
    const WaitScope wait(*inputs_.observation, nullptr);
    RECORD_USER_SCOPE("grad_sync");
    if (reducing_ != nullptr) reducing_->AwaitReduction();
    reducing_ = nullptr;
  }
  const bool whole = plan_.AddsWholeGradients(static_cast<int64_t>(batches.size()));
  inputs_.observation->gradient_bytes = 0;
  for (const auto& unit : units_) {
    inputs_.observation->gradient_bytes += unit->GradientBytes(whole);
  }
  return total;
}

void Sharded::ApplyGradients(double learning_rate) {
  Observation& observation = *inputs_.observation;
  const ScopedPhase scope(observation, observation.optimizer_seconds,
                          observation.optimizer_peak_bytes);
  RECORD_USER_SCOPE("optimizer_step");
  for (const auto& unit : units_) unit->GiveGradients();
  if (inputs_.clip_norm > 0) {
    observation.gradient_norm =
        ClipSlices(GradientsOf(ShardsOf(units_)), inputs_.clip_norm, inputs_.world);
  }
  optimizer_->Step(learning_rate);
  for (const auto& unit : units_) {
    unit->DropGradients();
    SlicesChanged(*unit);
  }
}

ToldAtEnd Sharded::Drain() {
  for (const auto& unit : units_) unit->AwaitGather();
  return {};
}

void Sharded::ReleaseAll() {
  for (const auto& unit : units_) Release(*unit);
}

Evaluation Sharded::Evaluate(const Batch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor logits = ForwardBlocks(batch, /*for_backward=*/false);
  ReleaseAll();
  if (batch.Rows() == 0) return {};
  return Score(logits, batch.labels);
}

std::vector<at::Tensor> Sharded::GatherParameters() {
  const at::NoGradGuard no_grad;
  const bool keeps = inputs_.world == nullptr || inputs_.world->Rank() == 0;
  std::vector<at::Tensor> whole(keeps ? parameters_.size() : 0);
  for (const auto& unit : units_) {
    Gather(*unit);
    for (const size_t parameter : unit->Members()) {
      const at::Tensor& tensor = parameters_[parameter].tensor;
      if (keeps) whole[parameter] = plan_.parameters_sharded ? tensor.detach().clone() : tensor;
    }
    Release(*unit);
  }
  return whole;
}

}  // namespace regatta
