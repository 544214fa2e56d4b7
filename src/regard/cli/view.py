"""``regard view``: writes a model's answer to a text, and its attention, into a file."""

import itertools
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from regard.cli.option_errors import options_named
from regard.cli.option_types import Device, Language, ModelThreads, between, use_threads
from regard.errors import ArgumentError, DataError
from regard.files.regular import read_bytes

if TYPE_CHECKING:
    from regard.page.reading import Reading
    from regard.records import Document

Model = Annotated[str, Parameter(help="Run folder, hf://OWNER/NAME of a run, or folder of a Hugging Face model.")]
Text = Annotated[str, Parameter(help="The model's input: a text, or the path of a sound or an image.")]
Output = Annotated[
    Path | None,
    Parameter(
        name=["--output", "-o"],
        help="The file: .html (a self-contained page), .png, .svg or .json (the data of the page). Default: "
        "attention.html; attention-2.html and so on where there is one.",
    ),
]
ShownView = Annotated[
    str | None, Parameter(name="--view", help="The first view, e.g. pattern, lines, words, grid or walk.")
]
AttentionNumber = Annotated[
    int | None,
    Parameter(
        name="--attention",
        validator=between(0, 10_000),
        help="The first attention that is shown, counted from 0. Default: the one to the source, else the clearest.",
    ),
]
Head = Annotated[
    int | None,
    Parameter(validator=between(0, 10_000), help="The first head that is shown, from 0. Default: the clearest."),
]
Steps = Annotated[bool, Parameter(help="Open on the worked steps of the head that is shown first.")]


def command(
    model: Model,
    text: Text,
    /,
    *,
    output: Output = None,
    shown_view: ShownView = None,
    theme: Annotated[str, Parameter(help="auto, light or dark.")] = "auto",
    language: Language = None,
    attention: AttentionNumber = None,
    head: Head = None,
    steps: Steps = False,
    threads: ModelThreads = 0,
    device: Device = "cpu",
) -> None:
    """Write a model's answer to a text, a sound or an image, and its attention, into a file that needs no server.

    regard view runs/demo "My sister gives the old book to her friend." -o attention.html
    """
    from regard.viewer.view import SUFFIXES, THEMES, View, present_name

    output = _new_file() if output is None else output
    if output.suffix.lower() not in SUFFIXES:
        raise ArgumentError(f"--output must end with {', '.join(SUFFIXES)}; it is {str(output)!r}")
    if not output.absolute().parent.is_dir():
        raise ArgumentError(f"--output: there is no folder {str(output.parent)!r}")
    use_threads(threads)
    from regard.page.models import open_model
    from regard.page.reading import LONGEST_LABEL
    from regard.pictures.fonts import visible_token

    with options_named({"view": "--view"}):
        shown_view = present_name(shown_view)
    if theme not in THEMES:
        raise ArgumentError(f"--theme must be one of {', '.join(THEMES)}; it is {theme!r}")
    with options_named({"device": "--device"}):
        opened = open_model(model, device)
    reading = opened.read(text) if opened.accepts == "text" else opened.read_file(_content(text))
    if not reading.document.records:
        why = "the model wrote nothing" if reading.attends else "the model has no attention"
        why = why if text.strip() else "the text has no tokens"
        raise ArgumentError(f"{opened.name}: there is nothing to show, since {why}")
    layer = reading.first if attention is None else attention
    layer = 0 if layer is None and head is not None else layer
    if layer is not None and layer >= len(reading.document.records):
        raise ArgumentError(f"--attention must be from 0 to {len(reading.document.records) - 1}; it is {layer}")
    heads = reading.document.records[layer or 0].heads
    if head is not None and head >= heads:
        raise ArgumentError(f"--head must be from 0 to {heads - 1}; it is {head}")
    document = _with_steps(reading, layer, head) if steps else reading.document
    with options_named({"view": "--view", "theme": "--theme", "path": "--output"}):
        first = shown_view or ("walk" if steps else reading.view if attention is None else None)
        chosen: Any = {"view": first, "theme": theme, "language": language}
        View(document, **chosen, layer=layer, head=head).save(output)
    answer = reading.answer
    if answer.text:
        print(answer.text)
    for label, probability in answer.ranked:
        print(f"{probability:.4f} {visible_token(label, LONGEST_LABEL)}")
    for note in answer.notes:
        print(f"regard: {note}", file=sys.stderr)
    print(f"view: {output}", file=sys.stderr)


def _new_file() -> Path:
    """Returns the first name of a page in the working directory that no file has."""
    names = (f"attention-{number}.html" for number in itertools.count(2))
    return next(path for path in map(Path, itertools.chain(["attention.html"], names)) if not path.exists())


def _content(path: str) -> bytes:
    from regard.data.speech.sounds import LARGEST_SOUND

    try:
        return read_bytes(path, LARGEST_SOUND)
    except (OSError, ValueError) as error:
        raise DataError(f"{path!s:.200}: cannot be read ({getattr(error, 'strerror', None) or error})") from error


def _with_steps(reading: "Reading", attention: int | None, head: int | None) -> "Document":
    """Returns the document with the worked steps of the head that it opens on."""
    from regard.viewer.opening import opening

    if reading.steps is None:
        raise ArgumentError("--steps: there are no worked steps for this model")
    first = opening(reading.document, attention, head)
    record, position = (attention or 0, head or 0) if first is None else (first.record, first.head or 0)
    return replace(reading.document, steps=(reading.steps(record, position),))
