#pragma once

#include "strategies/model.h"
#include "worker/models/parts.h"
#include "worker/shapes/distilbert_shapes.h"

namespace regatta {

// DistilBERT with its classification head, equal to transformers'
// DistilBertForSequenceClassification (SDPA attention, dropout 0). Blocks: embeddings, one a layer,
// head. Reference: transformers 4.57, modeling_distilbert.py.
[[nodiscard]] Model MakeDistilBert(const DistilBertConfig& config, at::Device device);

}  // namespace regatta
