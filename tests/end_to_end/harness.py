"""Starts the real programs in a folder of the test's own, and takes them down again."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

BINARIES = pathlib.Path(os.environ["REGATTA_BINARIES"])
SOURCE = pathlib.Path(os.environ["REGATTA_SOURCE"])
STUB = BINARIES / "regatta-stub-rank"

TINY = """  model: {name: distilbert, dim: 64, n_heads: 4, n_layers: 2, hidden_dim: 64, vocab_size: 100,
          max_position_embeddings: 32, num_labels: 5}
  dataset: {name: synthetic, rows: 32, max_length: 16}
"""


class Case(unittest.TestCase):
    """A test with a folder and, on request, a daemon in it."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="regatta-e2e-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.state = self.folder / "state"
        self.daemon = None
        # No setting of the machine may reach a test.
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("REGATTA_")}
        self.environment["HOME"] = str(self.folder)

    def write(self, name, text, executable=False):
        path = self.folder / name
        path.write_text(text)
        if executable:
            path.chmod(0o755)
        return path

    def experiment(self, run="", rest="", name="e.yaml", layers=2):
        tiny = TINY.replace("n_layers: 2", f"n_layers: {layers}")
        return self.write(name, f"name: test\nrun:\n{tiny}{run}{rest}")

    def start_daemon(self, *arguments, worker=STUB, state=None, before=None):
        log = open(self.folder / "regattad.log", "ab")
        self.addCleanup(log.close)
        daemon = subprocess.Popen(
            [BINARIES / "regattad", "--state", state or self.state, "--worker", worker, "--http", "0", *arguments],
            stdout=subprocess.PIPE, stderr=log, text=True, env=self.environment, preexec_fn=before)
        self.addCleanup(self.stop_daemon, daemon)
        line = daemon.stdout.readline().split()
        if not line:
            daemon.wait()
            self.fail("the daemon did not start: " + (self.folder / "regattad.log").read_text())
        self.page = line[2]
        self.daemon = daemon
        return daemon

    def stop_daemon(self, daemon=None):
        daemon = daemon or self.daemon
        if daemon.poll() is None:
            daemon.send_signal(signal.SIGTERM)
        code = daemon.wait(timeout=60)
        daemon.stdout.close()
        return code

    def client(self, *arguments, expect=0, state=True, text=None):
        words = [BINARIES / "regatta", *arguments]
        if state:
            words += ["--state", self.state]
        done = subprocess.run(words, capture_output=True, text=True, env=self.environment, input=text, timeout=300,
                              check=False)
        if expect is not None:
            self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def rows(self, sql, expect=0):
        done = self.client("sql", sql, "--json", expect=expect)
        return json.loads(done.stdout)

    def submit(self, path, *arguments, expect=0):
        done = self.client("submit", path, "--json", *arguments, expect=expect)
        return [row["run"] for row in json.loads(done.stdout)] if done.stdout else done


def main():
    unittest.main(verbosity=1)
