#pragma once

#include <absl/status/status.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace SQLite {
class Database;
}

namespace regatta {

// ---- Everything that the coordinator ever writes. Plain values: decided by the loop, applied by
// the writer. ----

struct NewExperiment {
  int64_t id;
  std::string token;
  std::string name;
  std::string description;
  std::string text;
  std::string labels_json;
  int64_t max_parallel;
  double join_timeout_seconds;
  double timeout_seconds;
  double queue_timeout_seconds;
  int64_t submitted_us;
};

struct NewRun {
  int64_t id;
  int64_t experiment;
  int64_t position;
  int64_t repeat;
  std::string name;
  std::string strategy;
  std::string model;
  std::string dataset;
  int ranks;
  std::shared_ptr<const std::string> spec;  // serialized v1::RunSpec
  std::string state;
  std::string reason;
  std::string sentence;
  std::optional<int64_t> predicted_state_bytes;
  std::optional<int64_t> predicted_peak_bytes;
  std::optional<int64_t> predicted_payload_bytes_per_step;
  int64_t submitted_us;
  std::optional<int64_t> ended_us;  // of a run that was skipped
};

// The spec of a run whose material has been prepared since it was submitted; it waits no longer.
struct RunPrepared {
  int64_t run;
  std::shared_ptr<const std::string> spec;
};

// The run's state and all that is told with it. Unset optionals keep what is stored.
struct RunStateChange {
  int64_t run;
  std::string state;
  std::string reason;
  std::string sentence;
  bool cancel_wanted = false;
  std::optional<int> failed_rank;  // the first that failed by itself
  std::optional<int64_t> started_us;
  std::optional<int64_t> ended_us;
};

struct NewAttempt {
  int64_t run;
  int attempt;
  std::string folder;
  int ranks;
  int64_t started_us;
};

struct AttemptEnded {
  int64_t run;
  int attempt;
  int64_t ended_us;
};

// Unset optionals keep what is stored.
struct RankChange {
  int64_t run;
  int attempt;
  int rank;
  std::optional<int64_t> pid;
  std::optional<int> wait_status;
  std::optional<bool> killed;
  std::optional<bool> finished;
  std::optional<std::string> sentence;
  std::optional<std::string> last_lines;  // of its log
};

using NamedNumbers = std::vector<std::pair<std::string, double>>;
using NamedTexts = std::vector<std::pair<std::string, std::string>>;

struct Samples {
  int64_t run;
  int attempt;
  int rank;
  int64_t step;
  NamedNumbers values;
};

// A file that a rank has written.
struct Trace {
  int64_t run;
  int attempt;
  int rank;
  std::string path;
  int64_t bytes;
  int64_t first_step;
  int64_t steps;
};

struct Progress {
  int64_t run;
  int64_t step;
  int64_t planned_steps;
};

// rank -1: the whole run.
struct Summaries {
  int64_t run;
  int attempt;
  int rank;
  NamedNumbers values;
};

struct Facts {
  int64_t run;
  int attempt;
  int rank;
  NamedTexts facts;
};

struct EventNote {
  int64_t at_us;
  int64_t run;
  int attempt;
  std::string what;
};

using Change =
    std::variant<NewExperiment, NewRun, RunPrepared, RunStateChange, NewAttempt, AttemptEnded,
                 RankChange, Samples, Trace, Progress, Summaries, Facts, EventNote>;

// Applies the changes in order. Throws SQLite::Exception; the caller owns the transaction.
void Apply(SQLite::Database& database, const std::vector<Change>& changes);

}  // namespace regatta
