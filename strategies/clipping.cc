#include "strategies/clipping.h"

namespace regatta {

namespace {

double Scale(const std::vector<at::Tensor>& gradients, const at::Tensor& norm, double max_norm) {
  const at::Tensor factor = at::clamp_max(max_norm / (norm + 1e-6), 1.0);
  if (!gradients.empty())
    at::_foreach_mul_(gradients, factor.to(gradients[0].device(), at::kFloat));
  return norm.item<double>();
}

}  // namespace

double ClipGradients(const std::vector<at::Tensor>& gradients, double max_norm) {
  const at::NoGradGuard no_grad;
  const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
  return Scale(gradients, norm, max_norm);
}

double ClipSlices(const std::vector<at::Tensor>& slices, double max_norm, Collectives* world,
                  int copies) {
  const at::NoGradGuard no_grad;
  at::Tensor squares = at::zeros({}, at::kDouble);
  if (!slices.empty()) {
    squares = at::stack(at::_foreach_norm(slices, 2)).to(at::kCPU, at::kDouble).square().sum();
  }
  if (world != nullptr) world->AllReduceSum(squares, Launch::kOnCallersStream).Wait();
  return Scale(slices, (squares / copies).sqrt(), max_norm);
}

}  // namespace regatta
