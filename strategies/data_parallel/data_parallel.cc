#include "strategies/data_parallel/data_parallel.h"

#include <ATen/record_function.h>

#include "strategies/clipping.h"
#include "strategies/parameters.h"
#include "strategies/plan/slices.h"
#include "strategies/scoring.h"

namespace regatta {
namespace {

std::vector<int> OwnersOf(const std::vector<NamedTensor>& parameters, const Collectives* world) {
  if (world == nullptr) return {};
  std::vector<int64_t> elements;
  for (const NamedTensor& parameter : parameters) elements.push_back(parameter.tensor.numel());
  return AssignOwners(elements, world->Size());
}

}  // namespace

DataParallel::DataParallel(StrategyInputs inputs, std::unique_ptr<GradReducer> reducer,
                           bool owners_update)
    : inputs_(std::move(inputs)),
      parameters_(ParametersOf(inputs_.model)),
      reducer_(std::move(reducer)),
      owners_(owners_update ? OwnersOf(parameters_, inputs_.world) : std::vector<int>()),
      optimizer_(inputs_.optimizer(Owned())) {
  inputs_.observation->parameter_bytes = BytesOf(parameters_);
  inputs_.observation->optimizer_bytes = optimizer_->StateBytes();
}

std::vector<at::Tensor> DataParallel::Owned() const {
  if (owners_.empty()) return TensorsOf(parameters_);
  std::vector<at::Tensor> owned;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (owners_[i] == inputs_.world->Rank()) owned.push_back(parameters_[i].tensor);
  }
  return owned;
}

LossSum DataParallel::ComputeGradients(const std::vector<Batch>& batches) {
  LossSum total;
  reducer_->Begin();
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
  Reduction reduction;
  {
    const ScopedSeconds scope(inputs_.observation->exposed_communication_seconds);
    RECORD_USER_SCOPE("grad_sync");
    reduction = reducer_->Finish();
  }
  inputs_.observation->backward_seconds -= reduction.waited_in_backward_seconds;
  inputs_.observation->exposed_communication_seconds += reduction.waited_in_backward_seconds;
  inputs_.observation->launched_early = reduction.launched_early;
  return total;
}

// The mean over this rank's rows, weighted so that the sum over ranks divided by their number is
// the mean over the step's global rows; the weight is exactly 1 where ranks have equally many.
LossSum DataParallel::ForwardBackward(const Batch& batch) {
  Observation& observation = *inputs_.observation;
  at::Tensor loss;
  {
    const ScopedPhase scope(observation, observation.forward_seconds,
                            observation.forward_peak_bytes);
    RECORD_USER_SCOPE("forward");
    loss = at::cross_entropy_loss(Forward(inputs_.model, batch), batch.labels);
  }
  const int ranks = inputs_.world == nullptr ? 1 : inputs_.world->Size();
  const auto rows = static_cast<double>(batch.Rows());
  const double weight = rows * ranks / static_cast<double>(batch.global_rows);
  {
    const ScopedPhase scope(observation, observation.backward_seconds,
                            observation.backward_peak_bytes);
    RECORD_USER_SCOPE("backward");
    (weight == 1 ? loss : loss * weight).backward();
  }
  return {loss.item<double>() * rows, batch.Rows()};
}

void DataParallel::CheckGradients(bool had_rows) {
  const at::NoGradGuard no_grad;
  int64_t bytes = 0;
  for (const NamedTensor& parameter : parameters_) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (!gradient.defined()) {
      TORCH_CHECK(!had_rows, "parameter ", parameter.name,
                  " got no gradient in backward; every parameter must take part in every step");
      gradient = at::zeros_like(parameter.tensor);  // a rank without rows adds nothing
    }
    bytes += static_cast<int64_t>(gradient.nbytes());
  }
  inputs_.observation->gradient_bytes = bytes;
}

void DataParallel::ApplyGradients(double learning_rate) {
  {
    Observation& observation = *inputs_.observation;
    const ScopedPhase scope(observation, observation.optimizer_seconds,
                            observation.optimizer_peak_bytes);
    RECORD_USER_SCOPE("optimizer_step");
    UpdateOwned(learning_rate);
  }
  if (owners_.empty()) return;
  const ScopedSeconds scope(inputs_.observation->exposed_communication_seconds);
  RECORD_USER_SCOPE("param_broadcast");
  BroadcastFromOwners();
}

void DataParallel::UpdateOwned(double learning_rate) {
  if (inputs_.clip_norm > 0) {
    // Every rank has the whole mean gradient: no collective is needed.
    inputs_.observation->gradient_norm =
        ClipGradients(GradientsOf(TensorsOf(parameters_)), inputs_.clip_norm);
  }
  optimizer_->Step(learning_rate);
  for (const NamedTensor& parameter : parameters_) parameter.tensor.mutable_grad().reset();
}

void DataParallel::BroadcastFromOwners() {
  const at::NoGradGuard no_grad;
  std::vector<PendingWork> works;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    works.push_back(
        inputs_.world->Broadcast(parameters_[i].tensor.detach(), owners_[i], Launch::kBeside));
  }
  for (PendingWork& work : works) work.Wait();
}

Evaluation DataParallel::Evaluate(const Batch& batch) {
  if (batch.Rows() == 0) return {};
  const at::NoGradGuard no_grad;
  return Score(Forward(inputs_.model, batch), batch.labels);
}

std::vector<at::Tensor> DataParallel::GatherParameters() {
  if (inputs_.world != nullptr && inputs_.world->Rank() != 0) return {};
  return TensorsOf(parameters_);
}

}  // namespace regatta
