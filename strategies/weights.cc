#include "strategies/weights.h"

namespace regatta {

at::Tensor MakeShell(at::IntArrayRef shape, at::Device device) {
  at::Tensor tensor = at::empty({0}, at::TensorOptions(at::kFloat).device(device));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return tensor;
}

bool HasMemory(const at::Tensor& tensor) {
  return tensor.numel() == 0 || tensor.storage().nbytes() > 0;
}

void SetMemory(const at::Tensor& tensor, size_t bytes) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(storage.allocator()->allocate(bytes));
  storage.set_nbytes(bytes);
}

void ReadWeights(const Model& model, const NamedTensor& parameter, int64_t begin,
                 const at::Tensor& to) {
  const at::NoGradGuard no_grad;
  const int64_t end = begin + to.numel();
  if (!model.read_weights) {
    to.view({-1}).copy_(parameter.tensor.flatten().slice(0, begin, end));
    return;
  }
  const bool direct = to.device().is_cpu();
  const at::Tensor host = direct ? to : at::empty({to.numel()}, at::kFloat);
  model.read_weights(parameter.name, begin, end, host.mutable_data_ptr<float>());
  if (!direct) to.view({-1}).copy_(host);
}

void LoadWeights(const Model& model) { LoadWeights(model, ParametersOf(model)); }

void LoadWeights(const Model& model, const std::vector<NamedTensor>& parameters) {
  if (!model.read_weights) return;
  for (const NamedTensor& parameter : parameters) {
    SetMemory(parameter.tensor, parameter.tensor.nbytes());
    ReadWeights(model, parameter, 0, parameter.tensor.detach());
  }
}

}  // namespace regatta
