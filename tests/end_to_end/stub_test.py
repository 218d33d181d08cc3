"""The daemon, the client and the supervisor with stub ranks: everything but training."""
import json
import os
import signal
import subprocess
import time
import urllib.request

import harness
from processes import has_ended, wait_until


class StubTest(harness.Case):
    def hanging_rank(self, rank):
        """A worker of which one rank never joins."""
        return self.write("worker.sh", f'#!/bin/sh\n[ "$RANK" = {rank} ] && exec sleep 1000\nexec {harness.STUB}\n', True)

    def running_pids(self, run=1, count=2):
        wait_until(lambda: len(self.pids(run)) == count)
        return self.pids(run)

    def pids(self, run):
        return [row["pid"] for row in self.rows(f"select pid from ranks where run = {run} and pid is not null")]

    def test_submit_wait_and_read(self):
        self.start_daemon("--slots", "4")
        path = self.experiment("  ranks: 2\n  steps: 3\n", "matrix: {strategy: [simple_ddp], seed: [1, 2]}\n")
        runs = self.submit(path, "--wait")
        self.assertEqual(runs, [1, 2])
        self.assertEqual([row["state"] for row in self.rows("select state from results order by run")], ["SUCCEEDED"] * 2)
        listed = json.loads(self.client("ls", "e1", "--json").stdout)
        self.assertEqual([row["name"] for row in listed], ["strategy=simple_ddp seed=1", "strategy=simple_ddp seed=2"])
        shown = json.loads(self.client("show", "r2", "--json").stdout)
        self.assertEqual(shown["run"]["state"], "SUCCEEDED")
        self.assertEqual([rank["exit_code"] for rank in shown["ranks"]], [0, 0])
        self.assertEqual(json.loads(self.client("show", "e1", "--json").stdout)["experiment"]["name"], "test")
        self.assertIn("rank 1 of 2 joined", self.client("logs", "2", "--rank", "1").stdout)
        self.assertEqual(self.client("wait", "e1").returncode, 0)
        self.assertEqual(self.client("logs", "2", "-f").stdout, self.client("logs", "2").stdout)
        csv = self.client("sql", "select run, state from results", "-o", "csv").stdout
        self.assertEqual(csv, "run,state\n1,SUCCEEDED\n2,SUCCEEDED\n")

    def test_the_database_and_logs_outlive_the_daemon(self):
        self.start_daemon()
        self.submit(self.experiment("  ranks: 2\n  strategy: simple_ddp\n"), "--wait")
        self.assertEqual(self.stop_daemon(), 0)
        self.assertEqual(self.rows("select state from results"), [{"state": "SUCCEEDED"}])
        self.assertIn("joined", self.client("logs", "1").stdout)
        self.assertEqual(len(json.loads(self.client("ls", "--json").stdout)), 1)

    def test_a_rank_that_never_joins_is_named_at_the_deadline(self):
        self.start_daemon("--slots", "4", worker=self.hanging_rank(1))
        path = self.experiment("  ranks: 3\n  strategy: simple_ddp\n", "limits: {join_timeout: 3s}\n")
        done = self.client("submit", path, "--follow", expect=10)
        self.assertIn("rank 1 of 3 did not join within 3 s", done.stderr)
        self.assertEqual(self.rows("select reason from failures"), [{"reason": "join_timeout"}])
        self.assertTrue(all(has_ended(pid) for pid in self.pids(1)))

    def test_a_killed_rank_fails_the_run_and_its_peers_go(self):
        worker = self.write("worker.sh", "#!/bin/sh\necho working\nexec sleep 1000\n", True)
        self.start_daemon(worker=worker)
        self.submit(self.experiment("  ranks: 2\n  strategy: simple_ddp\n"))
        pids = self.running_pids()
        os.kill(pids[1], signal.SIGSEGV)
        self.client("wait", "1", expect=10)
        failure = self.rows("select reason, sentence from failures")[0]
        self.assertEqual(failure["reason"], "rank_signal")
        self.assertTrue(failure["sentence"].startswith("rank 1 was killed by signal 11 (Segmentation fault)"), failure)
        self.assertTrue(failure["sentence"].endswith(": working"), failure)
        self.assertTrue(all(has_ended(pid) for pid in pids))

    def test_a_worker_that_cannot_run_says_so_in_the_sentence(self):
        worker = self.write("worker.sh", "#!/nowhere/interpreter\n", True)
        self.start_daemon(worker=worker)
        self.submit(self.experiment(), "--wait", expect=10)
        sentence = self.rows("select sentence from failures")[0]["sentence"]
        self.assertIn("exited with code 127: cannot start", sentence)

    def test_cancel_ends_every_process_and_is_harmless_twice(self):
        self.start_daemon("--slots", "2", worker=self.hanging_rank(0))
        self.submit(self.experiment("  ranks: 2\n", "matrix: {strategy: [simple_ddp], seed: [1, 2, 3]}\n"))
        pids = self.running_pids()
        first = json.loads(self.client("cancel", "e1", "--json").stdout)[0]
        self.assertEqual(first["cancelled"], 3)
        self.client("wait", "e1", expect=11)
        self.assertTrue(all(has_ended(pid) for pid in pids))
        again = json.loads(self.client("cancel", "1", "2", "--json").stdout)[0]
        self.assertEqual(again, {"cancelled": 0, "already_ended": 2})
        self.assertEqual(self.rows("select count(*) as n from results where state = 'CANCELLED'"), [{"n": 3}])

    def test_stopping_the_daemon_ends_its_gangs(self):
        self.start_daemon(worker=self.hanging_rank(0))
        self.submit(self.experiment("  ranks: 2\n  strategy: simple_ddp\n"))
        pids = self.running_pids()
        self.assertEqual(self.stop_daemon(), 0)
        self.assertTrue(all(has_ended(pid) for pid in pids))
        self.assertEqual(self.rows("select state, reason from results"),
                         [{"state": "CANCELLED", "reason": "coordinator_stopped"}])

    def test_a_killed_daemon_loses_nothing_and_leaves_nothing(self):
        self.start_daemon(worker=self.hanging_rank(0))
        path = self.experiment("  ranks: 2\n", "matrix: {strategy: [simple_ddp], seed: [1, 2]}\n")
        self.submit(path)
        pids = self.running_pids()
        self.daemon.kill()
        self.daemon.wait()
        self.start_daemon()
        self.client("wait", "2")
        self.assertTrue(all(has_ended(pid) for pid in pids))
        self.assertEqual(self.rows("select state, reason from results order by run"),
                         [{"state": "FAILED", "reason": "coordinator_restart"}, {"state": "SUCCEEDED", "reason": ""}])

    def test_run_needs_no_daemon_and_leaves_none(self):
        path = self.experiment("  ranks: 2\n  strategy: simple_ddp\n  steps: 4\n")
        done = self.client("run", path, "--worker", harness.STUB, "--json")
        self.assertEqual(json.loads(done.stdout)[0]["state"], "SUCCEEDED")
        self.assertIn("SUCCEEDED", done.stderr)
        self.assertFalse((self.state / "address").exists())
        self.assertEqual(self.rows("select step, planned_steps from runs"), [{"step": 4, "planned_steps": 4}])

    def test_run_reads_standard_input(self):
        text = self.experiment().read_text()
        done = self.client("run", "-", "--worker", harness.STUB, "-o", "csv", text=text)
        self.assertIn(",SUCCEEDED,", done.stdout)

    def test_a_run_whose_client_is_killed_ends_with_it(self):
        path = self.experiment("  ranks: 2\n  strategy: simple_ddp\n")
        client = subprocess.Popen(
            [harness.BINARIES / "regatta", "run", path, "--state", self.state, "--worker", self.hanging_rank(1)],
            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=self.environment)
        wait_until(lambda: (self.state / "address").exists())
        pids = self.running_pids()
        client.kill()
        client.wait()
        wait_until(lambda: all(has_ended(pid) for pid in pids))
        wait_until(lambda: not (self.state / "address").exists())

    def test_interrupting_a_run_cancels_it(self):
        path = self.experiment("  ranks: 2\n  strategy: simple_ddp\n")
        client = subprocess.Popen(
            [harness.BINARIES / "regatta", "run", path, "--state", self.state, "--worker", self.hanging_rank(1)],
            stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.environment)
        wait_until(lambda: (self.state / "address").exists())
        pids = self.running_pids()
        client.send_signal(signal.SIGINT)
        out, _ = client.communicate(timeout=60)
        self.assertEqual(client.returncode, 11)
        self.assertIn("CANCELLED", out)
        self.assertTrue(all(has_ended(pid) for pid in pids))

    def test_the_status_page_shows_it(self):
        self.start_daemon()
        self.submit(self.experiment("  ranks: 2\n  strategy: simple_ddp\n"), "--wait")
        for path, text in (("", "Experiments"), ("run/1", "SUCCEEDED"), ("experiment/1", "/run/1")):
            with urllib.request.urlopen(self.page + path) as page:
                self.assertIn(text, page.read().decode())

    def test_wait_gives_up_after_its_time(self):
        self.start_daemon(worker=self.hanging_rank(0))
        self.submit(self.experiment())
        self.client("wait", "1", "--timeout", "0.2", expect=13)

    def test_binary_logs_and_tails(self):
        worker = self.write("worker.sh", "#!/bin/sh\nprintf 'one\\ntwo\\n\\377half \\303'\nexit 3\n", True)
        self.start_daemon(worker=worker)
        self.submit(self.experiment(), "--wait", expect=10)
        words = [harness.BINARIES / "regatta", "logs", "1", "--state", self.state]
        whole = subprocess.run(words, capture_output=True, check=True).stdout
        self.assertEqual(whole, b"one\ntwo\n\xffhalf \xc3")
        tail = subprocess.run([*words, "--tail", "2"], capture_output=True, check=True).stdout
        self.assertEqual(tail, b"two\n\xffhalf \xc3")

    def test_a_long_state_path_works(self):
        self.state = self.folder / ("x" * 120)
        self.start_daemon()
        self.submit(self.experiment(), "--wait")

    def test_fast_gangs_are_seen_to_end_at_once(self):
        """From the last rank's exit to the outcome that a client sees."""
        self.start_daemon()
        worst = 0
        for _ in range(5):
            run = self.submit(self.experiment("  ranks: 2\n  strategy: simple_ddp\n"), "--wait")[0]
            seen_us = time.time() * 1e6
            exits = self.state / f"runs/{run}/attempt_1/exits"
            worst = max(worst, seen_us - exits.stat().st_mtime * 1e6)
        print(f"last exit to outcome seen: {worst / 1000:.1f} ms at worst", flush=True)
        self.assertLess(worst, 1e6)  # the target is 0.1 s; a loaded test machine gets more


if __name__ == "__main__":
    harness.main()
