"""Runs on the Hugging Face hub, which are loaded by the address ``hf://OWNER/NAME`` or ``hf://OWNER/NAME@REVISION``.

A run is downloaded into the hub's cache, whose snapshots are links to files that all revisions share. From these a run
folder of regular files is made, once for each revision, so that it is checked like every other folder of somebody else,
and nothing that is written into it changes the hub's cache.
"""

import contextlib
import glob
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import ArgumentError, MissingPartError, RegardError, RunError
from regard.files.atomic import temporary_folder
from regard.files.regular import LARGEST_TEXT, path_inside, read_text
from regard.training.card_seal import CARD
from regard.training.config import read_yaml, run_sections
from regard.training.manifest import Manifest, ManifestFile
from regard.training.training_facts import FACTS, TrainingFacts

FILES = ("config.yaml", ManifestFile.NAME, "model.safetensors", CARD, FACTS, "metrics.csv", "samples.jsonl")
"""The files that are downloaded of every run; others are those of its manifest and its evaluations."""

_MOST_EVALUATIONS = 100

_ADDRESS = re.compile(r"hf:/{1,2}([^/@]+)/([^/@]+?)(?:@(.+))?")  # a `Path` has one slash
_NAME = re.compile(r"(?!.*(--|\.\.))[A-Za-z0-9]([\w.-]{0,94}[A-Za-z0-9_])?")
_REVISION = re.compile(r"(?!.*\.\.)\w[\w./-]{0,200}")
_EXAMPLE = "hf://OWNER/NAME or hf://OWNER/NAME@REVISION"


class HubAddress(NamedTuple):
    """The address of a run on the hub."""

    owner: str
    name: str
    revision: str | None = None
    """A branch, a tag or a commit; None: the newest commit."""

    @property
    def repository(self) -> str:
        """``OWNER/NAME``."""
        return f"{self.owner}/{self.name}"

    def __str__(self) -> str:
        return f"hf://{self.repository}{f'@{self.revision}' if self.revision else ''}"

    @classmethod
    def parse(cls, address: str) -> "HubAddress":
        """Returns the parts of ``hf://OWNER/NAME`` or ``hf://OWNER/NAME@REVISION``.

        Raises:
            ArgumentError: it is no such address.
        """
        match = _ADDRESS.fullmatch(address)
        if not match or not all(map(_NAME.fullmatch, match.groups()[:2])):
            raise ArgumentError(f"a run on the hub is named {_EXAMPLE}; it is {address!r:.200}")
        if match[3] is not None and not _REVISION.fullmatch(match[3]):
            raise ArgumentError(f"the revision must be a branch, a tag or a commit; it is {match[3]!r:.200}")
        return cls(*match.groups())


def is_hub_address(name: str | os.PathLike[str]) -> bool:
    """Whether a name is the address of a run on the hub, and not a folder."""
    return os.fspath(name).startswith("hf:/")


def local_run(address: str) -> Path:
    """Returns the local folder of a run of the hub, which is downloaded unless it is there.

    The folder is named as the run. Without a network, the revision that was last seen is used.

    Raises:
        ArgumentError: it is no such address.
        RunError: the hub has no such run, refuses it, or cannot be reached.
        MissingPartError: ``huggingface_hub`` is not installed.
    """
    hub_address, hub = HubAddress.parse(address), library()
    snapshot = snapshot_of(hub_address, ["config.yaml", ManifestFile.NAME, FACTS])
    storage = snapshot.parents[1]
    config = path_inside(storage, snapshot / "config.yaml")
    if not config.is_file():
        raise RunError(f"{hub_address} is not a run: it has no config.yaml")
    run_sections(read_yaml(config), f"{hub_address}: config.yaml")
    manifest = _manifest(path_inside(storage, snapshot / ManifestFile.NAME), hub_address)
    recorded = [name for name in manifest.files if not name.endswith(".ckpt")]
    evaluations = _evaluations(path_inside(storage, snapshot / FACTS))
    names = [glob.escape(name) for name in (*FILES, *recorded, *evaluations)]
    snapshot = snapshot_of(
        hub_address._replace(revision=snapshot.name), [*names, *(() if manifest.files else ("*.json",))]
    )
    try:
        cached = f"{hub_address.owner}--{hub_address.name}--{snapshot.name}"
        parent = hub.cached_assets_path(library_name="regard", namespace="runs", subfolder=cached)
        return _run_folder(snapshot, storage, parent / hub_address.name)
    except OSError as error:
        raise RunError(f"{hub_address}: the run cannot be kept on this machine: {error.strerror or error}") from error


def _manifest(path: Path, address: HubAddress) -> Manifest:
    try:
        return Manifest.from_json(read_text(path, LARGEST_TEXT))
    except FileNotFoundError:
        return Manifest()
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{address}: its {ManifestFile.NAME} is damaged ({str(error).splitlines()[0]})") from error


def _evaluations(path: Path) -> list[str]:
    """Returns the files of the evaluations that ``training.json`` names; none if it is damaged."""
    try:
        facts = TrainingFacts.read(path)
    except RunError:
        return []
    names = list(facts.evaluations) if facts else []
    return [f"evaluation-{name}.json" for name in names[:_MOST_EVALUATIONS] if not set(name) & {"/", "\\", "\0"}]


def snapshot_of(address: HubAddress, patterns: Sequence[str]) -> Path:
    """Returns the folder in the hub's cache with links to the files of a run that match these patterns."""
    hub = library()

    class Bar(hub.utils.tqdm):
        """A progress bar that is drawn in a terminal only."""

        def __init__(self, *arguments: Any, **options: Any):
            super().__init__(*arguments, **{"disable": None, **options})

    with explained(str(address)):
        options = {"allow_patterns": list(patterns), "library_name": "regard", "tqdm_class": Bar}
        return Path(hub.snapshot_download(address.repository, revision=address.revision, **options))


def _run_folder(snapshot: Path, storage: Path, folder: Path) -> Path:
    """Returns a folder with the files of a snapshot as regular files, the small ones as copies. No link may lead out of
    ``storage``, the folder of the repository in the hub's cache."""
    if folder.is_dir():
        return folder
    with temporary_folder(folder.parent) as prepared:
        for path in sorted(snapshot.rglob("*")):
            if path.is_dir():
                continue
            blob = os.path.realpath(path_inside(storage, path))
            target = prepared / path.relative_to(snapshot)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.name.startswith("evaluation-") and os.path.getsize(blob) > LARGEST_TEXT:
                continue
            if target != prepared / "model.safetensors" or not _linked(blob, target):
                shutil.copyfile(blob, target)
        with contextlib.suppress(OSError):  # another process was faster
            os.rename(prepared, folder)
    return folder


def _linked(file: str, link: Path) -> bool:
    """Links a large file, which is never written in place, to a second name; False if the file system cannot."""
    try:
        os.link(file, link)
    except OSError:  # another file system, or one without links
        return False
    return True


def library() -> Any:
    """Returns the hub's package.

    Raises:
        MissingPartError: it is not installed.
    """
    with MissingPartError.instead("huggingface_hub", "hub"):
        import huggingface_hub
    return huggingface_hub


@contextlib.contextmanager
def explained(address: str) -> Any:
    """Turns every error of the hub's library in this context into a RunError of one line."""
    from huggingface_hub import constants, errors

    try:
        yield
    except RegardError:
        raise
    except Exception as raised:  # those of the transport belong to several packages
        error: BaseException = raised
        while isinstance(error, RuntimeError) and error.__cause__ is not None:  # of the threads that upload
            error = error.__cause__
        status = getattr(getattr(error, "response", None), "status_code", None)
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        if isinstance(error, errors.GatedRepoError):
            reason = "its owner has to grant you access first, on its page on the hub"
        elif isinstance(error, errors.RevisionNotFoundError):
            reason = "the hub has no such revision"
        elif isinstance(error, errors.RepositoryNotFoundError):
            reason = "the hub has no such repository, or it is private and your token cannot read it (hf auth login)"
        elif status in (401, 403):
            reason = f"the hub refuses your token (error {status}); log in with: hf auth login"
        elif status is not None:
            reason = f"the hub answers with error {status}: {first}"
        elif isinstance(error, (errors.LocalEntryNotFoundError, ConnectionError)) or "Connect" in type(error).__name__:
            reason = f"{constants.ENDPOINT} cannot be reached, and the run is not on this machine; check the network"
        else:
            reason = first
        raise RunError(f"{address}: {reason}") from raised
