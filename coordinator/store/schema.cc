#include "coordinator/store/schema.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <absl/strings/str_cat.h>

#include <iterator>
#include <string>
#include <vector>

namespace regatta {
namespace {

// Tables are private; a migration is never changed once it has been used. Times are UTC
// microseconds, durations seconds. `value` columns have no type: a NaN, which SQLite would store as
// NULL, is the text 'NaN'.
constexpr const char* kMigrations[] = {R"sql(
create table experiments (
  id integer primary key,
  token text not null unique,           -- of the client, so that a repeated call submits once
  name text not null,
  description text not null,
  text text not null,                   -- the file as submitted
  max_parallel integer not null,
  join_timeout_seconds real not null,
  submitted_us integer not null
);
create table runs (
  id integer primary key,
  experiment integer not null references experiments(id),
  position integer not null,            -- in matrix order
  name text not null,
  strategy text not null,
  model text not null,
  dataset text not null,
  ranks integer not null,
  spec text not null,                   -- RunSpec, serialized (version 1: as JSON)
  state text not null,
  reason text not null default '',
  sentence text not null default '',
  cancel_wanted integer not null default 0,
  attempt integer not null default 0,   -- the latest
  step integer not null default 0,      -- optimizer steps done, of the latest attempt
  planned_steps integer not null default 0,
  submitted_us integer not null,
  started_us integer,
  ended_us integer
);
create index runs_experiment on runs(experiment, position);
create index runs_state on runs(state);
create table attempts (
  run integer not null references runs(id),
  attempt integer not null,
  folder text not null,
  started_us integer not null,
  ended_us integer,
  join_seconds real,                    -- spawn to all joined
  primary key (run, attempt)
) without rowid;
create table attempt_ranks (
  run integer not null,
  attempt integer not null,
  rank integer not null,
  pid integer,
  wait_status integer,                  -- raw, as wait(2) gave it
  killed integer not null default 0,    -- by the coordinator, after another rank failed or on request
  finished integer not null default 0,  -- sent its result
  sentence text not null default '',
  primary key (run, attempt, rank)
) without rowid;
create table metrics (
  id integer primary key,
  name text not null unique
);
create table samples (
  id integer primary key,
  run integer not null,
  attempt integer not null,
  rank integer not null,
  step integer not null,
  metric integer not null references metrics(id),
  value
);
create index samples_run on samples(run, attempt, metric, step, rank);
create table summaries (
  run integer not null,
  attempt integer not null,
  rank integer not null,                -- -1: the whole run
  name text not null,
  value,
  primary key (run, attempt, rank, name)
) without rowid;
create table facts (
  run integer not null,
  attempt integer not null,
  rank integer not null,
  name text not null,
  text text not null,
  primary key (run, attempt, rank, name)
) without rowid;
create table events (
  id integer primary key,
  at_us integer not null,
  run integer not null,
  attempt integer not null,
  what text not null
);
create index events_run on events(run, id);
)sql",
                                       R"sql(
alter table experiments add column labels text not null default '{}';      -- JSON object of texts
alter table experiments add column timeout_seconds real not null default 0;        -- 0: none
alter table experiments add column queue_timeout_seconds real not null default 0;  -- 0: none
alter table runs add column repeat integer not null default 1;             -- round, from 1
alter table runs add column predicted_state_bytes integer;                 -- of one rank
alter table runs add column predicted_collective_bytes_per_step integer;   -- payload of one rank

-- Every new run and every move of one would write an index of all states; only failures are asked for by state.
drop index runs_state;
create index runs_failed on runs(id) where state in ('FAILED', 'TIMED_OUT');
)sql",
                                       R"sql(
update summaries set name = 'payload_bytes_per_step' where name = 'collective_bytes_per_step';
update summaries set name = 'calls_per_step' where name = 'collective_calls_per_step';
alter table runs rename column predicted_collective_bytes_per_step
  to predicted_payload_bytes_per_step;
create table trace_files (
  run integer not null,
  attempt integer not null,
  rank integer not null,
  path text not null,
  bytes integer not null,
  first_step integer not null,
  steps integer not null,
  primary key (run, attempt, rank, path)
) without rowid;
alter table attempts drop column join_seconds;  -- summaries have it
alter table runs add column predicted_peak_bytes integer;  -- of tensors, in any phase
alter table runs add column failed_rank integer;  -- the first that failed by itself
alter table attempt_ranks add column last_lines text not null default '';  -- of its log, where it failed
)sql",
                                       "-- 4: views alone"};

// The public interface (docs/database.md), made anew at each change of the tables.
constexpr const char* kViews = R"sql(
create view results as
select r.id as run, r.experiment as experiment, e.name as experiment_name, r.name as name,
  r.repeat as repeat, e.labels as labels,
  r.strategy as strategy, r.model as model, r.dataset as dataset, r.ranks as ranks,
  r.state as state, r.reason as reason, r.sentence as sentence, r.attempt as attempt,
  max(case when s.name = 'steps' then s.value end) as steps,
  max(case when s.name = 'warmup_steps' then s.value end) as warmup_steps,
  max(case when s.name = 'loss' then s.value end) as loss,
  max(case when s.name = 'accuracy' then s.value end) as accuracy,
  max(case when s.name = 'accuracy_low' then s.value end) as accuracy_low,
  max(case when s.name = 'accuracy_high' then s.value end) as accuracy_high,
  max(case when s.name = 'eval_rows' then s.value end) as eval_rows,
  max(case when s.name = 'tokens_per_second' then s.value end) as tokens_per_second,
  max(case when s.name = 'samples_per_second' then s.value end) as samples_per_second,
  max(case when s.name = 'steps_per_second' then s.value end) as steps_per_second,
  max(case when s.name = 'step_seconds_median' then s.value end) as step_seconds_median,
  max(case when s.name = 'step_seconds_p95' then s.value end) as step_seconds_p95,
  max(case when s.name = 'launch_to_joined_seconds' then s.value end) as launch_to_joined_seconds,
  max(case when s.name = 'joined_to_first_step_seconds' then s.value end)
    as joined_to_first_step_seconds,
  max(case when s.name = 'peak_rss_bytes' then s.value end) as peak_rss_bytes,
  max(case when s.name = 'peak_tensor_bytes' then s.value end) as peak_tensor_bytes,
  max(case when s.name = 'peak_load_bytes' then s.value end) as peak_load_bytes,
  max(case when s.name = 'peak_forward_bytes' then s.value end) as peak_forward_bytes,
  max(case when s.name = 'peak_backward_bytes' then s.value end) as peak_backward_bytes,
  max(case when s.name = 'peak_optimizer_bytes' then s.value end) as peak_optimizer_bytes,
  max(case when s.name = 'peak_steady_bytes' then s.value end) as peak_steady_bytes,
  max(case when s.name = 'parameter_bytes' then s.value end) as parameter_bytes,
  max(case when s.name = 'gradient_bytes' then s.value end) as gradient_bytes,
  max(case when s.name = 'optimizer_bytes' then s.value end) as optimizer_bytes,
  max(case when s.name = 'param_bytes_total' then s.value end) as param_bytes_total,
  max(case when s.name = 'calls_per_step' then s.value end) as calls_per_step,
  max(case when s.name = 'payload_bytes_per_step' then s.value end) as payload_bytes_per_step,
  max(case when s.name = 'bytes_sent_per_step' then s.value end) as bytes_sent_per_step,
  max(case when s.name = 'attempt_seconds' then s.value end) as attempt_seconds,
  max(case when s.name = 'shared_cores' then s.value end) as shared_cores,
  r.predicted_state_bytes as predicted_state_bytes,
  r.predicted_peak_bytes as predicted_peak_bytes,
  r.predicted_payload_bytes_per_step as predicted_payload_bytes_per_step,
  r.submitted_us as submitted_us, r.started_us as started_us, r.ended_us as ended_us
from runs r
join experiments e on e.id = r.experiment
left join summaries s on s.run = r.id and s.attempt = r.attempt and s.rank = -1
group by r.id;

create view progress as
select r.id as run, r.experiment as experiment, r.name as name, r.repeat as repeat, r.ranks as ranks, r.state as state,
  r.reason as reason, r.sentence as sentence, r.attempt as attempt, r.step as step,
  r.planned_steps as planned_steps, r.submitted_us as submitted_us, r.started_us as started_us,
  r.ended_us as ended_us
from runs r;

create view ranks as
select k.run as run, k.attempt as attempt, k.rank as rank, k.pid as pid,
  case when k.wait_status is not null and (k.wait_status & 127) = 0
    then (k.wait_status >> 8) & 255 end as exit_code,
  case when k.wait_status is not null and (k.wait_status & 127) <> 0
    then k.wait_status & 127 end as signal,
  k.killed as killed_by_coordinator, k.finished as finished, k.sentence as sentence,
  k.last_lines as last_lines,
  a.folder || '/rank_' || k.rank || '.log' as log
from attempt_ranks k join attempts a on a.run = k.run and a.attempt = k.attempt;

create view steps as
select s.run as run, s.attempt as attempt, s.rank as rank, s.step as step, m.name as name,
  s.value as value
from samples s join metrics m on m.id = s.metric;

create view bubbles as
select r.id as run, r.experiment as experiment, r.name as name,
  max(case when s.name = 'bubble_measured' then s.value end) as measured,
  max(case when s.name = 'bubble_program' then s.value end) as program,
  max(case when s.name = 'bubble_imbalance' then s.value end) as imbalance,
  max(case when s.name = 'bubble_transfer' then s.value end) as transfer,
  max(case when s.name = 'bubble_rest' then s.value end) as rest,
  max(case when s.name = 'transfer_seconds' then s.value end) as transfer_seconds
from runs r
join summaries s on s.run = r.id and s.attempt = r.attempt and s.rank = -1
group by r.id having measured is not null;

create view actions as
select c.run as run, c.attempt as attempt, c.rank as rank,
  replace(c.name, '_cpu_seconds', '') as action,
  w.value as wall_seconds, c.value as cpu_seconds
from summaries c
join summaries w on w.run = c.run and w.attempt = c.attempt and w.rank = c.rank
  and w.name = replace(c.name, '_cpu_', '_wall_')
where c.name like 'stage\_%\_cpu\_seconds' escape '\';

create view traces as
select t.run as run, t.attempt as attempt, t.rank as rank, t.path as path, t.bytes as bytes,
  t.first_step as first_step, t.steps as steps
from trace_files t;

create view failures as
select r.id as run, r.experiment as experiment, r.name as name, r.state as state,
  r.reason as reason, r.sentence as sentence, r.failed_rank as failed_rank, r.attempt as attempt,
  k.last_lines as last_lines, r.ended_us as ended_us
from runs r
left join attempt_ranks k on k.run = r.id and k.attempt = r.attempt and k.rank = r.failed_rank
where r.state in ('FAILED', 'TIMED_OUT');
)sql";
static_assert(std::size(kMigrations) == kSchemaVersion);

std::vector<std::string> ViewNames(SQLite::Database& database) {
  std::vector<std::string> names;
  SQLite::Statement query(database, "select name from sqlite_master where type = 'view'");
  while (query.executeStep()) names.push_back(query.getColumn(0).getString());
  return names;
}

}  // namespace

absl::Status Migrate(SQLite::Database& database) {
  const int version = database.execAndGet("pragma user_version").getInt();
  if (version > kSchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the database has schema version ", version, "; this program knows ",
                     kSchemaVersion, ": use a newer regatta, or another state folder"));
  }
  SQLite::Transaction transaction(database);
  if (version < kSchemaVersion) {
    for (const std::string& view : ViewNames(database)) database.exec("drop view " + view);
    for (int i = version; i < kSchemaVersion; ++i) database.exec(kMigrations[i]);
    database.exec(kViews);
  }
  database.exec("pragma user_version = " + std::to_string(kSchemaVersion));
  transaction.commit();
  return absl::OkStatus();
}

}  // namespace regatta
