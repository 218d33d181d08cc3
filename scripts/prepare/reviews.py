"""14,300 product and film review sentences with the mean of about 20 people's ratings, cut into five classes; or the
300 whole product reviews, whose lengths have a long tail."""
import hashlib
import io
import tarfile

import numpy as np

import shards

# Near the 20/40/60/80 % quantiles, moved off the grid of possible means (n/20, n/16, ...) so that no rating ties.
EDGES = (-1.811, -0.883, 1.161, 1.991)
LONG_EDGES = (-1.15, 0.10, 0.92, 1.55)  # of whole reviews, whose means lie closer together
_INNER = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"


def _read_file(archive, source):
    """(document, sentence, rating, text) in file order."""
    with tarfile.open(archive) as outer:
        inner = outer.extractfile(_INNER).read()
    with tarfile.open(fileobj=io.BytesIO(inner)) as tar:
        raw = tar.extractfile(f"hutto_ICWSM_2014/{source}ReviewSnippets_GroundTruth.txt").read()
    # Texts hold quotes and other line separators: neither a CSV reader nor splitlines() reads them right.
    for line in filter(None, raw.decode("utf-8").split("\r\n")):
        identity, rating, text = line.split("\t")
        document, _, sentence = identity.partition("_")
        yield document, int(sentence or 0), float(rating), text.strip()


def read_rows(archive):
    """(group, rating, text) in file order, each text once. One Amazon review gives several sentences: its group keeps
    them in one split."""
    rows, seen = [], set()
    for source in ("amazon", "movie"):
        for document, _, rating, text in _read_file(archive, source):
            if text not in seen:
                seen.add(text)
                rows.append((f"{source}:{document}", rating, text))
    return rows


def read_whole_reviews(archive):
    """The same of whole Amazon reviews: sentences in order, the mean of their ratings."""
    documents = {}
    for document, sentence, rating, text in _read_file(archive, "amazon"):
        documents.setdefault(document, []).append((sentence, rating, text))
    return [(f"amazon:{document}", sum(rating for _, rating, _ in parts) / len(parts),
             " ".join(text for _, _, text in sorted(parts)))
            for document, parts in documents.items()]


def label_of(rating, edges):
    return sum(rating > edge for edge in edges)


def in_eval(group):
    return hashlib.sha256(group.encode()).digest()[0] < 26  # 26 of 256 groups: 10.2 %


def split_rows(rows, subset):
    """Row numbers of each split. The subset is the study's: 32 and 16 rows of the shuffled split, shuffled again."""
    splits = {}
    for split, wanted, take in (("train", False, 32), ("eval", True, 16)):
        numbers = shards.shuffled(np.array([i for i, row in enumerate(rows) if in_eval(row[0]) == wanted], np.int64))
        splits[split] = shards.shuffled(numbers[:take]) if subset else numbers
    return splits


def make(archives, folder, model_folder, kind):
    """`kind`: full, subset or long."""
    rows = read_whole_reviews(archives["reviews"]) if kind == "long" else read_rows(archives["reviews"])
    edges = LONG_EDGES if kind == "long" else EDGES
    tokens = shards.Tokens(model_folder)
    facts = {}
    for split, numbers in split_rows(rows, kind == "subset").items():
        facts[split] = shards.write(
            folder / f"{split}.safetensors", tokens, [rows[i][2] for i in numbers],
            [label_of(rows[i][1], edges) for i in numbers], numbers,
            {"rating": np.array([rows[i][1] for i in numbers], np.float32)})
    return {"splits": facts, "edges": edges, "seed": shards.SEED}
