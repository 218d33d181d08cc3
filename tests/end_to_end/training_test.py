"""Real ranks, real processes: the shipped experiments, and equality with one-process training."""
import array
import json
import math
import os
import re
import signal

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

    def test_real_ranks_equal_single(self):
        """2, 3 and 4 ranks through daemon, supervisor, rendezvous and Gloo, against one process: every parameter after
        5 SGD steps and every loss, with uneven batches."""
        path = self.experiment(
            "  steps: 5\n  batch_size: 10\n  sampler: sequential\n  threads_per_rank: 1\n"
            "  optimizer: {name: sgd, learning_rate: 0.05}\n",
            "matrix: {strategy: [simple_ddp], ranks: [2, 3, 4]}\ninclude: [{strategy: single, ranks: 1}]\n")
        self.run_experiment(path, "--slots", "4", "--worker", harness.BINARIES / "saving_worker")
        losses, parameters = {}, {}
        for row in self.rows("select run, ranks from results"):
            values = array.array("f")
            values.frombytes((self.state / f"runs/{row['run']}/attempt_1/parameters.bin").read_bytes())
            parameters[row["ranks"]] = values
            losses[row["ranks"]] = [step["loss"] for step in self.rows(
                "select sum(case when name = 'loss_sum' then value end) / sum(case when name = 'rows' then value end) "
                f"as loss from steps where run = {row['run']} group by step order by step")]
        self.assertEqual(len(losses[1]), 5)
        self.assertGreater(len(parameters[1]), 10000)
        self.assertNotAlmostEqual(losses[1][0], losses[1][4], delta=1e-3)
        for ranks in (2, 3, 4):
            for ours, reference in zip(losses[ranks], losses[1], strict=True):
                self.assertAlmostEqual(ours, reference, delta=2e-6)
            self.assertEqual(len(parameters[ranks]), len(parameters[1]))
            worst = max(abs(a - b) for a, b in zip(parameters[ranks], parameters[1]))
            print(f"{ranks} ranks: largest difference to single {worst:.2g}", flush=True)
            self.assertLessEqual(worst, 1e-6)

    def test_experiments_on_prepared_material_are_right_but_for_the_material(self):
        """The README's too. prepare_test runs one of them for real."""
        readme = re.search(r"```yaml\n(.*?)```", (harness.SOURCE / "README.md").read_text(), re.DOTALL).group(1)
        experiments = {name: (harness.SOURCE / f"experiments/{name}.yaml").read_text()
                       for name in ("quickstart", "quickstart_proof")}
        for name, text in {**experiments, "readme": readme}.items():
            none = self.folder / "none"
            done = self.client("run", self.write(f"{name}.yaml", text), "--material", none, expect=3)
            self.assertIn(f"'minilm-distil' is not prepared (no {none}/models", done.stderr)
            text = re.sub(r"model: minilm-distil.*", "model: {name: distilbert, dim: 8, n_heads: 2, n_layers: 1, "
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
        self.run_experiment(path, expect=10)
        sentence = self.rows("select sentence from failures")[0]["sentence"]
        self.assertRegex(sentence, r"^rank 0 exited with code 1: .*mine/model.safetensors is no safetensors file")

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

    def test_a_rank_writes_nothing_but_errors(self):
        self.run_experiment(self.experiment("  steps: 2\n"))
        log = self.client("logs", "1").stdout
        self.assertIsNone(re.search("warn|error", log, re.IGNORECASE), log)


if __name__ == "__main__":
    harness.main()
