#pragma once

#include <absl/status/statusor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace regatta {

// One value of a result: NULL, integer, real, text.
using Cell = std::variant<std::monostate, int64_t, double, std::string>;

struct Table {
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

// A read-only connection to a state folder's database, with or without a daemon. One thread at a
// time.
class Reader {
 public:
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Reader>> Open(
      const std::string& state_folder);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  static constexpr size_t kMaxAnswerBytes = 32 << 20;

  // One statement that only reads; `parameters` are bound to ?1, ?2, ... as text. INVALID_ARGUMENT
  // with SQLite's words; RESOURCE_EXHAUSTED where the answer passes `max_bytes`.
  [[nodiscard]] absl::StatusOr<Table> Query(const std::string& sql,
                                            const std::vector<std::string>& parameters = {},
                                            size_t max_bytes = kMaxAnswerBytes);

 private:
  struct Body;
  explicit Reader(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

// The text of a cell for tables and CSV: NULL is empty, reals have enough digits to read back, NaN
// and infinities are "NaN", "Infinity" and "-Infinity".
[[nodiscard]] std::string CellText(const Cell& cell);

// The cell's integer; 0 where it holds none.
[[nodiscard]] int64_t IntegerOf(const Cell& cell);

}  // namespace regatta
