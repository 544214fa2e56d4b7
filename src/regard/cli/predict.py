"""``regard predict``: translations and attention weights."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from regard.cli.option_names import SEARCH_OPTIONS, options_named
from regard.errors import DataError
from regard.tasks.translate.config import PredictionConfig


def command(
    run: Annotated[Path, Argument(help="Run folder, e.g. runs/translate-bahdanau.")],
    sentences: Annotated[
        list[str] | None,
        Argument(help="Sentences. Default: the lines of --file or of standard input."),
    ] = None,
    file: Annotated[Path | None, Option(help="UTF-8 text file, one sentence a line.")] = None,
    beam: Annotated[int, Option(help="Beam width; 1: greedy search.")] = 5,
    length_penalty: Annotated[float, Option(help="Exponent of the beam's length normalization, 0 or more.")] = 1.0,
    replace_unknown: Annotated[
        bool,
        Option("--replace-unknown", help="Replace an unknown word by the source word with the largest weight."),
    ] = False,
    pictures: Annotated[
        Path | None,
        Option(help="Folder for an alignment picture of each translation. Default: none are drawn."),
    ] = None,
    merge_words: Annotated[
        bool,
        Option("--merge-words", help="Merge sub-words to words, in pictures and in --json."),
    ] = False,
    as_json: Annotated[
        bool,
        Option(
            "--json",
            help="One JSON object a line: source, translation, score in nats, unknown words, tokens, "
            "weights [target][source].",
        ),
    ] = False,
    batch_size: Annotated[int, Option(help="Sentences translated at once.")] = 64,
    threads: Annotated[int, Option(help="CPU threads; 0: PyTorch's own number.")] = 0,
    device: Annotated[str, Option(help="cpu, cuda, cuda:1, mps, ...")] = "cpu",
) -> None:
    """Translate sentences with a trained run: one line in, one line out."""
    import torch

    from regard.tasks.registry import load

    if threads:
        torch.set_num_threads(threads)
    with options_named(SEARCH_OPTIONS):
        options = PredictionConfig(beam, length_penalty, replace_unknown, merge_words, batch_size)
        trained = load(str(run), device)
    lines = read_sentences(sentences, file)
    with options_named(SEARCH_OPTIONS):
        found = trained.predict_with(lines, options)
    for line in trained.remarks(found, options):
        typer.echo(f"regard: {line}", err=True)
    for prediction in found:
        typer.echo(json.dumps(prediction.to_dict(), ensure_ascii=False) if as_json else prediction.text)
    if pictures is not None:
        for path in trained.draw(found, pictures):
            typer.echo(f"picture: {path}", err=True)


def read_sentences(sentences: list[str] | None, file: Path | None) -> list[str]:
    """The sentences: from the arguments, a file or standard input.

    Raises:
        DataError: both arguments and a file are given, the file cannot be read, or the text is not UTF-8.
    """
    if sentences and file:
        raise DataError("sentences were given both as arguments and with --file; give them one way")
    if sentences:
        return sentences
    name = str(file) if file else "standard input"
    try:
        content = file.read_bytes() if file else sys.stdin.buffer.read()
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror})") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{name}, line {line}: not valid UTF-8; convert it to UTF-8") from error
    if not text:
        raise DataError(f"{name}: the file is empty; it should hold a sentence a line")
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
