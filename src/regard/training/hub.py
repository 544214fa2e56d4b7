"""Runs on the Hugging Face hub: uploaded by ``regard push``, and loaded by the name ``hf://OWNER/NAME``.

A run is downloaded into the hub's cache, whose snapshots are links to files that all revisions share. From these a run
folder of regular files is made, once for each revision, so that it is checked like every other folder of somebody else,
and nothing that is written into it changes the hub's cache.
"""

import contextlib
import dataclasses
import glob
import json
import os
import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.atomic_file import temporary_folder
from regard.errors import ArgumentError, MissingPartError, RegardError, RunError
from regard.regular_file import LARGEST_TEXT, path_inside, read_bytes, read_text
from regard.training.config import read_yaml, run_sections, yaml_text
from regard.training.hub_address import HubAddress
from regard.training.manifest import Manifest, ManifestFile
from regard.training.model_card import (
    CARD,
    FACTS,
    TrainingFacts,
    card,
    current_evaluations,
    hub_data_sets,
    is_card,
    is_own_card,
    public_name,
    published_config,
)

if TYPE_CHECKING:
    from regard.training.run_folder import RunFolder
    from regard.training.task import Task

FILES = ("config.yaml", ManifestFile.NAME, "model.safetensors", CARD, FACTS, "metrics.csv", "samples.jsonl")
"""The files of every run that are downloaded, besides those that the manifest lists, and the evaluations."""

_MOST_EVALUATIONS = 100


def local_run(address: str) -> Path:
    """Returns a folder of this machine with a run of the hub, which is downloaded unless it is there.

    The folder is named as the run. Without a network, the revision that was last seen is used.

    Args:
        address: ``hf://OWNER/NAME`` or ``hf://OWNER/NAME@REVISION``.

    Raises:
        ArgumentError: the address is not one.
        RunError: the hub has no such run, refuses it, or cannot be reached.
        MissingPartError: ``huggingface_hub`` is not installed.
    """
    return _download(HubAddress.parse(address))


def _download(address: HubAddress) -> Path:
    hub = _library()
    snapshot = _snapshot(address, ["config.yaml", ManifestFile.NAME, FACTS])
    storage = snapshot.parents[1]
    config = path_inside(storage, snapshot / "config.yaml")
    if not config.is_file():
        raise RunError(f"{address} is not a run: it has no config.yaml")
    run_sections(read_yaml(config), f"{address}: config.yaml")
    manifest = _manifest(path_inside(storage, snapshot / ManifestFile.NAME), address)
    recorded = [name for name in manifest.files if not name.endswith(".ckpt")]
    evaluations = _evaluations(path_inside(storage, snapshot / FACTS))
    names = [glob.escape(name) for name in (*FILES, *recorded, *evaluations)]
    snapshot = _snapshot(address._replace(revision=snapshot.name), [*names, *(() if manifest.files else ("*.json",))])
    try:
        cached = f"{address.owner}--{address.name}--{snapshot.name}"
        parent = hub.cached_assets_path(library_name="regard", namespace="runs", subfolder=cached)
        return _run_folder(snapshot, storage, parent / address.name)
    except OSError as error:
        raise RunError(f"{address}: the run cannot be kept on this machine: {error.strerror or error}") from error


def _manifest(path: Path, address: HubAddress) -> Manifest:
    try:
        return Manifest.from_json(read_text(path, LARGEST_TEXT))
    except FileNotFoundError:
        return Manifest()
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{address}: its {ManifestFile.NAME} is damaged ({str(error).splitlines()[0]})") from error


def _evaluations(path: Path) -> list[str]:
    """The files of the evaluations that ``training.json`` names; a damaged one names none, as loading needs none."""
    try:
        facts = TrainingFacts.read_file(path)
    except RunError:
        return []
    names = list(facts.evaluations) if facts else []
    return [f"evaluation-{name}.json" for name in names[:_MOST_EVALUATIONS] if not set(name) & {"/", "\\", "\0"}]


def _snapshot(address: HubAddress, patterns: Sequence[str]) -> Path:
    hub = _library()

    class Bar(hub.utils.tqdm):
        """A progress bar that is drawn in a terminal only."""

        def __init__(self, *arguments: Any, **options: Any):
            super().__init__(*arguments, **{**options, "disable": options.get("disable") or not sys.stderr.isatty()})

    with _explained(str(address)):
        options = {"allow_patterns": list(patterns), "library_name": "regard", "tqdm_class": Bar}
        return Path(hub.snapshot_download(address.repository, revision=address.revision, **options))


def _run_folder(snapshot: Path, storage: Path, folder: Path) -> Path:
    """Returns a folder with the files of a snapshot as regular files. The small ones are copies.

    Args:
        snapshot: the folder of links.
        storage: the folder of the repository in the hub's cache, out of which no link may lead.
        folder: the folder to make, unless it exists.
    """
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
    """Give the model, which is large and never written in place, a second name; False: the file system has no links."""
    try:
        os.link(file, link)
    except OSError:  # another file system, or one without links
        return False
    return True


def push(
    task: "Task",
    folder: "RunFolder",
    repository: str,
    *,
    private: bool = False,
    message: str | None = None,
    checkpoints: bool = False,
) -> tuple[str, list[str], str]:
    """Upload a run to the hub, in one commit; the repository is created unless it exists.

    Uploaded are the files that a trained run needs, its model card, its metrics, and the numbers of its evaluations.
    The paths of this machine are taken out of the configuration and the manifest. A card that the user has edited in
    the run folder is uploaded as it is. Otherwise one is generated; it replaces no text that somebody has written on
    the hub.

    Args:
        task: the task of the run.
        folder: the run folder.
        repository: ``"OWNER/NAME"``.
        private: whether a new repository is private. One that exists stays as it is; if it is public, nothing is
            uploaded.
        message: the message of the commit; None: one that names the run.
        checkpoints: whether to upload the checkpoints too, which are larger than the model.

    Returns:
        the address of the repository, the names of the files, and what became of a ``README.md`` that somebody has
        edited, as a line; empty: there was none.

    Raises:
        ArgumentError: the name is none of the hub, or the message is empty.
        RunError: the run is incomplete or changed, there is no token, the hub refuses, or the repository is public
            and ``private`` is True.
        MissingPartError: ``huggingface_hub`` is not installed.
    """
    address = HubAddress.parse(f"hf://{repository}")
    if address.revision:
        raise ArgumentError(f"the repository must be OWNER/NAME; it is {repository!r:.200}")
    if message is not None and not message.strip():
        raise ArgumentError("message is empty; leave it out, or say what is uploaded")
    hub = _library()
    contents = published_files(task, folder, str(address), checkpoints)
    if hub.get_token() is None:
        raise RunError("there is no token for the hub; log in with: hf auth login, or set HF_TOKEN")
    with _explained(str(address)):
        api = hub.HfApi(library_name="regard")
        url = api.create_repo(address.repository, private=private or None, exist_ok=True)
        info = api.repo_info(address.repository)
        if private and not info.private:
            raise RunError(
                f"{address} exists and is public, so nothing was uploaded; make it private in its settings on the hub, "
                "leave --private out, or name another repository"
            )
        remote = None
        if CARD in {file.rfilename for file in info.siblings or ()}:
            remote = _snapshot(address._replace(revision=info.sha), [CARD]) / CARD
        note = _readme_note(folder.file(CARD), remote)
        if remote is not None and not is_own_card(remote) and not _is_edited_card(folder.file(CARD)):
            del contents[CARD]
        api.create_commit(
            address.repository,
            [hub.CommitOperationAdd(name, content) for name, content in contents.items()],
            commit_message=message or f"Upload the run {folder.path.name}",
            parent_commit=info.sha,  # an edit of this moment is not replaced: the hub refuses
        )
    return str(url), list(contents), note


def _is_edited_card(path: Path) -> bool:
    return is_card(path) and not is_own_card(path)


def _readme_note(local: Path, remote: Path | None) -> str:
    """What becomes of a ``README.md`` that somebody has written or edited, here or on the hub; empty: there is none."""
    foreign = None if remote is None or is_own_card(remote) else remote
    if _is_edited_card(local):
        if foreign and read_bytes(foreign, LARGEST_TEXT) != read_bytes(local, LARGEST_TEXT):
            return f"{CARD}: the card that you edited was uploaded; it replaced an edited one, which is in the history"
        return f"{CARD}: the card that you edited was uploaded as it is"
    own = "; yours was not uploaded, since it is no card of regard" if local.is_file() and not is_card(local) else ""
    if foreign:
        return f"{CARD}: somebody has edited the one on the hub, so it was left as it is{own}"
    return f"{CARD}: a generated card was uploaded{own}" if own else ""


def published_files(
    task: "Task", folder: "RunFolder", address: str, checkpoints: bool = False
) -> dict[str, str | bytes]:
    """Returns the files of a run that are uploaded: name → path of the file, or its content where that differs.

    Args:
        task: the task of the run.
        folder: the run folder.
        address: the address of the run on the hub, for its card.
        checkpoints: whether they are uploaded too.

    Raises:
        RunError: a file is missing, or has changed.
    """
    manifest = folder.manifest.read()
    names = [name for name in task.files if name.partition("/")[0] != "corpus"]  # the generated data are not needed
    folder.require(*(folder.file(name) for name in names))
    names = ["model.safetensors", *names]
    if checkpoints:
        names += [path.relative_to(folder.path).as_posix() for path in sorted(folder.checkpoints.glob("step-*.ckpt"))]
    for name in names:
        folder.manifest.verify(folder.file(name))
    config = read_yaml(folder.config)
    contents: dict[str, str | bytes] = {
        "config.yaml": yaml_text(published_config(config, folder.manifest)).encode(),
        ManifestFile.NAME: _published_manifest(manifest, names).to_json().encode(),
        CARD: _published_card(task, folder, address),
    }
    for name in (*names, FACTS, "metrics.csv"):
        if (path := folder.file(name)).is_file():
            contents[name] = str(path)
    for path in current_evaluations(folder):
        contents[path.name] = _published_evaluation(path, hub_data_sets(config["data"], folder.manifest))
    return contents


def _published_card(task: "Task", folder: "RunFolder", address: str) -> bytes:
    path = folder.file(CARD)
    if _is_edited_card(path):
        return read_bytes(path, LARGEST_TEXT)
    return card(task, folder, address)


def _published_manifest(manifest: Manifest, names: Sequence[str]) -> Manifest:
    files = {name: manifest.files[name] for name in names if name in manifest.files}
    data = {
        part: tuple(dataclasses.replace(file, path=public_name(file.path)) for file in files)
        for part, files in manifest.data.items()
    }
    return Manifest(patterns=manifest.patterns, files=files, data=data)


def _published_evaluation(path: Path, data_sets: Collection[str]) -> bytes:
    content = json.loads(read_text(path, LARGEST_TEXT))
    if isinstance(content, dict) and isinstance(content.get("data"), str):
        content["data"] = public_name(content["data"], data_sets)
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingPartError("huggingface_hub", "hub") from error
    return huggingface_hub


@contextlib.contextmanager
def _explained(address: str) -> Any:
    """A context in which every error of the hub's library becomes a RunError of one line."""
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
