#include "coordinator/store/stored_state.h"

#include <limits>

namespace regatta {

absl::StatusOr<StoredState> ReadStoredState(Reader& reader) {
  StoredState state;
  const absl::StatusOr<Table> experiments = reader.Query(
      "select id, token, max_parallel, join_timeout_seconds, timeout_seconds, "
      "queue_timeout_seconds, submitted_us from experiments order by id");
  if (!experiments.ok()) return experiments.status();
  for (const auto& row : experiments->rows) {
    state.experiments.push_back({IntegerOf(row[0]), CellText(row[1]), IntegerOf(row[2]),
                                 std::get<double>(row[3]), std::get<double>(row[4]),
                                 std::get<double>(row[5]), IntegerOf(row[6])});
  }
  const absl::StatusOr<Table> runs = reader.Query(
      "select r.id, r.experiment, r.state, r.attempt, a.folder, "
      "case when r.ended_us is null then r.spec end, r.ended_us is not null from runs r "
      "left join attempts a on a.run = r.id and a.attempt = r.attempt order by r.id",
      {}, std::numeric_limits<size_t>::max());
  if (!runs.ok()) return runs.status();
  for (const auto& row : runs->rows) {
    state.runs.push_back({IntegerOf(row[0]), IntegerOf(row[1]), CellText(row[2]),
                          static_cast<int>(IntegerOf(row[3])), CellText(row[4]), CellText(row[5]),
                          IntegerOf(row[6]) != 0});
  }
  return state;
}

}  // namespace regatta
