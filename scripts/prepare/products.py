"""The table of what can be prepared, and how a product comes to be: whole, with its manifest, or not at all."""
import dataclasses
import functools
import json
import pathlib
import shutil
from collections.abc import Callable

import archives
import minilm
import reviews
from errors import PreparationError

_MODEL = "minilm-distil"


@dataclasses.dataclass(frozen=True)
class Product:
    folder: str                          # below the material folder
    sources: dict[str, archives.Archive]
    make: Callable                       # (archive paths, new folder, material folder) -> facts for the manifest
    needs: tuple[str, ...] = ()          # products to be prepared before


def _make_reviews(paths, folder, material, subset):
    return reviews.make(paths, folder, material / PRODUCTS[_MODEL].folder, subset)


PRODUCTS = {
    _MODEL: Product(folder=f"models/{_MODEL}", sources={"minilm": archives.MINILM},
                    make=lambda paths, folder, material: minilm.make(paths, folder)),
    "reviews": Product(folder=f"data/reviews/{_MODEL}", sources={"reviews": archives.REVIEWS}, needs=(_MODEL,),
                       make=functools.partial(_make_reviews, subset=False)),
    "reviews-subset": Product(folder=f"data/reviews-subset/{_MODEL}", sources={"reviews": archives.REVIEWS},
                              needs=(_MODEL,), make=functools.partial(_make_reviews, subset=True)),
}


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


def prepare(material, name, verify=False):
    """Makes one product and what it needs. Returns what was done: 'ready' or 'made'."""
    if name not in PRODUCTS:
        raise PreparationError(f"nothing is called '{name}'; known: {', '.join(PRODUCTS)}")
    product = PRODUCTS[name]
    folder = pathlib.Path(material) / product.folder
    for needed in product.needs:
        prepare(material, needed, verify)
    if check_ready(folder, verify):
        return "ready"
    paths = {key: archives.fetch(archive, material / ".cache") for key, archive in product.sources.items()}
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        facts = product.make(paths, part, material)
        minilm.write_json(part / "manifest.json", {
            "name": name, "facts": facts, "products": describe(part),
            "sources": {key: dataclasses.asdict(archive) for key, archive in product.sources.items()}})
        if folder.exists():  # without a manifest: somebody else's, or half of an older program's
            raise PreparationError(f"{folder} exists but has no manifest.json: remove it and prepare again")
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return "made"
