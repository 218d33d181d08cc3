#pragma once

#include "strategies/model.h"
#include "worker/models/parts.h"
#include "worker/shapes/llama_shapes.h"

namespace regatta {

// Llama with its classification head, equal to transformers' LlamaForSequenceClassification (SDPA
// attention). Blocks: embedding, one a layer, head (final norm and score). Rows are padded at the
// right; the head reads the last position whose id is not the pad id. Reference: transformers 4.57,
// modeling_llama.py and modeling_layers.py.
[[nodiscard]] Model MakeLlama(const LlamaConfig& config, at::Device device);

}  // namespace regatta
