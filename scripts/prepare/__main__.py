"""Fetches and converts models and data sets: what `regatta prepare` runs.

Each product is a folder that appears whole or not at all, with a manifest.json of its sources, licences and hashes.
A second run finds it and does nothing.
"""
import argparse
import fcntl
import os
import pathlib
import sys
import time

from errors import PreparationError
import products


def product_of(word, arguments):
    if not arguments.train:
        return products.product_of(word)
    return products.dataset_product(word, products.TextFiles(
        os.path.abspath(arguments.train), arguments.eval_from and os.path.abspath(arguments.eval_from), arguments.text,
        arguments.label))


def main():
    parser = argparse.ArgumentParser(prog="regatta prepare", description=__doc__)
    parser.add_argument("--to", required=True, help="material folder")
    parser.add_argument("--verify", action="store_true", help="check the hashes of what is there already")
    parser.add_argument("words", nargs="*", metavar="word",
                        help=f"of {', '.join(products.KNOWN)}, a hub's org/name, a folder, DATASET:MODEL; "
                             f"default: {' '.join(products.DEFAULT)}")
    parser.add_argument("--from", dest="train", metavar="FILE", help="a file of texts and labels: the one word is NAME or NAME:MODEL")
    parser.add_argument("--eval-from", metavar="FILE", help="rows to evaluate on; default: a tenth of the texts, by hash")
    parser.add_argument("--text", metavar="COLUMN", help="column of the texts")
    parser.add_argument("--label", metavar="COLUMN", help="column of the labels")
    arguments = parser.parse_args()
    if not arguments.train and (arguments.eval_from or arguments.text or arguments.label):
        parser.error("--eval-from, --text and --label belong to --from FILE")
    if arguments.train and len(arguments.words) != 1:
        parser.error("--from FILE needs one word: what the data set is to be called, NAME or NAME:MODEL")
    material = pathlib.Path(arguments.to).absolute()
    try:
        material.mkdir(parents=True, exist_ok=True)
        with open(material / ".lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"waiting: another preparation works on {material}", file=sys.stderr)
                fcntl.flock(lock, fcntl.LOCK_EX)
            for word in arguments.words or products.DEFAULT:
                start = time.monotonic()
                product = product_of(word, arguments)
                state = products.prepare(material, product, arguments.verify)
                print(f"{word}: {state} in {material / product.folder} ({time.monotonic() - start:.1f} s)", file=sys.stderr)
    except PreparationError as error:
        sys.exit(f"regatta prepare: {error}")
    except OSError as error:  # a full disk, a folder without rights
        sys.exit(f"regatta prepare: {error.filename or material}: {error.strerror}; nothing half-made is left")


if __name__ == "__main__":
    main()
