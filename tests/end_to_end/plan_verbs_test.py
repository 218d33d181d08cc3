"""What can be asked before anything runs: plan, defaults, init, models check, completion; and what --set does."""
import json
import re
import subprocess
import xml.etree.ElementTree

import harness

EXPERIMENTS = harness.SOURCE / "experiments"


class PlanTest(harness.Case):
    def plan(self, path, *arguments, **options):
        return self.client("plan", path, *arguments, state=False, **options)

    def test_first_steps_shows_every_rule(self):
        done = self.plan(EXPERIMENTS / "first_steps.yaml")
        self.assertEqual(done.stderr, "")
        self.assertRegex(done.stdout, r"exclude \{strategy: simple_ddp_ga, batch_size: >16\} \(line \d+\): drops 1\n")
        self.assertRegex(done.stdout, r"override \{strategy: simple_ddp_ga\} \(line \d+\): changes 1\n")
        self.assertIn("8 runs, at most 1 at once", done.stdout)
        self.assertNotIn("note", done.stdout.splitlines()[0])

    def test_json_has_the_runs(self):
        plan = json.loads(self.plan(EXPERIMENTS / "first_steps.yaml", "--json").stdout)
        self.assertEqual(plan["labels"], {"purpose": "tour"})
        self.assertEqual(plan["limits"], {"max_parallel": 1, "max_runs": 10000, "join_timeout_seconds": 60.0})
        self.assertEqual([run["name"] for run in plan["runs"]][-2:],
                         ["strategy=baseline batch_size=32 steps=2", "strategy=single ranks=1 batch_size=16 steps=4"])
        bucket = next(run for run in plan["runs"] if "bucket" in run["name"])
        simple = plan["runs"][0]
        self.assertEqual(simple["calls_per_step"], 21)
        self.assertLess(bucket["calls_per_step"], 21)
        self.assertEqual(simple["payload_bytes_per_step"], bucket["payload_bytes_per_step"])
        self.assertEqual(simple["state_bytes_per_rank"], 2 * simple["payload_bytes_per_step"])  # SGD keeps no state

    def test_predictions_are_what_runs_show(self):
        done = self.client("run", EXPERIMENTS / "first_steps.yaml", "--json")
        self.assertEqual({row["state"] for row in json.loads(done.stdout)}, {"SUCCEEDED"})
        for row in self.rows("select * from results"):
            self.assertEqual(row["predicted_state_bytes"],
                             row["parameter_bytes"] + row["gradient_bytes"] + row["optimizer_bytes"], row["name"])
            self.assertEqual(row["predicted_payload_bytes_per_step"] or None, row["payload_bytes_per_step"] or None,
                             row["name"])
            self.assertEqual(json.loads(row["labels"]), {"purpose": "tour"})

    def test_dry_run_and_standard_input(self):
        text = (EXPERIMENTS / "smoke.yaml").read_text()
        plan = self.plan("-", "--json", text=text)
        dry = self.client("submit", "-f", "-", "--dry-run", "--json", text=text)  # no daemon is asked
        self.assertEqual(json.loads(plan.stdout)["runs"], json.loads(dry.stdout)["runs"])

    def test_set_and_strict(self):
        path = self.experiment("", "matrix: {seed: [1, 2]}\nexclude: [{seed: 3}]\n")
        done = self.plan(path, "--set", "run.batch_size=4", "--set", "repeats=2", "--json")
        self.assertIn("warning: " + str(path), done.stderr)
        self.assertEqual([run["repeat"] for run in json.loads(done.stdout)["runs"]], [1, 1, 2, 2])
        self.assertIn("(--strict)", self.plan(path, "--strict", expect=3).stderr)
        self.assertIn("the matrix sweeps it", self.plan(path, "--set", "run.seed=4", expect=3).stderr)
        done = self.client("run", path, "--set", "matrix.seed=[7]", "--set", "exclude=[]", "--worker", harness.STUB, "--json")
        self.assertEqual([row["name"] for row in json.loads(done.stdout)], ["seed=7"])
        self.assertTrue(self.rows("select text from experiments")[0]["text"].startswith("# --set matrix.seed=[7]\n"))

    def test_skipped_runs_are_rows(self):
        path = self.experiment("", "matrix: {strategy: [single, simple_ddp], ranks: [1, 2]}\non_invalid: skip\n")
        self.assertIn("SKIPPED: " + str(path), self.plan(path).stdout)
        self.client("run", path, "--worker", harness.STUB)
        self.assertEqual([(row["state"], row["reason"]) for row in self.rows("select * from results")],
                         [("SUCCEEDED", ""), ("SKIPPED", "config"), ("SUCCEEDED", ""), ("SUCCEEDED", "")])

    def test_repeats_run_back_and_forth(self):
        path = self.experiment("", "matrix: {seed: [1, 2]}\nrepeats: 2\n")
        self.client("run", path, "--worker", harness.STUB)
        self.assertEqual([(row["name"], row["repeat"]) for row in self.rows("select * from results order by run")],
                         [("seed=1", 1), ("seed=2", 1), ("seed=2", 2), ("seed=1", 2)])

    def test_environment_reaches_ranks_and_secrets_no_file(self):
        worker = self.write("worker.sh", f"#!/bin/sh\necho \"$GREETING $TOKEN\" > {self.folder}/seen\n"
                            f"exec {harness.STUB}\n", executable=True)
        path = self.experiment("  env: {GREETING: 'good day', TOKEN: {secret: true}}\n")
        done = self.client("run", path, "--worker", worker, expect=3)
        self.assertIn("run.env.TOKEN takes its value from your environment, where it is not set", done.stderr)
        self.environment["TOKEN"] = "hush-hush"
        self.client("run", path, "--worker", worker)
        self.assertEqual((self.folder / "seen").read_text(), "good day hush-hush\n")
        for file in self.state.rglob("*"):
            if file.is_file():
                self.assertNotIn(b"hush-hush", file.read_bytes(), file)

    def test_init_writes_a_file_that_works(self):
        path = self.folder / "mine.yaml"
        self.client("init", path, state=False)
        runs = json.loads(self.plan(path, "--material", self.folder / "none", "--json").stdout)["runs"]
        self.assertEqual([run["note"] for run in runs],
                         ["first: regatta prepare minilm-distil reviews:minilm-distil"] * 3)
        self.assertIn("is there already", self.client("init", path, state=False, expect=1).stderr)
        self.assertIn("cannot be written", self.client("init", "/nowhere/x.yaml", state=False, expect=1).stderr)

    def schedule(self, *arguments, **options):
        return self.client("schedule", *map(str, arguments), state=False, **options)

    def test_schedule_shows_a_program_and_its_bubble(self):
        done = self.schedule("--stages", 3, "--micro-batches", 2)
        self.assertIn("2RECV_F0 2F0 2B0 2SEND_B0 2RECV_F1 2F1 2B1 2SEND_B1\n", done.stdout)
        self.assertIn("bubble_fraction 0.5000 (of all ranks' time, as GPipe and Zero Bubble count it), "
                      "bubble_overhead 1.0000 (over the ideal step", done.stderr)
        self.assertEqual(json.loads(self.schedule("--stages", 3, "--micro-batches", 2, "--json").stdout)["step"], 12)
        plain = json.loads(self.schedule("--stages", 2, "--micro-batches", 2, "--json").stdout)
        self.assertEqual([span["end"] for span in plain["ranks"][1]["spans"]], [2, 4, 5, 7])
        slower = self.schedule("--stages", 2, "--micro-batches", 2, "--forward", 2, "--transfer", 0.5, "--json")
        self.assertEqual(json.loads(slower.stdout)["step"], 2 + 0.5 + 2 * (2 + 2) + 0.5 + 2)

    def test_schedule_compares_the_same_work(self):
        rows = json.loads(self.schedule("--compare", "naive_pp", "gpipe_pp", "1f1b_pp", "interleaved_1f1b_pp", "zb1p_pp",
                                        "--json").stdout)
        self.assertEqual([row["step"] for row in rows], [96, 33, 33, 28.5, 27])
        self.assertEqual([row["most_in_flight"] for row in rows], [1, 8, 4, 11, 4])

    def test_schedule_draws(self):
        for strategy, cells in (("zb1p_pp", 4 * 8 * 3), ("interleaved_1f1b_pp", 4 * 8 * 2 * 2)):
            path = self.folder / f"{strategy}.svg"
            self.schedule("--strategy", strategy, "--svg", path)
            groups = xml.etree.ElementTree.parse(path).getroot().findall("{http://www.w3.org/2000/svg}g")
            self.assertEqual(len(groups), cells)
        for picture in (harness.SOURCE / "docs" / "pictures").iterdir():
            path = self.folder / picture.name
            self.schedule("--strategy", picture.stem, "--micro-batches", 8, "--svg", path)
            self.assertEqual(path.read_text(), picture.read_text(), f"{picture} shows an older program")

    def test_schedule_refuses_with_the_right_value(self):
        for arguments, sentence in (
                (["--strategy", "1f1b"], "'1f1b' is no pipeline strategy; did you mean '1f1b_pp'?"),
                (["--strategy", "interleaved_1f1b_pp", "--micro-batches", 9], "8 or 10 is right"),
                (["--stages", 1], "--stages: Value 1 not in range"),
                (["--forward", 0], "--forward")):
            self.assertIn(sentence, self.schedule(*arguments, expect=2).stderr)
        self.assertIn("cannot be written", self.schedule("--svg", "/nowhere/x.svg", expect=1).stderr)

    def test_models_check(self):
        folder = self.folder / "mine"
        self.assertIn("config.json cannot be read", self.client("models", "check", folder, state=False, expect=1).stdout)
        folder.mkdir()
        (folder / "config.json").write_text('{"model_type": "bert"}')
        self.assertIn("model_type 'bert' is not built", self.client("models", "check", folder, state=False, expect=1).stdout)
        config = {"model_type": "distilbert", "dim": 8, "n_heads": 2, "n_layers": 1, "hidden_dim": 8, "vocab_size": 64,
                  "max_position_embeddings": 16, "num_labels": 5}
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors.index.json").write_text("{}")
        self.assertIn("several files", self.client("models", "check", folder, state=False, expect=1).stdout)
        header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0\0\0")
        rows = json.loads(self.client("models", "check", folder, "--json", state=False, expect=1).stdout)
        self.assertEqual(len(rows), 24)  # every tensor that is missing
        self.assertIn("has no tensor 'distilbert.embeddings.word_embeddings.weight'", rows[0]["problem"])

    def test_defaults_print_every_key(self):
        text = self.client("defaults", state=False).stdout
        self.assertRegex(text, r"(?m)^  ranks: 1 +# worker processes of a run$")
        self.assertIn("| `run.optimizer.eps` |", self.client("defaults", "--markdown", state=False).stdout)

    def test_completion_completes(self):
        script = self.write("completion.bash", self.client("completion", "bash", state=False).stdout)
        def complete(*words):
            line = " ".join(f"'{word}'" for word in words)
            return subprocess.run(["bash", "-c", f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; "
                                   "_regatta; echo ${COMPREPLY[@]}"], capture_output=True, text=True, check=True).stdout.split()
        self.assertEqual(complete("regatta", "pl"), ["plan"])
        self.assertEqual(complete("regatta", "submit", "--dr"), ["--dry-run"])
        self.assertIn("--strict", complete("regatta", "plan", "x.yaml", "--s"))

    def test_a_billion_runs_are_refused_at_once(self):
        axes = "".join(f"  {key}: [{', '.join(map(str, range(1, 64)))}]\n"
                       for key in ("seed", "steps", "epochs", "batch_size", "gradient_accumulation"))
        done = self.plan(self.experiment("", "matrix:\n" + axes), expect=3)
        self.assertIn("the matrix has 992436543 combinations; limits.max_runs is 10000", done.stderr)

    def test_documents_show_files_that_work(self):
        """Every YAML block of the documentation that has a name is planned."""
        texts = [(path.name, block) for path in [harness.SOURCE / "README.md", *(harness.SOURCE / "docs").glob("*.md")]
                 for block in re.findall(r"```yaml\n(name:.*?)```", path.read_text(), re.DOTALL)]
        self.assertGreaterEqual(len(texts), 2)
        for number, (name, text) in enumerate(texts):
            with self.subTest(name):
                self.plan(self.write(f"doc{number}.yaml", text), "--material", self.folder / "none")


if __name__ == "__main__":
    harness.main()
