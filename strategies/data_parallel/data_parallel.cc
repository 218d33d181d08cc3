#include "strategies/data_parallel/data_parallel.h"

#include <ATen/record_function.h>

#include "strategies/clipping.h"
#include "strategies/parameters.h"
#include "strategies/plan/slices.h"
#include "strategies/scoring.h"
#include "strategies/weights.h"

namespace regatta {
namespace {

std::vector<int> OwnersOf(Owners how, const std::vector<NamedTensor>& parameters,
                          const Collectives* world) {
  if (world == nullptr) return {};
  std::vector<int64_t> elements;
  for (const NamedTensor& parameter : parameters) elements.push_back(parameter.tensor.numel());
  return AssignOwners(how, elements, world->Size());
}

}  // namespace

DataParallel::DataParallel(std::string row, const DataParallelPlan& plan, StrategyInputs inputs,
                           std::unique_ptr<GradReducer> reducer)
    : row_(std::move(row)),
      plan_(plan),
      inputs_(std::move(inputs)),
      parameters_(ParametersOf(inputs_.model)),
      owners_(OwnersOf(plan_.owners, parameters_, inputs_.world)),
      reducer_(reducer != nullptr ? std::move(reducer)
                                  : MakeGradReducer(plan_, parameters_, owners_, inputs_.world)),
      optimizer_(inputs_.optimizer(Owned())) {
  inputs_.observation->parameter_bytes = BytesOf(parameters_);
  inputs_.observation->optimizer_bytes = optimizer_->StateBytes();
  ReleaseOthers();
}

bool DataParallel::IsOwn(size_t parameter) const {
  return owners_.empty() || owners_[parameter] == inputs_.world->Rank();
}

std::vector<at::Tensor> DataParallel::Owned() const {
  std::vector<at::Tensor> owned;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (IsOwn(i)) owned.push_back(parameters_[i].tensor);
  }
  return owned;
}

LossSum DataParallel::ComputeGradients(const std::vector<Batch>& batches) {
  LossSum total;
  GatherAll();
  reducer_->Begin(batches.size());
  size_t last = 0;  // batch of this rank's last backward
  for (size_t i = 0; i < batches.size(); ++i) {
    if (batches[i].Rows() > 0) last = i;
  }
  for (size_t i = 0; i < batches.size(); ++i) {
    if (batches[i].Rows() == 0) continue;
    if (i == last) reducer_->Arm();
    const LossSum part = ForwardBackward(batches[i]);
    total.sum += part.sum;
    total.rows += part.rows;
  }
  CheckGradients(total.rows > 0);
  Reduce();
  ReleaseOthers();
  return total;
}

void DataParallel::Reduce() {
  Observation& observation = *inputs_.observation;
  Reduction reduction;
  {
    const ScopedSeconds scope(observation.exposed_communication_seconds);
    RECORD_USER_SCOPE(plan_.gradients_to_owners ? row_ + "_reduce_scatter" : "grad_sync");
    reduction = reducer_->Finish();
  }
  observation.backward_seconds -= reduction.waited_in_backward_seconds;
  observation.exposed_communication_seconds += reduction.waited_in_backward_seconds;
  observation.launched_early = reduction.launched_early;
  observation.gradient_bytes = 0;
  for (const NamedTensor& parameter : parameters_) {
    const at::Tensor& gradient = parameter.tensor.grad();
    if (gradient.defined()) observation.gradient_bytes += static_cast<int64_t>(gradient.nbytes());
  }
}

LossSum DataParallel::ForwardBackward(const Batch& batch) {
  Observation& observation = *inputs_.observation;
  at::Tensor loss;
  {
    const ScopedPhase scope(observation, observation.forward_seconds,
                            observation.forward_peak_bytes);
    RECORD_USER_SCOPE("forward");
    loss = at::cross_entropy_loss(Forward(inputs_.model, batch), batch.labels);
  }
  {
    const ScopedPhase scope(observation, observation.backward_seconds,
                            observation.backward_peak_bytes);
    RECORD_USER_SCOPE("backward");
    (batch.loss_weight == 1 ? loss : loss * batch.loss_weight).backward();
  }
  return {loss.item<double>() * static_cast<double>(batch.Rows()), batch.Rows()};
}

void DataParallel::CheckGradients(bool had_rows) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& parameter : parameters_) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined()) {
      TORCH_CHECK(!had_rows, "parameter ", parameter.name,
                  " got no gradient in backward; every parameter must take part in every step");
      gradient = at::zeros_like(parameter.tensor);  // a rank without rows adds nothing
    }
  }
}

void DataParallel::ApplyGradients(double learning_rate) {
  {
    Observation& observation = *inputs_.observation;
    const ScopedPhase scope(observation, observation.optimizer_seconds,
                            observation.optimizer_peak_bytes);
    RECORD_USER_SCOPE("optimizer_step");
    UpdateOwned(learning_rate);
  }
  if (owners_.empty() || plan_.parameters_of_owners) return;
  const ScopedSeconds scope(inputs_.observation->exposed_communication_seconds);
  RECORD_USER_SCOPE(row_ + "_param_broadcast");
  BroadcastFromOwners();
}

void DataParallel::UpdateOwned(double learning_rate) {
  if (inputs_.clip_norm > 0) {
    // Where every rank has the whole mean gradient no collective is needed.
    inputs_.observation->gradient_norm =
        plan_.gradients_to_owners
            ? ClipSlices(GradientsOf(Owned()), inputs_.clip_norm, inputs_.world)
            : ClipGradients(GradientsOf(TensorsOf(parameters_)), inputs_.clip_norm);
  }
  optimizer_->Step(learning_rate);
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

// ZeroRedundancyOptimizer starts all and waits then; the study waits for each.
void DataParallel::BroadcastFromOwners() {
  const at::NoGradGuard no_grad;
  const bool at_once = plan_.owners == Owners::kRuns;
  std::vector<PendingWork> works;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    works.push_back(inputs_.world->Broadcast(parameters_[i].tensor.detach(), owners_[i],
                                             at_once ? Launch::kOnCallersStream : Launch::kBeside));
    if (at_once) works.back().Wait();
  }
  if (at_once) return;
  for (PendingWork& work : works) work.Wait();
}

void DataParallel::GatherAll() {
  if (whole_) return;
  const ScopedSeconds scope(inputs_.observation->exposed_communication_seconds);
  RECORD_USER_SCOPE(row_ + "_param_gather");
  for (const NamedTensor& parameter : parameters_) {
    if (!HasMemory(parameter.tensor)) SetMemory(parameter.tensor, parameter.tensor.nbytes());
  }
  BroadcastFromOwners();
  whole_ = true;
}

void DataParallel::ReleaseOthers() {
  if (owners_.empty() || !plan_.parameters_of_owners) return;
  int64_t& bytes = inputs_.observation->parameter_bytes = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (IsOwn(i)) {
      bytes += static_cast<int64_t>(parameters_[i].tensor.nbytes());
    } else {
      SetMemory(parameters_[i].tensor, 0);
    }
  }
  whole_ = false;
}

Evaluation DataParallel::Evaluate(const Batch& batch) {
  GatherAll();
  if (batch.Rows() == 0) return {};
  const at::NoGradGuard no_grad;
  return Score(Forward(inputs_.model, batch), batch.labels);
}

std::vector<at::Tensor> DataParallel::GatherParameters() {
  GatherAll();
  if (inputs_.world != nullptr && inputs_.world->Rank() != 0) return {};
  return TensorsOf(parameters_);
}

}  // namespace regatta
