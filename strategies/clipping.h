#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace regatta {

// Scales gradients in place so that their common norm is at most `max_norm`, as
// torch.nn.utils.clip_grad_norm_ does (the factor is max_norm / (norm + 1e-6), at most 1). Returns
// the norm before.
double ClipGradients(const std::vector<at::Tensor>& gradients, double max_norm);

}  // namespace regatta
