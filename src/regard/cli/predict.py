"""``regard predict``: translations and attention weights."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from regard.errors import DataError


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

    from regard.cli.option_names import SEARCH_OPTIONS, options_named
    from regard.training.trained_translator import TrainedTranslator

    if threads:
        torch.set_num_threads(threads)
    with options_named(SEARCH_OPTIONS):
        translator = TrainedTranslator(str(run), device)
    lines = read_sentences(sentences, file)
    with options_named(SEARCH_OPTIONS):
        found = translator.translate(
            lines, width=beam, length_penalty=length_penalty, replace_unknown=replace_unknown, batch_size=batch_size
        )
    from regard.training.unknown_words import unknown_words_line

    line = unknown_words_line((word for translation in found for word in translation.unknown_words), replace_unknown)
    if line is not None:
        typer.echo(f"regard: {line}", err=True)
    for translation in found:
        typer.echo(json.dumps(record(translation, merge_words), ensure_ascii=False) if as_json else translation.text)
    if pictures is not None:
        from regard.training.run_pictures import draw_alignments

        if translator.model.config.attention == "none":
            raise DataError(f"{run} is a model without attention; there is nothing to draw")
        for path in draw_alignments(pictures, found, words=merge_words):
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


def record(translation: Any, merge_words: bool) -> dict[str, Any]:
    """A translation as plain values."""
    found: dict[str, Any] = {
        "source": translation.source,
        "translation": translation.text,
        "score": round(translation.score, 4),
        "unknown_words": translation.unknown_words,
    }
    weights = translation.weights
    rows, columns = translation.target_tokens, translation.source_tokens
    if merge_words:
        from regard.pictures import merge

        rows = [_word(rows, group) for group in translation.target_words]
        columns = [_word(columns, group) for group in translation.source_words]
        if weights is not None:
            weights = merge(weights, translation.target_words, translation.source_words)
    found["source_tokens"], found["target_tokens"] = columns, rows
    if weights is not None:
        found["weights"] = [[round(float(weight), 4) for weight in row] for row in weights]
    return found


def _word(tokens: list[str], group: range) -> str:
    return "".join(
        tokens[position].removeprefix("·") if position > group.start else tokens[position] for position in group
    )
