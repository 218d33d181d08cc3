"""Runs that ask for a GPU: refused in one sentence before anything starts where there is none."""
import subprocess

import harness

WORKER = harness.BINARIES / "regatta-worker"


class WithoutGpuTest(harness.Case):
    def setUp(self):
        super().setUp()
        self.found = subprocess.run([WORKER, "--check-gpus"], capture_output=True, text=True, env=self.environment,
                                    check=False)
        if self.found.returncode == 0:
            self.skipTest(f"this machine has {self.found.stdout.strip()} GPUs: scripts/gpu_check is for it")

    def test_a_run_is_refused_before_it_is_queued(self):
        sentence = self.found.stdout.strip()
        self.assertNotIn("\n", sentence)
        self.assertRegex(sentence, "the GPU module (is not built|cannot be opened)|NVIDIA driver|no GPU")
        self.start_daemon(worker=WORKER)
        path = self.experiment("  device: cuda\n  ranks: 2\n  strategy: simple_ddp\n  steps: 1\n")
        done = self.client("submit", path, expect=None)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr, f"regatta: run 'test' asks for device cuda: {sentence}\n")
        self.assertEqual(self.rows("select count(*) as runs from runs"), [{"runs": 0}])

    def test_a_rank_says_the_same(self):
        """Should a GPU be gone between the check and the start."""
        worker = self.write("worker", f'#!/bin/sh\n[ "$1" = --check-gpus ] && {{ echo 8; exit 0; }}\nexec {WORKER}\n',
                            executable=True)
        path = self.experiment("  device: cuda\n  steps: 1\n")
        done = self.client("run", path, "--worker", worker, "--json", expect=10)
        self.assertIn(self.found.stdout.strip(), done.stdout + done.stderr)

    def test_more_ranks_than_gpus_are_refused(self):
        worker = self.write("worker", "#!/bin/sh\necho 1\n", executable=True)
        self.start_daemon("--slots", "4", worker=worker)
        done = self.client("submit", self.experiment("  device: cuda\n  ranks: 3\n  strategy: simple_ddp\n"), expect=None)
        self.assertIn("3 ranks need a GPU each, and 1 is visible; fewer ranks, or backend: gloo, is right", done.stderr)
        self.submit(self.experiment("  device: cuda\n  backend: gloo\n  ranks: 3\n  strategy: simple_ddp\n"))

    def test_the_check_says_why(self):
        done = subprocess.run([harness.SOURCE / "scripts" / "gpu_check", "--build", harness.BINARIES.parent],
                              capture_output=True, text=True, env=self.environment, check=False)
        self.assertEqual(done.stderr, f"gpu_check: {self.found.stdout.strip()}\n")
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    harness.main()
