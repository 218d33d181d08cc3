#pragma once

#include <string>

#include "strategies/plan/pipeline/simulate.h"

namespace regatta {

// One picture of one step: a row a rank, time to the right, cells with the number of their
// micro-batch (forwards blue, backwards green, gradients of weights yellow; later stages of a rank
// darker), idle time hatched. Colours are told apart without red and green.
[[nodiscard]] std::string DrawTimeline(const std::string& title, const PipelineShape& shape,
                                       const Timeline& timeline);

}  // namespace regatta
