"""``regard explain``: every step of one attention, from numbers or from a sentence."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from regard.cli.option_errors import option, options_named
from regard.cli.option_types import Language, Seed, between
from regard.cli.typed_options import typed_options
from regard.errors import ArgumentError, RegardError
from regard.files.atomic import write_atomically
from regard.names.counted import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure
    from torch import Tensor

    from regard.explanations import Explanation
    from regard.explanations.step import Step
    from regard.masks import Mask


Matrix = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
"""A matrix as text, which may begin with a negative number."""

Names = Annotated[str | None, Parameter(allow_leading_hyphen=True)]
"""Names, which may begin with a hyphen."""


@Parameter(name="*", group=Group.create_ordered("Numbers"))
@dataclass(frozen=True)
class Matrices:
    """The matrices of a calculation, as the user wrote them."""

    query: Matrix = None
    """Queries: '5 1 20; 3 12 45' (rows between semicolons), JSON, or a .json or .npy file, like all matrices here."""
    key: Matrix = None
    """Keys. Default: the queries."""
    value: Matrix = None
    """Values. Default: the keys."""
    input: Matrix = None
    """Inputs that are projected to queries, keys and values."""
    w_query: Matrix = None
    """Weights: query = input × W_query. A row for each feature of the input."""
    w_key: Matrix = None
    """Weights: key = input × W_key."""
    w_value: Matrix = None
    """Weights: value = input × W_value."""
    w_output: Matrix = None
    """Weights: projected = output × W_output."""
    w_decoder: Matrix = None
    """Weights of a decoder's output tanh(W × (query; output)); a row for each unit."""
    w_score: Matrix = None
    """Weights of --score general. Default: seeded."""

    def texts(self) -> dict[str, str]:
        """Returns the texts of the matrices that the user typed, by option."""
        texts = {f"--{name.replace('_', '-')}": text for name, text in vars(self).items()}
        return {option: text for option, text in texts.items() if text is not None}


@Parameter(name="*", group=Group.create_ordered("A sentence, or positions"))
@dataclass(frozen=True)
class GeneratedSizes:
    """The sizes of the embeddings and weights for a sentence, or of a table of positions."""

    dim: int = 5
    """Features of an embedding, or of a position."""
    head_dim: int = 3
    """Features of each head's queries, keys and values."""
    seed: Seed = 0
    """Seed of embeddings and weights."""
    positions: int | None = None
    """Show the table of this number of sinusoidal positions with --dim features instead."""


@Parameter(name="*", group=Group.create_ordered("Attention"))
@dataclass(frozen=True)
class AttentionOptions:
    """The attention that is calculated."""

    heads: int = 1
    """Heads into which projected features are split; for a sentence, heads are concatenated and projected."""
    score: str = "scaled_dot"
    """dot, scaled_dot, cosine, distance, general, additive (concat), mlp, location; --seed gives their weights."""
    scale: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None
    """The score's factor, e.g. 0.5 or 1/sqrt(512). Default: 1/sqrt(features of a query) for scaled_dot."""
    cap: float | None = None
    """Keep scores within ± this, smoothly. Default: no cap."""
    normalizer: str = "softmax"
    """softmax, sparsemax, entmax15, entmax, sigmoid, hard or softmax_with_sink."""
    temperature: float | None = None
    """softmax: divides the scores. Default: 1."""
    alpha: float | None = None
    """entmax: above 1; 2 is sparsemax. Default: 1.5."""
    sink: float | None = None
    """softmax_with_sink: the sink's score. Default: 0."""
    mask: str | None = None
    """Keys that a query may attend to: causal, 'window(2, 0)', 'causal & ~prefix(1)', 'keep([[1,0],[1,1]])'."""


@Parameter(name="*", group=Group.create_ordered("What is shown"))
@dataclass(frozen=True)
class DisplayOptions:
    """The parts of the calculation that are shown, and where."""

    labels: Names = None
    """Names of the keys (and of the queries, if both come from one input), between spaces or commas."""
    query_labels: Names = None
    """Names of the queries."""
    row: int | None = None
    """Print the arithmetic of this query, counted from 0, below the tables."""
    head: str = "0"
    """Which head's steps are shown, from 0, or all. JSON always has all."""
    steps: str | None = None
    """Only these steps, between commas, e.g. 'scores,weights,output'. JSON always has all."""
    decimals: Annotated[int, Parameter(validator=between(0, 15))] = 4
    """Digits after the point."""
    color_map: str | None = None
    """Colours of the picture: a map of matplotlib, or some steps' own: 'key=Oranges,output=Blues'. Default: blue."""
    title: Names = None
    """Title of the picture. Default: none."""
    picture: Path | None = None
    """Draw the calculation from left to right into this .png, .svg or .pdf; with --steps or --head all, its steps."""
    dpi: float = 150.0
    """Pixels an inch of a .png."""
    html: Path | None = None
    """Write the calculation, to be walked through step by step in a browser, into this .html file."""
    language: Language = None
    json: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None
    """Write every step into this file; - prints it instead of the tables."""


SENTENCE = (
    "Words that attend to each other, with random embeddings and weights of two decimals from --seed. Without spaces: "
    "Chinese words by jieba if it is installed, else characters."
)

WEIGHTS = {name: option(name) for name in ("w_query", "w_key", "w_value", "w_output", "w_decoder")}

MOST_NUMBERS = 20_000_000
"""Largest number of weighted values in a calculation."""


def command(
    sentence: Annotated[str | None, Parameter(help=SENTENCE)] = None,
    /,
    *,
    matrices: Matrices = Matrices(),
    source: GeneratedSizes = GeneratedSizes(),
    attention: AttentionOptions = AttentionOptions(),
    display: DisplayOptions = DisplayOptions(),
) -> None:
    """Show every step of one attention, from numbers or from a sentence.

    regard explain --query "5 1 20" --key "3 12 45; 59 2 5" --score dot

    regard explain "This is book" --dim 5 --head-dim 3 --row 0

    regard explain --positions 50 --dim 128 --picture positions.png
    """
    _one_source(sentence, source, matrices)
    _refuse_unused_options(sentence, source)
    if source.positions is not None:
        _show_positions(_positions(source.positions, source.dim), display)
    else:
        from regard.data.text.words import sentence_words

        words, note = (None, "") if sentence is None else sentence_words(sentence)
        _show(_explained(words, matrices, source, attention, display), display, sentence)
        if words is not None and note:
            # After the tables, which move what is above them out of sight.
            print(f"{counted(len(words), 'word')} in the sentence: {note}", file=sys.stderr)


def _explained(
    words: list[str] | None,
    matrices: Matrices,
    source: GeneratedSizes,
    attention: AttentionOptions,
    display: DisplayOptions,
) -> "Explanation":
    """Returns the calculation that the options describe."""
    import torch

    from regard.cli.attention_options import make_normalizer, make_score
    from regard.cli.matrices import read_matrix, seeded_sentence
    from regard.explanations import explain

    heads = attention.heads
    if words is not None:
        tensors = seeded_sentence(words, source.dim, source.head_dim, heads, source.seed)
    else:
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
    with torch.no_grad(), options_named(WEIGHTS):
        explanation = explain(
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
        )  # fmt: skip
        return explanation.labelled(_labels(display.query_labels), words or _labels(display.labels))


def _mask(text: str, heads: int, queries: int, keys: int) -> "Mask":
    from regard.cli.attention_options import make_mask
    from regard.shapes.grid import Grid

    mask = make_mask(text)
    try:
        mask.check(Grid.whole(1, heads, queries, keys))
    except RegardError as error:
        raise ArgumentError(f"--mask {text!r} does not fit {queries} queries and {keys} keys: {error}") from error
    return mask


def _one_source(sentence: str | None, source: GeneratedSizes, matrices: Matrices) -> None:
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


def _refuse_unused_options(sentence: str | None, source: GeneratedSizes) -> None:
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


def _positions(length: int, dim: int) -> "Step":
    import torch

    from regard.explanations.step import Step
    from regard.positions import Sinusoidal
    from regard.shapes.checks import whole_number

    whole_number("--positions", length, low=1)
    whole_number("--dim", dim, low=1)
    if length * dim > MOST_NUMBERS:
        raise ArgumentError(f"--positions × --dim must be at most {MOST_NUMBERS:,}; it is {length} × {dim}")
    table = Sinusoidal(dim).table(length, dtype=torch.float64)
    rows, columns = (tuple(str(index) for index in range(size)) for size in (length, dim))
    note = "sin(position / 10000^(2i / dim)) at feature 2i, cos of the same at feature 2i + 1"
    return Step("positions", note, table, rows, columns)


def _show_positions(step: "Step", display: DisplayOptions) -> None:
    from rich.console import Console

    from regard.explanations.step import steps_json
    from regard.explanations.tables import step_tables
    from regard.pictures import position_table

    picture = _saved(lambda: position_table(step.matrix, title=display.title), display)
    if display.json != Path("-"):
        Console().print(step_tables([step], display.decimals))
    _write(steps_json([step]), picture, display)


def _features(tensor: "Tensor", weight: "Tensor | None", heads: int) -> int:
    return (tensor if weight is None else weight).shape[-1] // max(heads, 1)


def _labels(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split("," if "," in text else None)]


def _show(explanation: "Explanation", display: DisplayOptions, sentence: str | None) -> None:
    from rich.console import Console
    from rich.text import Text

    heads, rows = len(explanation.slices), explanation.weights.shape[-2]
    head = _head(display.head, heads)
    if display.row is not None and not 0 <= display.row < rows:
        raise ArgumentError(f"--row must be from 0 to {rows - 1}, since queries count from 0; it is {display.row}")
    picture = _saved(
        lambda: explanation.figure(
            display.steps, head=head, title=display.title, color_map=_color_map(display.color_map),
            language=display.language or "en",
        ),
        display,
    )  # fmt: skip
    page = _saved_page(explanation, head or 0, display, sentence)
    if display.json != Path("-"):
        explanation.print(display.steps, head=head, decimals=display.decimals)
        if heads > 1 and head is not None:
            Console().print(Text(f"Head {head} of {heads} is shown; --head all shows all of them.", style="dim"))
        if display.row is not None:
            arithmetic = explanation.arithmetic(display.row, head=head or 0, decimals=display.decimals)
            Console().print(Text(arithmetic), soft_wrap=True)
    _write(explanation.to_json(), picture, display)
    if page is not None:
        print(f"walk: {page}", file=sys.stderr)


def _saved_page(explanation: "Explanation", head: int, display: DisplayOptions, sentence: str | None) -> Path | None:
    """Writes the page of the calculation, which opens on a head, before tables are printed; its path."""
    if display.html is None:
        if display.language is not None and display.picture is None:
            raise ArgumentError("--language is of a page or a picture; give --html or --picture too")
        return None
    if display.html.suffix.lower() != ".html":
        raise ArgumentError(f"--html must end in .html; it is {str(display.html)!r}")
    from regard.viewer import View

    with options_named({"path": "--html"}):
        title = display.title or sentence or "attention, step by step"
        return View(explanation, title=title, view="walk", head=head, language=display.language).save(display.html)


def _saved(draw: "Callable[[], Figure]", display: DisplayOptions) -> Path | None:
    """Draws the picture, before tables are printed, so that mistakes in its options come first; its path."""
    if display.picture is None:
        return None
    from regard.pictures import save

    with options_named({"dpi": "--dpi", "path": "--picture", "color_map": "--color-map"}):
        return save(draw(), display.picture, dpi=display.dpi)


def _write(json: str, picture: Path | None, display: DisplayOptions) -> None:
    if display.json == Path("-"):
        print(json)
    elif display.json is not None:
        write_atomically(display.json, f"{json}\n".encode("utf-8", "backslashreplace"))
        print(f"numbers: {display.json}", file=sys.stderr)
    if picture is not None:
        print(f"picture: {picture}", file=sys.stderr)


def _color_map(text: str | None) -> str | dict[str, str] | None:
    """Returns one colour map, or those of steps: ``key=Oranges,query=Purples``."""
    if text is None or "=" not in text:
        return text
    parts = [part.partition("=") for part in text.split(",")]
    return {step.strip(): color.strip() for step, _, color in parts}


def _head(text: str, heads: int) -> int | None:
    """Returns the index of the selected head, or None for all heads."""
    if text == "all":
        return None
    if not text.isdecimal() or len(text) > 9 or not 0 <= int(text) < heads:
        raise ArgumentError(f"--head must be 'all' or a number from 0 to {heads - 1}; it is {text!r}")
    return int(text)
