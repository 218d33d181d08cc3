#pragma once

#include <ATen/ATen.h>

#include "strategies/strategy.h"

namespace regatta {

// Of logits [rows, labels] and the right labels [rows].
[[nodiscard]] inline Evaluation Score(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor loss = at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum);
  const int64_t correct = logits.argmax(1).eq(labels).sum().item<int64_t>();
  return {loss.item<double>(), correct, labels.size(0)};
}

}  // namespace regatta
