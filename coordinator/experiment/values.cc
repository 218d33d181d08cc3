#include "coordinator/experiment/values.h"

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace regatta {
namespace {

using Kind = YamlNode::Kind;

std::string QuotedIfNeeded(const std::string& text) {
  if (!text.empty() && text.find_first_of(" \t\r\n\"'=,()[]{}\\") == std::string::npos) return text;
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The comparison a pattern's text begins with, or empty.
std::string_view Comparison(std::string_view text) {
  for (const std::string_view sign : {"<=", ">=", "!=", "<", ">"}) {
    if (text.starts_with(sign)) return sign;
  }
  return {};
}

bool ToNumber(std::string_view text, double* number) {
  return absl::SimpleAtod({text.data(), text.size()}, number) && std::isfinite(*number);
}

// What a comparison compares with: the text after its sign and blanks.
std::string_view BoundOf(std::string_view pattern, std::string_view sign) {
  pattern.remove_prefix(sign.size());
  return pattern.substr(std::min(pattern.size(), pattern.find_first_not_of(' ')));
}

bool Equal(std::string_view a, std::string_view b) {
  double x = 0;
  double y = 0;
  return a == b || (ToNumber(a, &x) && ToNumber(b, &y) && x == y);
}

bool MatchesText(std::string_view pattern, std::string_view value) {
  const std::string_view sign = Comparison(pattern);
  if (sign.empty()) return Equal(pattern, value);
  const std::string_view bound = BoundOf(pattern, sign);
  if (sign == "!=") return !Equal(bound, value);
  double x = 0;
  double limit = 0;
  if (!ToNumber(value, &x) || !ToNumber(bound, &limit)) return false;
  if (sign == "<") return x < limit;
  if (sign == "<=") return x <= limit;
  return sign == ">" ? x > limit : x >= limit;
}

// A positive number and the first of the units that the text ends with.
bool ParseWithUnit(std::string_view text,
                   std::initializer_list<std::pair<std::string_view, double>> units, double* to) {
  for (const auto& [unit, factor] : units) {
    if (text.size() <= unit.size() || !text.ends_with(unit)) continue;
    double number = 0;
    const std::string digits(text.substr(0, text.size() - unit.size()));
    if (!absl::SimpleAtod(digits, &number) || !std::isfinite(number) || number <= 0) continue;
    *to = number * factor;
    return true;
  }
  return false;
}

}  // namespace

bool ReadInteger(const YamlNode& node, int64_t least, int64_t* to) {
  return node.kind == Kind::kScalar && absl::SimpleAtoi(node.text, to) && *to >= least;
}

bool ReadNumber(const YamlNode& node, double least, double* to) {
  return node.kind == Kind::kScalar && absl::SimpleAtod(node.text, to) && std::isfinite(*to) &&
         *to >= least;
}

bool ParseDuration(std::string_view text, double* seconds) {
  return ParseWithUnit(text, {{"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}},
                       seconds);
}

bool ReadDuration(const YamlNode& node, double* seconds) {
  return node.kind == Kind::kScalar && ParseDuration(node.text, seconds);
}

bool ParseSize(std::string_view text, int64_t* bytes) {
  double number = 0;
  const bool right = ParseWithUnit(text,
                                   {{"KiB", 1024.0},
                                    {"MiB", 1048576.0},
                                    {"GiB", 1073741824.0},
                                    {"TiB", 1099511627776.0},
                                    {"KB", 1e3},
                                    {"kB", 1e3},
                                    {"MB", 1e6},
                                    {"GB", 1e9},
                                    {"TB", 1e12}},
                                   &number) &&
                     number >= 1 && number < 9e18;
  if (right) *bytes = static_cast<int64_t>(number);
  return right;
}

const YamlNode* FindPath(const YamlNode& map, std::string_view path) {
  const size_t dot = path.find('.');
  const YamlNode* child = map.Find(path.substr(0, dot));
  if (child == nullptr || dot == std::string_view::npos) return child;
  return FindBelow(*child, path.substr(dot + 1));
}

const YamlNode* FindBelow(const YamlNode& child, std::string_view rest) {
  if (child.kind == Kind::kScalar) return rest == "name" ? &child : nullptr;
  return FindPath(child, rest);
}

void SetPath(YamlNode* map, std::string_view path, const YamlNode& value) {
  const size_t dot = path.find('.');
  const std::string key(path.substr(0, dot));
  map->kind = Kind::kMap;
  YamlNode* child = nullptr;
  for (auto& [name, node] : map->entries) {
    if (name == key) child = &node;
  }
  if (child == nullptr) {
    map->entries.push_back({key, {}});
    child = &map->entries.back().value;
  }
  if (dot == std::string_view::npos) {
    *child = value;
    return;
  }
  if (child->kind == Kind::kScalar) {
    YamlNode named;
    named.entries.push_back({"name", *child});
    *child = std::move(named);
  }
  child->kind = Kind::kMap;
  child->line = value.line;
  child->column = value.column;
  SetPath(child, path.substr(dot + 1), value);
}

std::string ShortText(const YamlNode& node) {
  std::string out;
  switch (node.kind) {
    case Kind::kNull:
      return "null";
    case Kind::kScalar:
      return QuotedIfNeeded(node.text);
    case Kind::kList:
      for (const YamlNode& item : node.items) {
        absl::StrAppend(&out, out.empty() ? "" : ",", ShortText(item));
      }
      return absl::StrCat("[", out, "]");
    case Kind::kMap: {
      const YamlNode* name = node.Find("name");
      for (const auto& [key, value] : node.entries) {
        if (&value == name) continue;
        absl::StrAppend(&out, out.empty() ? "" : ",", QuotedIfNeeded(key), "=", ShortText(value));
      }
      if (name == nullptr) return absl::StrCat("{", out, "}");
      return out.empty() ? ShortText(*name) : absl::StrCat(ShortText(*name), "(", out, ")");
    }
  }
  return out;
}

bool Matches(const YamlNode& pattern, const YamlNode& value) {
  if (pattern.kind == Kind::kList && value.kind != Kind::kList) {
    for (const YamlNode& item : pattern.items) {
      if (Matches(item, value)) return true;
    }
    return false;
  }
  if (pattern.kind == Kind::kScalar) {
    if (value.kind == Kind::kScalar) return MatchesText(pattern.text, value.text);
    const YamlNode* name = value.Find("name");
    return name != nullptr && MatchesText(pattern.text, name->text);
  }
  return OneLine(pattern) == OneLine(value);
}

std::string CheckPattern(const YamlNode& pattern) {
  for (const YamlNode& item : pattern.items) {
    if (std::string wrong = CheckPattern(item); !wrong.empty()) return wrong;
  }
  if (pattern.kind == Kind::kList && pattern.items.empty()) return "'[]' matches nothing";
  if (pattern.kind != Kind::kScalar) return "";
  const std::string_view sign = Comparison(pattern.text);
  double bound = 0;
  if (sign.empty() || sign == "!=") return "";
  if (ToNumber(BoundOf(pattern.text, sign), &bound)) return "";
  return absl::StrCat("'", pattern.text, "' compares with something that is no number");
}

}  // namespace regatta
