#include "strategies/weights.h"

#include <ATen/native/Resize.h>

#include <cstring>

namespace regatta {

at::Tensor MakeShell(at::IntArrayRef shape) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, at::getCPUAllocator(),
                       /*resizable=*/true);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      caffe2::TypeMeta::Make<float>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return tensor;
}

bool HasMemory(const at::Tensor& tensor) {
  return tensor.numel() == 0 || tensor.storage().nbytes() > 0;
}

void SetMemory(const at::Tensor& tensor, size_t bytes) {
  at::native::resize_bytes_cpu(tensor.storage().unsafeGetStorageImpl(), bytes);
}

void ReadWeights(const Model& model, const NamedTensor& parameter, int64_t begin, int64_t end,
                 float* to) {
  if (model.read_weights) {
    model.read_weights(parameter.name, begin, end, to);
  } else {
    std::memcpy(to, parameter.tensor.const_data_ptr<float>() + begin,
                static_cast<size_t>(end - begin) * sizeof(float));
  }
}

void LoadWeights(const Model& model) { LoadWeights(model, ParametersOf(model)); }

void LoadWeights(const Model& model, const std::vector<NamedTensor>& parameters) {
  if (!model.read_weights) return;
  for (const NamedTensor& parameter : parameters) {
    SetMemory(parameter.tensor, parameter.tensor.nbytes());
    ReadWeights(model, parameter, 0, parameter.tensor.numel(),
                static_cast<float*>(parameter.tensor.mutable_data_ptr()));
  }
}

}  // namespace regatta
