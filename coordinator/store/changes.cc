#include "coordinator/store/changes.h"

#include <SQLiteCpp/SQLiteCpp.h>

#include <cmath>
#include <map>

namespace regatta {
namespace {

void Bind(SQLite::Statement& statement, int index, int64_t value) { statement.bind(index, value); }
void Bind(SQLite::Statement& statement, int index, int value) { statement.bind(index, value); }
void Bind(SQLite::Statement& statement, int index, bool value) {
  statement.bind(index, value ? 1 : 0);
}
// Texts and blobs outlive the statement's one step: they are not copied.
void Bind(SQLite::Statement& statement, int index, const std::string& value) {
  statement.bindNoCopy(index, value);
}
void Bind(SQLite::Statement& statement, int index, double value) {
  // SQLite turns a NaN into NULL, which would look like "never measured".
  if (std::isnan(value)) {
    statement.bind(index, "NaN");
  } else {
    statement.bind(index, value);
  }
}
struct Blob {
  const std::string& bytes;
};
void Bind(SQLite::Statement& statement, int index, const Blob& value) {
  statement.bindNoCopy(index, value.bytes.data(), static_cast<int>(value.bytes.size()));
}
template <typename T>
void Bind(SQLite::Statement& statement, int index, const std::optional<T>& value) {
  if (value) {
    Bind(statement, index, *value);
  } else {
    statement.bind(index);
  }
}

// Applies one change after the other; statements are compiled once a batch.
class Applier {
 public:
  explicit Applier(SQLite::Database& database) : database_(database) {}

  void operator()(const NewExperiment& c) {
    Run("insert into experiments (id, token, name, description, text, labels, max_parallel, "
        "join_timeout_seconds, timeout_seconds, queue_timeout_seconds, submitted_us) "
        "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        c.id, c.token, c.name, c.description, c.text, c.labels_json, c.max_parallel,
        c.join_timeout_seconds, c.timeout_seconds, c.queue_timeout_seconds, c.submitted_us);
  }
  void operator()(const NewRun& c) {
    Run("insert into runs (id, experiment, position, repeat, name, strategy, model, dataset, "
        "ranks, spec, state, reason, sentence, predicted_state_bytes, predicted_peak_bytes, "
        "predicted_payload_bytes_per_step, submitted_us, ended_us) "
        "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        c.id, c.experiment, c.position, c.repeat, c.name, c.strategy, c.model, c.dataset, c.ranks,
        Blob{*c.spec}, c.state, c.reason, c.sentence, c.predicted_state_bytes,
        c.predicted_peak_bytes, c.predicted_payload_bytes_per_step, c.submitted_us, c.ended_us);
  }
  void operator()(const RunPrepared& c) {
    Run("update runs set spec = ?2, reason = '', sentence = '' where id = ?1", c.run,
        Blob{*c.spec});
  }
  void operator()(const RunStateChange& c) {
    Run("update runs set state = ?2, reason = ?3, sentence = ?4, "
        "cancel_wanted = max(cancel_wanted, ?5), started_us = coalesce(?6, started_us), "
        "ended_us = coalesce(?7, ended_us), failed_rank = coalesce(?8, failed_rank) where id = ?1",
        c.run, c.state, c.reason, c.sentence, c.cancel_wanted, c.started_us, c.ended_us,
        c.failed_rank);
  }
  void operator()(const NewAttempt& c) {
    Run("insert into attempts (run, attempt, folder, started_us) values (?, ?, ?, ?)", c.run,
        c.attempt, c.folder, c.started_us);
    for (int rank = 0; rank < c.ranks; ++rank) {
      Run("insert into attempt_ranks (run, attempt, rank) values (?, ?, ?)", c.run, c.attempt,
          rank);
    }
    Run("update runs set attempt = ?2, step = 0, planned_steps = 0 where id = ?1", c.run,
        c.attempt);
  }
  void operator()(const AttemptEnded& c) {
    Run("update attempts set ended_us = ?3 where run = ?1 and attempt = ?2", c.run, c.attempt,
        c.ended_us);
  }
  void operator()(const RankChange& c) {
    Run("update attempt_ranks set pid = coalesce(?4, pid), "
        "wait_status = coalesce(?5, wait_status), killed = coalesce(?6, killed), "
        "finished = coalesce(?7, finished), sentence = coalesce(?8, sentence), "
        "last_lines = coalesce(?9, last_lines) "
        "where run = ?1 and attempt = ?2 and rank = ?3",
        c.run, c.attempt, c.rank, c.pid, c.wait_status, c.killed, c.finished, c.sentence,
        c.last_lines);
  }
  void operator()(const Samples& c) {
    for (const auto& [name, value] : c.values) {
      Run("insert into samples (run, attempt, rank, step, metric, value) values (?, ?, ?, ?, ?, ?)",
          c.run, c.attempt, c.rank, c.step, MetricId(name), value);
    }
  }
  void operator()(const Trace& c) {
    Run("insert or replace into trace_files (run, attempt, rank, path, bytes, first_step, steps) "
        "values (?, ?, ?, ?, ?, ?, ?)",
        c.run, c.attempt, c.rank, c.path, c.bytes, c.first_step, c.steps);
  }
  void operator()(const Progress& c) {
    Run("update runs set step = ?2, planned_steps = ?3 where id = ?1", c.run, c.step,
        c.planned_steps);
  }
  void operator()(const Summaries& c) {
    for (const auto& [name, value] : c.values) {
      Run("insert or replace into summaries (run, attempt, rank, name, value) values (?, ?, ?, ?, "
          "?)",
          c.run, c.attempt, c.rank, name, value);
    }
  }
  void operator()(const Facts& c) {
    for (const auto& [name, text] : c.facts) {
      Run("insert or replace into facts (run, attempt, rank, name, text) values (?, ?, ?, ?, ?)",
          c.run, c.attempt, c.rank, name, text);
    }
  }
  void operator()(const EventNote& c) {
    Run("insert into events (at_us, run, attempt, what) values (?, ?, ?, ?)", c.at_us, c.run,
        c.attempt, c.what);
  }

 private:
  template <typename... Args>
  void Run(const char* sql, const Args&... args) {
    auto found = statements_.find(sql);
    if (found == statements_.end()) found = statements_.try_emplace(sql, database_, sql).first;
    SQLite::Statement& statement = found->second;
    statement.reset();
    statement.clearBindings();
    int index = 0;
    (Bind(statement, ++index, args), ...);
    statement.exec();
  }

  int64_t MetricId(const std::string& name) {
    if (const auto found = metric_ids_.find(name); found != metric_ids_.end()) return found->second;
    Run("insert or ignore into metrics (name) values (?)", name);
    SQLite::Statement query(database_, "select id from metrics where name = ?");
    query.bind(1, name);
    query.executeStep();
    return metric_ids_[name] = query.getColumn(0).getInt64();
  }

  SQLite::Database& database_;
  std::map<const char*, SQLite::Statement> statements_;  // by the address of the literal
  std::map<std::string, int64_t> metric_ids_;
};

}  // namespace

void Apply(SQLite::Database& database, const std::vector<Change>& changes) {
  Applier applier(database);
  for (const Change& change : changes) std::visit(applier, change);
}

}  // namespace regatta
