#include "coordinator/cli/output.h"

#include <gtest/gtest.h>

#include <limits>

namespace regatta {
namespace {

const Table kTable{
    {"run", "state", "peak_rss_bytes", "loss", "submitted_us"},
    {{int64_t{1}, std::string("SUCCEEDED"), int64_t{160000000}, 1.33541, int64_t{1790000000000000}},
     {int64_t{12}, std::string("FAILED"), std::monostate(), std::string("NaN"), int64_t{0}}}};

TEST(OutputTest, TablesLineUpAndRound) {
  EXPECT_EQ(FormatTable(kTable, Format::kTable, false),
            "run  state      peak_rss_bytes   loss          submitted_us\n"
            "  1  SUCCEEDED       152.6 MiB  1.335  2026-09-21 14:13:20Z\n"
            " 12  FAILED                       NaN  1970-01-01 00:00:00Z\n");
}

TEST(OutputTest, CsvKeepsDigitsAndQuotes) {
  const Table table{
      {"a", "b"},
      {{std::string("x,\"y\"\n"), 0.1}, {std::numeric_limits<double>::infinity(), int64_t{-3}}}};
  EXPECT_EQ(FormatTable(table, Format::kCsv, false), "a,b\n\"x,\"\"y\"\"\n\",0.1\nInfinity,-3\n");
}

TEST(OutputTest, JsonIsAlwaysValid) {
  const Table table{{"nan", "inf", "null", "bytes"},
                    {{std::string("NaN"), -std::numeric_limits<double>::infinity(),
                      std::monostate(), std::string("\xff")}}};
  const auto parsed = nlohmann::json::parse(FormatTable(table, Format::kJson, false));
  EXPECT_EQ(parsed[0]["nan"], "NaN");
  EXPECT_EQ(parsed[0]["inf"], "-Infinity");
  EXPECT_TRUE(parsed[0]["null"].is_null());
  EXPECT_EQ(nlohmann::json::parse(FormatTable({{"a"}, {}}, Format::kJson, false)).size(), 0u);
}

TEST(OutputTest, ColourOnlyWhenWanted) {
  EXPECT_EQ(FormatTable(kTable, Format::kTable, false).find('\033'), std::string::npos);
  EXPECT_NE(FormatTable(kTable, Format::kTable, true).find("\033[32mSUCCEEDED\033[0m"),
            std::string::npos);
}

TEST(OutputTest, ControlCharactersDoNotReachTheTerminal) {
  const Table table{{"sentence"}, {{std::string("two\nlines \033[31mred")}}};
  EXPECT_EQ(FormatTable(table, Format::kTable, false), "sentence\ntwo lines  [31mred\n");
}

}  // namespace
}  // namespace regatta
