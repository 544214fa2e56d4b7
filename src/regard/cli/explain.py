"""``regard explain``: every step of one attention, from numbers or from a sentence."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from regard.atomic_file import write_atomically
from regard.cli.explain_options import AttentionOptions, DisplayOptions, Matrices, Source
from regard.cli.option_errors import options_named
from regard.cli.typed_options import typed_options
from regard.errors import ArgumentError, RegardError

if TYPE_CHECKING:
    from torch import Tensor

    from regard.explanations.worked import WorkedCalculation
    from regard.masks import Mask

SENTENCE = "Words that attend to each other, with random embeddings and weights of two decimals from --seed."

MOST_NUMBERS = 20_000_000
"""Largest number of weighted values in a calculation."""


def command(
    sentence: Annotated[str | None, Parameter(help=SENTENCE)] = None,
    /,
    *,
    matrices: Matrices = Matrices(),  # noqa: B008
    source: Source = Source(),  # noqa: B008
    attention: AttentionOptions = AttentionOptions(),  # noqa: B008
    display: DisplayOptions = DisplayOptions(),  # noqa: B008
) -> None:
    """Show every step of one attention, from numbers or from a sentence.

    regard explain --query "5 1 20" --key "3 12 45; 59 2 5" --score dot

    regard explain "This is book" --dim 5 --head-dim 3 --row 0

    regard explain --positions 50 --dim 128 --picture positions.png
    """
    _one_source(sentence, source, matrices)
    _refuse_unused_options(sentence, source)
    if source.positions is not None:
        _show(_position_table(source.positions, source.dim), display, table=True)
    else:
        _show(_worked(sentence, matrices, source, attention, display), display)


def _worked(
    sentence: str | None, matrices: Matrices, source: Source, attention: AttentionOptions, display: DisplayOptions
) -> "WorkedCalculation":
    """Returns the calculation that the options describe."""
    import torch

    from regard.cli.attention_options import make_normalizer, make_score
    from regard.cli.matrices import read_matrix
    from regard.cli.seeded_sentence import seeded_sentence
    from regard.explanations.worked import work_through

    heads = attention.heads
    if sentence is not None:
        words = sentence.split()
        tensors = seeded_sentence(words, source.dim, source.head_dim, heads, source.seed)
    else:
        words = None
        with_heads = {"--query", "--key", "--value"}
        tensors = {
            name: read_matrix(name, text, (2, 4) if name in with_heads else (2,))
            for name, text in matrices.texts().items()
        }
    inputs = tensors.get("--input")
    query_rows = tensors.get("--query", inputs)
    if query_rows is None:
        raise ArgumentError("there are no queries; give --query or --input")
    key_rows = tensors.get("--key", inputs)
    value_rows = tensors.get("--value", inputs)
    query_dim = _features(query_rows, tensors.get("--w-query"), heads)
    key_dim = _features(query_rows if key_rows is None else key_rows, tensors.get("--w-key"), heads)
    keys = (query_rows if key_rows is None else key_rows).shape[-2]
    value_dim = _features(
        next(t for t in (value_rows, key_rows, query_rows) if t is not None), tensors.get("--w-value"), 1
    )
    if query_rows.shape[-2] * keys * value_dim > MOST_NUMBERS:
        raise ArgumentError(
            f"{query_rows.shape[-2]} queries × {keys} keys × {value_dim} features are more than the {MOST_NUMBERS:,} "
            "weighted values that regard explain keeps"
        )
    with torch.no_grad():
        return work_through(
            query_rows,
            None if key_rows is inputs else key_rows,
            None if value_rows is inputs else value_rows,
            w_query=tensors.get("--w-query"),
            w_key=tensors.get("--w-key"),
            w_value=tensors.get("--w-value"),
            heads=heads,
            w_output=tensors.get("--w-output"),
            w_decoder=tensors.get("--w-decoder"),
            score=make_score(
                attention.score, query_dim, key_dim, keys,
                scale=attention.scale, cap=attention.cap, weight=tensors.get("--w-score"), seed=source.seed,
            ),
            normalizer=make_normalizer(
                attention.normalizer, temperature=attention.temperature, alpha=attention.alpha, sink=attention.sink
            ),
            mask=None if attention.mask is None else _mask(attention.mask, heads, query_rows.shape[-2], keys),
            query_labels=_labels(display.query_labels),
            key_labels=words or _labels(display.labels),
            input_name="input" if words is None else "embedding",
        )  # fmt: skip


def _mask(text: str, heads: int, queries: int, keys: int) -> "Mask":
    from regard.cli.attention_options import make_mask
    from regard.shapes import Grid

    mask = make_mask(text)
    try:
        mask.check(Grid.whole(1, heads, queries, keys))
    except RegardError as error:
        raise ArgumentError(f"--mask {text!r} does not fit {queries} queries and {keys} keys: {error}") from error
    return mask


def _one_source(sentence: str | None, source: Source, matrices: Matrices) -> None:
    typed = list(matrices.texts())
    sources = [
        *([] if sentence is None else ["a sentence"]),
        *([] if source.positions is None else ["--positions"]),
        *(typed[:1]),
    ]
    if not sources:
        raise ArgumentError(
            "there is nothing to explain; give a sentence, or numbers by --query and --key, or --input with weights, "
            "or --positions (see regard explain --help)"
        )
    if len(sources) > 1:
        raise ArgumentError(f"{sources[0]} and {sources[1]} exclude each other; give one of them")
    if sentence is not None and not sentence.split():
        raise ArgumentError("the sentence is empty; give some words")
    if "--input" in typed and {"--query", "--key", "--value"} & set(typed):
        raise ArgumentError("--input stands for --query, --key and --value; give it or them")


def _refuse_unused_options(sentence: str | None, source: Source) -> None:
    """Raises ArgumentError for an option that has no effect."""
    typed = typed_options()
    if source.positions is not None:
        used = ("--positions", "--dim", "--decimals", "--title", "--picture", "--dpi", "--json")
        unused, kind = [name for name in typed if name not in used], "--positions"
    elif sentence is not None:
        unused = [name for name in typed if name in ("--labels", "--query-labels")]
        kind = "a sentence, whose words are its labels"
    else:
        unused = [name for name in typed if name in ("--dim", "--head-dim")]
        kind = "numbers, which have their own sizes"
    if unused:
        raise ArgumentError(f"{unused[0]} does not go with {kind}; leave it out")


def _position_table(length: int, dim: int) -> "WorkedCalculation":
    import torch

    from regard.explanations.step import Step
    from regard.explanations.worked import WorkedCalculation
    from regard.positions import Sinusoidal
    from regard.shapes import whole_number

    whole_number("--positions", length, low=1)
    whole_number("--dim", dim, low=1)
    if length * dim > MOST_NUMBERS:
        raise ArgumentError(f"--positions × --dim must be at most {MOST_NUMBERS:,}; it is {length} × {dim}")
    table = Sinusoidal(dim).table(length, dtype=torch.float64)
    rows, columns = (tuple(str(index) for index in range(size)) for size in (length, dim))
    note = "sin(position / 10000^(2i / dim)) at feature 2i, cos of the same at feature 2i + 1"
    return WorkedCalculation((Step("positions", note, table, rows, columns),))


def _features(tensor: "Tensor", weight: "Tensor | None", heads: int) -> int:
    return (tensor if weight is None else weight).shape[-1] // max(heads, 1)


def _labels(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split("," if "," in text else None)]


def _show(worked: "WorkedCalculation", display: DisplayOptions, *, table: bool = False) -> None:
    from rich.console import Console
    from rich.text import Text

    from regard.pictures import position_table, save

    head = _head(display.head, worked.heads)
    # Underscores, hyphens and spaces are interchangeable: w-query selects W_query.
    known = {_plain(step.name): step.name for step in worked.steps}
    names = (
        None if display.steps is None else [known.get(_plain(name), name.strip()) for name in display.steps.split(",")]
    )
    selected = worked.only(head, names)
    row_arithmetic = None
    if display.row is not None and worked.explanation is not None:
        rows = worked.explanation.weights.shape[-2]
        if not 0 <= display.row < rows:
            raise ArgumentError(f"--row must be from 0 to {rows - 1}, since queries count from 0; it is {display.row}")
        row_arithmetic = worked.explanation.arithmetic(display.row, head=head or 0, decimals=display.decimals)
    picture = None
    if display.picture is not None:
        # The picture is drawn first, so that mistakes in its options are reported before the tables.
        figure = position_table(worked["positions"], title=display.title) if table else selected.figure(display.title)
        with options_named({"dpi": "--dpi", "path": "--picture"}):
            picture = save(figure, display.picture, dpi=display.dpi)
    if display.json == Path("-"):
        print(worked.to_json())
    else:
        console = Console()
        console.print(selected.renderable(display.decimals))
        if worked.heads > 1 and head is not None:
            console.print(Text(f"Head {head} of {worked.heads} is shown; --head all shows all of them.", style="dim"))
        if row_arithmetic is not None:
            console.print(Text(row_arithmetic), soft_wrap=True)
        if display.json is not None:
            write_atomically(display.json, f"{worked.to_json()}\n".encode("utf-8", "backslashreplace"))
            print(f"numbers: {display.json}", file=sys.stderr)
    if picture is not None:
        print(f"picture: {picture}", file=sys.stderr)


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", " ").replace("-", " ")


def _head(text: str, heads: int) -> int | None:
    """Returns the index of the selected head, or None for all heads."""
    if text == "all":
        return None
    if not text.isdecimal() or len(text) > 9 or not 0 <= int(text) < heads:
        raise ArgumentError(f"--head must be 'all' or a number from 0 to {heads - 1}; it is {text!r}")
    return int(text)
