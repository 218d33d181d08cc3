#include "coordinator/experiment/schema.h"

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <map>

#include "strategies/plan/suggest.h"

namespace regatta {
namespace {

using Kind = YamlNode::Kind;

// The names that may follow a prefix: "run." has strategy, model, dataset, ...
std::vector<std::string> NamesBelow(const std::string& prefix) {
  std::vector<std::string> names;
  for (const SchemaKey& key : Schema()) {
    const std::string path = key.path;
    if (!path.starts_with(prefix)) continue;
    std::string name = path.substr(prefix.size(), path.find('.', prefix.size()) - prefix.size());
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

const SchemaKey* ExactKey(const std::string& path) {
  static const auto* by_path = [] {
    auto* map = new std::map<std::string, const SchemaKey*>;
    for (const SchemaKey& key : Schema()) (*map)[key.path] = &key;
    return map;
  }();
  const auto found = by_path->find(path);
  return found == by_path->end() ? nullptr : found->second;
}

}  // namespace

const SchemaKey* FindKey(const std::string& path) {
  if (const SchemaKey* key = ExactKey(path); key != nullptr) return key;
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
    const SchemaKey* key = ExactKey(path.substr(0, dot));
    if (key != nullptr && key->open) return key;
  }
  return nullptr;
}

const YamlNode& DefaultOf(const SchemaKey& key) {
  static const auto* defaults = [] {
    auto* map = new std::map<std::string, YamlNode>;
    for (const SchemaKey& each : Schema()) {
      (*map)[each.path] = ParseYamlValue(each.default_text).value();
    }
    return map;
  }();
  return defaults->at(key.path);
}

absl::Status CheckKeys(const YamlNode& map, const std::string& prefix,
                       const std::string& file_name) {
  if (map.kind != Kind::kMap) {
    return ErrorAt(file_name, map,
                   absl::StrCat("'", OneLine(map), "' is not a map of keys and values"));
  }
  for (const auto& [name, value] : map.entries) {
    const std::string path = prefix + name;
    const SchemaKey* key = ExactKey(path);
    const bool is_group = key == nullptr && !NamesBelow(path + ".").empty();
    absl::Status status;
    if (!is_group) {
      status = CheckKey(path, value, file_name);
    } else if (value.kind == Kind::kMap) {
      status = CheckKeys(value, path + ".", file_name);
    } else if (value.kind != Kind::kScalar || ExactKey(path + ".name") == nullptr) {
      status = ErrorAt(file_name, value,
                       absl::StrCat(path, " is '", OneLine(value), "'; a map is right"));
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckKey(const std::string& path, const YamlNode& where,
                      const std::string& file_name) {
  const SchemaKey* key = FindKey(path);
  if (key == nullptr && !NamesBelow(path + ".").empty()) return absl::OkStatus();  // a whole group
  if (key == nullptr) {
    const size_t dot = path.rfind('.');
    const std::string prefix = dot == std::string::npos ? "" : path.substr(0, dot + 1);
    return ErrorAt(file_name, where,
                   absl::StrCat("unknown key '", path, "'",
                                SuggestName(path.substr(prefix.size()), NamesBelow(prefix))));
  }
  if (key->Built()) return absl::OkStatus();
  return ErrorAt(file_name, where, absl::StrCat(key->path, ": not built yet"));
}

absl::Status WrongValue(const SchemaKey& key, const YamlNode& value, const std::string& wrong,
                        const std::string& file_name) {
  return ErrorAt(file_name, value,
                 absl::StrCat(key.path, " ",
                              wrong == kNotRight ? absl::StrCat("is '", OneLine(value), "'; ",
                                                                key.right, " is right")
                                                 : wrong));
}

std::string DefaultsAsYaml() {
  std::string text;
  std::string open_group;
  for (const SchemaKey& key : Schema()) {
    const std::string path = key.path;
    const size_t dot = path.rfind('.');
    const std::string group = dot == std::string::npos ? "" : path.substr(0, dot);
    if (!group.empty() && !absl::StartsWith(open_group, group)) {
      const auto group_depth = static_cast<size_t>(std::count(group.begin(), group.end(), '.'));
      const bool any_built = std::any_of(Schema().begin(), Schema().end(), [&](const auto& other) {
        return other.Built() && absl::StartsWith(other.path, group + ".");
      });
      absl::StrAppend(&text, std::string(2 * group_depth, ' '), any_built ? "" : "# ",
                      group.substr(group.rfind('.') + 1), ":\n");
    }
    open_group = group;
    const auto depth = static_cast<size_t>(std::count(path.begin(), path.end(), '.'));
    std::string line = absl::StrCat(std::string(2 * depth, ' '), key.Built() ? "" : "# ",
                                    path.substr(dot + 1), ": ", key.default_text);
    line.resize(std::max<size_t>(line.size() + 2, 44), ' ');
    absl::StrAppend(&text, line, "# ", key.meaning, key.Built() ? "" : " (not built yet)", "\n");
  }
  return text;
}

std::string SchemaAsMarkdown() {
  std::string text = "| key | type | default | meaning |\n| --- | --- | --- | --- |\n";
  for (const SchemaKey& key : Schema()) {
    const std::string unit = *key.unit == '\0' ? "" : absl::StrCat(", ", key.unit);
    absl::StrAppend(&text, "| `", key.path, "` | ", key.type, unit, " | `", key.default_text,
                    "` | ", key.meaning, key.Built() ? "" : " **(not built yet)**", " |\n");
  }
  return text;
}

}  // namespace regatta
