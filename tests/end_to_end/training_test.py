"""Real ranks, real processes: the shipped experiments, and equality with one-process training."""
import array
import collections
import gzip
import json
import math
import os
import pathlib
import re
import signal
import subprocess

import harness

WORKER = harness.BINARIES / "regatta-worker"


class TrainingTest(harness.Case):
    def run_experiment(self, path, *arguments, expect=0, state=True):
        done = self.client("run", path, "--json", *arguments, expect=expect, state=state)
        return json.loads(done.stdout)

    def test_smoke_experiment(self):
        rows = self.run_experiment(harness.SOURCE / "experiments/smoke.yaml")
        self.assertEqual([row["state"] for row in rows], ["SUCCEEDED"] * len(rows))
        for row in self.rows("select strategy, tokens_per_second, peak_rss_bytes, loss, accuracy from results"):
            for name, value in row.items():
                self.assertIsNotNone(value, f"{name} in {row}")
            self.assertGreater(row["tokens_per_second"], 0)

    def test_traces_of_some_steps(self):
        path = self.experiment("  ranks: 2\n  strategy: bucket_ddp_async\n  steps: 12\n  batch_size: 8\n  epochs: 9\n"
                               "  profile: {wait: 1, warmup: 1, active: 3, repeat: 2}\n")
        self.run_experiment(path)
        files = self.rows("select rank, path, bytes, first_step, steps from traces order by rank, first_step")
        self.assertEqual([(file["rank"], file["first_step"], file["steps"]) for file in files],
                         [(0, 2, 3), (0, 7, 3), (1, 2, 3), (1, 7, 3)])
        for file in files:
            self.assertEqual(os.path.getsize(file["path"]), file["bytes"])
            self.assertTrue(file["path"].endswith(f"/profile/bucket_ddp_async/rank_{file['rank']}/steps_{file['first_step']}-"
                                                  f"{file['first_step'] + 2}.pt.trace.json.gz"), file["path"])
            with gzip.open(file["path"], "rt") as stream:
                trace = json.load(stream)
            self.assertEqual(trace["distributedInfo"], {"backend": "gloo", "rank": file["rank"], "world_size": 2})
            names = collections.Counter(event["name"] for event in trace["traceEvents"] if event["ph"] == "X")
            self.assertEqual({name: names[name] for name in ("forward", "backward", "grad_sync", "optimizer_step")},
                             dict.fromkeys(("forward", "backward", "grad_sync", "optimizer_step"), 3))
            self.assertEqual([name for name in names if name.startswith("ProfilerStep")],
                             [f"ProfilerStep#{step}" for step in range(file["first_step"], file["first_step"] + 3)])
            self.assertEqual(names["c10d::allreduce_"], 3)
            for event in trace["traceEvents"]:  # what Perfetto and Chrome ask of a complete event
                if event["ph"] == "X":
                    self.assertTrue({"name", "ts", "dur", "pid", "tid"} <= event.keys(), event)
        self.assertEqual(self.rows("select count(*) as n from summaries where name = 'measured_steps' and value = 3 and rank = 0"),
                         [{"n": 1}], "steps 5, 10 and 11 are neither warm-up, nor armed, nor recorded")
        # With the trace of one rank alone HTA has nothing to compare.
        python = harness.SOURCE / ".venv-peers/bin/python"
        if not python.exists():
            self.skipTest(f"{python} is not there: HTA was not asked (scripts/bench --install-peers)")
        folder = self.folder / "hta"
        folder.mkdir()
        for file in files:
            if file["first_step"] == 2:
                (folder / f"rank_{file['rank']}.json.gz").write_bytes(pathlib.Path(file["path"]).read_bytes())
        done = subprocess.run([python, "-c", "import sys; from hta.trace_analysis import TraceAnalysis\n"
                               "t = TraceAnalysis(trace_dir=sys.argv[1]).t\n"
                               "print(sorted(t.get_all_traces()), sum(len(x) for x in t.get_all_traces().values()) > 100)", folder],
                              capture_output=True, text=True, check=False)
        if "No module named 'hta'" in done.stderr:
            self.skipTest("HTA is not installed in .venv-peers")
        self.assertEqual(done.stdout.strip().splitlines()[-1:], ["[0, 1] True"], done.stderr[-2000:])

    def test_a_separate_profile_leaves_the_measured_runs_alone(self):
        path = self.experiment("  ranks: 2\n  strategy: bucket_ddp_async\n  steps: 8\n  batch_size: 8\n  epochs: 9\n"
                               "  profile: {separate: true, wait: 0, warmup: 1, active: 2, memory: true, shapes: true}\n",
                               rest="repeats: 2\n")
        self.run_experiment(path)
        self.assertEqual(self.rows("select r.repeat as repeat, r.state as state, count(t.path) as traces from results r "
                                   "left join traces t on t.run = r.run group by r.run order by r.run"),
                         [{"repeat": 1, "state": "SUCCEEDED", "traces": 0}, {"repeat": 2, "state": "SUCCEEDED", "traces": 0},
                          {"repeat": 0, "state": "SUCCEEDED", "traces": 2}])
        with gzip.open(self.rows("select path from traces where rank = 1")[0]["path"], "rt") as stream:
            events = json.load(stream)["traceEvents"]
        self.assertTrue(any(event["name"] == "[memory]" and event["args"]["Bytes"] for event in events), "memory: true")
        products = [event["args"]["Input Dims"] for event in events if event["name"] == "aten::mm"]
        self.assertTrue(products and all(len(dims) >= 2 for dims in products), "shapes: true")

    def test_real_ranks_equal_single(self):
        """2, 3 and 4 ranks through daemon, supervisor, rendezvous and Gloo, against one process: every parameter after
        5 SGD steps and every loss, with uneven batches."""
        path = self.experiment(
            "  steps: 5\n  batch_size: 10\n  sampler: sequential\n  threads_per_rank: 1\n"
            "  optimizer: {name: sgd, learning_rate: 0.05}\n",
            "matrix: {strategy: [simple_ddp, simple_ddp_hook, simple_ddp_async, {name: bucket_ddp_async, bucket_mib: 0.05},\n"
            "  {name: pytorch_ddp, bucket_mib: 0.05, first_bucket_mib: 0.02}, baseline,\n"
            "  zero1, zero2, zero3, pytorch_zero1, pytorch_zero2, pytorch_zero3,\n"
            "  naive_pp, gpipe_pp, 1f1b_pp, pytorch_gpipe_pp, pytorch_1f1b_pp, interleaved_1f1b_pp, zb1p_pp], ranks: [2, 3, 4]}\n"
            "include: [{strategy: single, ranks: 1}, {strategy: simple_ddp_ga, ranks: 2, gradient_accumulation: 1},\n"
            "  {strategy: {name: pipeline, split: by_time}, ranks: 4, data_parallel: 2}]\n", layers=8)
        self.run_experiment(path, "--slots", "4", "--worker", harness.BINARIES / "saving_worker")
        losses, parameters = {}, {}
        for row in self.rows("select run, ranks, strategy from results"):
            key = (row["strategy"], row["ranks"])
            values = array.array("f")
            values.frombytes((self.state / f"runs/{row['run']}/attempt_1/parameters.bin").read_bytes())
            parameters[key] = values
            losses[key] = [step["loss"] for step in self.rows(
                "select sum(case when name = 'loss_sum' then value end) / sum(case when name = 'rows' then value end) "
                f"as loss from steps where run = {row['run']} group by step order by step")]
        single = ("single", 1)
        self.assertEqual((len(losses), len(losses[single])), (60, 5))
        self.assertGreater(len(parameters[single]), 10000)
        self.assertNotAlmostEqual(losses[single][0], losses[single][4], delta=1e-3)
        for key, values in parameters.items():
            for ours, reference in zip(losses[key], losses[single], strict=True):
                self.assertAlmostEqual(ours, reference, delta=2e-6)
            self.assertEqual(len(values), len(parameters[single]))
            worst = max(abs(a - b) for a, b in zip(values, parameters[single]))
            print(f"{key[0]} on {key[1]} ranks: largest difference to single {worst:.2g}", flush=True)
            self.assertLessEqual(worst, 1e-6)

    def test_1f1b_keeps_fewer_micro_batches_than_gpipe(self):
        """On the first of three stages, of eight micro-batches: three instead of eight."""
        path = self.write("deep.yaml", "name: deep\nrun:\n  model: {name: distilbert, dim: 128, n_heads: 4, n_layers: 9, hidden_dim: 512, "
                          "vocab_size: 1000, max_position_embeddings: 64, num_labels: 5}\n"
                          "  dataset: {name: synthetic, rows: 128, max_length: 64, eval_rows: none}\n"
                          "  threads_per_rank: 1\n  ranks: 3\n  batch_size: 32\n  micro_batches: 8\n  steps: 4\n"
                          "matrix: {strategy: [gpipe_pp, 1f1b_pp, zb1p_pp]}\n")
        self.run_experiment(path, "--slots", "3")
        beyond = {row["strategy"]: row["peak"] - row["state"] for row in self.rows(
            "select r.strategy as strategy, sum(case when s.name = 'peak_steady_bytes' then s.value end) as peak, "
            "sum(case when s.name in ('parameter_bytes', 'gradient_bytes', 'optimizer_bytes') then s.value end) as state "
            "from results r join summaries s on s.run = r.run where s.rank = 0 group by r.strategy")}
        print({name: round(bytes / 2**20, 2) for name, bytes in beyond.items()}, "MiB beyond the states", flush=True)
        self.assertLessEqual(beyond["1f1b_pp"], 0.7 * beyond["gpipe_pp"])
        self.assertLess(beyond["zb1p_pp"], beyond["gpipe_pp"])

    def test_a_bubble_is_explained(self):
        """Replayed in virtual time, by each action's processor time, a pipeline of equal stages has the bubble of theory."""
        path = self.write("equal.yaml", "name: equal\nrun:\n  model: {name: distilbert, dim: 128, n_heads: 4, n_layers: 8, hidden_dim: 512, "
                          "vocab_size: 64, max_position_embeddings: 64, num_labels: 5}\n"
                          "  dataset: {name: synthetic, rows: 256, max_length: 64, eval_rows: none}\n"
                          "  threads_per_rank: 1\n  ranks: 2\n  batch_size: 32\n  micro_batches: 8\n  steps: 8\n"
                          "  profile: {wait: 4, warmup: 1, active: 1}\n"
                          "matrix: {strategy: [gpipe_pp, 1f1b_pp, zb1p_pp]}\n")
        self.run_experiment(path, "--slots", "2")
        for row in self.rows("select * from bubbles order by run"):
            print(row, flush=True)
            theory = 1 / 25 if "zb1p" in row["name"] else 1 / 9
            self.assertAlmostEqual(row["program"] + row["imbalance"], theory, delta=0.05)
            self.assertAlmostEqual(row["program"] + row["imbalance"] + row["transfer"] + row["rest"], row["measured"], delta=1e-9)
            self.assertGreaterEqual(row["transfer"], 0)
            self.assertTrue(0 < row["transfer_seconds"] < 0.1)
        actions = self.rows("select action, wall_seconds, cpu_seconds from actions where run = 3 order by rank, action")
        self.assertEqual([row["action"] for row in actions],
                         [f"stage_{stage}_{what}" for stage in (0, 1) for what in ("backward", "backward_weight", "forward")])
        self.assertTrue(all(row["cpu_seconds"] > 0 for row in actions))
        with gzip.open(self.rows("select path from traces where run = 3 and rank = 0")[0]["path"], "rt") as stream:
            names = {event["name"] for event in json.load(stream)["traceEvents"]}
        for name in ("pp.forward", "pp.backward", "pp.backward_weight", "pp.comm.recv", "pp.comm.send", "pp.optimizer_step",
                     "pp.optimizer_zero_grad", "pp.forward_warmup", "pp.1f1b_steady", "pp.backward_drain", "stage 0 chunk 0", "stage 0 chunk 7"):
            self.assertIn(name, names)

    def test_zero3_never_holds_the_model(self):
        """Peaks of tensor bytes, loading included, on four processes against one with the same rows a rank."""
        path = self.write("deep.yaml", "name: deep\nrun:\n  model: {name: distilbert, dim: 128, n_heads: 4, n_layers: 16, hidden_dim: 512, "
                          "vocab_size: 1000, max_position_embeddings: 32, num_labels: 5}\n"
                          "  dataset: {name: synthetic, rows: 32, max_length: 16, eval_rows: none}\n"
                          "  threads_per_rank: 1\n  ranks: 4\n  batch_size: 4\n  steps: 4\n"
                          "matrix: {strategy: [baseline, zero1, zero2, zero3, pytorch_zero3]}\n"
                          "include: [{strategy: single, ranks: 1, batch_size: 1}]\n")
        self.run_experiment(path, "--slots", "4")
        peak = {row["strategy"]: row["peak"] for row in self.rows(
            "select r.strategy as strategy, max(s.value) as peak from results r join summaries s on s.run = r.run "
            "where s.name = 'peak_tensor_bytes' and s.rank >= 0 group by r.strategy")}
        model = self.rows("select param_bytes_total as bytes from results where strategy = 'baseline'")[0]["bytes"]
        layer = 4 * (4 * (128 * 128 + 128) + 2 * 128 * 512 + 512 + 128 + 4 * 128)
        activations = peak["single"] - 4 * model
        allowed = 1.1 * (4 * model / 4 + 4 * layer + activations)
        print({name: round(bytes / 2**20, 2) for name, bytes in peak.items()}, "MiB; zero3 may take",
              round(allowed / 2**20, 2), "activations", round(activations / 2**20, 2), flush=True)
        self.assertLessEqual(peak["zero3"], allowed)
        self.assertGreaterEqual(peak["baseline"], 1.5 * peak["zero3"])
        self.assertGreater(peak["baseline"], peak["zero1"])
        self.assertGreater(peak["zero1"], peak["zero2"])
        self.assertGreater(peak["zero2"], peak["zero3"])

    def test_peaks_are_as_predicted(self):
        """Within 10 %, for every strategy; so nothing that is said to fit is refused by its own limit."""
        models = ["{name: distilbert, dim: 64, n_heads: 4, n_layers: 6, hidden_dim: 256, vocab_size: 500, "
                  "max_position_embeddings: 64, num_labels: 5}",
                  "{name: llama, hidden_size: 96, intermediate_size: 256, num_hidden_layers: 4, num_attention_heads: 4, "
                  "num_key_value_heads: 2, vocab_size: 800, rope_theta: 100000.0, rms_norm_eps: 1.0e-5, "
                  "max_position_embeddings: 64, pad_token_id: 2, num_labels: 5}"]
        strategies = [row["strategy"] for row in json.loads(self.client("strategies", "--json", state=False).stdout)]

        def write(model, batch, length, limits=None):
            limited = "".join(f"  - {{match: {{strategy: {name}}}, set: {{memory_limit: {bytes}KiB}}}}\n"
                              for name, bytes in (limits or {}).items())
            return self.write("peaks.yaml", f"name: peaks\nrun:\n  model: {model}\n  dataset: {{name: synthetic, rows: 64, "
                              f"max_length: {length}, eval_rows: none}}\n  padding: {{fixed: {length}}}\n  threads_per_rank: 1\n"
                              f"  steps: 4\n  epochs: 9\n  batch_size: {batch}\n  ranks: 2\nmatrix: {{strategy: ["
                              f"{', '.join(name for name in strategies if name != 'single')}]}}\n"
                              "include: [{strategy: single, ranks: 1}]\n" + (f"overrides:\n{limited}" if limited else ""))

        for model, (batch, length) in zip(models, ((4, 16), (16, 64)), strict=True):
            self.client("run", write(model, batch, length), "--slots", "2")
        rows = self.rows("select strategy, predicted_peak_bytes as predicted, peak_tensor_bytes as measured from results")
        self.assertEqual(len(rows), 2 * len(strategies))
        for row in rows:
            off = row["predicted"] / row["measured"] - 1
            print(f"{row['strategy']}: predicted {off:+.1%} of {row['measured'] / 2**20:.2f} MiB", flush=True)
            with self.subTest(row["strategy"]):
                self.assertLess(abs(off), 0.1)
        predicted = {row["strategy"]: row["predicted"] for row in rows[:len(strategies)]}
        for share, fits in ((1.11, True), (0.8, False)):
            path = write(models[0], 4, 16, {name: int(share * bytes / 1024) for name, bytes in predicted.items()})
            plan = json.loads(self.client("plan", path, "--json", state=False).stdout)
            self.assertEqual({run["note"].startswith("may not fit: about ") for run in plan["runs"]}, {not fits})
            done = self.client("run", path, "--slots", "2", "--json", expect=0 if fits else 10)
            self.assertEqual({run["state"] for run in json.loads(done.stdout)}, {"SUCCEEDED" if fits else "FAILED"})
        self.assertEqual(self.rows("select distinct reason from failures"), [{"reason": "oom_device"}])

    def test_recomputing_lowers_the_peak_as_predicted(self):
        path = self.write("r.yaml", "name: r\nrun:\n  model: {name: distilbert, dim: 64, n_heads: 4, n_layers: 8, hidden_dim: 256, "
                          "vocab_size: 100, max_position_embeddings: 64, num_labels: 5}\n  dataset: {name: synthetic, rows: 64, "
                          "max_length: 64, eval_rows: none}\n  padding: {fixed: 64}\n  threads_per_rank: 1\n  steps: 4\n"
                          "  batch_size: 16\n  ranks: 2\nmatrix:\n  strategy: [bucket_ddp_async, pytorch_ddp, zero2, zero3, "
                          "gpipe_pp, 1f1b_pp]\n  recompute: [none, block]\n")
        self.client("run", path, "--slots", "2")
        rows = self.rows("select name, loss, predicted_peak_bytes as predicted, peak_tensor_bytes as measured from results "
                         "order by run")
        for kept, again in zip(rows[::2], rows[1::2], strict=True):
            with self.subTest(again["name"]):
                self.assertEqual(again["loss"], kept["loss"])
                self.assertLess(again["measured"], 0.8 * kept["measured"])
                self.assertLess(abs(again["predicted"] / again["measured"] - 1), 0.1)

    def test_bf16_products_are_faster_where_the_processor_has_them(self):
        flags = pathlib.Path("/proc/cpuinfo").read_text()
        if "avx512_bf16" not in flags and "amx_bf16" not in flags:
            self.skipTest("this processor has no bf16 instructions: products are emulated, and slower than in fp32")
        path = self.write("b.yaml", "name: b\nrun:\n  model: {name: distilbert, dim: 384, n_heads: 12, n_layers: 6, "
                          "hidden_dim: 1536, vocab_size: 8192, max_position_embeddings: 128, num_labels: 5}\n"
                          "  dataset: {name: synthetic, rows: 512, max_length: 64, eval_rows: none}\n  padding: {fixed: 64}\n"
                          "  threads_per_rank: 1\n  steps: 12\n  batch_size: 8\nmatrix: {precision: [fp32, bf16_mixed]}\n"
                          "repeats: 5\n")
        self.client("run", path)
        times = {precision: sorted(row["step_seconds_median"] for row in self.rows(
            f"select step_seconds_median from results where name = 'precision={precision}'"))[2]
                 for precision in ("fp32", "bf16_mixed")}
        print(f"bf16_mixed is {times['fp32'] / times['bf16_mixed']:.2f} times as fast", flush=True)
        self.assertGreater(times["fp32"] / times["bf16_mixed"], 1.3)

    def test_experiments_on_prepared_material_are_right_but_for_the_material(self):
        """The README's too. prepare_test runs one of them for real."""
        readme = re.search(r"```yaml\n(.*?)```", (harness.SOURCE / "README.md").read_text(), re.DOTALL).group(1)
        experiments = {name: (harness.SOURCE / f"experiments/{name}.yaml").read_text()
                       for name in ("quickstart", "quickstart_proof", "sharding", "pipeline")}
        for name, text in {**experiments, "readme": readme}.items():
            plan = json.loads(self.client("plan", self.write(f"{name}.yaml", text), "--material", self.folder / "none",
                                          "--json", state=False).stdout)
            self.assertEqual({run["note"] for run in plan["runs"]},
                             {"first: regatta prepare minilm-distil reviews:minilm-distil"})
            text = re.sub(r"model: minilm-distil.*", "model: {name: distilbert, dim: 8, n_heads: 2, n_layers: 4, "
                          "hidden_dim: 8, vocab_size: 64, max_position_embeddings: 64, num_labels: 5}", text)
            text = text.replace("{name: reviews,", "{name: synthetic, rows: 32,")
            self.run_experiment(self.write(f"{name}-tiny.yaml", text), "--state", self.folder / name, state=False)

    def test_a_rank_that_dies_in_training_is_named(self):
        self.start_daemon(worker=WORKER)
        self.submit(self.experiment("  ranks: 2\n  strategy: simple_ddp\n  steps: 100000\n"))
        done = False
        while not done:  # until training is under way
            done = self.rows("select step from runs")[0]["step"] > 0
            self.client("wait", "1", "--timeout", "0.1", expect=13)
        pid = self.rows("select pid from ranks where rank = 1")[0]["pid"]
        os.kill(pid, signal.SIGKILL)
        self.client("wait", "1", expect=10)
        self.assertEqual(self.rows("select reason, sentence from failures"),
                         [{"reason": "rank_signal", "sentence": "rank 1 was killed by signal 9 (Killed), cause unknown"}])

    def test_material_that_does_not_fit_fails_with_a_sentence(self):
        config = {"model_type": "distilbert", "dim": 8, "n_heads": 2, "n_layers": 1, "hidden_dim": 8, "vocab_size": 64,
                  "max_position_embeddings": 16, "num_labels": 5}
        (self.folder / "mine").mkdir()
        (self.folder / "mine/config.json").write_text(json.dumps(config))
        (self.folder / "mine/model.safetensors").write_bytes(b"PK\3\4 this is no model")
        path = self.write("bad.yaml", "name: x\nrun:\n  model: ./mine\n  dataset: {name: synthetic, rows: 8, max_length: 8}\n")
        done = self.client("run", path, expect=3)
        self.assertRegex(done.stderr, r"bad.yaml:3:10: run.model './mine': .*mine/model.safetensors is no safetensors file")

    def test_a_run_beyond_its_memory_limit_says_what_it_needs(self):
        path = self.experiment("  ranks: 2\n  strategy: zero3\n  steps: 3\n  memory_limit: 100KiB\n")
        self.run_experiment(path, expect=10)
        failure = self.rows("select reason, sentence from failures")[0]
        self.assertEqual(failure["reason"], "oom_device")
        self.assertRegex(failure["sentence"], r"^rank [01] does not fit: needs at least \d+\.\d KiB, memory_limit is 100\.0 KiB$")
        peak = self.rows("select max(value) as peak from summaries where name = 'peak_tensor_bytes'")
        self.assertEqual(peak, [{"peak": None}], "a rank that failed has no result")

    def test_a_diverging_run_shows_its_nan(self):
        path = self.experiment("  steps: 6\n  optimizer: {name: sgd, learning_rate: 1e30}\n")
        rows = self.run_experiment(path)
        self.assertEqual(rows[0]["loss"], "NaN")
        self.assertIn("NaN", self.client("sql", "select loss from results", "-o", "csv").stdout)
        self.assertIn("NaN", self.client("ls").stdout + self.client("show", "1").stdout)

    def test_memory_beyond_the_model_is_small(self):
        """The Python peer has 640 MiB after its imports; half of that is the limit."""
        rows = self.run_experiment(self.experiment("  ranks: 2\n  strategy: simple_ddp\n  steps: 3\n"))
        beyond = rows[0]["peak_rss_bytes"] / 2**20
        print(f"rank with a tiny model: {beyond:.0f} MiB", flush=True)
        self.assertLess(beyond, 320)
        self.assertFalse(math.isnan(beyond))

    def test_a_saved_model_is_the_trained_one_for_transformers_too(self):
        """Every parameter as the ranks had it; and transformers loads the folder and counts the same rows right."""
        folders = {}
        for kind, keys in (("distilbert", "dim: 64, n_heads: 4, n_layers: 2, hidden_dim: 64"),
                           ("llama", "hidden_size: 64, num_attention_heads: 4, num_key_value_heads: 2, num_hidden_layers: 2, "
                                     "intermediate_size: 96, pad_token_id: 2")):
            text = (f"name: save\nrun:\n  model: {{name: {kind}, {keys}, vocab_size: 100, max_position_embeddings: 32, "
                    "num_labels: 5}\n  dataset: {name: synthetic, rows: 64, max_length: 16}\n  strategy: bucket_ddp_async\n"
                    "  ranks: 2\n  steps: 12\n  batch_size: 16\n  optimizer: {name: adamw, learning_rate: 3e-3}\n  save: final\n")
            state = self.folder / kind
            row = self.run_experiment(self.write(f"{kind}.yaml", text), "--state", state, "--worker",
                                      harness.BINARIES / "saving_worker", state=False)[0]
            folder = state / "runs/1/attempt_1/model"
            self.assertEqual(sorted(path.name for path in folder.iterdir()), ["config.json", "model.safetensors"])
            ours = (state / "runs/1/attempt_1/parameters.bin").read_bytes()
            self.assertTrue((folder / "model.safetensors").read_bytes().endswith(ours))
            done = self.client("models", "check", folder, "--json", state=False)
            self.assertEqual(json.loads(done.stdout)[0]["supported"], "yes")
            folders[kind] = (folder, row["accuracy"])
        peer = harness.SOURCE / ".venv-peers/bin/python"
        if not peer.exists():
            self.skipTest("transformers is not asked: scripts/bench --install-peers has not made .venv-peers")
        for kind, (folder, accuracy) in folders.items():
            done = subprocess.run([peer, "-B", harness.SOURCE / "tests/end_to_end/evaluate_with_transformers.py", folder, "32",
                                   "16"], capture_output=True, text=True, check=False, env=self.environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertAlmostEqual(float(done.stdout), accuracy, msg=kind)

    def test_a_model_that_cannot_be_saved_fails_the_run_and_leaves_nothing(self):
        worker = self.write("worker.sh", f"#!/bin/bash\ntrap '' XFSZ\nulimit -f 64\nexec {WORKER}\n", executable=True)
        self.run_experiment(self.experiment("  steps: 2\n  save: final\n"), "--worker", worker, expect=10)
        self.assertRegex(self.rows("select sentence from failures")[0]["sentence"],
                         "the model cannot be saved: .*/model.part/model.safetensors: File too large")
        self.assertEqual([path.name for path in (self.state / "runs/1/attempt_1").glob("model*")], [])

    def test_a_rank_writes_nothing_but_errors(self):
        self.run_experiment(self.experiment("  steps: 2\n"))
        log = self.client("logs", "1").stdout
        self.assertIsNone(re.search("warn|error", log, re.IGNORECASE), log)


if __name__ == "__main__":
    harness.main()
