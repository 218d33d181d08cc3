"""What collectives really send, by the counters of a network interface that nobody else uses."""
import json
import subprocess

import harness

# What a rank sends in a step, in (W - 1) / W of the model (docs/strategies.md).
SENT = {"simple_ddp": 2, "bucket_ddp_async": 2, "pytorch_ddp": 2, "zero1": 2, "zero2": 2, "zero3": 3, "pytorch_zero1": 3,
        "pytorch_zero2": 3, "pytorch_zero3": 4}


class TrafficTest(harness.Case):
    def alone(self, *words):
        """In a network of its own: a loopback interface, and whatever regatta's ranks send over it."""
        script = 'ip link set lo up && "$@" && grep lo: /proc/net/dev >&2'
        return subprocess.run(["unshare", "-n", "sh", "-c", script, "alone", *words], capture_output=True, text=True,
                              env=self.environment, check=False, timeout=300)

    def setUp(self):
        super().setUp()
        trial = self.alone("true")
        if trial.returncode != 0:
            self.skipTest("a network namespace of one's own needs more rights here: " + trial.stderr.strip())

    def sent_bytes(self, run):
        path = self.write("e.yaml", "name: traffic\nrun:\n"
                          "  model: {name: distilbert, dim: 256, n_heads: 4, n_layers: 4, hidden_dim: 1024, vocab_size: 4096,\n"
                          "          max_position_embeddings: 64, num_labels: 5}\n"
                          "  dataset: {name: synthetic, rows: 64, max_length: 16, eval_rows: none}\n"
                          f"  steps: 5\n  threads_per_rank: 1\n{run}")
        state = self.folder / "alone"
        done = self.alone(harness.BINARIES / "regatta", "run", path, "--slots", "4", "--state", state, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)[0]["state"], "SUCCEEDED")
        row = json.loads(self.client("sql", "select bytes_sent_per_step, param_bytes_total, ranks from results", "--json",
                                     "--state", state, state=False).stdout)[0]
        subprocess.run(["rm", "-r", state], check=True)
        return int(done.stderr.split("lo:")[1].split()[0]), row

    def test_ranks_send_what_is_said(self):
        for strategy, times in SENT.items():
            for ranks in (2, 3, 4):
                with self.subTest(strategy=strategy, ranks=ranks):
                    seen, row = self.sent_bytes(f"  strategy: {strategy}\n  ranks: {ranks}\n  batch_size: 8\n")
                    formula = times * (ranks - 1) / ranks * row["param_bytes_total"]
                    padded = 0.01 if strategy.startswith("pytorch_zero") else 1e-4 if "zero" in strategy else 0  # a row on three ranks
                    self.assertAlmostEqual(row["bytes_sent_per_step"], formula, delta=0.01 + padded * formula)
                    expected = 5 * ranks * formula
                    if strategy in ("pytorch_ddp", "pytorch_zero1"):
                        expected += (ranks - 1) * row["param_bytes_total"]  # broadcast at the start
                    print(f"{strategy} on {ranks} ranks: {seen} bytes on the interface, {seen / expected - 1:+.2%}", flush=True)
                    self.assertLess(abs(seen / expected - 1), 0.03)

    def test_accumulation_sends_once_a_step(self):
        seen, row = self.sent_bytes("  strategy: bucket_ddp_async\n  ranks: 2\n  gradient_accumulation: 4\n  batch_size: 2\n")
        self.assertLess(abs(seen / (5 * 2 * row["param_bytes_total"]) - 1), 0.03)
        self.assertEqual(row["bytes_sent_per_step"], row["param_bytes_total"])


if __name__ == "__main__":
    harness.main()
