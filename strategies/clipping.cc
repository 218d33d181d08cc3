#include "strategies/clipping.h"

namespace regatta {

double ClipGradients(const std::vector<at::Tensor>& gradients, double max_norm) {
  const at::NoGradGuard no_grad;
  const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(gradients, 2)), 2);
  const at::Tensor factor = at::clamp_max(max_norm / (norm + 1e-6), 1.0);
  at::_foreach_mul_(gradients, factor);
  return norm.item<double>();
}

}  // namespace regatta
