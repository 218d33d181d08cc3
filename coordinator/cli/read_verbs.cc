#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/time/clock.h>
#include <absl/time/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "coordinator/cli/exit_code.h"
#include "coordinator/cli/session.h"
#include "coordinator/cli/verbs.h"
#include "coordinator/experiment/values.h"
#include "coordinator/run.h"
#include "strategies/plan/strategy_table.h"

namespace regatta {
namespace {

void PrintQuery(CommonOptions& common, const std::string& sql) {
  const absl::StatusOr<std::unique_ptr<Session>> session =
      Session::ConnectOrRead(common.state_folder);
  if (!session.ok()) return Fail(common, session.status());
  const absl::StatusOr<Table> table = (*session)->Query(sql);
  if (!table.ok()) return Fail(common, table.status());
  PrintTable(*table, common.GetFormat());
}

struct ListOptions {
  std::string experiment;
  int64_t limit = 50;
};

void ListVerb(CommonOptions& common, const ListOptions& options) {
  std::string where;
  if (!options.experiment.empty()) {
    const absl::StatusOr<Target> target = ParseTarget(options.experiment);
    if (!target.ok() || !target->is_experiment) {
      std::fprintf(stderr, "regatta: '%s' is no experiment; e3 is right\n",
                   options.experiment.c_str());
      common.exit_code = kClientUsage;
      return;
    }
    where = absl::StrCat(" where experiment = ", target->id);
  }
  const absl::StatusOr<std::unique_ptr<Session>> session =
      Session::ConnectOrRead(common.state_folder);
  if (!session.ok()) return Fail(common, session.status());
  // One more than asked for tells whether the list was cut.
  const absl::StatusOr<Table> table = (*session)->Query(
      absl::StrCat("select run, 'e' || experiment as experiment, name, ranks, state, step, "
                   "planned_steps as of_steps, submitted_us, sentence from progress",
                   where, " order by run desc limit ", options.limit + 1));
  if (!table.ok()) return Fail(common, table.status());
  Table shown = *table;
  const bool cut = shown.rows.size() > static_cast<size_t>(options.limit);
  if (cut) shown.rows.pop_back();
  std::reverse(shown.rows.begin(), shown.rows.end());
  PrintTable(shown, common.GetFormat());
  if (cut)
    std::fprintf(stderr, "the newest %ld runs; more with --limit\n",
                 static_cast<long>(options.limit));
}

// Name and value below each other: a wide row does not fit a screen.
Table Upright(const Table& table) {
  Table upright{{"what", "value"}, {}};
  for (size_t c = 0; !table.rows.empty() && c < table.columns.size(); ++c) {
    if (!CellText(table.rows[0][c]).empty())
      upright.rows.push_back({table.columns[c], CellForPeople(table.columns[c], table.rows[0][c])});
  }
  return upright;
}

struct ShowPart {
  const char* title;
  const char* run_sql;         // null: not part of a run
  const char* experiment_sql;  // null: not part of an experiment
};
constexpr ShowPart kShowParts[] = {
    {"run", "select * from results where run = ?1", nullptr},
    {"experiment", nullptr,
     "select 'e' || id as experiment, name, description, max_parallel, submitted_us "
     "from experiments where id = ?1"},
    {"runs", nullptr,
     "select run, name, ranks, state, steps, loss, accuracy, tokens_per_second, "
     "step_seconds_median, peak_rss_bytes, sentence "
     "from results where experiment = ?1 order by run"},
    {"ranks",
     "select k.rank, k.pid, k.exit_code, k.signal, k.killed_by_coordinator, k.finished, k.sentence, "
     "k.log from ranks k join progress p on p.run = k.run and p.attempt = k.attempt "
     "where k.run = ?1 order by k.rank",
     nullptr},
    {"bubble", "select measured, program, imbalance, transfer, rest from bubbles where run = ?1",
     nullptr},
    {"actions",
     "select a.rank, a.action, a.wall_seconds, a.cpu_seconds from actions a "
     "join progress p on p.run = a.run and p.attempt = a.attempt "
     "where a.run = ?1 order by a.rank, a.action",
     nullptr},
    {"last lines of the log of the rank that failed first",
     "with recursive cut(rank, line, rest) as ("
     "  select failed_rank, null, last_lines || char(10) from failures "
     "    where run = ?1 and last_lines <> '' "
     "  union all select rank, substr(rest, 1, instr(rest, char(10)) - 1), "
     "    substr(rest, instr(rest, char(10)) + 1) from cut where rest <> '') "
     "select rank, line from cut where line is not null",
     nullptr},
    {"facts",
     "select f.rank as rank, f.name as name, f.text as text from facts f "
     "join progress p on p.run = f.run and p.attempt = f.attempt "
     "where f.run = ?1 order by f.rank, f.name",
     nullptr},
    {"events", "select at_us, what from events where run = ?1 order by id", nullptr},
};

void ShowVerb(CommonOptions& common, const std::string& text) {
  const absl::StatusOr<Target> target = ParseTarget(text);
  if (!target.ok()) {
    Fail(common, target.status());
    common.exit_code = kClientUsage;
    return;
  }
  const absl::StatusOr<std::unique_ptr<Session>> session =
      Session::ConnectOrRead(common.state_folder);
  if (!session.ok()) return Fail(common, session.status());
  nlohmann::ordered_json json;
  bool first = true;
  for (const ShowPart& part : kShowParts) {
    const char* sql = target->is_experiment ? part.experiment_sql : part.run_sql;
    if (sql == nullptr) continue;
    const absl::StatusOr<Table> table = (*session)->Query(sql, {std::to_string(target->id)});
    if (!table.ok()) return Fail(common, table.status());
    if (first && table->rows.empty())
      return Fail(common, absl::NotFoundError(absl::StrCat("there is no ", part.title, " ", text)));
    if (!first && table->rows.empty() && common.GetFormat() == Format::kTable) continue;
    if (common.GetFormat() == Format::kJson) {
      json[part.title] = first ? ToJson(*table)[0] : ToJson(*table);
    } else {
      std::printf("%s%s\n", first ? "" : "\n", part.title);
      PrintTable(first && common.GetFormat() == Format::kTable ? Upright(*table) : *table,
                 common.GetFormat());
    }
    first = false;
  }
  if (common.GetFormat() == Format::kJson) std::printf("%s\n", json.dump(2).c_str());
}

struct LogOptions {
  std::string run;
  int rank = 0;
  int attempt = 0;
  int64_t tail = -1;  // lines; -1: all
  std::string since;
  bool follow = false;
};

// "10m" or "2026-01-31T12:00:00Z" in UTC microseconds; 0 for neither.
int64_t ParseSince(const std::string& text) {
  if (double seconds = 0; ParseDuration(text, &seconds)) {
    return absl::ToUnixMicros(absl::Now() - absl::Seconds(seconds));
  }
  absl::Time time;
  std::string ignored;
  return absl::ParseTime(absl::RFC3339_full, text, &time, &ignored) ? absl::ToUnixMicros(time) : 0;
}

// Where the last `lines` lines of a log begin.
absl::StatusOr<int64_t> TailOffset(Session& session, LogPlace place, const LogOptions& options) {
  const auto read = [&](int64_t offset) {
    place.offset = offset;
    return session.ReadLog(place);
  };
  absl::StatusOr<LogChunk> chunk = read(-1);
  if (!chunk.ok()) return chunk.status();
  const int64_t size = chunk->size;
  for (int64_t reach = 1 << 16;; reach *= 4) {
    const int64_t from = std::max<int64_t>(0, size - reach);
    std::string text;
    for (int64_t at = from; at < size;) {
      chunk = read(at);
      if (!chunk.ok()) return chunk.status();
      if (chunk->data.empty()) break;
      text += chunk->data;
      at = chunk->next_offset;
    }
    int64_t lines = 0;
    for (size_t i = text.size(); i-- > 0;) {
      const bool ends_last_line = i + 1 == text.size();
      if (text[i] == '\n' && !ends_last_line && ++lines == options.tail)
        return from + static_cast<int64_t>(i) + 1;
    }
    if (from == 0) return 0;
  }
}

absl::StatusOr<bool> HasEnded(Session& session, int64_t run) {
  const absl::StatusOr<Table> table =
      session.Query("select state from progress where run = ?1", {std::to_string(run)});
  if (!table.ok()) return table.status();
  if (table->rows.empty()) return absl::NotFoundError(absl::StrCat("there is no run ", run));
  const std::optional<RunState> state = ParseState(CellText(table->rows[0][0]));
  return state && IsTerminal(*state);
}

absl::Status PrintLog(Session& session, int64_t run, const LogOptions& options) {
  LogPlace place{.run = run, .attempt = options.attempt, .rank = options.rank};
  if (!options.since.empty()) place.since_us = ParseSince(options.since);
  int64_t commit = 0;
  bool positioned = options.tail < 0;
  for (;;) {
    const absl::StatusOr<bool> ended =
        HasEnded(session, run);  // asked first: what follows is then the whole log
    if (!ended.ok()) return ended.status();
    if (!positioned) {
      const absl::StatusOr<int64_t> start = TailOffset(session, place, options);
      if (!start.ok() && (!options.follow || *ended)) return start.status();
      if (start.ok()) place.offset = *start;
      positioned = start.ok();
    }
    for (;;) {
      const absl::StatusOr<LogChunk> chunk = session.ReadLog(place);
      if (!chunk.ok() && (!options.follow || *ended)) return chunk.status();
      if (!chunk.ok() || chunk->data.empty()) break;
      std::fwrite(chunk->data.data(), 1, chunk->data.size(), stdout);
      std::fflush(stdout);
      place.offset = chunk->next_offset;
      place.since_us = 0;
    }
    if (!options.follow || *ended || !session.HasDaemon()) return absl::OkStatus();
    constexpr int64_t kLookAgainMs = 250;
    const absl::StatusOr<int64_t> next = session.Await(commit, kLookAgainMs);
    if (!next.ok()) return next.status();
    commit = *next;
  }
}

void LogsVerb(CommonOptions& common, const LogOptions& options) {
  const absl::StatusOr<Target> target = ParseTarget(options.run);
  if (!target.ok() || target->is_experiment) {
    std::fprintf(stderr, "regatta: '%s' is no run; logs are of one run, written 12 or r12\n",
                 options.run.c_str());
    common.exit_code = kClientUsage;
    return;
  }
  const absl::StatusOr<std::unique_ptr<Session>> session =
      Session::ConnectOrRead(common.state_folder);
  if (!session.ok()) return Fail(common, session.status());
  if (absl::Status status = PrintLog(**session, target->id, options); !status.ok())
    Fail(common, status);
}

void StrategiesVerb(CommonOptions& common) {
  Table table{{"strategy", "family", "origin", "summary"}, {}};
  for (const StrategyRow& row : StrategyTable()) {
    table.rows.push_back({std::string(row.name), std::string(row.family), std::string(row.origin),
                          std::string(row.summary)});
  }
  PrintTable(table, common.GetFormat());
}

// What two rows do differently, with their default parameters.
void DiffVerb(CommonOptions& common, const std::vector<std::string>& names) {
  std::vector<std::vector<std::pair<std::string, std::string>>> described;
  for (const std::string& name : names) {
    const StrategyRow* row = FindStrategy(name);
    const int ranks = row != nullptr && row->pipeline ? 2 : 1;
    const auto plan = ParseStrategy(name, {}, {.ranks = ranks});
    if (const PlanError* error = std::get_if<PlanError>(&plan); error != nullptr) {
      return Fail(common, absl::NotFoundError(error->sentence));
    }
    described.push_back(DescribePlan(std::get<StrategyPlan>(plan)));
  }
  Table table{{"property", names[0], names[1]}, {}};
  const auto value_in = [](const auto& properties, const std::string& property) -> std::string {
    for (const auto& [name, value] : properties) {
      if (name == property) return value;
    }
    return "-";
  };
  for (const auto& [property, value] : described[0]) {
    const std::string other = value_in(described[1], property);
    if (other != value) table.rows.push_back({property, value, other});
  }
  for (const auto& [property, value] : described[1]) {
    if (value_in(described[0], property) == "-") table.rows.push_back({property, "-", value});
  }
  PrintTable(table, common.GetFormat());
  if (table.rows.empty() && common.GetFormat() == Format::kTable) {
    std::printf("no difference in what they do\n");
  }
}

}  // namespace

void AddReadVerbs(CLI::App& app, CommonOptions& common) {
  CLI::App* list = app.add_subcommand("ls", "List runs");
  auto list_options = std::make_shared<ListOptions>();
  list->add_option("experiment", list_options->experiment, "Only the runs of this experiment (e3)");
  list->add_option("--limit", list_options->limit, "The newest N runs")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  AddStateOption(list, common);
  AddOutputOptions(list, common);
  list->callback([&common, list_options] { ListVerb(common, *list_options); });

  CLI::App* show =
      app.add_subcommand("show", "All that is known of a run (12) or an experiment (e3)");
  auto shown = std::make_shared<std::string>();
  show->add_option("id", *shown, "A run (12) or an experiment (e3)")->required();
  AddStateOption(show, common);
  AddOutputOptions(show, common);
  show->callback([&common, shown] { ShowVerb(common, *shown); });

  CLI::App* logs = app.add_subcommand("logs", "Print what a rank wrote, in any state of its run");
  auto log_options = std::make_shared<LogOptions>();
  logs->add_option("run", log_options->run, "The run")->required();
  logs->add_option("--rank", log_options->rank, "Which rank")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  logs->add_option("--attempt", log_options->attempt, "Which attempt (default: the latest)")
      ->check(CLI::PositiveNumber);
  logs->add_option("--tail", log_options->tail, "Only the last N lines")
      ->check(CLI::PositiveNumber);
  logs->add_option("--since", log_options->since,
                   "Only what was written since then, to a second: 10m, 2h or 2026-01-31T12:00:00Z")
      ->check([](const std::string& text) -> std::string {
        return ParseSince(text) != 0 ? ""
                                     : "'" + text + "'; 10m, 2h or 2026-01-31T12:00:00Z is right";
      })
      ->excludes("--tail");
  logs->add_flag("-f,--follow", log_options->follow, "Go on until the run has ended");
  AddStateOption(logs, common);
  logs->callback([&common, log_options] { LogsVerb(common, *log_options); });

  CLI::App* sql = app.add_subcommand("sql",
                                     "Ask the database: views results, ranks, steps, failures "
                                     "(docs/database.md); works without a daemon too");
  auto query = std::make_shared<std::string>();
  sql->add_option("query", *query, "One SELECT")->required();
  AddStateOption(sql, common);
  AddOutputOptions(sql, common);
  sql->callback([&common, query] { PrintQuery(common, *query); });

  CLI::App* strategies =
      app.add_subcommand("strategies", "The rows that an experiment can compare");
  AddOutputOptions(strategies, common);
  auto diff = std::make_shared<std::vector<std::string>>();
  strategies->add_option("--diff", *diff, "Only what these two do differently")
      ->expected(2)
      ->type_name("A B");
  strategies->callback([&common, diff] {
    if (diff->empty()) return StrategiesVerb(common);
    DiffVerb(common, *diff);
  });
}

}  // namespace regatta
