#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace regatta {

// How the fixture recipe draws a tensor (tests/data/README.md): uniform in [-amplitude, amplitude),
// plus offset.
enum class Initial { kMatrix, kEmbedding, kBias, kNormWeight, kNormBias };

// One parameter of a model, in the order in which `transformers` registers it.
struct ParameterShape {
  std::string name;  // as in model.safetensors
  std::vector<int64_t> shape;
  Initial initial = Initial::kMatrix;
  std::string tied_to =
      {};            // another name a checkpoint may keep it under, as it is the same tensor
  size_t block = 0;  // of the model, that has it

  [[nodiscard]] int64_t Elements() const {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    return count;
  }
};

}  // namespace regatta
