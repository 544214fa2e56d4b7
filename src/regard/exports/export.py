"""Writes a trained model for other programs: a folder that is complete, or is not there."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, cast

import torch
from torch import nn

from regard.data.labels import Labels
from regard.data.speech.log_mel import LogMel
from regard.data.text.piece_tokenizer import PieceTokenizer
from regard.errors import ArgumentError, RegardError, RunError, UnknownNameError, WriteError
from regard.exports.formats import FORMATS, Format, UnexportableError
from regard.files.atomic import named_output, temporary_folder, write_atomically
from regard.files.regular import LARGEST_TEXT, path_inside, read_bytes, read_text

INDEX = "export.json"
"""The file that lists the contents of the folder."""


@dataclass(frozen=True)
class Exportable:
    """The parts of a trained run that an export needs; the model is on the CPU and in evaluation mode.

    ``files`` are the contents of files, such as a tokenizer, and the files; ``preparation`` says as plain values how
    inputs are made; ``front_end`` computes the features of sounds that the model reads, if it does.
    """

    name: str
    task: str
    model: nn.Module
    files: Mapping[str, tuple[Any, Path]]
    preparation: Mapping[str, Any] = field(default_factory=dict)
    front_end: LogMel | None = None


@dataclass(frozen=True)
class Exported:
    """A finished export: the result of ``regard.load(run).export(to, folder)``.

    Attributes:
        folder: the folder.
        files: its files, relative to it.
        differences: name of a program or class → the largest difference between its outputs and the model's, for
            random inputs of other sizes.
        lines: the comparisons, and the savings and losses of a quantization, for people.
        usage: Python that loads the first file.

    Example:
        >>> import torch
        >>> import regard
        >>> films = ["a fine film", "a dull film"] * 8, ["good", "bad"] * 8
        >>> run = regard.train("classify", films, validation=0.25, epochs=1, hidden=8, quiet=True)
        >>> exported = run.export("torch", "films-torch")
        >>> exported.files
        ('export.json', 'labels.json', 'model.pt2', 'tokenizer.json')
        >>> max(exported.differences.values()) < 1e-5
        True
        >>> program = torch.export.load("films-torch/model.pt2").module()
    """

    folder: Path
    files: tuple[str, ...]
    differences: dict[str, float]
    lines: tuple[str, ...]
    usage: str


def export(
    run: Exportable,
    to: Format,
    folder: str | Path,
    *,
    overwrite: bool = False,
    int8: bool = False,
    report: Callable[[str], None] | None = None,
) -> Exported:
    """Writes a trained model for other programs, into a new folder or over an export, and compares them with the model.

    ``to`` is ``torch`` (``torch.export`` programs), ``onnx``, whose weights ``int8`` makes numbers of 8 bits, or ``hf``
    (a folder of Hugging Face transformers); ``report`` gets a line when a step begins. Raises ArgumentError if the
    model cannot be exported; RunError if the folder is not empty, or the exported model gives other numbers;
    MissingPartError if a package of the extra ``export`` is not installed; and WriteError if a file cannot be written:
    nothing is left in its place.
    """
    to = cast(Format, to.lower()) if isinstance(to, str) else to
    if to not in FORMATS:
        raise UnknownNameError("format", to, FORMATS)
    if int8 and to != "onnx":
        raise ArgumentError(f"int8 is for onnx; to is {to!r}")
    _check_target(Path(folder), overwrite)
    say = report or (lambda line: None)
    with _new_folder(Path(folder)) as temporary:
        written = _hugging_face(run, temporary, say) if to == "hf" else _programs(run, to, int8, temporary, say)
        _write_index(run, to, written, temporary)
        files = _files(temporary)
    usage = written.usage.format(json.dumps(str(Path(folder, written.first)), ensure_ascii=False))
    return Exported(Path(folder), files, written.differences, tuple(written.lines), usage)


def check(model: nn.Module, to: Format) -> None:
    """Raises ArgumentError if a model in evaluation mode, on the CPU unless ``to`` is ``hf``, has no export of a
    format, as far as that is known before it is traced."""
    if to == "hf":
        from regard.exports import hugging_face

        hugging_face.check(model)
        return
    from regard.exports.programs import programs_of
    from regard.exports.torch_programs import check_limits

    for program in programs_of(model):
        check_limits(program)


def formats_of(model: nn.Module) -> tuple[list[Format], list[Format]]:
    """Returns the formats of the exports of a model on the CPU, and those that options of a training make possible."""
    own: list[Format] = []
    possible: list[Format] = []
    is_training = model.training
    model.eval()
    for to in FORMATS:
        try:
            check(model, to)
            own.append(to)
        except UnexportableError as error:
            if error.options:
                possible.append(to)
        except ArgumentError:
            continue
    model.train(is_training)
    return own, possible


def formats_text(model: nn.Module) -> str:
    """Returns the exports of a model on the CPU: ``"exports: onnx, torch (hf with --for-export hf)"``, or ""."""
    own, possible = formats_of(model)
    if not own:
        return ""
    others = f" ({', '.join(possible)} with --for-export {possible[0]})" if possible else ""
    traced = " if PyTorch can trace the backbone" if getattr(getattr(model, "config", None), "backbone", "") else ""
    return f"exports: {', '.join(own)}{traced}{others}"


class _Written(NamedTuple):
    """The parts of `Exported`, the entries of programs in the index, the file that ``usage`` loads, and a note on how
    inputs are made."""

    differences: dict[str, float]
    lines: list[str]
    programs: list[dict[str, Any]]
    usage: str
    first: str
    note: str = ""


def _programs(run: Exportable, to: str, int8: bool, folder: Path, say: Callable[[str], None]) -> _Written:
    """Writes the programs of a model, compares them with it, and quantizes them if ``int8`` is set."""
    from regard.exports import onnx_models, torch_programs
    from regard.exports.programs import programs_of

    if to == "onnx":
        onnx_models.require_packages()
    differences: dict[str, float] = {}
    lines, entries = [], []
    for program in programs_of(run.model, run.front_end):
        suffix = "onnx" if to == "onnx" else "pt2"
        path = folder / f"{program.name}.{suffix}"
        say(f"{path.name}: {program.summary}")
        if to == "onnx":
            onnx_models.save(program, path)
            gap = onnx_models.largest_difference(program, path)
        else:
            torch_programs.save(torch_programs.traced(program), path)
            gap = torch_programs.largest_difference(program, path)
        differences[program.name] = gap
        runner = "onnxruntime" if to == "onnx" else "the loaded program"
        lines.append(f"{path.name}: largest difference between {runner} and the model {gap:.1e}")
        entry = _entry(program, path.name)
        if int8:
            quantized = onnx_models.quantize(program, path)
            agreement = "" if quantized.agreement is None else f", {quantized.agreement:.1%} of choices the same"
            lines.append(
                f"{path.name}: int8, {size_text(quantized.before)} → {size_text(quantized.after)}, "
                f"{size_text(quantized.quantized)} of {size_text(quantized.weights)} of float32 weights quantized, "
                f"largest difference {quantized.difference:.1e}{agreement}"
            )
            entry["weights"] = {"float32_bytes": quantized.weights, "quantized_to_int8": quantized.quantized}
        entries.append(entry)
    for content, file in run.files.values():
        if isinstance(content, PieceTokenizer):
            content.save(folder / file.name)
        else:
            write_atomically(folder / file.name, read_bytes(file, LARGEST_TEXT))
    first = entries[0]["file"]
    usage = "import torch; program = torch.export.load({}).module()"
    if to == "onnx":
        usage = "import onnxruntime; session = onnxruntime.InferenceSession({})"
    return _Written(differences, lines, entries, usage, first)


def _hugging_face(run: Exportable, folder: Path, say: Callable[[str], None]) -> _Written:
    """Writes a folder of Hugging Face transformers."""
    from regard.exports import hugging_face

    say("a folder of Hugging Face transformers")
    files = {name: content for name, (content, _) in run.files.items()}
    written = hugging_face.save(run.model, files, folder, run.preparation.get("fit", "stretch"))
    line = f"{written.architecture}: largest difference between its logits and the model's {written.difference:.1e}"
    usage = f"import transformers; model = transformers.{written.auto}.from_pretrained({{}})"
    lines = [line, written.note] if written.note else [line]
    return _Written({written.architecture: written.difference}, lines, [], usage, ".", written.note)


def _entry(program: Any, file: str) -> dict[str, Any]:
    """Returns the entry of a program in the index: its inputs with dtypes and axes, and its outputs."""
    example = program.example(program.sizes)
    with torch.no_grad():
        results = program.module(*example)
    return {
        "file": file,
        "summary": program.summary,
        "inputs": [
            {"name": one.name, "dtype": _dtype(tensor), "axes": list(one.axes), "meaning": one.meaning}
            for one, tensor in zip(program.inputs, example, strict=True)
        ],
        "outputs": [
            {"name": name, "dtype": _dtype(tensor), "meaning": meaning}
            for (name, meaning), tensor in zip(program.outputs.items(), results, strict=True)
        ],
    }


def _dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _write_index(run: Exportable, to: str, written: _Written, folder: Path) -> None:
    """Writes the index of an export."""
    config = getattr(run.model, "config", None)
    content: dict[str, Any] = {"what": "an export of regard", "format": to, "run": run.name, "task": run.task}
    if written.programs:
        content["programs"] = written.programs
    content["preparation"] = dict(run.preparation)
    if written.note:
        content["note"] = written.note
    ids = {name: getattr(config, name, None) for name in ("pad", "bos", "eos")}
    if ids := {name: token for name, token in ids.items() if isinstance(token, int)}:
        content["ids"] = ids
    tokenizers = {name: file.name for name, (one, file) in run.files.items() if isinstance(one, PieceTokenizer)}
    if tokenizers and to != "hf":
        content["tokenizers"] = tokenizers
    for one, _ in run.files.values():
        if isinstance(one, Labels):
            content["labels"] = list(one.names)
    content["files"] = [*_files(folder), INDEX]
    write_atomically(folder / INDEX, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def _files(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()))


def size_text(size: int) -> str:
    """Returns a number of bytes as text: ``1.4 MB``."""
    for unit, bytes_of_one in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= bytes_of_one:
            return f"{size / bytes_of_one:.1f} {unit}"
    return f"{size} bytes"


def _check_target(folder: Path, overwrite: bool) -> None:
    """Raises RunError unless an export can be written as this folder."""
    if folder.is_symlink():
        raise RunError(f"{folder} is a link; an export is not written through a link, so name the folder itself")
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; name another folder with folder")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not overwrite:
        raise RunError(
            f"{folder} is not empty; replace an export with overwrite=True, or name another folder with folder"
        )
    foreign = sorted(set(_contents(folder)) - set(_own_files(folder)))
    if foreign:
        raise RunError(
            f"{folder} holds {foreign[0]}, which is no file of an export; move it elsewhere, or name another folder "
            "with folder"
        )


def _contents(folder: Path) -> Iterator[str]:
    """Yields files and links below a folder."""
    for path in folder.rglob("*"):
        if path.is_symlink() or not path.is_dir():
            yield path.relative_to(folder).as_posix()


def _own_files(folder: Path) -> list[str]:
    """Returns the files that an earlier export wrote; none if there was none."""
    try:
        content = json.loads(read_text(path_inside(folder, INDEX), LARGEST_TEXT))
        files = content["files"]
    except (OSError, ValueError, KeyError, TypeError, RegardError, RecursionError):
        return []
    return [name for name in files if isinstance(name, str) and ".." not in PurePosixPath(name).parts]


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Creates a folder that takes the name of ``folder`` if the block succeeds, and is deleted if it fails."""
    parent = named_output(folder, "folder").absolute().parent
    with contextlib.ExitStack() as stack:
        try:
            parent.mkdir(parents=True, exist_ok=True)
            temporary = stack.enter_context(temporary_folder(parent))
            new = temporary / "new"  # with the mode of a folder of the user, where a temporary one is private
            new.mkdir()
        except OSError as error:
            raise RunError(f"cannot create the folder {folder}: {error.strerror}") from error
        try:
            yield new
        except OSError as error:  # of a library that writes a file itself
            raise WriteError(
                f"cannot write into the folder {folder}: {error.strerror or error}; nothing is left in its place"
            ) from error
        _replace(new, folder, temporary.with_suffix(".old"))


def _replace(new: Path, folder: Path, old: Path) -> None:
    """Gives a new folder its name; an empty folder or an export of this name becomes ``old`` and is deleted."""
    try:
        if folder.is_dir():
            os.rename(folder, old)
        try:
            os.rename(new, folder)
        except OSError:
            if old.is_dir():
                os.rename(old, folder)
            raise
    except OSError as error:
        raise RunError(f"cannot write the folder {folder}: {error.strerror}") from error
    if old.is_dir():
        _delete_export(old)


def _delete_export(folder: Path) -> None:
    """Deletes the files of an export, and the folders that are empty then."""
    with contextlib.suppress(OSError):
        for name in _own_files(folder):
            path = path_inside(folder, name)
            if path.is_file():
                path.unlink()
        folders = sorted((path for path in folder.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts))
        for path in (*folders, folder):
            path.rmdir()
