"""The bench's command line: picks a suite, runs it in ABBA blocks, prints a Markdown table, keeps raw samples."""
import argparse
import datetime
import functools
import json
import os
import pathlib
import sys
import tempfile

import runner
import suite_launch
import suite_optimizer
import suite_overlap
import suite_rows
import suite_steps

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SUITES = {"steps": suite_steps.measure, "launch": suite_launch.measure, "overlap": suite_overlap.measure,
          "optimizer": suite_optimizer.measure,
          **{family: functools.partial(suite_rows.measure, family=family) for family in suite_rows.ROWS}}


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("suite", choices=list(SUITES))
    parser.add_argument("--blocks", type=int, default=7, help="ABBA blocks; a published figure has at least 7")
    parser.add_argument("--only", default="", help="measure what has this text in its name: 'mini', 'nano, zero1'")
    parser.add_argument("--build", type=pathlib.Path, default=SOURCE / "build", help="build folder to measure")
    parser.add_argument("--peers", type=pathlib.Path, default=SOURCE / ".venv-peers", help="the peers' environment")
    parser.add_argument("--out", type=pathlib.Path, default=SOURCE / ".bench", help="folder of the raw samples")
    arguments = parser.parse_args()
    if arguments.only and arguments.suite == "launch":
        parser.error("launch measures one thing: --only has nothing to choose from")
    if not (arguments.peers / "bin/python").exists():
        sys.exit(f"bench: {arguments.peers} is missing; make it: scripts/bench --install-peers")
    if not (arguments.build / "bin/regatta-worker").exists():
        sys.exit(f"bench: {arguments.build}/bin/regatta-worker is missing; build first: scripts/test.sh --fast")
    machine = runner.machine_facts()
    if machine["load"] > 0.5:
        print(f"bench: the machine is loaded ({machine['load']}); these figures are not worth keeping", file=sys.stderr)
    arguments.out.mkdir(parents=True, exist_ok=True)
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    raw = arguments.out / f"{arguments.suite}-{stamp}.json"
    with tempfile.TemporaryDirectory(prefix="regatta-bench-") as folder:
        places = runner.Places(SOURCE, arguments.build / "bin", arguments.peers / "bin", pathlib.Path(folder),
                               raw.with_suffix(".jsonl"), arguments.only)
        report = SUITES[arguments.suite](places, arguments.blocks)
    report["machine"] = machine
    raw.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{machine['cpu']}, {machine['cores']} cores, load {machine['load']} at the start, "
          f"commit {machine['commit']}, {arguments.blocks} ABBA blocks, one thread a rank\n")
    print(report["table"])
    print(f"\nraw samples: {os.path.relpath(raw)}, {os.path.relpath(places.samples)}")


if __name__ == "__main__":
    main()
