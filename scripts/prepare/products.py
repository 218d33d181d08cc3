"""What can be prepared, and how a product comes to be: whole, with its manifest, or not at all.

A word names a product: a model (`minilm-distil`, `org/name`, `org/name@revision`, `/folder`), or a data set for a model
(`reviews:smollm2-135m`, `org/data:/folder`; without a model for minilm-distil).
"""
import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable

import archives
import checkpoints
import heads
import minilm
import reviews
import smollm2
import texts
from errors import PreparationError

_DEFAULT_MODEL = "minilm-distil"
_MODELS = {"minilm-distil": ("minilm", archives.MINILM, minilm.make),
           "smollm2-135m": ("smollm2", archives.SMOLLM2, smollm2.make)}
_REVIEWS = {"reviews": "full", "reviews-subset": "subset", "reviews-long": "long"}
_HUB_NAMES = {"yelp": ("Yelp/yelp_review_full", False), "yelp-subset": ("Yelp/yelp_review_full", True)}
DEFAULT = ["minilm-distil", "reviews", "reviews-subset"]
KNOWN = [*_MODELS, *_REVIEWS, *_HUB_NAMES]


@dataclasses.dataclass(frozen=True)
class Product:
    word: str
    folder: str                                    # below the material folder
    make: Callable                                 # (archive paths, new folder, material folder) -> facts
    sources: dict = dataclasses.field(default_factory=dict)
    needs: tuple[str, ...] = ()                    # words to be prepared before


@dataclasses.dataclass(frozen=True)
class TextFiles:
    """Files of one's own, as --from and its like name them."""
    train: str
    evaluation: str | None = None
    text: str | None = None
    label: str | None = None


def folder_name(word):
    """As the coordinator finds it: a folder's own name, or a hub id without its slash."""
    return pathlib.PurePath(word).name if word.startswith("/") else word.replace("/", "--").replace("@", "--")


def model_product(word):
    if word in _MODELS:
        key, archive, make = _MODELS[word]
        return Product(word, f"models/{word}", lambda paths, folder, material: make(paths, folder), {key: archive})
    if word.startswith("/") or "/" in word:
        return Product(word, f"models/{folder_name(word)}", lambda paths, folder, material: checkpoints.make(word, folder))
    raise PreparationError(f"nothing is called '{word}'; known: {', '.join(KNOWN)}, an id of a hub (org/name), a folder")


def model_folder(material, word):
    return pathlib.Path(word) if word.startswith("/") else material / model_product(word).folder


def dataset_product(word, files=None):
    name, _, model = word.partition(":")
    model = model or _DEFAULT_MODEL
    if files is not None:
        make = lambda paths, folder, material: texts.make(
            texts.own_files(files.train, files.evaluation, files.text, files.label), folder, model_folder(material, model), False)
    elif name in _REVIEWS:
        make = lambda paths, folder, material: reviews.make(paths, folder, model_folder(material, model), _REVIEWS[name])
    elif name in _HUB_NAMES or "/" in name:
        hub_id, subset = _HUB_NAMES.get(name, (name, False))
        make = lambda paths, folder, material: texts.from_hub(hub_id, subset, folder, model_folder(material, model), None, None)
    else:
        raise PreparationError(f"nothing is called '{name}'; known: {', '.join(KNOWN)}, an id of a hub (org/name)")
    return Product(word, f"data/{folder_name(name)}/{folder_name(model)}", make,
                   {"reviews": archives.REVIEWS} if name in _REVIEWS and files is None else {},
                   () if model.startswith("/") else (model,))


def product_of(word):
    is_dataset = ":" in word or word in _REVIEWS or word in _HUB_NAMES
    return dataset_product(word) if is_dataset else model_product(word)


def describe(folder):
    """Bytes and sha256 of a folder's files, the manifest left out."""
    return {path.name: {"bytes": path.stat().st_size, "sha256": archives.sha256_of(path)}
            for path in sorted(folder.iterdir()) if path.name != "manifest.json"}


def check_ready(folder, verify):
    """Whether the product is there. A damaged one is an error: somebody may be training on it."""
    if not (folder / "manifest.json").exists():
        return False
    stored = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["products"]
    for name, facts in stored.items():
        path = folder / name
        size = path.stat().st_size if path.exists() else None
        if size != facts["bytes"] or (verify and archives.sha256_of(path) != facts["sha256"]):
            raise PreparationError(f"{path} is not what was prepared ({size} bytes; {facts['bytes']} with sha256 "
                                   f"{facts['sha256']} are right): remove {folder} and prepare again")
    return True


def prepare(material, product, verify=False):
    """Makes one product and what it needs. Returns what was done: 'ready' or 'made'."""
    folder = pathlib.Path(material) / product.folder
    for needed in product.needs:
        prepare(material, model_product(needed), verify)
    if check_ready(folder, verify):
        return "ready"
    paths = {key: archives.fetch(archive, material / ".cache") for key, archive in product.sources.items()}
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        facts = product.make(paths, part, material)
        heads.write_json(part / "manifest.json", {
            "name": product.word, "facts": facts, "products": describe(part),
            "sources": {key: dataclasses.asdict(archive) for key, archive in product.sources.items()}})
        if folder.exists():  # without a manifest: somebody else's, or half of an older program's
            raise PreparationError(f"{folder} exists but has no manifest.json: remove it and prepare again")
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return "made"
