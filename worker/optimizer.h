#pragma once

#include "strategies/optimizer.h"
#include "worker/client/run_spec.h"

namespace regatta {

// The factory for a run's optimizer: one row a (name, implementation) in the source. PyTorch's
// arithmetic:
//   sgd     torch/optim/sgd.py without momentum: p -= lr g
//   adamw   torch/optim/adamw.py: p *= 1 - lr wd; m.lerp_(g, 1 - b1); v = b2 v + (1 - b2) g g;
//           p -= lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps)
// in ATen's single, foreach and fused kernels, which differ in the last bits and in speed.
[[nodiscard]] OptimizerFactory MakeOptimizerFactory(const RunSpec::OptimizerChoice& choice);

}  // namespace regatta
