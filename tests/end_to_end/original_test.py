"""The study's own way: its counts and bytes at its sizes, by plan; and every row run for real, smaller."""
import json
import pathlib
import re
import shlex

import harness

ORIGINAL = harness.SOURCE / "experiments" / "original"
FAMILIES = {"ddp": ["simple_ddp", "simple_ddp_ga", "simple_ddp_hook", "simple_ddp_async", "bucket_ddp_async",
                    "pytorch_ddp"],
            "sharding": ["baseline", "zero1", "zero2", "zero3", "pytorch_zero1", "pytorch_zero2", "pytorch_zero3"],
            "pipeline": ["naive_pp", "gpipe_pp", "1f1b_pp", "pytorch_gpipe_pp", "pytorch_1f1b_pp"]}
# The same experiments with a small model of the same kind, and rows of their own.
SMALL = {"llama": "{name: llama, hidden_size: 48, intermediate_size: 64, num_hidden_layers: 3, num_attention_heads: 4, "
                  "num_key_value_heads: 2, vocab_size: 128, max_position_embeddings: 64, rope_theta: 10000, "
                  "rms_norm_eps: 1e-5, pad_token_id: 2, num_labels: 5}",
         "distilbert": "{name: distilbert, dim: 48, n_heads: 4, n_layers: 6, hidden_dim: 96, vocab_size: 128, "
                       "max_position_embeddings: 64, pad_token_id: 0, num_labels: 5}"}
WHOLE = 1447303680  # bytes of SmolLM2-360M with its head, fp32
OWN = [821698560, 625605120]  # of them, the first 146 and the last 145 tensors
MEBIBYTE = 1 << 20


def small(family):
    model = SMALL["distilbert" if family == "pipeline" else "llama"]
    return ["--set", f"run.model={model}", "--set",
            "run.dataset={name: synthetic, rows: 32, max_length: 24, eval_rows: 15}"]


class PlanTest(harness.Case):
    def plan(self, family):
        plan = json.loads(self.client("plan", ORIGINAL / f"{family}.yaml", "--json", state=False).stdout)
        self.assertEqual([run["name"] for run in plan["runs"]], [f"strategy={row}" for row in FAMILIES[family]])
        return dict(zip(FAMILIES[family], plan["runs"]))

    def test_calls_of_data_parallel_rows(self):
        runs = self.plan("ddp")
        for row, calls in {"simple_ddp": 291, "simple_ddp_ga": 291, "simple_ddp_hook": 291, "simple_ddp_async": 291,
                           "bucket_ddp_async": 44, "pytorch_ddp": 44}.items():
            self.assertEqual(runs[row]["calls"], 2 * [{"all_reduce": calls}], row)
        self.assertEqual(2 * runs["simple_ddp"]["calls"][0]["all_reduce"], 582)  # the study counted two steps
        buckets = [bucket / MEBIBYTE for bucket in runs["pytorch_ddp"]["bucket_bytes"]]
        self.assertEqual([round(buckets[0], 1), round(buckets[-1], 1)], [9.4, 189.4])
        # In the order of registration the embedding comes first.
        self.assertEqual(runs["bucket_ddp_async"]["bucket_bytes"][0], 180 * MEBIBYTE)

    def test_states_of_sharding_rows(self):
        runs = self.plan("sharding")
        states = {row: runs[row]["state_bytes"] for row in runs}
        whole = [WHOLE, WHOLE]
        for row, parameters, gradients, optimizer in (
                ("baseline", whole, whole, whole), ("zero1", whole, whole, OWN), ("zero2", whole, OWN, OWN),
                ("zero3", OWN, OWN, OWN)):
            self.assertEqual(states[row], [{"parameters": p, "gradients": g, "optimizer": 2 * o}
                                           for p, g, o in zip(parameters, gradients, optimizer)], row)
        # The table of the study has means, in MiB.
        for row, means in {"baseline": (1380.26, 1380.26, 2760.51), "zero1": (1380.26, 1380.26, 1380.26),
                           "zero2": (1380.26, 690.13, 1380.26), "zero3": (690.13, 690.13, 1380.26),
                           "pytorch_zero2": (690.13, 690.13, 1380.26),
                           "pytorch_zero3": (690.13, 690.13, 1380.26)}.items():
            seen = [sum(rank[kind] for rank in states[row]) / 2 / MEBIBYTE for kind in
                    ("parameters", "gradients", "optimizer")]
            self.assertEqual([round(mean, 2) for mean in seen], list(means), row)
        self.assertEqual([round(own / MEBIBYTE, 2) for own in OWN], [783.63, 596.62])
        self.assertEqual(runs["zero1"]["calls"], 2 * [{"all_reduce": 291, "broadcast": 291}])
        for row in ("zero2", "zero3"):
            self.assertEqual(runs[row]["calls"], 2 * [{"reduce_scatter": 291, "broadcast": 291}])
            # A reduce-scatter of W whole tensors, and a broadcast: 2 (W - 1) / W of the model would do.
            self.assertEqual(runs[row]["sent_bytes_per_step"], round((1 + 0.5) * WHOLE), row)

    def test_transfers_of_pipeline_rows(self):
        runs = self.plan("pipeline")
        for row, batches in {"naive_pp": [2, 4, 2], "gpipe_pp": [16, 32, 16], "1f1b_pp": [9, 17, 9],
                             "pytorch_gpipe_pp": [16, 32, 16], "pytorch_1f1b_pp": [10, 19, 9]}.items():
            self.assertEqual([rank["transfer_batch"] for rank in runs[row]["calls"]], batches, row)

    def test_schedule_of_the_study(self):
        for stages, bubble, in_flight in ((3, 0.529, [2, 1, 1]), (4, 0.556, [3, 2, 1, 1])):
            done = self.client("schedule", "--strategy", "1f1b_pp", "--stages", str(stages), "--micro-batches", "8",
                               "--compat", "original", "--json", state=False)
            schedule = json.loads(done.stdout)
            self.assertAlmostEqual(schedule["bubble_fraction"], bubble, delta=5e-4)
            self.assertEqual([rank["most_in_flight"] for rank in schedule["ranks"]], in_flight)


class RunTest(harness.Case):
    def run_small(self, family):
        path = ORIGINAL / f"{family}.yaml"
        words = [*small(family), "--set", "run.epochs=3"]
        plan = json.loads(self.client("plan", path, *words, "--json", state=False).stdout)["runs"]
        done = self.client("run", path, *words, "--slots", "3", "--json")
        self.assertEqual([row["state"] for row in json.loads(done.stdout)], len(plan) * ["SUCCEEDED"], done.stderr)
        return {row["strategy"]: (row, planned) for row, planned in
                zip(self.rows("select * from results order by run"), plan)}

    def counted(self, run):
        """By rank: {kind: calls of a step}."""
        ranks = {}
        for row in self.rows(f"select * from summaries where run = {run} and rank >= 0 and "
                             "name like '%_calls_per_step'"):
            kind = row["name"].removesuffix("_calls_per_step")
            of_rank = ranks.setdefault(row["rank"], {})
            if row["value"] > 0:  # else before the first step alone
                of_rank[kind] = row["value"]
        return [ranks[rank] for rank in sorted(ranks)]

    def check(self, family):
        runs = self.run_small(family)
        self.assertEqual(list(runs), FAMILIES[family])
        for strategy, (row, planned) in runs.items():
            with self.subTest(strategy=strategy):
                self.assertEqual(self.counted(row["run"]), planned["calls"])
                if planned["sent_bytes_per_step"]:
                    self.assertAlmostEqual(row["bytes_sent_per_step"], planned["sent_bytes_per_step"], delta=0.51)
                most = max(planned["state_bytes"], key=lambda rank: sum(rank.values()))
                self.assertEqual([row["parameter_bytes"], row["gradient_bytes"], row["optimizer_bytes"]],
                                 [most["parameters"], most["gradients"], most["optimizer"]])
                if row["predicted_peak_bytes"]:
                    self.assertLess(abs(row["predicted_peak_bytes"] / row["peak_tensor_bytes"] - 1), 0.1)
        return runs

    def test_data_parallel(self):
        runs = self.check("ddp")
        for strategy, (row, _) in runs.items():
            # 16 rows a rank in batches of 7: three batches an epoch, of which a step takes one, or up to four.
            accumulates = strategy in ("simple_ddp_ga", "simple_ddp_hook", "simple_ddp_async", "bucket_ddp_async")
            self.assertEqual(row["steps"], 3 if accumulates else 9, strategy)
            self.assertEqual(self.rows(f"select value from summaries where run = {row['run']} and name = 'eval_rows' "
                                       "and rank >= 0 order by rank"), [{"value": 8}, {"value": 8}])  # 15, one of them twice
            self.assertIn({"text": "1"}, self.rows(f"select text from facts where run = {row['run']} and "
                                                    "name = 'evaluation_rows_counted_twice'"))
        losses = {row["loss"] for row, _ in list(runs.values())[1:5]}
        self.assertLess(max(losses) - min(losses), 1e-5)

    def test_sharding(self):
        runs = self.check("sharding")
        losses = {row["loss"] for row, _ in runs.values()}
        self.assertLess(max(losses) - min(losses), 1e-4)

    def test_pipeline(self):
        self.check("pipeline")


class DocumentTest(harness.Case):
    def test_commands_of_the_document_run(self):
        """Every command of docs/from_the_study.md; runs with the small models."""
        text = (harness.SOURCE / "docs" / "from_the_study.md").read_text()
        commands = [line for block in re.findall(r"```sh\n(.*?)```", text, re.S) for line in block.splitlines()]
        self.assertGreater(len(commands), 5)
        for command in commands:
            with self.subTest(command=command):
                words = shlex.split(command, comments=True)
                if words[0] != "regatta":
                    self.assertTrue((harness.SOURCE / words[0]).exists(), words[0])
                    continue
                files = [word for word in words if word.endswith(".yaml")]
                for file in files:
                    self.assertTrue((harness.SOURCE / file).exists(), file)
                words = [str(harness.SOURCE / word) if word in files else word for word in words[1:]]
                if words[0] == "run":
                    words += [*small(pathlib.Path(files[0]).stem), "--set", "run.epochs=1"]
                self.client(*words, state=words[0] in ("run", "results", "sql", "show"))


if __name__ == "__main__":
    harness.main()
