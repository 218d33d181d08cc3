#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "strategies/collectives/collectives.h"

namespace regatta {

// Scales gradients in place so that their common norm is at most `max_norm`, as
// torch.nn.utils.clip_grad_norm_ does (the factor is max_norm / (norm + 1e-6), at most 1). Returns
// the norm before.
double ClipGradients(const std::vector<at::Tensor>& gradients, double max_norm);

// The same where each rank has its slices of the gradients: one all-reduce of the squared norm.
// `world` may be null: one rank. `copies`: as many of its ranks have each slice.
double ClipSlices(const std::vector<at::Tensor>& slices, double max_norm, Collectives* world,
                  int copies = 1);

}  // namespace regatta
