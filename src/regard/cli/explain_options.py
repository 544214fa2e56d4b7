"""The options of ``regard explain``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from regard.cli.option_types import Seed, between

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
    """Draw every step into this .png, .svg or .pdf."""
    dpi: float = 150.0
    """Pixels an inch of a .png."""
    json: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None
    """Write every step into this file; - prints it instead of the tables."""
