#pragma once

#include <string>
#include <vector>

#include "strategies/model.h"
#include "worker/client/run_spec.h"

namespace regatta {

// Writes a folder that transformers loads (config.json, model.safetensors in F32, and the tokenizer
// of the model it began from). It appears whole or not at all: made beside its place, flushed, then
// renamed. Throws a sentence naming the file, with nothing half-made left.
void SaveModel(const std::string& folder, const decltype(RunSpec::model)& spec,
               const std::vector<NamedTensor>& parameters);

}  // namespace regatta
