#pragma once

#include <string>

namespace regatta {

// The text with every byte that is no part of well-formed UTF-8 replaced by U+FFFD. Logs hold any
// bytes; messages, JSON and pages must not. Pure.
[[nodiscard]] std::string ReplaceInvalidUtf8(const std::string& text);

}  // namespace regatta
