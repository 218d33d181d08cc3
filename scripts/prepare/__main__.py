"""Fetches and converts models and data sets: what `regatta prepare` runs.

Each product is a folder that appears whole or not at all, with a manifest.json of its sources, licences and hashes.
A second run finds it and does nothing.
"""
import argparse
import fcntl
import pathlib
import sys
import time

from errors import PreparationError
from products import PRODUCTS, prepare


def main():
    parser = argparse.ArgumentParser(prog="regatta prepare", description=__doc__)
    parser.add_argument("--to", required=True, help="material folder")
    parser.add_argument("--verify", action="store_true", help="check the hashes of what is there already")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(PRODUCTS)}; default: all")
    arguments = parser.parse_args()
    material = pathlib.Path(arguments.to).absolute()
    try:
        material.mkdir(parents=True, exist_ok=True)
        with open(material / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting: another preparation works on {material}", file=sys.stderr)
                fcntl.flock(lock, fcntl.LOCK_EX)
            for name in arguments.names or list(PRODUCTS):
                start = time.monotonic()
                state = prepare(material, name, arguments.verify)
                print(f"{name}: {state} ({time.monotonic() - start:.1f} s)", file=sys.stderr)
    except PreparationError as error:
        sys.exit(f"regatta prepare: {error}")
    except OSError as error:  # a full disk, a folder without rights
        sys.exit(f"regatta prepare: {error.filename or material}: {error.strerror}; nothing half-made is left")


if __name__ == "__main__":
    main()
