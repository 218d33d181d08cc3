BEGIN TRANSACTION;
CREATE TABLE attempt_ranks (
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
INSERT INTO "attempt_ranks" VALUES(1,1,0,3979,0,0,1,'');
CREATE TABLE attempts (
  run integer not null references runs(id),
  attempt integer not null,
  folder text not null,
  started_us integer not null,
  ended_us integer,
  join_seconds real,                    -- spawn to all joined
  primary key (run, attempt)
) without rowid;
INSERT INTO "attempts" VALUES(1,1,'/gone/attempt_1',1795979508665480,1795979535084642,0.646641538);
CREATE TABLE events (
  id integer primary key,
  at_us integer not null,
  run integer not null,
  attempt integer not null,
  what text not null
);
INSERT INTO "events" VALUES(1,1795979508665479,1,1,'STARTING');
INSERT INTO "events" VALUES(2,1795979509312124,1,1,'RUNNING');
INSERT INTO "events" VALUES(3,1795979535084651,1,1,'SUCCEEDED');
CREATE TABLE experiments (
  id integer primary key,
  token text not null unique,           -- of the client, so that a repeated call submits once
  name text not null,
  description text not null,
  text text not null,                   -- the file as submitted
  max_parallel integer not null,
  join_timeout_seconds real not null,
  submitted_us integer not null
);
INSERT INTO "experiments" VALUES(1,'63b23abfb283522c20cc76085a9019e1','n','','name: n
run:
  strategy: single
  ranks: 1
  model: {name: distilbert, dim: 64, n_heads: 4, n_layers: 4, hidden_dim: 256, vocab_size: 512, max_position_embeddings: 64, num_labels: 5}
  batch_size: 8
  steps: 1500
  dataset: {name: synthetic, rows: 32, max_length: 32, eval_rows: none}
  padding: {fixed: 32}
  sampler: sequential
  threads_per_rank: 1
  optimizer: {name: adamw, learning_rate: 5e-5, implementation: fused}
',1,60.0,1795979508663979);
CREATE TABLE facts (
  run integer not null,
  attempt integer not null,
  rank integer not null,
  name text not null,
  text text not null,
  primary key (run, attempt, rank, name)
) without rowid;
CREATE TABLE metrics (
  id integer primary key,
  name text not null unique
);
INSERT INTO "metrics" VALUES(1,'step_seconds');
INSERT INTO "metrics" VALUES(2,'data_seconds');
INSERT INTO "metrics" VALUES(3,'forward_seconds');
INSERT INTO "metrics" VALUES(4,'backward_seconds');
INSERT INTO "metrics" VALUES(5,'exposed_communication_seconds');
INSERT INTO "metrics" VALUES(6,'optimizer_seconds');
INSERT INTO "metrics" VALUES(7,'learning_rate');
INSERT INTO "metrics" VALUES(8,'loss_sum');
INSERT INTO "metrics" VALUES(9,'rows');
INSERT INTO "metrics" VALUES(10,'tokens');
INSERT INTO "metrics" VALUES(11,'padded_tokens');
CREATE TABLE runs (
  id integer primary key,
  experiment integer not null references experiments(id),
  position integer not null,            -- in matrix order
  name text not null,
  strategy text not null,
  model text not null,
  dataset text not null,
  ranks integer not null,
  spec text not null,                   -- RunSpec as JSON
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
INSERT INTO "runs" VALUES(1,1,0,'n','single','distilbert','synthetic',1,'{"strategy":{"name":"single","params":[]},"model":{"name":"distilbert","folder":"","config_json":"{\"dim\":64,\"hidden_dim\":256,\"max_position_embeddings\":64,\"model_type\":\"distilbert\",\"n_heads\":4,\"n_layers\":4,\"num_labels\":5,\"vocab_size\":512}","pretrained":false},"dataset":{"name":"synthetic","train_file":"","eval_file":"","max_length":"32","train_rows":"32","eval_rows":"0","stream":"synthetic"},"optimizer":{"name":"adamw","implementation":"fused","learning_rate":5e-05,"beta1":0.9,"beta2":0.999,"eps":1e-08,"weight_decay":0.01,"warmup_steps":"0","decay":"none"},"ranks":1,"batch_size":"8","gradient_accumulation":"1","epochs":"0","steps":"1500","sampler":"sequential","padded_length":"32","drop_last":false,"seed":"42","device":"cpu","backend":"gloo","threads_per_rank":1}','SUCCEEDED','','',0,1,1500,1500,1795979508663979,1795979508665477,1795979535084646);
INSERT INTO "runs" VALUES(2,1,1,'waiting','single','distilbert','synthetic',1,'{"strategy":{"name":"single","params":[]},"model":{"name":"distilbert","folder":"","config_json":"{\"dim\":64,\"hidden_dim\":256,\"max_position_embeddings\":64,\"model_type\":\"distilbert\",\"n_heads\":4,\"n_layers\":4,\"num_labels\":5,\"vocab_size\":512}","pretrained":false},"dataset":{"name":"synthetic","train_file":"","eval_file":"","max_length":"32","train_rows":"32","eval_rows":"0","stream":"synthetic"},"optimizer":{"name":"adamw","implementation":"fused","learning_rate":5e-05,"beta1":0.9,"beta2":0.999,"eps":1e-08,"weight_decay":0.01,"warmup_steps":"0","decay":"none"},"ranks":1,"batch_size":"8","gradient_accumulation":"1","epochs":"0","steps":"1500","sampler":"sequential","padded_length":"32","drop_last":false,"seed":"42","device":"cpu","backend":"gloo","threads_per_rank":1}','PENDING','','',0,0,0,0,1795979508663979,NULL,NULL);
CREATE TABLE samples (
  id integer primary key,
  run integer not null,
  attempt integer not null,
  rank integer not null,
  step integer not null,
  metric integer not null references metrics(id),
  value
);
INSERT INTO "samples" VALUES(1,1,1,0,0,1,0.075668979);
INSERT INTO "samples" VALUES(2,1,1,0,0,2,0.000134502);
INSERT INTO "samples" VALUES(3,1,1,0,0,3,0.054264353);
INSERT INTO "samples" VALUES(4,1,1,0,0,4,0.02040371);
INSERT INTO "samples" VALUES(5,1,1,0,0,5,5.91e-07);
INSERT INTO "samples" VALUES(6,1,1,0,0,6,0.000646793);
INSERT INTO "samples" VALUES(7,1,1,0,0,7,5.0e-05);
INSERT INTO "samples" VALUES(8,1,1,0,0,8,1.2910126686096191406e+01);
INSERT INTO "samples" VALUES(9,1,1,0,0,9,8.0);
INSERT INTO "samples" VALUES(10,1,1,0,0,10,160.0);
INSERT INTO "samples" VALUES(11,1,1,0,0,11,256.0);
INSERT INTO "samples" VALUES(12,1,1,0,1,1,0.024528244);
INSERT INTO "samples" VALUES(13,1,1,0,1,2,0.000124664);
INSERT INTO "samples" VALUES(14,1,1,0,1,3,0.00854904);
INSERT INTO "samples" VALUES(15,1,1,0,1,4,0.014963368);
INSERT INTO "samples" VALUES(16,1,1,0,1,5,1.132e-06);
INSERT INTO "samples" VALUES(17,1,1,0,1,6,0.00058647);
INSERT INTO "samples" VALUES(18,1,1,0,1,7,5.0e-05);
INSERT INTO "samples" VALUES(19,1,1,0,1,8,1.24319314956665039062e+01);
INSERT INTO "samples" VALUES(20,1,1,0,1,9,8.0);
INSERT INTO "samples" VALUES(21,1,1,0,1,10,155.0);
INSERT INTO "samples" VALUES(22,1,1,0,1,11,256.0);
CREATE TABLE summaries (
  run integer not null,
  attempt integer not null,
  rank integer not null,                -- -1: the whole run
  name text not null,
  value,
  primary key (run, attempt, rank, name)
) without rowid;
INSERT INTO "summaries" VALUES(1,1,-1,'collective_bytes_per_step',0.0);
INSERT INTO "summaries" VALUES(1,1,-1,'collective_calls_per_step',0.0);
INSERT INTO "summaries" VALUES(1,1,-1,'gradient_bytes',965652.0);
INSERT INTO "summaries" VALUES(1,1,-1,'joined_to_first_step_seconds',0.082361439);
INSERT INTO "summaries" VALUES(1,1,-1,'last_loss_rows',8.0);
INSERT INTO "summaries" VALUES(1,1,-1,'last_loss_sum',1.21015727519989013671e-01);
INSERT INTO "summaries" VALUES(1,1,-1,'launch_to_joined_seconds',0.646641538);
INSERT INTO "summaries" VALUES(1,1,-1,'loss',1.51269659399986267089e-02);
INSERT INTO "summaries" VALUES(1,1,-1,'measured_rows',11984.0);
INSERT INTO "summaries" VALUES(1,1,-1,'measured_seconds',2.55195782409999729614e+01);
INSERT INTO "summaries" VALUES(1,1,-1,'measured_steps',1498.0);
INSERT INTO "summaries" VALUES(1,1,-1,'measured_tokens',222435.0);
INSERT INTO "summaries" VALUES(1,1,-1,'optimizer_bytes',1931304.0);
INSERT INTO "summaries" VALUES(1,1,-1,'parameter_bytes',965652.0);
INSERT INTO "summaries" VALUES(1,1,-1,'peak_rss_bytes',159612928.0);
INSERT INTO "summaries" VALUES(1,1,-1,'peak_tensor_bytes',7546696.0);
INSERT INTO "summaries" VALUES(1,1,-1,'samples_per_second',4.69600237387403353752e+02);
INSERT INTO "summaries" VALUES(1,1,-1,'step_seconds_median',0.017518269);
INSERT INTO "summaries" VALUES(1,1,-1,'step_seconds_p95',0.021951131);
INSERT INTO "summaries" VALUES(1,1,-1,'steps',1500.0);
INSERT INTO "summaries" VALUES(1,1,-1,'steps_per_second',5.87000296734254192179e+01);
INSERT INTO "summaries" VALUES(1,1,-1,'tokens_per_second',8.71624906569317863588e+03);
INSERT INTO "summaries" VALUES(1,1,-1,'warmup_steps',2.0);
INSERT INTO "summaries" VALUES(1,1,0,'collective_bytes_per_step',0.0);
INSERT INTO "summaries" VALUES(1,1,0,'collective_calls_per_step',0.0);
INSERT INTO "summaries" VALUES(1,1,0,'gradient_bytes',965652.0);
INSERT INTO "summaries" VALUES(1,1,0,'joined_to_first_step_seconds',0.082361439);
INSERT INTO "summaries" VALUES(1,1,0,'last_loss_rows',8.0);
INSERT INTO "summaries" VALUES(1,1,0,'last_loss_sum',1.21015727519989013671e-01);
INSERT INTO "summaries" VALUES(1,1,0,'measured_rows',11984.0);
INSERT INTO "summaries" VALUES(1,1,0,'measured_seconds',2.55195782409999729614e+01);
INSERT INTO "summaries" VALUES(1,1,0,'measured_steps',1498.0);
INSERT INTO "summaries" VALUES(1,1,0,'measured_tokens',222435.0);
INSERT INTO "summaries" VALUES(1,1,0,'optimizer_bytes',1931304.0);
INSERT INTO "summaries" VALUES(1,1,0,'parameter_bytes',965652.0);
INSERT INTO "summaries" VALUES(1,1,0,'peak_rss_bytes',159612928.0);
INSERT INTO "summaries" VALUES(1,1,0,'peak_tensor_bytes',7546696.0);
INSERT INTO "summaries" VALUES(1,1,0,'step_seconds_median',0.017518269);
INSERT INTO "summaries" VALUES(1,1,0,'step_seconds_p95',0.021951131);
INSERT INTO "summaries" VALUES(1,1,0,'steps',1500.0);
INSERT INTO "summaries" VALUES(1,1,0,'store_calls',0.0);
INSERT INTO "summaries" VALUES(1,1,0,'warmup_steps',2.0);
CREATE INDEX runs_experiment on runs(experiment, position);
CREATE INDEX runs_state on runs(state);
CREATE INDEX samples_run on samples(run, attempt, metric, step, rank);
CREATE INDEX events_run on events(run, id);
CREATE VIEW results as
select r.id as run, r.experiment as experiment, e.name as experiment_name, r.name as name,
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
  max(case when s.name = 'parameter_bytes' then s.value end) as parameter_bytes,
  max(case when s.name = 'gradient_bytes' then s.value end) as gradient_bytes,
  max(case when s.name = 'optimizer_bytes' then s.value end) as optimizer_bytes,
  max(case when s.name = 'collective_bytes_per_step' then s.value end) as collective_bytes_per_step,
  max(case when s.name = 'collective_calls_per_step' then s.value end)
    as collective_calls_per_step,
  r.submitted_us as submitted_us, r.started_us as started_us, r.ended_us as ended_us
from runs r
join experiments e on e.id = r.experiment
left join summaries s on s.run = r.id and s.attempt = r.attempt and s.rank = -1
group by r.id;
CREATE VIEW progress as
select r.id as run, r.experiment as experiment, r.name as name, r.ranks as ranks, r.state as state,
  r.reason as reason, r.sentence as sentence, r.attempt as attempt, r.step as step,
  r.planned_steps as planned_steps, r.submitted_us as submitted_us, r.started_us as started_us,
  r.ended_us as ended_us
from runs r;
CREATE VIEW ranks as
select k.run as run, k.attempt as attempt, k.rank as rank, k.pid as pid,
  case when k.wait_status is not null and (k.wait_status & 127) = 0
    then (k.wait_status >> 8) & 255 end as exit_code,
  case when k.wait_status is not null and (k.wait_status & 127) <> 0
    then k.wait_status & 127 end as signal,
  k.killed as killed_by_coordinator, k.finished as finished, k.sentence as sentence,
  a.folder || '/rank_' || k.rank || '.log' as log
from attempt_ranks k join attempts a on a.run = k.run and a.attempt = k.attempt;
CREATE VIEW steps as
select s.run as run, s.attempt as attempt, s.rank as rank, s.step as step, m.name as name,
  s.value as value
from samples s join metrics m on m.id = s.metric;
CREATE VIEW failures as
select r.id as run, r.experiment as experiment, r.name as name, r.state as state,
  r.reason as reason, r.sentence as sentence, r.attempt as attempt, r.ended_us as ended_us
from runs r where r.state in ('FAILED', 'TIMED_OUT');
COMMIT;
pragma user_version = 1;
