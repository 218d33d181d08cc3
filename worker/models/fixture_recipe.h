#pragma once

#include <cstdint>
#include <string>

#include "worker/shapes/parameter_shape.h"

namespace regatta {

// Numbers made of integer arithmetic alone, so that any language makes the same: synthetic models
// and rows.
//   splitmix64(x): x += G; x = (x ^ x>>30) * 0xBF58476D1CE4E5B9; x = (x ^ x>>27) *
//   0x94D049BB133111EB; x ^ x>>31 Number(name, i) = splitmix64(fnv1a64(name) + i * G), G =
//   0x9E3779B97F4A7C15
class FixtureStream {
 public:
  explicit FixtureStream(const std::string& name);
  [[nodiscard]] uint64_t Number(uint64_t i) const;

 private:
  uint64_t start_;
};

// Element i of a tensor: float(int(Number >> 40) - 2^23) * 2^-23 * amplitude, then + offset, all in
// float32; amplitude sqrt(1 / fan_in) for matrices, 0.05 for embeddings and biases, 0.1 for norms
// (weights with offset 1). Writes elements [begin, end).
void FillByRecipe(const ParameterShape& shape, int64_t begin, int64_t end, float* to);

}  // namespace regatta
