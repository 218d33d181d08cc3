#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "coordinator/experiment/yaml_tree.h"

namespace regatta {

// Typed reads of one scalar. False where the text is no such value; numbers are what people mean,
// never octal, never rounded.
[[nodiscard]] bool ReadInteger(const YamlNode& node, int64_t least, int64_t* to);
[[nodiscard]] bool ReadNumber(const YamlNode& node, double least, double* to);
// "90s", "2m", "1h", "500ms" in seconds.
[[nodiscard]] bool ParseDuration(std::string_view text, double* seconds);
[[nodiscard]] bool ReadDuration(const YamlNode& node, double* seconds);
// "64KiB", "1.5GiB", "10GB" in bytes.
[[nodiscard]] bool ParseSize(std::string_view text, int64_t* bytes);

// The value at a dotted path below `map`; null where it is absent. A scalar in place of a map that
// has a `name` is short for that name: `optimizer: sgd`.
[[nodiscard]] const YamlNode* FindPath(const YamlNode& map, std::string_view path);

// The same, where `child` already is the value of the path's first key.
[[nodiscard]] const YamlNode* FindBelow(const YamlNode& child, std::string_view rest);

// Sets a dotted path below `map`, making maps on the way; a scalar on the way becomes {name: it}.
void SetPath(YamlNode* map, std::string_view path, const YamlNode& value);

// A value as a run's name shows it: no blanks, quoted where its text has any of " =,()[]{}" or
// quotes; {name: a, k: v} is a(k=v).
[[nodiscard]] std::string ShortText(const YamlNode& node);

// Whether `value` is what a rule of exclude or overrides asks for. A pattern is a text or number to
// be equal to (1 and 1.0 are), a comparison such as "<2", ">=4" or "!=x", or a list of which any
// may match. A map {name: a, ...} is compared by its name.
[[nodiscard]] bool Matches(const YamlNode& pattern, const YamlNode& value);
// Why a pattern can never be right: a sentence, or empty.
[[nodiscard]] std::string CheckPattern(const YamlNode& pattern);

}  // namespace regatta
