#pragma once

#include <functional>

#include "strategies/model.h"
#include "worker/shapes/model_shapes.h"

namespace regatta {

// Where a model's parameters come from: a new fp32 tensor of the shape, which requires a gradient.
using TensorSource = std::function<at::Tensor(const ParameterShape&)>;

// DistilBERT with its classification head, equal to transformers'
// DistilBertForSequenceClassification (SDPA attention, dropout 0). Blocks: embeddings, one a layer,
// head. Reference: transformers 4.57, modeling_distilbert.py.
[[nodiscard]] Model MakeDistilBert(const DistilBertConfig& config, const TensorSource& source);

}  // namespace regatta
