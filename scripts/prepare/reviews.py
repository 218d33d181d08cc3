"""14,300 product and film review sentences with the mean of about 20 people's ratings, cut into five classes.

A shard (docs/material.md) holds its rows back to back, tokenized, at most 512 tokens each.
"""
import hashlib
import io
import tarfile

import numpy as np
from tokenizers import Tokenizer

import tensors

SEED = 42
MAX_TOKENS = 512
# Near the 20/40/60/80 % quantiles, moved off the grid of possible means (n/20, n/16, ...) so that no rating ties.
EDGES = (-1.811, -0.883, 1.161, 1.991)
_INNER = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"


def read_rows(archive):
    """(group, rating, text) in file order, each text once. One Amazon review gives several sentences: its group keeps
    them in one split."""
    with tarfile.open(archive) as outer:
        inner = outer.extractfile(_INNER).read()
    rows, seen = [], set()
    with tarfile.open(fileobj=io.BytesIO(inner)) as tar:
        for source in ("amazon", "movie"):
            raw = tar.extractfile(f"hutto_ICWSM_2014/{source}ReviewSnippets_GroundTruth.txt").read()
            # Texts hold quotes and other line separators: neither a CSV reader nor splitlines() reads them right.
            for line in filter(None, raw.decode("utf-8").split("\r\n")):
                identity, rating, text = line.split("\t")
                text = text.strip()
                if text not in seen:
                    seen.add(text)
                    rows.append((f"{source}:{identity.split('_')[0]}", float(rating), text))
    return rows


def label_of(rating):
    return sum(rating > edge for edge in EDGES)


def in_eval(group):
    return hashlib.sha256(group.encode()).digest()[0] < 26  # 26 of 256 groups: 10.2 %


def shuffled(rows):
    return rows[np.random.default_rng(SEED).permutation(len(rows))]  # what datasets.shuffle(seed=42) draws


def split_rows(rows, subset):
    """Row numbers of each split. The subset is the study's: 32 and 16 rows of the shuffled split, shuffled again."""
    splits = {}
    for split, wanted, take in (("train", False, 32), ("eval", True, 16)):
        numbers = shuffled(np.array([i for i, row in enumerate(rows) if in_eval(row[0]) == wanted], np.int64))
        splits[split] = shuffled(numbers[:take]) if subset else numbers
    return splits


def make(archives, folder, model_folder, subset):
    rows = read_rows(archives["reviews"])
    tokenizer = Tokenizer.from_file(str(model_folder / "tokenizer.json"))
    end_token = tokenizer.token_to_id("[SEP]")
    tokenizer.enable_truncation(MAX_TOKENS)  # keeps [SEP]
    encoded = [encoding.ids for encoding in tokenizer.encode_batch([text for _, _, text in rows])]
    facts = {}
    for split, numbers in split_rows(rows, subset).items():
        ids = [encoded[i] for i in numbers]
        lengths = np.array([len(row) for row in ids], np.int64)
        labels = np.array([label_of(rows[i][1]) for i in numbers], np.int64)
        tensors.write({"offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
                       "labels": labels,
                       "source_row": numbers,
                       "rating": np.array([rows[i][1] for i in numbers], np.float32),
                       "input_ids": np.concatenate([np.array(row, np.int32) for row in ids])},
                      folder / f"{split}.safetensors", metadata={"end_token": str(end_token)})
        facts[split] = {"rows": len(ids), "tokens": int(lengths.sum()), "longest": int(lengths.max()),
                        "classes": np.bincount(labels, minlength=len(EDGES) + 1).tolist()}
    return {"splits": facts, "edges": EDGES, "seed": SEED}
