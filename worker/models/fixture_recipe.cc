#include "worker/models/fixture_recipe.h"

#include <cmath>

namespace regatta {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

uint64_t Fnv1a64(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

uint64_t SplitMix64(uint64_t x) {
  x += kGolden;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

struct Spread {
  float amplitude;
  float offset;
};

Spread SpreadOf(const ParameterShape& shape) {
  switch (shape.initial) {
    case Initial::kMatrix:
      return {static_cast<float>(std::sqrt(1.0 / static_cast<double>(shape.shape.back()))), 0};
    case Initial::kEmbedding:
    case Initial::kBias:
      return {0.05F, 0};
    case Initial::kNormWeight:
      return {0.1F, 1};
    case Initial::kNormBias:
      return {0.1F, 0};
  }
  return {0, 0};
}

}  // namespace

FixtureStream::FixtureStream(const std::string& name) : start_(Fnv1a64(name)) {}

uint64_t FixtureStream::Number(uint64_t i) const { return SplitMix64(start_ + i * kGolden); }

void FillByRecipe(const ParameterShape& shape, int64_t begin, int64_t end, float* to) {
  const FixtureStream stream(shape.name);
  const Spread spread = SpreadOf(shape);
  constexpr float kUnit = 1.0F / (1 << 23);
  for (int64_t i = begin; i < end; ++i) {
    const auto integer =
        static_cast<int64_t>(stream.Number(static_cast<uint64_t>(i)) >> 40) - (1 << 23);
    const float value = static_cast<float>(integer) * kUnit * spread.amplitude;
    *to++ = spread.offset == 0 ? value : value + spread.offset;
  }
}

}  // namespace regatta
