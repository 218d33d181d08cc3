#include "coordinator/cli/output.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_replace.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace regatta {
namespace {

double AsReal(const Cell& cell) {
  if (const auto* integer = std::get_if<int64_t>(&cell)) return static_cast<double>(*integer);
  return *std::get_if<double>(&cell);
}

bool IsNumber(const Cell& cell) {
  return std::holds_alternative<int64_t>(cell) || std::holds_alternative<double>(cell);
}

std::string TimeText(int64_t micros) {
  const std::time_t seconds = micros / 1000000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char buffer[32];
  std::strftime(buffer, sizeof(buffer), "%Y-%m-%d %H:%M:%SZ", &utc);
  return buffer;
}

// Line breaks and control characters would break the table, or the terminal.
std::string OneLine(const std::string& text) {
  std::string line;
  for (const char c : text) line += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  return line;
}

const char* StateColor(const std::string& state) {
  if (state == "SUCCEEDED") return "\033[32m";
  if (state == "FAILED" || state == "TIMED_OUT") return "\033[31m";
  if (state == "CANCELLED" || state == "SKIPPED") return "\033[33m";
  return "\033[36m";
}

// Columns as wide as a person sees: UTF-8 continuation bytes take no place.
size_t Width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

std::string FormatAligned(const Table& table, bool color) {
  std::vector<size_t> widths;
  std::vector<bool> right;
  std::vector<std::vector<std::string>> texts(table.rows.size());
  for (size_t c = 0; c < table.columns.size(); ++c) {
    widths.push_back(Width(table.columns[c]));
    bool numbers = !table.rows.empty();
    for (size_t r = 0; r < table.rows.size(); ++r) {
      texts[r].push_back(CellForPeople(table.columns[c], table.rows[r][c]));
      widths[c] = std::max(widths[c], Width(texts[r][c]));
      numbers =
          numbers && (IsNumber(table.rows[r][c]) || texts[r][c].empty() || texts[r][c] == "NaN");
    }
    right.push_back(numbers);
  }
  std::string out;
  const auto put = [&](size_t column, const std::string& text, const char* paint) {
    const std::string pad(widths[column] - Width(text), ' ');
    const bool last = column + 1 == table.columns.size();
    absl::StrAppend(&out, right[column] ? pad : "", paint, text, *paint == '\0' ? "" : "\033[0m",
                    right[column] || last ? "" : pad, last ? "\n" : "  ");
  };
  for (size_t c = 0; c < table.columns.size(); ++c)
    put(c, table.columns[c], color ? "\033[1m" : "");
  for (const auto& row : texts) {
    for (size_t c = 0; c < row.size(); ++c) {
      put(c, row[c], color && table.columns[c] == "state" ? StateColor(row[c]) : "");
    }
  }
  return out;
}

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

std::string FormatCsv(const Table& table) {
  std::string out;
  const auto put = [&](size_t column, const std::string& text) {
    absl::StrAppend(&out, CsvField(text), column + 1 == table.columns.size() ? "\n" : ",");
  };
  for (size_t c = 0; c < table.columns.size(); ++c) put(c, table.columns[c]);
  for (const auto& row : table.rows) {
    for (size_t c = 0; c < row.size(); ++c) put(c, CellText(row[c]));
  }
  return out;
}

}  // namespace

std::string CellForPeople(const std::string& column, const Cell& cell) {
  constexpr double kMiB = 1 << 20;
  if (!IsNumber(cell)) return OneLine(CellText(cell));
  if (column.ends_with("_us")) return TimeText(static_cast<int64_t>(AsReal(cell)));
  if (column.find("bytes") != std::string::npos)
    return absl::StrFormat("%.1f MiB", AsReal(cell) / kMiB);
  if (std::holds_alternative<int64_t>(cell) || !std::isfinite(AsReal(cell))) return CellText(cell);
  const double real = AsReal(cell);
  if (real == std::floor(real) && std::abs(real) < 1e9) return absl::StrFormat("%.0f", real);
  return std::abs(real) >= 1000 ? absl::StrFormat("%.0f", real) : absl::StrFormat("%.4g", real);
}

nlohmann::ordered_json ToJson(const Cell& cell) {
  if (const auto* integer = std::get_if<int64_t>(&cell)) return *integer;
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* real = std::get_if<double>(&cell)) {
    if (std::isfinite(*real)) return *real;
    return CellText(cell);
  }
  return nullptr;
}

nlohmann::ordered_json ToJson(const Table& table) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& row : table.rows) {
    nlohmann::ordered_json object = nlohmann::ordered_json::object();
    for (size_t c = 0; c < row.size(); ++c) object[table.columns[c]] = ToJson(row[c]);
    rows.push_back(std::move(object));
  }
  return rows;
}

std::string FormatTable(const Table& table, Format format, bool color) {
  switch (format) {
    case Format::kJson:
      return ToJson(table).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
             "\n";
    case Format::kCsv:
      return FormatCsv(table);
    case Format::kTable:
      break;
  }
  return FormatAligned(table, color);
}

void PrintTable(const Table& table, Format format) {
  const std::string text = FormatTable(table, format, WantsColor(STDOUT_FILENO));
  std::fwrite(text.data(), 1, text.size(), stdout);
}

bool WantsColor(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(fd) != 0 && (no_color == nullptr || *no_color == '\0');
}

}  // namespace regatta
