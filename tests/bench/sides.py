"""One run of either side, as the suites want it."""
import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import time

import shapes

WARMUP = 2
_runs = itertools.count()


def environment():
    return dict(os.environ, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")


def make_peer_material(places, name):
    folder = places.work / f"peer-{name}"
    subprocess.run([places.peers / "python", places.source / "tests/bench/peer.py", "--write-material", name, folder],
                   check=True, env=environment())
    return folder


def wanted_shapes(places):
    """Name, shape and peer's folder of each model that is to be measured."""
    for name, shape in shapes.SHAPES.items():
        if places.wants(name):
            yield name, shape, make_peer_material(places, name)


def run_peer(places, folder, steps, ranks=1, strategy="simple_ddp"):
    """Results of all ranks, when it was launched and when the launcher had ended."""
    out = places.work / f"peer-out-{next(_runs)}"
    words = [places.peers / "python"] if ranks == 1 else [
        places.peers / "torchrun", "--standalone", "--nproc-per-node", str(ranks)]
    launched = time.time()
    log = places.work / "peer.log"  # a file: a pipe would have to be read while the launcher is timed
    with log.open("w") as said:
        code = subprocess.run([*words, places.source / "tests/bench/peer.py", folder, out, str(steps), strategy],
                              check=False, env=environment(), stdout=said, stderr=subprocess.STDOUT).returncode
    ended = time.time()
    if code != 0:
        raise SystemExit(f"bench: the peer of {strategy} ended with {code}; samples so far: {places.samples}\n"
                         + log.read_text()[-4000:])
    ranks_said = [json.loads((out / f"rank_{rank}.json").read_text()) for rank in range(ranks)]
    shutil.rmtree(out)
    return ranks_said, launched, ended


def database(state):
    return sqlite3.connect(f"file:{state}/regatta.db?mode=ro", uri=True)


def losses_of(connection, run):
    return [loss for (loss,) in connection.execute(
        "select sum(case when name = 'loss_sum' then value end) / sum(case when name = 'rows' then value end) "
        "from steps where run = ? group by step order by step", (run,))]


def run_peer_optimizer(places, folder, steps):
    """Seconds of each step of PyTorch's default AdamW."""
    done = subprocess.run([places.peers / "python", places.source / "tests/bench/peer.py", "--default-optimizer", folder, str(steps)],
                          check=True, env=environment(), capture_output=True, text=True)
    return json.loads(done.stdout)


def run_ours(places, name, folder, steps, ranks=1, strategy="single", metric="step_seconds"):
    """Rank 0's seconds of each step without warm-up, losses of all ranks, and the largest resident set."""
    state = places.work / f"ours-{next(_runs)}"
    file = places.work / "ours.yaml"
    file.write_text(shapes.experiment(name, strategy, ranks, steps, folder))
    subprocess.run([places.binaries / "regatta", "run", file, "--state", state], check=True,
                   env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with database(state) as connection:
        seconds = [value for (value,) in connection.execute(
            "select value from steps where name = ? and rank = 0 and step >= ? order by step", (metric, WARMUP))]
        losses = losses_of(connection, 1)
        (rss,) = connection.execute("select peak_rss_bytes from results").fetchone()
    shutil.rmtree(state)
    return seconds, losses, rss
