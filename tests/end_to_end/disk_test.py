"""A disk that is full, or cannot be written: a sentence, nothing lost, and everything works again afterwards."""
import os
import subprocess
import unittest

import harness


class DiskTest(harness.Case):
    def small_disk(self):
        """The state folder on a file system of 8 MiB of its own."""
        self.state.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", self.state], capture_output=True, check=False)
        if done.returncode != 0:
            raise unittest.SkipTest("mounting a small file system needs root: " + done.stderr.decode().strip())
        self.addCleanup(subprocess.run, ["umount", "-l", self.state], check=True)

    def fill(self):
        with open(self.state / "filler", "wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 12))
                    file.flush()
            except OSError:
                pass
            finally:
                try:
                    file.close()
                except OSError:
                    pass

    def test_a_full_disk(self):
        self.small_disk()
        self.start_daemon()
        self.submit(self.experiment(), "--wait")
        self.fill()
        refused = self.submit(self.experiment("", "matrix: {seed: [1, 2, 3]}\n"), "--wait", expect=None)
        self.assertNotEqual(refused.returncode, 0)
        self.assertEqual(self.daemon.wait(timeout=30), 1, "it cannot keep what it decides, says so and ends")
        said = (self.folder / "regattad.log").read_text()
        self.assertRegex(said, "writing .*regatta.db failed: .*(disk is full|I/O error)")
        os.unlink(self.state / "filler")
        self.start_daemon()
        self.assertEqual(self.rows("select state from results where run = 1"), [{"state": "SUCCEEDED"}])
        run = self.submit(self.experiment(), "--wait")
        self.assertEqual(self.rows(f"select state from results where run = {run[0]}"), [{"state": "SUCCEEDED"}])
        self.assertEqual(self.rows("select count(*) as n from results where state in ('PENDING', 'STARTING', 'RUNNING', "
                                   "'STOPPING')"), [{"n": 0}])

    def test_a_log_on_a_full_disk_fails_its_run_alone(self):
        """A rank whose output finds no room does not take the daemon with it once the room is back."""
        self.small_disk()
        worker = self.write("worker.sh", f"#!/bin/bash\nhead -c 30000000 /dev/zero || exit 5\nexec {harness.STUB}\n", True)
        self.start_daemon(worker=worker)
        done = self.submit(self.experiment(), "--wait", expect=None)
        if isinstance(done, list):
            self.assertEqual(self.rows("select state from results"), [{"state": "FAILED"}])
        for log in self.state.rglob("rank_0.log"):
            log.unlink()
        if self.daemon.poll() is not None:
            self.assertRegex((self.folder / "regattad.log").read_text(), "disk is full|No space left")
            self.start_daemon()
        self.assertEqual(self.rows("select count(*) as n from results where state in ('SUCCEEDED', 'RUNNING', 'STARTING')"),
                         [{"n": 0}])

    def test_a_state_folder_that_cannot_be_written(self):
        if os.geteuid() == 0:
            self.state.mkdir()
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,ro", "none", self.state], capture_output=True, check=False)
            if done.returncode != 0:
                self.skipTest("mounting needs more rights: " + done.stderr.decode().strip())
            self.addCleanup(subprocess.run, ["umount", "-l", self.state], check=True)
        else:
            self.state.mkdir(mode=0o500)
        done = subprocess.run([harness.BINARIES / "regattad", "--state", self.state, "--worker", harness.STUB],
                              capture_output=True, text=True, env=self.environment, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, f"{self.state}.*(Read-only file system|Permission denied)")
        self.assertEqual(len(done.stderr.strip().splitlines()), 1)


if __name__ == "__main__":
    harness.main()
