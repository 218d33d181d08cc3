#include "coordinator/utf8.h"

#include <cstddef>

namespace regatta {
namespace {

// Length of the well-formed sequence (RFC 3629, table 3-7 of Unicode) that begins at `at`, or 0.
size_t SequenceLength(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto in = [](unsigned int value, unsigned int low, unsigned int high) {
    return value >= low && value <= high;
  };
  const unsigned int first = byte(at);
  if (first < 0x80) return 1;
  if (in(first, 0xC2, 0xDF)) return in(byte(at + 1), 0x80, 0xBF) ? 2 : 0;
  const unsigned int low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned int high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (!in(first, 0xE0, 0xF4) || !in(byte(at + 1), low, high) || !in(byte(at + 2), 0x80, 0xBF))
    return 0;
  if (first < 0xF0) return 3;
  return in(byte(at + 3), 0x80, 0xBF) ? 4 : 0;
}

}  // namespace

std::string ReplaceInvalidUtf8(const std::string& text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = SequenceLength(text, at);
    valid += length == 0 ? "\xEF\xBF\xBD" : text.substr(at, length);
    at += length == 0 ? 1 : length;
  }
  return valid;
}

}  // namespace regatta
