"""What a user gets for a mistake: one sentence, nothing on stdout, and the documented exit code."""
import json

import harness


class CliErrorsTest(harness.Case):
    def check(self, arguments, code, sentence, state=True):
        done = self.client(*arguments, expect=code, state=state)
        self.assertIn(sentence, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_without_a_coordinator(self):
        path = self.experiment()
        for arguments in (["submit", path], ["ls"], ["show", "1"], ["logs", "1"], ["cancel", "1"], ["wait", "1"],
                          ["sql", "select 1"]):
            self.check(arguments, 4, f"start one: regattad --state {self.state}")

    def test_usage(self):
        self.check(["sbumit", "x"], 2, "", state=False)
        self.check([], 2, "", state=False)
        self.check(["run"], 2, "file is required", state=False)
        self.check(["ls", "-o", "xml"], 2, "xml")
        self.check(["run", "x.yaml", "--slots", "0"], 2, "--slots")

    def test_help_teaches_and_is_data(self):
        done = self.client("--help", state=False)
        for word in ("prepare", "run", "submit", "strategies", "Exit codes"):
            self.assertIn(word, done.stdout)
        self.assertIn("--follow", self.client("submit", "--help", state=False).stdout)
        self.assertRegex(self.client("--version", state=False).stdout, r"^\d+\.\d+\.\d+\n$")

    def test_strategies_need_nothing(self):
        rows = json.loads(self.client("strategies", "--json", state=False).stdout)
        self.assertEqual([row["strategy"] for row in rows][:2], ["single", "simple_ddp"])

    def test_invalid_experiments(self):
        run = ["--worker", harness.STUB]
        self.check(["run", self.folder / "none.yaml", *run], 3, "none.yaml' cannot be read")
        self.check(["run", self.folder, *run], 3, "cannot be read")
        self.check(["run", self.experiment("  stategy: single\n"), *run], 3, "did you mean 'strategy'?")
        self.check(["run", self.experiment("  ranks: 9\n  strategy: simple_ddp\n"), "--slots", "2", *run], 3,
                   "needs 9 ranks; this coordinator has 2 slots")
        self.check(["run", self.write("m.yaml", "name: x\nrun: {model: minilm-distill}\n"), "--material",
                    self.folder / "none", *run], 3, "is not prepared and not known; did you mean 'minilm-distil'?")

    def test_ids_that_lead_nowhere(self):
        self.start_daemon()
        for arguments in (["show", "7"], ["cancel", "7"], ["wait", "7"], ["logs", "7"], ["show", "e7"], ["cancel", "e7"]):
            self.check(arguments, 5, "there is no")
        self.check(["show", "seven"], 2, "'seven' is no id; a run is written 12 or r12, an experiment e3")
        self.check(["logs", "e1"], 2, "logs are of one run")
        self.check(["ls", "12"], 2, "'12' is no experiment")

    def test_sql_only_reads(self):
        self.start_daemon()
        self.check(["sql", "drop table runs"], 1, "only a SELECT")
        self.check(["sql", "selekt 1"], 1, "syntax error")

    def test_a_second_daemon_on_the_same_folder(self):
        self.start_daemon()
        second = harness.subprocess.run([harness.BINARIES / "regattad", "--state", self.state, "--worker", harness.STUB],
                                        capture_output=True, text=True, env=self.environment, check=False)
        self.assertEqual(second.returncode, 1)
        self.assertIn(f"belongs to a running regattad (pid {self.daemon.pid})", second.stderr)
        done = self.client("run", self.experiment(), "--worker", harness.STUB, expect=1)
        self.assertIn("belongs to a running regattad", done.stderr)

    def test_a_missing_worker(self):
        done = self.client("run", self.experiment(), "--worker", "/nowhere/worker", expect=1)
        self.assertIn("'/nowhere/worker' cannot be run", done.stderr)

    def test_ranks_are_not_started_by_hand(self):
        done = harness.subprocess.run([harness.STUB], capture_output=True, text=True, check=False, env=self.environment)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("REGATTA_COORDINATOR", done.stderr)

    def test_two_strategies_are_compared(self):
        rows = json.loads(self.client("strategies", "--diff", "simple_ddp", "bucket_ddp_async", "--json", state=False).stdout)
        self.assertEqual({row["property"]: (row["simple_ddp"], row["bucket_ddp_async"]) for row in rows},
                         {"bucket": ("each parameter alone", "25 MiB"), "launch": ("after_backward", "gradients_ready"),
                          "wait": ("at_once", "at_finish")})
        self.assertIn("no difference", self.client("strategies", "--diff", "simple_ddp", "simple_ddp", state=False).stdout)
        self.assertIn("did you mean 'simple_ddp'?",
                      self.client("strategies", "--diff", "single", "simple_dpd", state=False, expect=5).stderr)


if __name__ == "__main__":
    harness.main()
