#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "coordinator/store/reader.h"

namespace regatta {

enum class Format { kTable, kJson, kCsv };

// stdout carries data only; everything said to a person about it goes to stderr.
void PrintTable(const Table& table, Format format);

// The text that PrintTable writes. Tables line up and are rounded for reading: columns of `_bytes`
// in MiB, `_us` columns as UTC times, reals with 4 digits. JSON (an array of objects) and CSV keep
// every digit.
[[nodiscard]] std::string FormatTable(const Table& table, Format format, bool color);

// One cell as a table shows it.
[[nodiscard]] std::string CellForPeople(const std::string& column, const Cell& cell);

// NaN and infinities, which JSON lacks, are the strings "NaN", "Infinity" and "-Infinity".
[[nodiscard]] nlohmann::ordered_json ToJson(const Cell& cell);
[[nodiscard]] nlohmann::ordered_json ToJson(const Table& table);

// Whether a stream may carry colour: a terminal, and NO_COLOR not set.
[[nodiscard]] bool WantsColor(int fd);

}  // namespace regatta
