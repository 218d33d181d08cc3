"""The log that is needed is never the one that was lost: every byte that a rank wrote, whatever it wrote and however it
ended."""
import datetime
import hashlib
import pathlib
import subprocess

import harness
from processes import wait_until


class LogsTest(harness.Case):
    def worker(self, script):
        return self.write("worker.sh", f"#!/bin/bash\n{script}\n", executable=True)

    def log_bytes(self, *arguments):
        done = subprocess.run([harness.BINARIES / "regatta", "logs", "1", *arguments, "--state", self.state],
                              capture_output=True, env=self.environment, check=True, timeout=120)
        return done.stdout

    def daemon_peak_mib(self):
        status = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024

    def test_a_hundred_megabytes(self):
        """Through the daemon, byte for byte, and the daemon no larger for it."""
        line = "0123456789" * 10
        count = 1000000
        self.start_daemon(worker=self.worker(f"yes {line} | head -n {count}\nexec {harness.STUB}"))
        self.submit(self.experiment(), "--wait")
        before = self.daemon_peak_mib()
        expected = hashlib.sha256((line + "\n").encode() * count + b"rank 0 of 1 joined\n").hexdigest()
        content = self.log_bytes()
        self.assertEqual((len(content), hashlib.sha256(content).hexdigest()), (count * 101 + 19, expected))
        self.assertEqual(self.log_bytes("--tail", "2"), f"{line}\nrank 0 of 1 joined\n".encode())
        grown = self.daemon_peak_mib() - before
        print(f"100 MB of log: the daemon grew by {grown:.1f} MiB", flush=True)
        self.assertLess(grown, 32)

    def test_up_to_the_last_instruction(self):
        self.start_daemon(worker=self.worker("for i in $(seq 1000); do echo line $i; done; printf 'no newline'; kill -SEGV $$"))
        self.submit(self.experiment(), "--wait", expect=10)
        self.assertEqual(self.log_bytes(), b"".join(b"line %d\n" % i for i in range(1, 1001)) + b"no newline")
        self.assertEqual(self.rows("select sentence from failures"),
                         [{"sentence": "rank 0 was killed by signal 11 (Segmentation fault): no newline"}])

    def test_bytes_of_any_kind(self):
        """Binary and halves of characters pass through logs unharmed, and harm no sentence, table or page."""
        self.start_daemon(worker=self.worker(r"printf '\x00\x01\xff\xfe caf\xc3'; exit 3"))
        self.submit(self.experiment(), "--wait", expect=10)
        self.assertEqual(self.log_bytes(), b"\x00\x01\xff\xfe caf\xc3")
        sentence = self.rows("select sentence from failures")[0]["sentence"]
        self.assertTrue(sentence.startswith("rank 0 exited with code 3: "), sentence)
        self.client("show", "1")
        self.client("ls", "-o", "csv")

    def test_following_ends_with_the_run(self):
        self.start_daemon("--slots", "2", worker=self.worker(f"echo first; while [ ! -e {self.folder}/go ]; do :; done; echo last\n"
                                                             f"exec {harness.STUB}"))
        self.submit(self.experiment())
        follower = subprocess.Popen([harness.BINARIES / "regatta", "logs", "1", "-f", "--state", self.state],
                                    stdout=subprocess.PIPE, env=self.environment)
        self.assertEqual(follower.stdout.readline(), b"first\n")
        (self.folder / "go").touch()
        rest, _ = follower.communicate(timeout=60)
        self.assertEqual(rest, b"last\nrank 0 of 1 joined\n")

    def test_since_a_moment(self):
        self.start_daemon(worker=self.worker(f"echo early; while [ ! -e {self.folder}/go ]; do :; done; echo late\n"
                                             f"exec {harness.STUB}"))
        self.submit(self.experiment())
        times = self.state / "runs/1/attempt_1/rank_0.log.times"
        # The supervisor has seen the first line, and written that down.
        wait_until(lambda: times.exists() and times.read_text().endswith("\n"))
        early_us = int(times.read_text().split()[0])
        (self.folder / "go").touch()
        self.client("wait", "1")
        moment = datetime.datetime.fromtimestamp(early_us / 1e6 + 0.001, datetime.timezone.utc).isoformat()
        self.assertEqual(self.log_bytes("--since", moment), b"late\nrank 0 of 1 joined\n")
        self.assertEqual(self.log_bytes("--since", "1h"), b"early\nlate\nrank 0 of 1 joined\n")
        self.assertIn("--since: 'soon'; 10m, 2h or", self.client("logs", "1", "--since", "soon", expect=2).stderr)

    def test_old_logs_are_removed_and_that_is_said(self):
        self.start_daemon()
        self.submit(self.experiment("", "matrix: {seed: [1, 2]}\n"), "--wait")
        self.stop_daemon()
        self.start_daemon("--keep-logs", "1ms")
        wait_until(lambda: self.client("logs", "2", expect=None).returncode == 5)
        self.assertRegex(self.client("logs", "1", expect=5).stderr,
                         "the logs of run 1, attempt 1 were removed on .* as regattad's --keep-logs or --keep-log-bytes says")
        self.assertEqual(len(self.rows("select run from results where state = 'SUCCEEDED'")), 2)
        for option, wrong in (("--keep-logs", "30"), ("--keep-log-bytes", "lots")):
            done = subprocess.run([harness.BINARIES / "regattad", option, wrong], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{option}: '{wrong}'; ", done.stderr)

    def test_a_launch_that_fails_says_so_in_the_log(self):
        self.start_daemon(worker=self.write("worker.sh", "#!/nowhere/interpreter\n", executable=True))
        self.submit(self.experiment(), "--wait", expect=10)
        self.assertIn(b"cannot start", self.log_bytes())


if __name__ == "__main__":
    harness.main()
