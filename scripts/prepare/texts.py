"""Rows of text with a label, from files of a hub's data set or of one's own: parquet, CSV, TSV, JSON lines."""
import csv
import hashlib
import json
import pathlib

import numpy as np

import hub
import shards
from errors import PreparationError

_TEXT_COLUMNS = ("text", "sentence", "content", "review")
_LABEL_COLUMNS = ("label", "labels", "stars", "rating")
_KINDS = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson")
_STUDY_ROWS = {"train": 32, "eval": 16}


def _read_parquet(path):
    import pyarrow
    import pyarrow.parquet
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise PreparationError(f"{path} is no parquet file, or cut off: {str(error).splitlines()[0]}") from error
    return {name: table.column(name).to_pylist() for name in table.column_names}


def _read_csv(path, separator):
    csv.field_size_limit(1 << 30)
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.reader(file, delimiter=separator)
        header = next(rows, None)
        if header is None:
            raise PreparationError(f"{path} is empty; a line with the columns' names is right")
        columns = {name: [] for name in header}
        for row in rows:
            if len(row) != len(header):
                raise PreparationError(f"{path}:{rows.line_num}: {len(row)} fields; {len(header)} are right")
            for name, value in zip(header, row, strict=True):
                columns[name].append(value)
    return columns


def _read_json_lines(path):
    columns = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(filter(str.strip, file), 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise PreparationError(f"{path}: row {number} is not JSON: {error}") from error
            if not isinstance(row, dict) or (columns and row.keys() != columns.keys()):
                raise PreparationError(f"{path}: row {number} is no object with the keys of the first row")
            for name, value in row.items():
                columns.setdefault(name, []).append(value)
    return columns


def read_columns(path):
    path = pathlib.Path(path)
    if not path.is_file():
        raise PreparationError(f"{path} is missing")
    try:
        if path.suffix == ".parquet":
            return _read_parquet(path)
        if path.suffix in (".csv", ".tsv"):
            return _read_csv(path, "\t" if path.suffix == ".tsv" else ",")
        if path.suffix in (".jsonl", ".ndjson"):
            return _read_json_lines(path)
    except UnicodeDecodeError as error:
        raise PreparationError(f"{path} is not UTF-8 at byte {error.start}") from error
    raise PreparationError(f"{path}: a file of {', '.join(_KINDS)} is right")


def _column(columns, wanted, usual, what, where):
    for name in (wanted,) if wanted else usual:
        if name in columns:
            return name
    raise PreparationError(f"{where} has no {what} column{f' {wanted!r}' if wanted else ''}; it has "
                           f"{', '.join(map(repr, columns))}: name one with --{what}")


def take_rows(paths, text_column, label_column):
    """(texts, labels as written) of all files."""
    texts, labels = [], []
    for path in paths:
        columns = read_columns(path)
        text = _column(columns, text_column, _TEXT_COLUMNS, "text", path)
        label = _column(columns, label_column, _LABEL_COLUMNS, "label", path)
        for number, value in enumerate(columns[text]):
            if not isinstance(value, str):
                raise PreparationError(f"{path}: row {number + 1}: {text!r} is {value!r}; a text is right")
        texts += columns[text]
        labels += columns[label]
    if not texts:
        raise PreparationError(f"{', '.join(map(str, paths))}: no rows")
    return texts, labels


def label_names(*splits):
    """The labels' order: numbers by size, texts by alphabet. Numbers that count from 0 keep their value."""
    values = set().union(*map(set, splits))
    if None in values:
        raise PreparationError("a row has no label")
    numbers = {}
    for value in values:
        try:
            numbers[value] = float(value)
        except (TypeError, ValueError):
            return sorted(values, key=str)
    ordered = sorted(values, key=numbers.get)
    counted = [numbers[value].is_integer() and 0 <= numbers[value] < 1000 for value in ordered]
    if all(counted) and numbers[ordered[0]] == 0:
        by_number = {int(numbers[value]): value for value in ordered}
        return [by_number.get(i, i) for i in range(int(numbers[ordered[-1]]) + 1)]
    return ordered


def _in_eval(text):
    return hashlib.sha256(text.encode()).digest()[0] < 26  # 26 of 256: 10.2 %


def own_files(train, evaluation, text_column, label_column):
    """{split: (texts, labels)} of one's own files; without a second one a tenth of the texts is set apart by hash."""
    texts, labels = take_rows([train], text_column, label_column)
    if evaluation:
        return {"train": (texts, labels), "eval": take_rows([evaluation], text_column, label_column)}
    apart = [_in_eval(text) for text in texts]
    splits = {split: ([t for t, a in zip(texts, apart, strict=True) if a == wanted],
                      [l for l, a in zip(labels, apart, strict=True) if a == wanted])
              for split, wanted in (("train", False), ("eval", True))}
    if not splits["train"][0] or not splits["eval"][0]:
        raise PreparationError(f"{train} has {len(texts)} rows, too few to set a tenth apart for evaluation; name a file "
                               "with --eval-from")
    return splits


def hub_files(snapshot):
    """{split: paths} of a hub's data set: files whose names begin with, or lie in a folder of, a split's name."""
    found = {}
    for split, names in (("train", ("train",)), ("eval", ("test", "validation", "valid", "eval", "dev"))):
        for name in names:
            files = sorted(file for file in snapshot.files if file.endswith(_KINDS) and
                           any(part.startswith(name) for part in pathlib.PurePosixPath(file).parts))
            if files:
                found[split] = [snapshot.fetch(file) for file in files]
                break
        else:
            raise PreparationError(f"{snapshot.repository.word} has no file of {', '.join(_KINDS)} for '{names[0]}'; "
                                   f"it has {', '.join(snapshot.files[:8]) or 'nothing'}")
    return found


def make(splits, folder, model_folder, subset):
    """`splits`: {split: (texts, labels as written)}. Rows in the order of datasets.shuffle(seed=42), so that the first n
    are its select(range(n)); the subset is the study's: 32 and 16 rows of that, shuffled again."""
    names = label_names(*(labels for _, labels in splits.values()))
    number_of = {name: i for i, name in enumerate(names)}
    tokens = shards.Tokens(model_folder)
    facts = {}
    for split, (texts, labels) in splits.items():
        order = shards.shuffled(np.arange(len(texts), dtype=np.int64))
        if subset:
            order = shards.shuffled(order[:_STUDY_ROWS[split]])
        facts[split] = shards.write(folder / f"{split}.safetensors", tokens, [texts[i] for i in order],
                                    [number_of[labels[i]] for i in order], order)
    return {"splits": facts, "labels": [str(name) for name in names], "seed": shards.SEED}


def from_hub(word, subset, folder, model_folder, text_column, label_column):
    snapshot = hub.Snapshot(hub.parse("dataset", word))
    splits = {split: take_rows(paths, text_column, label_column) for split, paths in hub_files(snapshot).items()}
    return {"source": snapshot.source()} | make(splits, folder, model_folder, subset)
