#pragma once

#include <absl/status/status.h>

namespace SQLite {
class Database;
}

namespace regatta {

// The newest schema that this program writes; stored in `pragma user_version`.
inline constexpr int kSchemaVersion = 4;

// Brings an open, writable database to kSchemaVersion in one transaction. Refuses a newer one by
// its number.
[[nodiscard]] absl::Status Migrate(SQLite::Database& database);

}  // namespace regatta
