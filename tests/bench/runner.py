"""What all suites share: interleaving, statistics, machine facts."""
import dataclasses
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys


@dataclasses.dataclass(frozen=True)
class Places:
    source: pathlib.Path
    binaries: pathlib.Path  # regatta's
    peers: pathlib.Path     # bin of the peers' environment
    work: pathlib.Path      # temporary
    samples: pathlib.Path   # JSON lines, one a sample, written as they come: a bench cut short keeps what it measured
    only: str = ""          # what is measured has this in its name

    def wants(self, what):
        return self.only in what


def machine_facts():
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return {"cpu": cpu, "cores": os.cpu_count(), "load": os.getloadavg()[0], "kernel": os.uname().release,
            "commit": commit.stdout.strip() or "unknown"}


def interleave(places, ours, peer, blocks, what):
    """Samples of both sides in the order ours, peer, peer, ours, so that drift favours none. Each side is a function
    that returns one sample."""
    samples = ([], [])
    for block in range(blocks):
        for side in (0, 1, 1, 0):
            samples[side].append((ours, peer)[side]())
            with places.samples.open("a") as file:
                file.write(json.dumps({"what": what, "side": ("ours", "peer")[side], "block": block,
                                       "sample": samples[side][-1]}) + "\n")
        print(f"{what}: block {block + 1} of {blocks}", file=sys.stderr)
    return samples


def ratio_interval(above, below, rounds=4000):
    """median(above) / median(below) with its bootstrap 95 % interval."""
    draw = random.Random(1)
    ratios = sorted(statistics.median(draw.choices(above, k=len(above))) / statistics.median(draw.choices(below, k=len(below)))
                    for _ in range(rounds))
    middle = statistics.median(above) / statistics.median(below)
    return middle, ratios[int(0.025 * rounds)], ratios[int(0.975 * rounds)]


def spread(values, unit=""):
    """Median (smallest-largest)."""
    return f"{statistics.median(values):.3g}{unit} ({min(values):.3g}-{max(values):.3g})"


def check_losses(ours, peer, what):
    """No speed of a program that computes something else: the first five losses must agree to 1e-4."""
    for step, (a, b) in enumerate(zip(ours[:5], peer[:5], strict=True)):
        if not abs(a - b) <= 1e-4 * abs(b):
            raise SystemExit(f"bench: {what}: loss of step {step} is {a} here and {b} in the peer; no speed is reported")


def markdown(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
