"""Rounds of gangs of stub ranks, each with a random fault or none, against one daemon: every outcome must be the predicted
one, and nothing may be left behind. Ends with an error at the first round in which something else happens."""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "end_to_end"))
from processes import FATAL, marked  # noqa: E402

RANKS = 2
TIMEOUT = "4s"
MODEL = ("  model: {name: distilbert, dim: 64, n_heads: 4, n_layers: 2, hidden_dim: 64, vocab_size: 100, "
         "max_position_embeddings: 32, num_labels: 5}\n  dataset: {name: synthetic, rows: 32, max_length: 16}\n")


def draw_case(draw):
    """(faults, state, reason, how the sentence begins)."""
    rank, at = draw.randrange(RANKS), draw.choice(["join", 0, 1, "finish"])
    fault = lambda what, moment=at: {"rank": rank, "at_step": moment, "what": what}
    kind = draw.choices(["none", "exit", "signal", "slow", "child", "hang"], [3, 5, 5, 2, 2, 1])[0]
    if kind == "none":
        return [], "SUCCEEDED", "", ""
    if kind == "slow":
        return [fault("slow 100ms")], "SUCCEEDED", "", ""
    if kind == "exit":
        code = draw.randrange(256)
        if code == 0 and at == "finish":
            return [fault("exit 0")], "SUCCEEDED", "", ""
        return [fault(f"exit {code}")], "FAILED", "rank_exit", f"rank {rank} exited with code {code}"
    if kind == "signal":
        number = draw.choice(FATAL)
        return [fault(f"signal {number}")], "FAILED", "rank_signal", f"rank {rank} was killed by signal {number} ("
    if kind == "child":
        return [fault("setsid_child", 0), fault("exit 9", 1)], "FAILED", "rank_exit", f"rank {rank} exited with code 9"
    return ([fault("ignore_term", 0), fault(draw.choice(["hang", "stop"]), 1)], "TIMED_OUT", "time_limit",
            "ran longer than limits.timeout")


class Soak:
    def __init__(self, binaries, gangs, seed):
        self.binaries, self.gangs, self.draw = binaries, gangs, random.Random(seed)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="regatta-soak-"))
        self.state = self.folder / "state"
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("REGATTA_")}
        with open(self.folder / "regattad.log", "wb") as log:
            self.daemon = subprocess.Popen(
                [binaries / "regattad", "--state", self.state, "--worker", binaries / "regatta-stub-rank", "--slots",
                 str(RANKS * gangs), "--http", "-1"], stdout=subprocess.PIPE, stderr=log, text=True, env=self.environment)
        if not self.daemon.stdout.readline():
            raise SystemExit("soak: the daemon did not start: " + (self.folder / "regattad.log").read_text())

    def client(self, *words):
        return subprocess.run([self.binaries / "regatta", *words, "--state", self.state, "--json"], capture_output=True,
                              text=True, check=False, env=self.environment)

    def daemon_uses(self):
        """(resident MiB, open files)."""
        status = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text()
        resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        return resident / 1024, len(os.listdir(f"/proc/{self.daemon.pid}/fd"))

    def round(self):
        """What differs from the prediction."""
        cases = [draw_case(self.draw) for _ in range(self.gangs)]
        chaos = ", ".join(json.dumps(case[0]) for case in cases)
        seeds = ", ".join(map(str, range(len(cases))))
        path = self.folder / "round.yaml"
        path.write_text(f"name: soak\nlimits: {{max_parallel: {self.gangs}, timeout: {TIMEOUT}}}\nrun:\n{MODEL}"
                        f"  strategy: simple_ddp\n  ranks: {RANKS}\n  steps: 2\nzip: [{{seed: [{seeds}], chaos: [{chaos}]}}]\n")
        submitted = self.client("submit", path, "--wait")
        runs = [row["run"] for row in json.loads(submitted.stdout or "[]")]
        if len(runs) != len(cases):
            return [f"the submission failed: {submitted.stderr}"]
        rows = json.loads(self.client("sql", "select state, reason, sentence from results where run between "
                                      f"{runs[0]} and {runs[-1]} order by run").stdout)
        wrong = [f"{faults}: {row}; {state} {reason} '{sentence}...' is right"
                 for (faults, state, reason, sentence), row in zip(cases, rows, strict=True)
                 if (row["state"], row["reason"]) != (state, reason) or not row["sentence"].startswith(sentence)]
        left = marked(self.state)
        return wrong + [f"process {pid} is left" for pid in left]

    def close(self):
        self.daemon.send_signal(signal.SIGTERM)
        self.daemon.wait(timeout=60)
        self.daemon.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=20)
    parser.add_argument("--gangs", type=int, default=16, help="at once in a round")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the faults")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2] / "build")
    arguments = parser.parse_args()
    soak = Soak(arguments.build / "bin", arguments.gangs, arguments.seed)
    try:
        soak.round()  # what a daemon keeps once it has worked is no leak
        before = soak.daemon_uses()
        for number in range(1, arguments.rounds + 1):
            begin = time.monotonic()
            wrong = soak.round()
            resident, files = soak.daemon_uses()
            print(f"round {number} of {arguments.rounds}: {arguments.gangs} gangs in {time.monotonic() - begin:.1f} s; daemon "
                  f"{resident:.0f} MiB, {files} files", flush=True)
            if files > before[1] + 2:
                wrong.append(f"the daemon has {files} open files; {before[1]} after its first round")
            if resident > before[0] + 64:
                wrong.append(f"the daemon has {resident:.0f} MiB; {before[0]:.0f} after its first round")
            if wrong:
                sys.exit(f"soak: seed {arguments.seed}, round {number}:\n" + "\n".join(wrong))
    finally:
        soak.close()
    print(f"{arguments.rounds * arguments.gangs} gangs as predicted, nothing left behind (seed {arguments.seed})")


if __name__ == "__main__":
    main()
