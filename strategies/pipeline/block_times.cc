#include "strategies/pipeline/block_times.h"

#include <algorithm>
#include <limits>

#include "strategies/observation.h"
#include "strategies/weights.h"

namespace regatta {
namespace {

constexpr int kTries = 3;

double TimeOnce(Block& block, at::Tensor input, const Batch& batch) {
  const double begin = ThreadCpuSeconds();
  block.Forward(input.requires_grad_(), batch).sum().backward();
  return ThreadCpuSeconds() - begin;
}

}  // namespace

std::vector<double> MeasureBlocks(const Model& model, Batch batch) {
  TORCH_CHECK(batch.Rows() > 0, "blocks cannot be timed on a batch without rows");
  model.prepare(batch);
  std::vector<double> seconds;
  for (const auto& block : model.blocks) {
    std::vector<NamedTensor> shells = block->Parameters();
    std::erase_if(shells, [](const NamedTensor& one) { return HasMemory(one.tensor); });
    for (const NamedTensor& parameter : shells) {
      SetMemory(parameter.tensor, parameter.tensor.nbytes());
      parameter.tensor.detach().fill_(
          0.01);  // what lies in fresh memory may be slow to reckon with
    }
    double& least = seconds.emplace_back(std::numeric_limits<double>::infinity());
    for (int i = 0; i < kTries; ++i) {
      const at::Tensor input = at::randn({batch.Rows(), batch.ids.size(1), model.width});
      least = std::min(least, TimeOnce(*block, input, batch));
      for (const NamedTensor& one : block->Parameters()) one.tensor.mutable_grad().reset();
    }
    for (const NamedTensor& parameter : shells) SetMemory(parameter.tensor, 0);
  }
  return seconds;
}

}  // namespace regatta
