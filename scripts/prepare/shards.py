"""Turns texts with labels into a shard (docs/material.md): rows back to back, tokenized, at most 512 tokens each."""
import numpy as np
from tokenizers import Tokenizer

import tensors
from errors import PreparationError

SEED = 42
MAX_TOKENS = 512
_CHUNK = 20000  # rows tokenized at once


def shuffled(numbers):
    """What datasets.shuffle(seed=42) draws."""
    return numbers[np.random.default_rng(SEED).permutation(len(numbers))]


class Tokens:
    """A model folder's tokenizer, special tokens included."""

    def __init__(self, model_folder):
        path = model_folder / "tokenizer.json"
        if not path.exists():
            raise PreparationError(f"{path} is missing: a model with a fast tokenizer is right")
        self._tokenizer = Tokenizer.from_file(str(path))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        around = self._tokenizer.encode("").ids  # [CLS] [SEP], or nothing
        self.end_token = around[-1] if around else None
        self._tokenizer.enable_truncation(MAX_TOKENS)  # keeps what ends a row

    def encode(self, texts):
        for start in range(0, len(texts), _CHUNK):
            for encoding in self._tokenizer.encode_batch(texts[start:start + _CHUNK]):
                yield np.array(encoding.ids, np.int32)


def write(path, tokens, texts, labels, source_rows, extra=None):
    """Returns facts for the manifest. A text without a token is no row."""
    rows = list(tokens.encode(texts))
    kept = [i for i, row in enumerate(rows) if len(row)]
    if not kept:
        raise PreparationError(f"{path.stem}: none of {len(texts)} texts has a token")
    lengths = np.array([len(rows[i]) for i in kept], np.int64)
    labels = np.asarray(labels, np.int64)[kept]
    columns = {name: np.asarray(values)[kept] for name, values in (extra or {}).items()}
    metadata = {} if tokens.end_token is None else {"end_token": str(tokens.end_token)}
    tensors.write({"offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), "labels": labels,
                   "source_row": np.asarray(source_rows, np.int64)[kept], **columns,
                   "input_ids": np.concatenate([rows[i] for i in kept])}, path, metadata)
    return {"rows": len(kept), "empty_texts": len(rows) - len(kept), "tokens": int(lengths.sum()),
            "longest": int(lengths.max()), "classes": np.bincount(labels).tolist()}
