#pragma once

#include "strategies/model.h"

namespace regatta {

// How a model's blocks compute, whatever they are: each is wrapped in one that does it so.

// Matrix products and attention in bfloat16, as torch.autocast picks them; parameters, gradients
// and what blocks hand to each other stay fp32. Backward of weights is autograd's own.
void ComputeInBf16(Model& model);

// Layers (all blocks but the first and the last) keep their input alone, and go forward again in
// backward, with the same result (Chen et al. 2016; torch.utils.checkpoint, reentrant).
void RecomputeLayers(Model& model);

}  // namespace regatta
