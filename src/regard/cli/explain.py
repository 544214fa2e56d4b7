"""``regard explain``: every step of one attention, from numbers or from a sentence."""

# ruff: noqa: E501  # an option a line, however long its help

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from regard.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from torch import Tensor

    from regard.explanations.worked_calculation import WorkedCalculation

NUMBERS, SENTENCE, ATTENTION, SHOWN = "Numbers", "A sentence, or positions", "Attention", "What is shown"

MOST_NUMBERS = 20_000_000
"""Largest number of weighted values of a calculation that is shown."""


@dataclass(frozen=True)
class Shown:
    """The options of the panel *What is shown*."""

    head: str
    steps: str | None
    row: int | None
    decimals: int
    title: str | None
    picture: Path | None
    dpi: float
    json: Path | None


def command(
    ctx: typer.Context,
    sentence: Annotated[str | None, Argument(help="Words that attend to each other, with random embeddings and weights of two decimals from --seed.")] = None,
    query: Annotated[str | None, Option(help="Queries: '5 1 20; 3 12 45' (rows between semicolons), JSON, or a .json or .npy file. So are all matrices here.", rich_help_panel=NUMBERS)] = None,
    key: Annotated[str | None, Option(help="Keys. Default: the queries.", rich_help_panel=NUMBERS)] = None,
    value: Annotated[str | None, Option(help="Values. Default: the keys.", rich_help_panel=NUMBERS)] = None,
    inputs: Annotated[str | None, Option("--input", help="Inputs that are projected to queries, keys and values.", rich_help_panel=NUMBERS)] = None,
    w_query: Annotated[str | None, Option(help="Weights: query = input × W_query. A row for each feature of the input.", rich_help_panel=NUMBERS)] = None,
    w_key: Annotated[str | None, Option(help="Weights: key = input × W_key.", rich_help_panel=NUMBERS)] = None,
    w_value: Annotated[str | None, Option(help="Weights: value = input × W_value.", rich_help_panel=NUMBERS)] = None,
    w_output: Annotated[str | None, Option(help="Weights: projected = output × W_output.", rich_help_panel=NUMBERS)] = None,
    w_decoder: Annotated[str | None, Option(help="Weights of a decoder's output tanh(W × (query; output)); a row for each unit.", rich_help_panel=NUMBERS)] = None,
    w_score: Annotated[str | None, Option(help="Weights of --score general. Default: seeded.", rich_help_panel=NUMBERS)] = None,
    dim: Annotated[int, Option(help="Features of an embedding, or of a position.", rich_help_panel=SENTENCE)] = 5,
    head_dim: Annotated[int, Option(help="Features of each head's queries, keys and values.", rich_help_panel=SENTENCE)] = 3,
    seed: Annotated[int, Option(help="Seed of embeddings and weights.", rich_help_panel=SENTENCE)] = 0,
    positions: Annotated[int | None, Option(help="Show the table of this number of sinusoidal positions with --dim features instead.", rich_help_panel=SENTENCE)] = None,
    heads: Annotated[int, Option(help="Number of heads into which the projected features are split; for a sentence, they are concatenated and projected.", rich_help_panel=ATTENTION)] = 1,
    score: Annotated[str, Option(help="dot, scaled_dot, cosine, distance, general, additive (concat), mlp or location; their weights are random from --seed.", rich_help_panel=ATTENTION)] = "scaled_dot",
    scale: Annotated[str | None, Option(help="The score's factor, e.g. 0.5 or 1/sqrt(512). Default: 1/sqrt(features of a query) for scaled_dot.", rich_help_panel=ATTENTION)] = None,
    cap: Annotated[float | None, Option(help="Keep scores within ± this, smoothly. Default: no cap.", rich_help_panel=ATTENTION)] = None,
    normalizer: Annotated[str, Option(help="softmax, sparsemax, entmax15, entmax, sigmoid, hard or softmax_with_sink.", rich_help_panel=ATTENTION)] = "softmax",
    temperature: Annotated[float | None, Option(help="softmax: divides the scores. Default: 1.", rich_help_panel=ATTENTION)] = None,
    alpha: Annotated[float | None, Option(help="entmax: above 1; 2 is sparsemax. Default: 1.5.", rich_help_panel=ATTENTION)] = None,
    sink: Annotated[float | None, Option(help="softmax_with_sink: the sink's score. Default: 0.", rich_help_panel=ATTENTION)] = None,
    mask: Annotated[str | None, Option(help="Which keys a query may attend to: causal, 'window(2, 0)', 'prefix(3)', 'causal & ~prefix(1)', 'keep([[1,0],[1,1]])'. Default: all.", rich_help_panel=ATTENTION)] = None,
    labels: Annotated[str | None, Option(help="Names of the keys (and of the queries, where both are one input), between spaces or commas.", rich_help_panel=SHOWN)] = None,
    query_labels: Annotated[str | None, Option(help="Names of the queries.", rich_help_panel=SHOWN)] = None,
    row: Annotated[int | None, Option(help="Print the arithmetic of this query, counted from 1, below the tables.", rich_help_panel=SHOWN)] = None,
    head: Annotated[str, Option(help="Which head's steps are shown, from 1, or all. JSON always has all.", rich_help_panel=SHOWN)] = "1",
    steps: Annotated[str | None, Option(help="Only these steps, between commas, e.g. 'scores,weights,output'. JSON always has all.", rich_help_panel=SHOWN)] = None,
    decimals: Annotated[int, Option(min=0, max=15, help="Digits after the point.", rich_help_panel=SHOWN)] = 4,
    title: Annotated[str | None, Option(help="Title of the picture. Default: none.", rich_help_panel=SHOWN)] = None,
    picture: Annotated[Path | None, Option(help="Draw every step into this .png, .svg or .pdf.", rich_help_panel=SHOWN)] = None,
    dpi: Annotated[float, Option(help="Pixels an inch of a .png.", rich_help_panel=SHOWN)] = 150.0,
    json: Annotated[Path | None, Option(help="Write every step into this file; - prints it instead of the tables.", rich_help_panel=SHOWN)] = None,
) -> None:  # fmt: skip
    """Show every step of one attention, from numbers or from a sentence.

    regard explain --query "5 1 20" --key "3 12 45; 59 2 5" --score dot

    regard explain "This is book" --dim 5 --head-dim 3 --row 1

    regard explain --positions 50 --dim 128 --picture positions.png
    """
    import torch

    from regard.cli.attention_options import make_mask, make_normalizer, make_score
    from regard.cli.matrices import read_matrix
    from regard.cli.seeded_sentence import seeded_sentence
    from regard.explanations.worked import work_through

    texts = {
        "--query": query, "--key": key, "--value": value, "--input": inputs, "--w-query": w_query, "--w-key": w_key,
        "--w-value": w_value, "--w-output": w_output, "--w-decoder": w_decoder, "--w-score": w_score,
    }  # fmt: skip
    shown = Shown(head, steps, row, decimals, title, picture, dpi, json)
    given = [name for name, text in texts.items() if text is not None]
    _one_source(sentence, positions, given)
    _refuse_unused_options(ctx, sentence, positions)
    if positions is not None:
        _show(_position_table(positions, dim), shown, table=True)
        return
    if sentence is not None:
        words = sentence.split()
        tensors = seeded_sentence(words, dim, head_dim, heads, seed)
    else:
        words = None
        with_heads = {"--query", "--key", "--value"}
        tensors = {
            name: read_matrix(name, text, (2, 3) if name in with_heads else (2,))
            for name, text in texts.items()
            if text is not None
        }
    source = tensors.get("--input")
    query_rows = tensors.get("--query", source)
    if query_rows is None:
        raise ArgumentError("there are no queries; give --query or --input")
    key_rows = tensors.get("--key", source)
    value_rows = tensors.get("--value", source)
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
    names = words or _labels(labels)
    with torch.no_grad():
        worked = work_through(
            query_rows,
            None if key_rows is source else key_rows,
            None if value_rows is source else value_rows,
            w_query=tensors.get("--w-query"),
            w_key=tensors.get("--w-key"),
            w_value=tensors.get("--w-value"),
            heads=heads,
            w_output=tensors.get("--w-output"),
            w_decoder=tensors.get("--w-decoder"),
            score=make_score(
                score, query_dim, key_dim, keys, scale=scale, cap=cap, weight=tensors.get("--w-score"), seed=seed
            ),
            normalizer=make_normalizer(normalizer, temperature=temperature, alpha=alpha, sink=sink),
            mask=None if mask is None else make_mask(mask),
            query_labels=_labels(query_labels),
            key_labels=names,
            input_name="input" if words is None else "embedding",
        )
    _show(worked, shown)


def _one_source(sentence: str | None, positions: int | None, given: list[str]) -> None:
    sources = [
        *([] if sentence is None else ["a sentence"]),
        *([] if positions is None else ["--positions"]),
        *(given[:1]),
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
    if "--input" in given and {"--query", "--key", "--value"} & set(given):
        raise ArgumentError("--input stands for --query, --key and --value; give it or them")


def _refuse_unused_options(ctx: typer.Context, sentence: str | None, positions: int | None) -> None:
    """Raise ArgumentError for an option that has no effect."""
    typed = [name for name in ctx.params if str(getattr(ctx.get_parameter_source(name), "name", "")) == "COMMANDLINE"]
    if positions is not None:
        unused = [
            name for name in typed if name not in ("positions", "dim", "decimals", "title", "picture", "dpi", "json")
        ]
        kind = "--positions"
    elif sentence is not None:
        unused, kind = (
            [name for name in typed if name in ("labels", "query_labels")],
            "a sentence, whose words are its labels",
        )
    else:
        unused, kind = [name for name in typed if name in ("dim", "head_dim")], "numbers, which have their own sizes"
    if unused:
        raise ArgumentError(f"--{unused[0].replace('_', '-')} does not go with {kind}; leave it out")


def _position_table(length: int, dim: int) -> "WorkedCalculation":
    import torch

    from regard.explanations.step import Step
    from regard.explanations.worked_calculation import WorkedCalculation
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


def _show(worked: "WorkedCalculation", shown: Shown, *, table: bool = False) -> None:
    from rich.console import Console
    from rich.text import Text

    from regard.explanations.arithmetic import arithmetic
    from regard.pictures import position_table, save

    head = _head(shown.head, worked.heads)
    # w-query selects W_query, and weighted_values selects weighted values.
    known = {_plain(step.name): step.name for step in worked.steps}
    names = None if shown.steps is None else [known.get(_plain(name), name.strip()) for name in shown.steps.split(",")]
    selected = worked.only(head, names)
    spelled = None
    if shown.row is not None and worked.explanation is not None:
        spelled = arithmetic(worked.explanation, shown.row - 1, head=head or 0, decimals=shown.decimals)
    if shown.json == Path("-"):
        typer.echo(worked.to_json())
    else:
        console = Console()
        console.print(selected.renderable(shown.decimals))
        if worked.heads > 1 and head is not None:
            console.print(Text(f"Head {head + 1} of {worked.heads} is shown; --head all shows every one.", style="dim"))
        if spelled is not None:
            console.print(Text(spelled), soft_wrap=True)
        if shown.json is not None:
            try:
                shown.json.write_text(worked.to_json() + "\n", encoding="utf-8")
            except OSError as error:
                raise DataError(f"cannot write {shown.json}: {error.strerror or error}") from error
            typer.echo(f"numbers: {shown.json}", err=True)
    if shown.picture is not None:
        figure = position_table(worked["positions"], title=shown.title) if table else selected.figure(shown.title)
        typer.echo(f"picture: {save(figure, shown.picture, dpi=shown.dpi)}", err=True)


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", " ").replace("-", " ")


def _head(text: str, heads: int) -> int | None:
    """The index of the selected head; None: all heads."""
    if text == "all":
        return None
    if not text.isdecimal() or not 1 <= int(text) <= heads:
        raise ArgumentError(f"--head must be 'all' or a number from 1 to {heads}; it is {text!r}")
    return int(text) - 1
