"""Files of a model hub, through huggingface_hub: HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE, HF_TOKEN and proxies count as
there, downloads are resumed and cached as there. What that library leaves open is checked here: the hash of each large
file."""
import dataclasses
import os
import pathlib

from archives import sha256_of
from errors import PreparationError

os.environ.setdefault("HF_HUB_DISABLE_XET", "1")  # plain HTTP: one way that proxies and mirrors know
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "0" if os.isatty(2) else "1")
_SHA256_DIGITS = 64
_TRIES = 5


@dataclasses.dataclass(frozen=True)
class Repository:
    kind: str       # model, dataset
    name: str       # org/name
    revision: str   # as asked for

    @property
    def word(self):
        return f"{self.kind} '{self.name}'" + (f" at '{self.revision}'" if self.revision != "main" else "")


def parse(kind, word):
    name, _, revision = word.partition("@")
    return Repository(kind, name, revision or "main")


def _sentence(error):
    """The first line of a library's message, without its traceback of causes."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _guarded(repository, call):
    """Runs a call of the library; its errors become sentences that say what to do."""
    import requests
    from huggingface_hub import errors
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        return call()
    except errors.GatedRepoError as error:
        raise PreparationError(f"{repository.word}: access must be asked for at {endpoint}/{repository.name}, then "
                               f"HF_TOKEN set ({_sentence(error)})") from error
    except errors.RepositoryNotFoundError as error:
        raise PreparationError(f"{repository.word} is not at {endpoint}, or needs HF_TOKEN") from error
    except errors.RevisionNotFoundError as error:
        raise PreparationError(f"{repository.word}: the hub has no such revision") from error
    except errors.LocalEntryNotFoundError as error:
        raise PreparationError(f"{repository.word}: {endpoint} cannot be reached; without a hub there are minilm-distil, "
                               "smollm2-135m and reviews") from error
    except errors.EntryNotFoundError as error:
        raise PreparationError(f"{repository.word}: {_sentence(error)}") from error
    except (errors.HfHubHTTPError, requests.RequestException) as error:
        raise PreparationError(f"{repository.word}: {endpoint} answers: {_sentence(error)}") from error


class Snapshot:
    """One revision of a repository."""

    def __init__(self, repository):
        from huggingface_hub import constants
        self.repository = repository
        self.licence = "unknown"
        if constants.HF_HUB_OFFLINE:
            self._find_in_cache()
        else:
            self._ask()

    def _ask(self):
        from huggingface_hub import HfApi
        info = _guarded(self.repository, lambda: HfApi().repo_info(
            self.repository.name, repo_type=self.repository.kind, revision=self.repository.revision, files_metadata=False))
        self.files = [file.rfilename for file in info.siblings]
        self.revision = info.sha
        self.licence = (info.card_data.get("license") if info.card_data else None) or "unknown"

    def _find_in_cache(self):
        from huggingface_hub import CacheNotFound, scan_cache_dir
        try:
            cached = [revision for repo in scan_cache_dir().repos
                      if (repo.repo_type, repo.repo_id) == (self.repository.kind, self.repository.name)
                      for revision in repo.revisions
                      if self.repository.revision in ("main", revision.commit_hash, *revision.refs)]
        except CacheNotFound:
            cached = []
        if not cached:
            raise PreparationError(f"{self.repository.word} is not in the cache and HF_HUB_OFFLINE is set; without a hub there "
                                   "are minilm-distil, smollm2-135m and reviews")
        newest = max(cached, key=lambda revision: revision.last_modified)
        self.revision = newest.commit_hash
        self.files = [file.file_path.relative_to(newest.snapshot_path).as_posix() for file in newest.files]

    def fetch(self, file):
        """The path of a file in the library's cache, its hash checked where the hub tells one (it does for large files,
        by which the cache names them)."""
        path = pathlib.Path(_guarded(self.repository, lambda: self._download(file)))
        blob = path.resolve()
        if len(blob.name) == _SHA256_DIGITS:
            found = sha256_of(blob)
            if found != blob.name:
                blob.unlink()
                path.unlink(missing_ok=True)
                raise PreparationError(f"{self.repository.word}: {file} came with sha256 {found}; the hub says "
                                       f"{blob.name}: it was removed, prepare again")
        return path

    def _download(self, file):
        from huggingface_hub import hf_hub_download
        from requests.exceptions import ChunkedEncodingError
        for attempt in range(_TRIES):
            try:
                return hf_hub_download(self.repository.name, file, repo_type=self.repository.kind, revision=self.revision)
            except ChunkedEncodingError as error:  # cut off; what came is kept, and the next try goes on from there
                if attempt + 1 == _TRIES:
                    raise PreparationError(f"{self.repository.word}: {file} was cut off on its way {_TRIES} times; prepare "
                                           "again to go on from there") from error
        return None

    def fetch_if_there(self, file):
        return self.fetch(file) if file in self.files else None

    def source(self):
        return {"repository": self.repository.name, "kind": self.repository.kind, "revision": self.revision,
                "licence": self.licence}
