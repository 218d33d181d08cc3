"""What real ranks leave when they come to harm: the right rank named, peers gone that waited for it in a collective."""
import json
import subprocess

import harness
from processes import marked

WORKER = harness.BINARIES / "regatta-worker"

# (faults of rank 1, state, reason, how the sentence begins)
CASES = [
    ([("join", "exit 3")], "FAILED", "rank_exit", "rank 1 exited with code 3"),
    ([("join", "signal 11")], "FAILED", "rank_signal", "rank 1 was killed by signal 11"),
    ([(1, "exit 3")], "FAILED", "rank_exit", "rank 1 exited with code 3"),
    ([(1, "exit 0")], "FAILED", "rank_exit", "rank 1 exited with code 0 without sending its result"),
    ([(1, "signal 6")], "FAILED", "rank_signal", "rank 1 was killed by signal 6"),
    ([(1, "signal 9")], "FAILED", "rank_signal", "rank 1 was killed by signal 9 (Killed), cause unknown"),
    ([(1, "signal 11")], "FAILED", "rank_signal", "rank 1 was killed by signal 11"),
    ([(1, "setsid_child"), (2, "exit 4")], "FAILED", "rank_exit", "rank 1 exited with code 4"),
    ([(1, "ignore_term"), (2, "signal 15")], "FAILED", "rank_signal", "rank 1 was killed by signal 15"),
    ([("finish", "exit 5")], "FAILED", "rank_exit", "rank 1 exited with code 5"),
    ([("finish", "signal 9")], "FAILED", "rank_signal", "rank 1 was killed by signal 9"),
    ([(1, "slow 200ms"), ("finish", "exit 0")], "SUCCEEDED", "", ""),
]


class WorkerFaultsTest(harness.Case):
    def experiment_of(self, cases, rest=""):
        chaos = ", ".join(json.dumps([{"rank": 1, "at_step": at, "what": what} for at, what in faults]) for faults, *_ in cases)
        return self.experiment("  ranks: 2\n  strategy: bucket_ddp_async\n  steps: 4\n  threads_per_rank: 1\n",
                               f"zip: [{{chaos: [{chaos}]}}]\n{rest}")

    def test_twelve_ways(self):
        self.client("run", self.experiment_of(CASES), "--slots", "2", expect=10)
        rows = self.rows("select state, reason, sentence, (ended_us - started_us) / 1e6 as seconds from results order by run")
        for (faults, state, reason, sentence), row in zip(CASES, rows, strict=True):
            with self.subTest(faults):
                self.assertEqual((row["state"], row["reason"]), (state, reason))
                self.assertTrue(row["sentence"].startswith(sentence), row["sentence"])
                self.assertLess(row["seconds"], 8)
        print(f"slowest of {len(rows)} gangs: {max(row['seconds'] for row in rows):.1f} s", flush=True)
        self.assertEqual(marked(self.state), [])

    def test_a_dead_rank_is_named_under_every_strategy(self):
        strategies = [row["strategy"] for row in json.loads(self.client("strategies", "--json", state=False).stdout)]
        strategies.remove("single")
        path = self.experiment("  ranks: 3\n  steps: 6\n  epochs: 9\n  threads_per_rank: 1\n"
                               "  chaos: {rank: 1, at_step: 3, what: signal 9}\n",
                               f"matrix: {{strategy: [{', '.join(strategies)}]}}\n", layers=6)
        self.client("run", path, "--slots", "3", expect=10)
        rows = self.rows("select strategy, reason, sentence, (ended_us - started_us) / 1e6 as seconds from results order by run")
        self.assertEqual([row["strategy"] for row in rows], strategies)
        for row in rows:
            with self.subTest(row["strategy"]):
                self.assertEqual((row["reason"], row["sentence"]),
                                 ("rank_signal", "rank 1 was killed by signal 9 (Killed), cause unknown"))
                self.assertLess(row["seconds"], 8)
        self.assertEqual(marked(self.state), [])

    def test_time_limits_end_what_hangs(self):
        cases = [([(1, "hang")],), ([(1, "stop")],), ([(1, "ignore_term"), (2, "hang")],)]
        self.client("run", self.experiment_of(cases, "limits: {timeout: 3s}\n"), "--slots", "2", expect=12)
        self.assertEqual(self.rows("select state, reason, sentence from results"),
                         [{"state": "TIMED_OUT", "reason": "time_limit",
                           "sentence": "ran longer than limits.timeout, 3 s"}] * 3)
        self.assertEqual(marked(self.state), [])

    def test_ranks_that_find_different_files_refuse_to_start(self):
        """As on machines whose copies of a model differ: rank 1 sees another one in the same place."""
        if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("a view of files of one's own needs more rights here")
        self.client("run", self.experiment("  save: final\n", "matrix: {steps: [1, 2]}\n"))
        models = [row["text"] for row in self.rows("select text from facts where name = 'saved_model' order by run")]
        worker = self.write("worker.sh", '#!/bin/sh\n[ "$RANK" = 1 ] && '
                            f"exec unshare -m sh -c 'mount --bind {models[1]} {models[0]} && exec {WORKER}'\nexec {WORKER}\n", True)
        path = self.write("other.yaml", f"name: other\nrun:\n  model: {models[0]}\n  strategy: simple_ddp\n  ranks: 2\n"
                          "  dataset: {name: synthetic, rows: 32, max_length: 16}\n  threads_per_rank: 1\n")
        self.client("run", path, "--worker", worker, "--slots", "2", expect=10)
        self.assertRegex(self.rows("select sentence from failures")[0]["sentence"],
                         "rank [01] exited with code 1: ranks differ: parameter .* is .* Float with hash .* on rank 1, .* Float "
                         "with hash .* on rank 0; all ranks must train the same model on the same data")


if __name__ == "__main__":
    harness.main()
