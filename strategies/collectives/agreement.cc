#include "strategies/collectives/agreement.h"

#include "strategies/weights.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string_view>

namespace regatta {
namespace {

std::string Join(const AgreementItems& items) {
  std::string text;
  for (const auto& [name, value] : items) text += name + '\n' + value + '\n';
  return text;
}

AgreementItems Split(std::string_view text) {
  const auto line = [&text] {
    const size_t end = text.find('\n');
    const std::string first(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return first;
  };
  AgreementItems items;
  while (!text.empty()) {
    std::string name = line();
    items.emplace_back(std::move(name), line());
  }
  return items;
}

// Every rank's text.
std::vector<std::string> GatherTexts(const std::string& text, Collectives& world) {
  std::vector<int64_t> sizes;
  int64_t longest = 0;
  const at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  for (const at::Tensor& one : world.AllGather(size)) {
    sizes.push_back(one.item<int64_t>());
    longest = std::max(longest, sizes.back());
  }
  const at::Tensor padded = at::zeros({longest}, at::kChar);
  std::memcpy(padded.data_ptr(), text.data(), text.size());
  std::vector<std::string> texts;
  for (const at::Tensor& one : world.AllGather(padded)) {
    texts.emplace_back(static_cast<const char*>(one.const_data_ptr()),
                       static_cast<size_t>(sizes[texts.size()]));
  }
  return texts;
}

std::string Difference(const AgreementItems& first, const AgreementItems& other, size_t rank) {
  const auto here = " on rank " + std::to_string(rank);
  for (size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
    if (i >= other.size()) return first[i].first + " is missing" + here + ", rank 0 has it";
    if (i >= first.size()) return other[i].first + " is there" + here + " only, not on rank 0";
    if (first[i].first != other[i].first) {
      return "in the place of " + first[i].first + " there is " + other[i].first + here;
    }
    if (first[i].second != other[i].second) {
      return first[i].first + " is " + other[i].second + here + ", " + first[i].second +
             " on rank 0";
    }
  }
  return "";
}

}  // namespace

uint64_t HashBytes(const void* data, size_t bytes) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
  uint64_t lanes[4] = {1, 2, 3, 4};
  const auto* from = static_cast<const char*>(data);
  size_t at = 0;
  for (; at + 32 <= bytes; at += 32) {
    uint64_t words[4];
    std::memcpy(words, from + at, sizeof(words));
    for (int i = 0; i < 4; ++i) lanes[i] = (lanes[i] ^ words[i]) * kMultiplier;
  }
  for (; at < bytes; ++at) {
    lanes[0] = (lanes[0] ^ static_cast<unsigned char>(from[at])) * kMultiplier;
  }
  uint64_t hash = bytes;
  for (uint64_t lane : lanes) {
    lane ^= lane >> 29;
    hash = (hash ^ lane) * kMultiplier;
  }
  return hash ^ (hash >> 32);
}

void CheckAgreement(const AgreementItems& items, Collectives& world) {
  const std::string text = Join(items);
  const at::Tensor hash =
      at::full({1}, static_cast<int64_t>(HashBytes(text.data(), text.size())), at::kLong);
  const std::vector<at::Tensor> hashes = world.AllGather(hash);
  if (std::all_of(hashes.begin(), hashes.end(), [&](const at::Tensor& other) {
        return other.item<int64_t>() == hashes[0].item<int64_t>();
      })) {
    return;
  }
  const std::vector<std::string> texts = GatherTexts(text, world);
  const AgreementItems first = Split(texts[0]);
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    const std::string difference = Difference(first, Split(texts[rank]), rank);
    TORCH_CHECK(difference.empty(), "ranks differ: ", difference,
                "; all ranks must train the same model on the same data");
  }
}

AgreementItems DescribeParameters(const Model& model) {
  constexpr int64_t kPart = 1 << 18;  // elements
  std::vector<float> part(kPart);
  AgreementItems items;
  for (const NamedTensor& parameter : ParametersOf(model)) {
    uint64_t hash = 0;
    for (int64_t begin = 0; begin < parameter.tensor.numel(); begin += kPart) {
      const int64_t end = std::min(begin + kPart, parameter.tensor.numel());
      ReadWeights(model, parameter, begin, at::from_blob(part.data(), {end - begin}, at::kFloat));
      const uint64_t both[] = {
          hash, HashBytes(part.data(), static_cast<size_t>(end - begin) * sizeof(float))};
      hash = HashBytes(both, sizeof(both));
    }
    std::ostringstream text;
    text << parameter.tensor.sizes() << " " << parameter.tensor.scalar_type() << " with hash "
         << std::hex << hash;
    items.emplace_back("parameter " + parameter.name, text.str());
  }
  return items;
}

}  // namespace regatta
