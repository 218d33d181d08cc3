#include "coordinator/store/reader.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <absl/strings/str_cat.h>
#include <sqlite3.h>

#include <charconv>
#include <cmath>
#include <filesystem>

namespace regatta {
namespace {

Cell ReadCell(const SQLite::Column& column) {
  switch (column.getType()) {
    case SQLITE_INTEGER:
      return column.getInt64();
    case SQLITE_FLOAT:
      return column.getDouble();
    case SQLITE_NULL:
      return std::monostate();
    default:
      return column.getString();
  }
}

// One statement, and one that reads. (SQLite itself ignores what follows the first.)
absl::Status CheckOneRead(sqlite3* database, const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  const char* tail = nullptr;
  if (sqlite3_prepare_v2(database, sql.c_str(), -1, &statement, &tail) != SQLITE_OK) {
    return absl::InvalidArgumentError(absl::StrCat("SQL: ", sqlite3_errmsg(database)));
  }
  // ATTACH counts as reading for SQLite, but opens other files; it has no columns.
  const bool reads = sqlite3_stmt_readonly(statement) != 0 && sqlite3_column_count(statement) > 0;
  sqlite3_finalize(statement);
  if (std::string(tail).find_first_not_of(" \t\r\n;") != std::string::npos) {
    return absl::InvalidArgumentError("SQL: one statement at a time");
  }
  return reads ? absl::OkStatus() : absl::InvalidArgumentError("SQL: only a SELECT is allowed");
}

}  // namespace

struct Reader::Body {
  explicit Body(const std::string& file) : database(file, SQLite::OPEN_READONLY, 10000) {}
  SQLite::Database database;
};

absl::StatusOr<std::unique_ptr<Reader>> Reader::Open(const std::string& state_folder) {
  const std::string file = state_folder + "/regatta.db";
  if (!std::filesystem::exists(file)) {
    return absl::NotFoundError(absl::StrCat(
        "'", state_folder, "' is no state folder of regatta: ", "it holds no regatta.db"));
  }
  try {
    auto body = std::make_unique<Body>(file);
    body->database.exec("pragma query_only = on");
    return std::unique_ptr<Reader>(new Reader(std::move(body)));
  } catch (const SQLite::Exception& e) {
    return absl::FailedPreconditionError(absl::StrCat("database ", file, ": ", e.what()));
  }
}

Reader::Reader(std::unique_ptr<Body> body) : body_(std::move(body)) {}
Reader::~Reader() = default;

absl::StatusOr<Table> Reader::Query(const std::string& sql,
                                    const std::vector<std::string>& parameters, size_t max_bytes) {
  try {
    if (absl::Status status = CheckOneRead(body_->database.getHandle(), sql); !status.ok()) {
      return status;
    }
    SQLite::Statement statement(body_->database, sql);
    for (size_t i = 0; i < parameters.size(); ++i) {
      statement.bind(static_cast<int>(i) + 1, parameters[i]);
    }
    Table table;
    size_t bytes = 0;
    for (int i = 0; i < statement.getColumnCount(); ++i) {
      table.columns.emplace_back(statement.getColumnName(i));
    }
    while (statement.executeStep()) {
      std::vector<Cell>& row = table.rows.emplace_back();
      for (int i = 0; i < statement.getColumnCount(); ++i) {
        row.push_back(ReadCell(statement.getColumn(i)));
        const std::string* text = std::get_if<std::string>(&row.back());
        bytes += sizeof(Cell) + (text == nullptr ? 0 : text->size());
      }
      if (bytes > max_bytes) {
        return absl::ResourceExhaustedError(
            absl::StrCat("the answer passes ", max_bytes >> 20, " MiB; add a LIMIT"));
      }
    }
    return table;
  } catch (const SQLite::Exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("SQL: ", e.what()));
  }
}

std::string CellText(const Cell& cell) {
  if (const auto* integer = std::get_if<int64_t>(&cell)) return std::to_string(*integer);
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (const auto* real = std::get_if<double>(&cell)) {
    if (std::isinf(*real)) return *real > 0 ? "Infinity" : "-Infinity";
    char buffer[32];
    const auto end = std::to_chars(buffer, buffer + sizeof(buffer), *real).ptr;
    return std::string(buffer, end);
  }
  return "";
}

int64_t IntegerOf(const Cell& cell) {
  const auto* integer = std::get_if<int64_t>(&cell);
  return integer == nullptr ? 0 : *integer;
}

}  // namespace regatta
