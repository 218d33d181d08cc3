#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <string>
#include <string_view>
#include <vector>

namespace regatta {

struct YamlEntry;

// One value of a YAML document with its place in the text, both counted from 1.
struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  std::string text;                // kScalar
  std::vector<YamlNode> items;     // kList
  std::vector<YamlEntry> entries;  // kMap, in file order, keys unique
  int line = 0;                    // 0: not from the file, but from --set
  int column = 0;

  // The value of `key`, or null where it is absent or this is no map.
  [[nodiscard]] const YamlNode* Find(std::string_view key) const;
};

struct YamlEntry {
  std::string key;
  YamlNode value;
};

// Reads one document. The only code that sees yaml-cpp. Refused with "FILE:LINE:COLUMN: sentence":
// syntax errors, duplicate and non-text keys, merge keys, more than one document, octal-looking
// numbers, documents over 1 MiB, over 100,000 values (aliases counted where they are used) or over
// 64 levels.
[[nodiscard]] absl::StatusOr<YamlNode> ParseYaml(const std::string& text,
                                                 const std::string& file_name);

// Reads one value that stands alone, such as a default or what --set gives: also null and scalars.
// Its nodes have no place (line 0). INVALID_ARGUMENT with a sentence without place.
[[nodiscard]] absl::StatusOr<YamlNode> ParseYamlValue(const std::string& text);

// "FILE:LINE:COLUMN: sentence", or "FILE (with --set): sentence" where the value came from there.
[[nodiscard]] std::string At(const std::string& file_name, const YamlNode& node,
                             const std::string& sentence);

// The same as INVALID_ARGUMENT.
[[nodiscard]] absl::Status ErrorAt(const std::string& file_name, const YamlNode& node,
                                   const std::string& sentence);

// The value on one line, as a person would write it: text, [a, b] or {k: v}.
[[nodiscard]] std::string OneLine(const YamlNode& node);

}  // namespace regatta
