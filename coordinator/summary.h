#pragma once

#include <vector>

#include "coordinator/store/changes.h"

namespace regatta {

// The numbers of a whole run from those of its ranks. How each name is combined is one table in the
// source: summed (tokens, rows), the largest (peaks, step times: the gang waits for the slowest),
// or derived (mean loss over all rows, accuracy with its 95 % Wilson interval). Names without a row
// stay with their rank. Pure.
[[nodiscard]] NamedNumbers SummarizeRun(const std::vector<NamedNumbers>& ranks);

}  // namespace regatta
