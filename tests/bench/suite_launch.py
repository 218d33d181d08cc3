"""Two ranks of the mini model: from launch to the end of the first step, and from the last rank's end to the outcome.

regatta: `regatta submit --wait` against a running daemon. Peer: torchrun --standalone.
"""
import json
import statistics
import subprocess
import time

import runner
import shapes
import sides

STEPS = 4
RANKS = 2


class Daemon:
    """One coordinator for the whole suite, as a user of it would have."""

    def __init__(self, places, folder):
        self.places = places
        self.folder = folder
        self.state = places.work / "state"
        self.process = subprocess.Popen([places.binaries / "regattad", "--state", self.state, "--slots", str(RANKS)],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=sides.environment())
        self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def run(self):
        file = self.places.work / "launch.yaml"
        file.write_text(shapes.experiment("mini", "simple_ddp", RANKS, STEPS, self.folder))
        begin = time.time()
        done = subprocess.run([self.places.binaries / "regatta", "submit", file, "--wait", "--json", "--state", self.state],
                              check=True, capture_output=True, env=sides.environment())
        seen = time.time()
        run = json.loads(done.stdout)[0]["run"]
        exits = (self.state / f"runs/{run}/attempt_1/exits").stat().st_mtime
        with sides.database(self.state) as connection:
            started, joined, first = connection.execute(
                "select started_us / 1e6, launch_to_joined_seconds, joined_to_first_step_seconds from results "
                "where run = ?", (run,)).fetchone()
            losses = sides.losses_of(connection, run)
        return {"total": started + joined + first - begin, "end": seen - exits, "losses": losses,
                "phases": {"client and queue": started - begin, "spawn to joined": joined, "joined to first step": first}}


def run_peer(places, folder):
    ranks, begin, ended = sides.run_peer(places, folder, STEPS, RANKS)
    times = max((rank["times"] for rank in ranks), key=lambda t: t["first_step"])
    steps = ["begin", "imported", "grouped", "loaded", "first_step"]
    names = ["launcher", "imports", "group", "load", "first step"]
    edges = [begin] + [times[step] for step in steps]
    return {"total": times["first_step"] - begin, "end": ended - max(rank["times"]["done"] for rank in ranks),
            "losses": [sum(step) / RANKS for step in zip(*(rank["losses"] for rank in ranks), strict=True)],
            "phases": {name: b - a for name, a, b in zip(names, edges[:-1], edges[1:], strict=True)}}


def phases_text(samples):
    names = samples[0]["phases"]
    return ", ".join(f"{name} {statistics.median(sample['phases'][name] for sample in samples):.2f}" for name in names)


def measure(places, blocks):
    folder = sides.make_peer_material(places, "mini")
    with Daemon(places, folder) as daemon:
        ours_first, peer_first = daemon.run(), run_peer(places, folder)
        runner.check_losses(ours_first["losses"], peer_first["losses"], "mini on two ranks")
        ours, peer = runner.interleave(places, daemon.run, lambda: run_peer(places, folder), blocks, "launch")
    rows = []
    for what, key in (("launch to first step", "total"), ("last rank done to outcome seen", "end")):
        ratio, low, high = runner.ratio_interval([s[key] for s in peer], [s[key] for s in ours])
        rows.append([what, runner.spread([s[key] for s in ours]), runner.spread([s[key] for s in peer]),
                     f"{ratio:.1f} ({low:.1f}-{high:.1f})"])
    table = runner.markdown(["seconds", "regatta", "torchrun", "times faster (95 %)"], rows)
    table += f"\n\nregatta, seconds: {phases_text(ours)}\ntorchrun, seconds: {phases_text(peer)}"
    return {"suite": "launch", "blocks": blocks, "raw": {"ours": ours, "peer": peer}, "table": table}
