"""Every way in which a rank can end, before it joins, in training and after its result; and what is left of it."""
import json
import os
import signal
import time

import harness
from processes import FATAL, marked, wait_until

class OutcomesTest(harness.Case):
    def gangs(self, faults, ranks=2, steps=2):
        """One experiment of stub ranks, a run for each fault."""
        return self.write("faults.yaml", f"name: faults\nlimits: {{max_parallel: 8}}\nrun:\n{harness.TINY}"
                          f"  strategy: simple_ddp\n  ranks: {ranks}\n  steps: {steps}\n"
                          f"zip:\n  - {{chaos: [{', '.join(json.dumps(fault) for fault in faults)}]}}\n")

    def outcomes(self, faults, **options):
        done = self.client("run", self.gangs(faults, **options), "--slots", "8", "--worker", harness.STUB, expect=None)
        rows = self.rows("select run, state, reason, sentence, (ended_us - started_us) / 1e6 as seconds from results "
                         "order by run")
        self.assertEqual(len(rows), len(faults))
        return rows, done.returncode

    def check_table(self, at_step):
        """All exit codes and signals on either rank."""
        faults = [{"rank": number % 2, "at_step": at_step, "what": f"exit {number}"} for number in range(256)]
        faults += [{"rank": number % 2, "at_step": at_step, "what": f"signal {number}"} for number in FATAL]
        rows, code = self.outcomes(faults)
        self.assertEqual(code, 10)
        for fault, row in zip(faults, rows, strict=True):
            rank, number = fault["rank"], int(fault["what"].split()[1])
            with self.subTest(fault=fault):
                if fault["what"] == "exit 0" and at_step == "finish":
                    self.assertEqual((row["state"], row["reason"], row["sentence"]), ("SUCCEEDED", "", ""))
                    continue
                self.assertEqual(row["state"], "FAILED")
                if fault["what"].startswith("exit"):
                    self.assertEqual(row["reason"], "rank_exit")
                    self.assertIn(f"rank {rank} exited with code {number}", row["sentence"])
                else:
                    self.assertEqual(row["reason"], "rank_signal")
                    self.assertIn(f"rank {rank} was killed by signal {number} (", row["sentence"])
        slowest = max(row["seconds"] for row in rows)
        print(f"{at_step}: {len(faults)} gangs, slowest {slowest:.2f} s", flush=True)
        self.assertLess(slowest, 5)
        self.assertEqual(marked(self.state), [])

    def test_before_joining(self):
        self.check_table("join")

    def test_in_training(self):
        self.check_table(1)

    def test_after_the_result(self):
        self.check_table("finish")

    def test_signals_that_harm_nobody(self):
        rows, code = self.outcomes([{"rank": 0, "at_step": 1, "what": f"signal {number}"} for number in
                                    (signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT)])
        self.assertEqual(([row["state"] for row in rows], code), (["SUCCEEDED"] * 4, 0))

    def test_a_slow_rank_is_waited_for(self):
        rows, code = self.outcomes([{"rank": 1, "at_step": 1, "what": "slow 300ms"}])
        self.assertEqual((rows[0]["state"], code), ("SUCCEEDED", 0))
        self.assertGreater(rows[0]["seconds"], 0.3)

    def hanging(self, *whats):
        """A gang whose rank 0 does all of these at its first step, and then hangs; submitted and under way."""
        faults = [{"rank": 0, "at_step": 0, "what": what} for what in (*whats, "hang")]
        self.submit(self.gangs([faults]))
        wait_until(lambda: self.rows("select state from results order by run desc limit 1")[0]["state"] == "RUNNING")

    def test_cancel_leaves_nothing_whatever_ranks_do(self):
        self.start_daemon("--slots", "2")
        for number, whats in enumerate((["ignore_term"], ["stop"], ["setsid_child"], ["ignore_term", "setsid_child", "stop"]), 1):
            with self.subTest(whats):
                self.hanging(*whats)
                begin = time.monotonic()
                self.client("cancel", str(number))
                self.client("cancel", str(number))
                self.client("wait", str(number), expect=11)
                print(f"{' and '.join(whats)}: gone after {time.monotonic() - begin:.1f} s", flush=True)
                self.assertEqual(marked(self.state), [])
        self.submit(self.experiment(), "--wait")  # the slots are free again

    def test_cancel_through_a_shell_in_between(self):
        worker = self.write("worker.sh", f"#!/bin/sh\nsleep 1000 &\n{harness.STUB}\nexit $?\n", executable=True)
        self.start_daemon("--slots", "2", worker=worker)
        self.hanging("ignore_term")
        self.client("cancel", "1")
        self.client("wait", "1", expect=11)
        self.assertEqual(marked(self.state), [])

    def test_a_killed_supervisor_leaves_nothing(self):
        self.start_daemon("--slots", "2")
        self.hanging("setsid_child")
        pid = int((self.state / "runs/1/attempt_1/supervisor").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        self.client("wait", "1", expect=10)
        self.assertEqual(marked(self.state), [])
        self.assertIn("its exit was never seen", self.rows("select sentence from failures")[0]["sentence"])

    def test_a_killed_daemon_and_supervisor_leave_nothing_after_the_restart(self):
        self.start_daemon("--slots", "2")
        self.hanging("setsid_child")
        pid = int((self.state / "runs/1/attempt_1/supervisor").read_text().split()[0])
        self.daemon.kill()
        self.daemon.wait()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(marked(self.state)) == 1)  # the one that left its session
        self.start_daemon("--slots", "2")
        self.assertEqual(marked(self.state), [])
        self.assertEqual(self.rows("select reason from failures"), [{"reason": "coordinator_restart"}])

    def test_other_launchers_are_not_believed(self):
        worker = self.write("worker.sh", f"#!/bin/sh\nenv | sort > {self.folder}/env.$RANK\nexec {harness.STUB}\n", executable=True)
        self.environment.update(RANK="7", WORLD_SIZE="64", MASTER_ADDR="far", SLURM_PROCID="3", SLURM_NTASKS="9",
                                OMPI_COMM_WORLD_RANK="2", PMI_RANK="1", TORCHELASTIC_RUN_ID="x", OMP_NUM_THREADS="99",
                                MKL_NUM_THREADS="99", NCCL_DEBUG="INFO")
        self.client("run", self.experiment("  ranks: 2\n  strategy: simple_ddp\n  threads_per_rank: 1\n"), "--worker", worker,
                    "--slots", "2")
        seen = dict(line.split("=", 1) for line in (self.folder / "env.1").read_text().splitlines() if "=" in line)
        self.assertEqual({name: seen.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                                            "OMP_NUM_THREADS", "NCCL_DEBUG")},
                         {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "1",
                          "NCCL_DEBUG": "INFO"})
        for name in ("MASTER_ADDR", "SLURM_PROCID", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "TORCHELASTIC_RUN_ID",
                     "MKL_NUM_THREADS"):
            self.assertNotIn(name, seen)

    def test_bad_faults_are_refused(self):
        cases = [({"rank": 5, "what": "hang"}, "run.chaos names rank 5; the run has 2, counted from 0"),
                 ({"what": "explode"}, "run.chaos has what: 'explode'; exit 0-255, signal 1-64, hang, ignore_term"),
                 ({"what": "exit 256"}, "run.chaos has what: 'exit 256'"), ({"what": "slow 5"}, "run.chaos has what: 'slow 5'"),
                 ({"rank": -1, "what": "hang"}, "run.chaos is '{rank: -1, what: hang}'; none, {rank: 1, at_step: 20"),
                 ({"step": 1, "what": "hang"}, "run.chaos is '{step: 1, what: hang}'")]
        for fault, sentence in cases:
            self.assertIn(sentence, self.client("plan", self.gangs([fault]), state=False, expect=3).stderr)


if __name__ == "__main__":
    harness.main()
