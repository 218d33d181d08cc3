#pragma once

#include <memory>
#include <vector>

#include "strategies/data_parallel/grad_reducer.h"

namespace regatta {

// LibTorch's own c10d::Reducer, with what torch/nn/parallel/distributed.py does around it:
// parameters verified and broadcast from rank 0, one bucket in the first step, then buckets in the
// order in which gradients came, the first one small. Collective.
[[nodiscard]] std::unique_ptr<GradReducer> MakeNativeReducer(const DataParallelPlan& plan,
                                                             std::vector<NamedTensor> parameters,
                                                             Collectives& world);

}  // namespace regatta
