#pragma once

#include <vector>

#include "strategies/model.h"

namespace regatta {

// Seconds of this thread's processor time for one forward and backward of each block on the rows of
// `batch`, the least of several. A block's parameters have memory only meanwhile.
[[nodiscard]] std::vector<double> MeasureBlocks(const Model& model, Batch batch);

}  // namespace regatta
