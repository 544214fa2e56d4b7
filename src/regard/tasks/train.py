"""``regard.train``: the training of any task from Python, on files or on data in memory."""

from __future__ import annotations

import numbers
import re
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

from regard.configuration.options import option_types
from regard.errors import ArgumentError, ColumnError, KindError, RegardError, RunError
from regard.files.atomic import named_output
from regard.names.old_names import REPLACED_OPTIONS, unknown_name
from regard.tasks import registry
from regard.tasks.stored_data import named_reporter, prepared, python_number, store, stored_folder, stored_names
from regard.training.config import options_by_section, section_kinds
from regard.training.fitted_config import fit_config
from regard.training.processes import is_first_process
from regard.training.reporter import each_warning_once
from regard.training.run_folder import RunFolder, continue_with, is_empty_folder
from regard.training.sections import checked_fields
from regard.training.task import in_call

if TYPE_CHECKING:
    from regard.training.task import Task, Trained

PARTS = ("train", "validation", "test")

_ARGUMENTS = ("run", "quiet", "device")
"""The arguments of `train` that are no options of a task."""


def train(
    task: str,
    train: Any = None,
    *others: Never,
    validation: Any = None,
    test: Any = None,
    run: str | Path | None = None,
    quiet: bool = False,
    device: str = "cpu",
    **options: Any,
) -> Trained:
    """Trains a model, as ``regard train TASK`` does.

    ::

        run = regard.train("classify", (texts, labels), validation=0.1, architecture="gru")
        run.predict(["A film without a dull minute."])[0].label

        run = regard.train("translate", "pairs.tsv", max_minutes=5, run="runs/pairs")
        run.evaluate("test.tsv").bleu

    Args:
        task: name of the task: ``"classify"``, ``"translate"``, ..., or one of another package.
        train: training data: a path, or what else ``--train`` names; two equally long lists ``(inputs, targets)``; an
            iterable of pairs or of dictionaries; a DataFrame; or a data set of Hugging Face. An input is a text; for an
            image, a path, an image of Pillow or an array uint8 ``[height, width, 3]``; for a sound, a path, features
            ``[frames, features]``, ``{"array": samples, "sampling_rate": rate}`` or ``{"bytes": content, "path":
            path}``. For ``"language"``, a path or a list of texts. None: an option says it: ``bundled=1000``.
        validation: data that decide which model is the best, in the same forms; or the share of the training data that
            is used for it, such as 0.1. None: as many as the option ``held_out`` says.
        test: data on which `Trained.evaluate` measures the model if it is given none. None: there are none.
        run: the run folder, which must be new or empty; data in memory are written beside it, into ``<run>.data``.
            None: a temporary folder, which is deleted with the result; an error after the training began keeps it, and
            its message says where it is.
        quiet: whether to show no progress.
        device: PyTorch device of the result; the option ``accelerator`` says where it is trained.
        options: any options of ``regard train TASK`` by the names of their fields: ``epochs=5``, ``hidden=128``.

    Returns:
        the trained run, with ``predict``, ``evaluate``, ``model`` and ``folder``.

    Raises:
        ArgumentError: an option is unknown, of a wrong type or out of its range, or lists are not equally long.
        KindError: data have no form that can be used, or the name of the task is missing.
        DataError: the data cannot be used.
        RunError: the run folder or ``<run>.data`` is not empty, or cannot be written.
        TrainingError: the loss is no longer a finite number.
        KeyboardInterrupt: a signal stopped the training; a named run can be resumed by ``regard train TASK --resume``.

    Example:
        >>> import regard
        >>> films = ["a fine film", "a dull film", "fine music", "dull music"] * 8, ["good", "bad", "good", "bad"] * 8
        >>> run = regard.train("classify", films, validation=0.25, epochs=10, hidden=8, learning_rate=0.02, quiet=True)
        >>> prediction = run.predict(["a dull play"])[0]
        >>> prediction.label, prediction.words, prediction.weights.shape
        ('bad', ['a', 'dull', 'play'], torch.Size([1, 3]))
        >>> run.evaluate(films).accuracy
        1.0
    """
    if not isinstance(task, str):
        raise KindError(
            f"task must be the name of a task, before the data; it is a {type(task).__name__}: write "
            'regard.train("classify", (texts, labels))'
        )
    kind = registry.find(task)
    if others:
        raise KindError(
            "inputs and targets are one argument, in parentheses: write "
            + (
                'regard.train("classify", (texts, labels))'
                if task == "classify"
                else f'regard.train("{task}", (inputs, targets))'
            )
        )
    from regard.shapes.checks import usable_device
    from regard.training.run import train_run

    usable_device(device, with_elements=True)
    temporary = Path(tempfile.mkdtemp(prefix="regard-")) if run is None else None
    path = named_output(str(run), "run") if temporary is None else temporary / "run"
    data_folder = stored_folder(path)
    # The other processes of a distributed run get the folder that the first one makes, with its data. A temporary
    # folder is unknown to them, so that each has its own.
    writes, writes_data = is_first_process(), is_first_process() or temporary is not None
    stored: dict[str, str] = {}
    owns_data = False
    try:
        with stored_names(stored) as renamed, each_warning_once():
            options = checked_options(kind, options) | _share(kind, train, validation, options)
            folder = _new_folder(path) if writes else RunFolder(path)
            in_memory: dict[str, Any] = {}
            for name, value in zip(PARTS, (train, validation, test), strict=True):
                if isinstance(value, (str, Path)):
                    options[name] = str(value)
                elif value is not None and not (name == "validation" and _is_number(value)):
                    options[name], in_memory[name] = prepared(kind, value, data_folder / name, name, options)
                    stored[name] = options[name]
            typed = options_by_section(kind, options)
            fit_config(kind, typed, measured=False)
            if in_memory and writes_data:
                if data_folder.exists() and not (data_folder.is_dir() and is_empty_folder(data_folder)):
                    raise RunError(
                        f"{data_folder} exists, and the data of the run would be written there; move it away, or name "
                        "another folder with run"
                    )
                owns_data = True
                for name, value in in_memory.items():
                    store(kind, value, data_folder / name, name, options)

            def renamed_line(text: str) -> str:
                text = text.removesuffix(" (--dry-run says why)")  # an option of the command alone
                is_of_run = temporary is not None and text.endswith(f" · {path}")
                return f"{renamed(text)} (a temporary folder: run='NAME' keeps it)" if is_of_run else renamed(text)

            fitted, reporter = fit_config(kind, typed, measured=writes), named_reporter(quiet, renamed_line)
            result = train_run(kind, fitted.config, folder, reporter=reporter, chosen=fitted.summary())
            if result.interrupted:
                raise KeyboardInterrupt(f"signal {result.interrupted} stopped the training")
            if writes:
                for line in result.lines(kind.metrics[0]):
                    reporter.print_line(line)
            trained = kind.load(result.folder, device)
    except BaseException as error:
        if temporary is not None and _has_begun(path):
            _add(error, f"what was trained is kept in {path}; {continue_with(path, kind.name)}")
        elif temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        elif owns_data and not (path / "config.yaml").exists():
            shutil.rmtree(data_folder, ignore_errors=True)
        if isinstance(error, ColumnError):
            raise error.in_python(f"regard.train({kind.name!r}, {in_call(train)}") from error
        raise
    if temporary is not None:
        weakref.finalize(trained, shutil.rmtree, temporary, ignore_errors=True)
    return trained


def _new_folder(path: Path) -> RunFolder:
    try:
        return RunFolder.create(path)
    except RunError as error:
        if "is not empty" not in str(error):
            raise
        raise RunError(f"{path} is not empty; name another folder with run") from None


def _has_begun(path: Path) -> bool:
    """Whether a run folder has something that was trained."""
    from regard.training.checkpoints import list_checkpoints

    folder = RunFolder(path)
    return folder.model.is_file() or bool(list_checkpoints(folder.checkpoints))


def _add(error: BaseException, text: str) -> None:
    """Adds a sentence to the message of an error."""
    if isinstance(error, (RegardError, KeyboardInterrupt)) or type(error) in (RuntimeError, ValueError, TypeError):
        message = str(error) or ("the training was stopped" if isinstance(error, KeyboardInterrupt) else "")
        error.args = (f"{message}; {text}" if message else text,)
    else:
        error.add_note(text)


def _is_number(value: Any) -> bool:
    return isinstance(_plain(value), numbers.Real)


def _plain(value: Any) -> Any:
    """Returns a number of NumPy or PyTorch as one of Python, a path as text, and other values unchanged."""
    return str(value) if isinstance(value, Path) else python_number(value)


def _share(task: Task, train: Any, validation: Any, options: Mapping[str, Any]) -> dict[str, float]:
    """Returns the option that a number for ``validation`` stands for."""
    if not _is_number(validation):
        return {}
    share: Any = _plain(validation)
    if "held_out" not in _types(task):
        raise ArgumentError(f"validation must be data: the task {task.name!r} holds no share of its data out")
    if isinstance(share, bool) or not 0 < share < 1:
        raise ArgumentError(
            f"validation must be data, or a share above 0 and below 1; it is {share} (held_out can be a number of "
            "examples)"
        )
    if options.get("held_out") is not None:
        raise ArgumentError("validation and held_out exclude each other if validation is a share; give one of them")
    if options.get("bundled") or (isinstance(train, str) and train == "bundled" and not Path(train).exists()):
        raise ArgumentError("validation cannot be a share of generated data, which have a validation part of their own")
    return {"held_out": float(share)}


def _types(task: Task) -> dict[str, Any]:
    return {name: hint for kind in section_kinds(task).values() for name, hint in option_types(kind).items()}


def checked_options(task: Task, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options with plain values; raises ArgumentError if the task has no such option, or the type of a
    value is wrong."""
    known = _types(task)
    checked: dict[str, Any] = {}
    for name, typed in options.items():
        value = _plain(typed)
        if value is None and name in task.fitted:
            continue
        if name == "devices" and type(value) is int:
            value = str(value)
        if name not in known:
            _raise_if_anew(name, value)
            raise ArgumentError(unknown_name("option", name, [*known, *_ARGUMENTS]))
        for kind in section_kinds(task).values():
            if name in option_types(kind):
                try:
                    checked |= checked_fields(kind, {name: value}, "options")
                except RunError as error:
                    _raise_if_anew(name, value)
                    raise ArgumentError(str(error).removeprefix("options.").replace("or null;", "or None;")) from None
    return checked


def _raise_if_anew(name: str, value: Any) -> None:
    """Raises ArgumentError if an earlier version had the option with this value, which is now written differently."""
    option = f"--{name.replace('_', '-')}"
    anew = REPLACED_OPTIONS.get(f"{option} {value}")
    if isinstance(value, bool):
        anew = REPLACED_OPTIONS.get(option if value else f"--no-{option[2:]}")
    if anew is not None:
        words = re.sub(r"--([a-z-]+) (\S+)", lambda one: f"{one[1].replace('-', '_')}={one[2]!r}", anew)
        raise ArgumentError(f"{name}={value!r} is now {words.replace(' ', ', ')}")
