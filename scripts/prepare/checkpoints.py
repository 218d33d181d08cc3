"""A model of a hub or of a folder as regatta trains it: its weights as they are, and a 5-label head where it has none."""
import json
import pathlib
import shutil

import heads
import hub
import tensors as tensor_files
from errors import PreparationError

_DIM = {"distilbert": "dim", "llama": "hidden_size"}
_SMALL_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
# Heads of other tasks, which a classifier has no use for.
_OTHER_HEADS = ("vocab_transform.", "vocab_layer_norm.", "vocab_projector.", "qa_outputs.")


class FolderSnapshot:
    """A folder in place of a hub's snapshot."""

    def __init__(self, path):
        self.path = pathlib.Path(path)

    def fetch(self, file):
        if not (self.path / file).is_file():
            raise PreparationError(f"{self.path / file} is missing")
        return self.path / file

    def fetch_if_there(self, file):
        return self.path / file if (self.path / file).is_file() else None

    def source(self):
        return {"folder": str(self.path), "licence": "as the folder's owner says"}


def open_model(word):
    return FolderSnapshot(word) if word.startswith("/") else hub.Snapshot(hub.parse("model", word))


def read_config(snapshot):
    path = snapshot.fetch("config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PreparationError(f"{path} is not JSON: {error}") from error
    if config.get("model_type") not in _DIM:
        raise PreparationError(f"{path}: model_type '{config.get('model_type')}' is not built; known: {', '.join(_DIM)}")
    if config.get(_DIM[config["model_type"]]) is None:
        raise PreparationError(f"{path} lacks '{_DIM[config['model_type']]}'")
    return config


def make(word, folder):
    snapshot = open_model(word)
    config = read_config(snapshot)
    weights = tensor_files.read(snapshot.fetch("model.safetensors"))
    weights = {name: tensor for name, tensor in weights.items() if not name.startswith(_OTHER_HEADS)}
    head = heads.tensors(config["model_type"], config[_DIM[config["model_type"]]])
    new_head = not all(name in weights for name in head)
    if new_head:
        # An untied language-model head goes; a tied one may be the only copy of the embedding.
        if "model.embed_tokens.weight" in weights:
            weights.pop("lm_head.weight", None)
        weights |= head
        config |= heads.label_keys()
        config.pop("num_labels", None)
        config["architectures"] = [{"distilbert": "DistilBertForSequenceClassification",
                                    "llama": "LlamaForSequenceClassification"}[config["model_type"]]]
    if config.get("pad_token_id") is None:
        raise PreparationError(f"config.json of '{word}' has no pad_token_id; batches of rows need one")
    tensor_files.write(weights, folder / "model.safetensors", metadata={"format": "pt"})
    heads.write_json(folder / "config.json", config)
    for file in _SMALL_FILES:
        if (path := snapshot.fetch_if_there(file)) is not None:
            shutil.copyfile(path, folder / file)
    return {"source": snapshot.source(), "new_head": new_head, "tensors": len(weights)}
