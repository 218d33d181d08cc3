#include "coordinator/experiment/yaml_tree.h"

#include <absl/strings/str_cat.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>

#include "coordinator/utf8.h"

namespace regatta {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr int kMaxValues = 100000;
constexpr int kMaxDepth = 64;

// `010` would be read as 8 by yaml-cpp and as 10 by people.
bool LooksOctal(const std::string& text) {
  const size_t start = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  if (text.size() < start + 2 || text[start] != '0') return false;
  return std::all_of(text.begin() + static_cast<long>(start), text.end(),
                     [](unsigned char c) { return std::isdigit(c); });
}

// Takes a document apart and keeps nothing: only whether there is one counts.
class Ignored : public YAML::EventHandler {
  using Mark = const YAML::Mark&;
  using Text = const std::string&;
  using Style = YAML::EmitterStyle::value;
  void OnDocumentStart(Mark) override {}
  void OnDocumentEnd() override {}
  void OnNull(Mark, YAML::anchor_t) override {}
  void OnAlias(Mark, YAML::anchor_t) override {}
  void OnScalar(Mark, Text, YAML::anchor_t, Text) override {}
  void OnSequenceStart(Mark, Text, YAML::anchor_t, Style) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(Mark, Text, YAML::anchor_t, Style) override {}
  void OnMapEnd() override {}
};

// Whether a second document follows the first. Not by LoadAll: it never ends on a file that begins
// with a stray ',', which yaml-cpp reads as one empty document after the other.
bool HasSecondDocument(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  Ignored ignored;
  return parser.HandleNextDocument(ignored) && parser.HandleNextDocument(ignored);
}

// The place of the first byte that is no UTF-8: what comes after would not survive JSON or gRPC.
std::optional<YamlNode> FindInvalidUtf8(const std::string& text) {
  const std::string valid = ReplaceInvalidUtf8(text);
  const auto differs = std::mismatch(text.begin(), text.end(), valid.begin(), valid.end()).first;
  if (differs == text.end()) return std::nullopt;
  YamlNode place;
  place.line = static_cast<int>(std::count(text.begin(), differs, '\n')) + 1;
  const auto line_start = std::find(std::reverse_iterator(differs), text.rend(), '\n').base();
  place.column = static_cast<int>(differs - line_start) + 1;
  return place;
}

class Converter {
 public:
  explicit Converter(const std::string& file_name) : file_name_(file_name) {}

  absl::StatusOr<YamlNode> Convert(const YAML::Node& from, int depth) {
    YamlNode to;
    to.line = from.Mark().line + 1;
    to.column = from.Mark().column + 1;
    if (++values_ > kMaxValues) {
      return ErrorAt(file_name_, to, absl::StrCat("more than ", kMaxValues, " values"));
    }
    if (depth > kMaxDepth) {
      return ErrorAt(file_name_, to, absl::StrCat("nested more than ", kMaxDepth, " levels deep"));
    }
    if (from.IsScalar()) return ConvertScalar(from, std::move(to));
    if (from.IsSequence()) return ConvertList(from, std::move(to), depth);
    if (from.IsMap()) return ConvertMap(from, std::move(to), depth);
    return to;
  }

 private:
  absl::StatusOr<YamlNode> ConvertScalar(const YAML::Node& from, YamlNode to) {
    to.text = from.Scalar();
    const bool plain = from.Tag() == "?";
    if (plain && LooksOctal(to.text)) {
      return ErrorAt(file_name_, to,
                     absl::StrCat("'", to.text,
                                  "' looks like an octal number; write it without "
                                  "the leading zero, or in quotes if it is text"));
    }
    to.kind = YamlNode::Kind::kScalar;
    return to;
  }

  absl::StatusOr<YamlNode> ConvertList(const YAML::Node& from, YamlNode to, int depth) {
    to.kind = YamlNode::Kind::kList;
    for (const YAML::Node& item : from) {
      absl::StatusOr<YamlNode> converted = Convert(item, depth + 1);
      if (!converted.ok()) return converted;
      to.items.push_back(*std::move(converted));
    }
    return to;
  }

  absl::StatusOr<YamlNode> ConvertMap(const YAML::Node& from, YamlNode to, int depth) {
    to.kind = YamlNode::Kind::kMap;
    std::set<std::string> seen;
    for (const auto& entry : from) {
      YamlNode key;
      key.line = entry.first.Mark().line + 1;
      key.column = entry.first.Mark().column + 1;
      if (!entry.first.IsScalar()) return ErrorAt(file_name_, key, "a key must be text");
      key.text = entry.first.Scalar();
      if (key.text == "<<") {
        return ErrorAt(file_name_, key, "merge keys ('<<') are not supported; write the keys out");
      }
      if (!seen.insert(key.text).second) {
        return ErrorAt(file_name_, key, absl::StrCat("key '", key.text, "' is there twice"));
      }
      absl::StatusOr<YamlNode> value = Convert(entry.second, depth + 1);
      if (!value.ok()) return value;
      // An error about a value that is absent should point at its key.
      if (value->kind == YamlNode::Kind::kNull) {
        value->line = key.line;
        value->column = key.column;
      }
      to.entries.push_back({key.text, *std::move(value)});
    }
    return to;
  }

  const std::string& file_name_;
  int values_ = 0;
};

}  // namespace

const YamlNode* YamlNode::Find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string At(const std::string& file_name, const YamlNode& node, const std::string& sentence) {
  if (node.line == 0) return absl::StrCat(file_name, " (with --set): ", sentence);
  return absl::StrCat(file_name, ":", node.line, ":", node.column, ": ", sentence);
}

absl::Status ErrorAt(const std::string& file_name, const YamlNode& node,
                     const std::string& sentence) {
  return absl::InvalidArgumentError(At(file_name, node, sentence));
}

absl::StatusOr<YamlNode> ParseYaml(const std::string& text, const std::string& file_name) {
  YamlNode top;
  top.line = top.column = 1;
  if (text.size() > kMaxBytes) {
    return ErrorAt(
        file_name, top,
        absl::StrCat("the file has ", text.size(), " bytes; at most ", kMaxBytes, " are read"));
  }
  if (std::optional<YamlNode> place = FindInvalidUtf8(text)) {
    return ErrorAt(file_name, *place, "the file is not UTF-8 here; save it as UTF-8");
  }
  try {
    const YAML::Node document = YAML::Load(text);
    if (!document.IsDefined() || document.IsNull()) {
      return ErrorAt(file_name, top,
                     "the file holds no keys and values; an experiment needs at least 'name:'");
    }
    if (HasSecondDocument(text)) {
      return ErrorAt(file_name, top, "the file holds several documents ('---'); one is right");
    }
    return Converter(file_name).Convert(document, 0);
  } catch (const YAML::Exception& e) {
    top.line = e.mark.line + 1;
    top.column = e.mark.column + 1;
    return ErrorAt(file_name, top, e.msg);
  }
}

absl::StatusOr<YamlNode> ParseYamlValue(const std::string& text) {
  // Below a key, so that an empty text is null and not an empty file.
  const absl::StatusOr<YamlNode> tree = ParseYaml("value: " + text, "value");
  if (!tree.ok() || tree->entries.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not one YAML value"));
  }
  YamlNode value = tree->entries[0].value;
  const auto forget_place = [](auto& self, YamlNode& node) -> void {
    node.line = node.column = 0;
    for (YamlNode& item : node.items) self(self, item);
    for (auto& [key, child] : node.entries) self(self, child);
  };
  forget_place(forget_place, value);
  return value;
}

std::string OneLine(const YamlNode& node) {
  std::string out;
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kScalar:
      return node.text;
    case YamlNode::Kind::kList:
      for (const YamlNode& item : node.items) {
        absl::StrAppend(&out, out.empty() ? "" : ", ", OneLine(item));
      }
      return absl::StrCat("[", out, "]");
    case YamlNode::Kind::kMap:
      for (const auto& [key, value] : node.entries) {
        absl::StrAppend(&out, out.empty() ? "" : ", ", key, ": ", OneLine(value));
      }
      return absl::StrCat("{", out, "}");
  }
  return out;
}

}  // namespace regatta
