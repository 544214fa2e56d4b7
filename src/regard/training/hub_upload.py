"""The upload of a run to the Hugging Face hub: ``regard push``."""

import dataclasses
import json
from collections.abc import Collection, Sequence
from pathlib import Path

from regard.errors import ArgumentError, RunError
from regard.files.regular import LARGEST_TEXT, read_bytes, read_text
from regard.training.card_seal import CARD, is_edited_card, is_own_card
from regard.training.config import read_yaml, yaml_text
from regard.training.hub import HubAddress, explained, library, snapshot_of
from regard.training.manifest import Manifest, ManifestFile
from regard.training.model_card import card, current_evaluations, hub_data_sets, public_name, published_config
from regard.training.run_folder import RunFolder
from regard.training.task import Task
from regard.training.training_facts import FACTS


def push(
    task: Task,
    folder: RunFolder,
    repository: str,
    *,
    private: bool = False,
    message: str | None = None,
    checkpoints: bool = False,
) -> tuple[str, list[str], str]:
    """Uploads a run to the hub repository ``"OWNER/NAME"`` in one commit, and creates the repository unless it exists.

    The upload has the files that a trained run needs, its model card, its metrics, and the numbers of its evaluations,
    and with ``checkpoints`` these, which are larger than the model. The paths of this machine are removed from the
    configuration and the manifest. A card that the user has edited in the run folder is uploaded as it is. Otherwise a
    card is generated, unless somebody has edited the one on the hub. With ``private``, a new repository is, and nothing
    is uploaded to a public one.

    Returns the address of the repository, the names of the files, and a line about a ``README.md`` that somebody has
    edited, or "". Raises ArgumentError if the hub permits no such name, or the message is empty; RunError if the run is
    incomplete or changed, there is no token, the hub refuses, or the repository is public and should not be; and
    MissingPartError if ``huggingface_hub`` is not installed.
    """
    address = HubAddress.parse(f"hf://{repository}")
    if address.revision:
        raise ArgumentError(f"the repository must be OWNER/NAME; it is {repository!r:.200}")
    if message is not None and not message.strip():
        raise ArgumentError("message is empty; leave it out, or say what is uploaded")
    hub = library()
    contents = published_files(task, folder, str(address), checkpoints)
    if hub.get_token() is None:
        raise RunError("there is no token for the hub; log in with: hf auth login, or set HF_TOKEN")
    with explained(str(address)):
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
            remote = snapshot_of(address._replace(revision=info.sha), [CARD]) / CARD
        note = _readme_note(folder.file(CARD), remote)
        if remote is not None and not is_own_card(remote) and not is_edited_card(folder.file(CARD)):
            del contents[CARD]
        api.create_commit(
            address.repository,
            [hub.CommitOperationAdd(name, content) for name, content in contents.items()],
            commit_message=message or f"Upload the run {folder.path.name}",
            parent_commit=info.sha,  # an edit of this moment is not replaced: the hub refuses
        )
    return str(url), list(contents), note


def _readme_note(local: Path, remote: Path | None) -> str:
    """Returns how an edited ``README.md``, here or on the hub, was treated; "" if there is none."""
    foreign = None if remote is None or is_own_card(remote) else remote
    if is_edited_card(local):
        if foreign and read_bytes(foreign, LARGEST_TEXT) != read_bytes(local, LARGEST_TEXT):
            return f"{CARD}: the card that you edited was uploaded; it replaced an edited one, which is in the history"
        return f"{CARD}: the card that you edited was uploaded as it is"
    is_foreign_text = local.is_file() and not is_own_card(local)
    about_yours = "; yours was not uploaded, since it is no card of regard" if is_foreign_text else ""
    if foreign:
        return f"{CARD}: somebody has edited the one on the hub, so it was left as it is{about_yours}"
    return f"{CARD}: a generated card was uploaded{about_yours}" if about_yours else ""


def published_files(task: Task, folder: RunFolder, address: str, checkpoints: bool = False) -> dict[str, str | bytes]:
    """Returns the files of a run to upload: name → path of the file, or its content if that differs. Raises RunError if
    a file is missing, or has changed."""
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


def _published_card(task: Task, folder: RunFolder, address: str) -> bytes:
    path = folder.file(CARD)
    if is_edited_card(path):
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
