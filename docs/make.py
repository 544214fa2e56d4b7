"""Makes the pages of docs/calculations and their pictures by running ``regard explain``.

::

    python docs/make.py            writes pages and pictures
    python docs/make.py --check    writes nothing; fails if a page is not what it would write

Every number on the pages comes out of the command that stands above it; the sentences around them are here.
"""

# ruff: noqa: E501  # pages are written as they are read

import json
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent

STATE = "5 1 20"
ANNOTATIONS = "3 12 45; 59 2 5; 1 43 5; 4 3 45.3"
# Small, so that no unit of the tanh layer is saturated.
W_DECODER = "0.02 -0.01 0.03 0.01 0.02 -0.01; -0.03 0.02 0.01 0.04 -0.02 0.01"

ONE_PAIR = f'regard explain --query "{STATE}" --key "3 12 45" --score dot --query-labels state --labels h1 --row 0'
ONE_STATE = (
    f'regard explain --query "{STATE}" --key "{ANNOTATIONS}" --score dot --query-labels state --labels "h1 h2 h3 h4" '
    f'--w-decoder "{W_DECODER}" --row 0'
)
THREE_INPUTS = (
    'regard explain --input "1 0 1 0; 0 2 0 2; 1 1 1 1" --w-key "0 0 1; 1 1 0; 0 1 0; 1 1 0" '
    '--w-query "1 0 1; 1 0 0; 0 0 1; 0 1 1" --w-value "0 2 0; 0 3 0; 1 0 3; 1 1 0" --score dot --row 0'
)
SENTENCE = 'regard explain "This is book" --dim 5 --head-dim 3 --seed 0 --row 0'
EIGHT_HEADS = (
    'regard explain "This is book" --dim 512 --head-dim 64 --heads 8 --seed 0 --head all '
    "--steps weights,concatenated,projected"
)
POSITIONS = "regard explain --positions 50 --dim 128"
FEW_POSITIONS = "regard explain --positions 6 --dim 8"


class Run:
    """What one command calculates and prints."""

    def __init__(self, command: str):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "steps.json"
            self.printed = call([*shlex.split(command)[1:], "--json", str(file)])
            record = json.loads(file.read_text(encoding="utf-8"))
        self.command = command
        self.steps: list[dict[str, Any]] = record["steps"]

    def step(self, name: str, head: int | None = None) -> dict[str, Any]:
        """The first step of this name, or that of a head."""
        return next(s for s in self.steps if s["name"] == name and head in (None, s["head"]))

    def table(self, name: str, *, head: int | None = None) -> str:
        """A step as a table of Markdown."""
        step = self.step(name, head)
        texts = written(step["values"])
        labels = step["columns"]
        lines = [["", *labels], ["---", *["---:"] * len(labels)]]
        lines += [[f"**{label}**", *row] for label, row in zip(step["rows"], texts, strict=True)]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    @property
    def arithmetic(self) -> str:
        """What ``--row`` printed."""
        return self.printed[self.printed.index("Query ") :].rstrip()

    def paragraph(self, number: int) -> str:
        """One paragraph of the arithmetic, from 0."""
        return self.arithmetic.split("\n\n")[number]

    def number(self, name: str, row: int, column: int) -> str:
        """One number of a step, as the pages write it."""
        return written([[self.step(name)["values"][row][column]]])[0][0]


def call(arguments: Sequence[str]) -> str:
    """Run ``regard`` with these arguments in this process; what it printed."""
    from regard.cli import commands

    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err), suppress(SystemExit):
        commands.call(arguments)
    return out.getvalue()


def written(matrix: Sequence[Sequence[float]]) -> list[list[str]]:
    """Numbers of one matrix, all with as few decimals as say them exactly, at most four."""
    flat = [number for row in matrix for number in row]
    digits = next((d for d in range(4) if all(abs(n - round(n, d)) <= 1e-9 for n in flat)), 4)
    # Adding 0 turns −0 into 0.
    return [[f"{round(number, digits) + 0.0:.{digits}f}".replace("-", "−") for number in row] for row in matrix]


def command_block(command: str) -> str:
    return f"```bash\n{command}\n```"


def text_block(text: str) -> str:
    return f"```text\n{text}\n```"


def one_decoder_state() -> str:
    pair, run = Run(ONE_PAIR), Run(ONE_STATE)
    return f"""# One decoder state, four annotations

An encoder has read a sentence and left an *annotation* for each word: a vector. A decoder is about to write a word; it
has a *state*, a vector as well. Which annotations matter for this word? That is one step of attention with the state as
the query and the annotations as keys and as values (Bahdanau et al. 2015; the dot product as score: Luong et al. 2015).

## One annotation

The score of a state and an annotation is their dot product: multiply feature by feature, and add.

$$score(s, h) = s \\cdot h$$

{command_block(ONE_PAIR)}

{text_block(pair.paragraph(1))}

## Four annotations

{command_block(ONE_STATE)}

The state:

{run.table("query")}

The annotations, keys and values at once:

{run.table("key")}

**Scores.** Each annotation's dot product with the state.

{run.table("scores")}

**Weights.** Softmax turns scores into positive weights that sum to 1:

$$w_j = \\frac{{e^{{score_j}}}}{{\\sum_k e^{{score_k}}}}$$

$e^{{929}}$ is more than a 64-bit float can hold. Subtracting the largest score from all of them changes no weight, since it
divides numerator and denominator by the same, and leaves $e^0 = 1$ as the largest power.

{run.table("weights")}

Two points of score make a weight more than seven times as large; the annotations that score hundreds less get next to nothing.

**Context.** The annotations are multiplied by their weights …

{run.table("weighted values")}

… and added:

$$context = \\sum_j w_j h_j$$

{run.table("output")}

**The decoder's output of this step.** State and context are put side by side and go through a layer with tanh (Luong et
al. 2015, eq. 5, where the context stands first):

$$output = \\tanh(W [state; context])$$

{run.table("state and context")}

With this $W$, a row for each of two units:

{run.table("W_decoder")}

the output is

{run.table("decoder output")}

## With a pencil

`--row 0` spells what happens to the first (here the only) query:

{text_block(run.arithmetic)}

## Drawn

`--picture FILE` draws every step:

![Every step from the state to the decoder's output](../pictures/one-decoder-state.png)
"""


def three_inputs() -> str:
    run = Run(THREE_INPUTS)
    return f"""# Three inputs attend to each other

Self-attention in whole numbers: small enough to do by hand, and complete.

{command_block(THREE_INPUTS)}

Three inputs of four features:

{run.table("input")}

**Projections.** Each input is multiplied by three matrices, and so becomes a query (what it asks), a key (what it is found
by) and a value (what it has to say):

$$query = x \\, W_{{query}} \\qquad key = x \\, W_{{key}} \\qquad value = x \\, W_{{value}}$$

$W_{{query}}$:

{run.table("W_query")}

queries:

{run.table("query")}

$W_{{key}}$:

{run.table("W_key")}

keys:

{run.table("key")}

$W_{{value}}$:

{run.table("W_value")}

values:

{run.table("value")}

**Scores.** Each query's dot product with each key, a row for each query. They are not scaled here.

$$scores = query \\; key^T$$

{run.table("scores")}

**Weights.** Softmax of each row, so that each row sums to 1. Equal scores get equal weights; the 16 leaves little for the
others.

{run.table("weights")}

**Weighted values.** Every value times its weight: three vectors for each of three queries.

{run.table("weighted values")}

**Outputs.** The three vectors of each query, added.

$$output_i = \\sum_j w_{{ij}} \\, value_j$$

{run.table("output")}

## With a pencil

The first query, as `--row 0` spells it:

{text_block(run.arithmetic)}

## Drawn

![Every step from the inputs to the outputs](../pictures/three-inputs.png)
"""


def this_is_book() -> str:
    run, heads = Run(SENTENCE), Run(EIGHT_HEADS)
    shapes = "\n".join(
        f"| {name} | {len(heads.step(name)['rows'])} × {len(heads.step(name)['columns'])} |"
        for name in ("input", "W_query", "query", "weights", "output", "concatenated", "W_output", "projected")
    )
    return f"""# "This is book"

A sentence attends to itself, as in Vaswani et al. 2017, §3.2. Nothing is trained: embeddings and weights are random numbers
from a seed, rounded to two decimals so that you can calculate with them; what is worth seeing is the path of the numbers.

## One head

{command_block(SENTENCE)}

**Embeddings.** Each word is a vector of 5 features. (A word that came twice would have the same one twice.)

{run.table("input")}

**Weights.** Three matrices, 5 × 3, make a query, a key and a value of 3 features from each embedding.

$W_{{query}}$:

{run.table("W_query")}

$W_{{key}}$:

{run.table("W_key")}

$W_{{value}}$:

{run.table("W_value")}

**Queries, keys, values.** Embedding times matrix. Queries:

{run.table("query")}

keys:

{run.table("key")}

values:

{run.table("value")}

**Scores.** The dot product of each word's query (rows) with each word's key (columns).

{run.table("scores")}

**Scaled.** Sums of many products are large, and softmax of large scores is nearly all or nothing. So they are divided by
the square root of the features of a query and a key: $\\sqrt{{3}} \\approx 1.7321$. (`--scale 1/sqrt(5)` would divide by the
root of the embedding's width instead.)

$$scaled = \\frac{{query \\; key^T}}{{\\sqrt{{dim}}}}$$

{run.table("scaled")}

**Weights.** Softmax, row by row: how much each word (row) takes from each word (column). Rows sum to 1; columns need not.

{run.table("weights")}

**Weighted sum.** For each word, every word's value times its weight:

{run.table("weighted values")}

and their sum, the word's output:

{run.table("output")}

The first word in full:

{text_block(run.arithmetic)}

![Every step, one head](../pictures/this-is-book.png)

## Eight heads

With 512 features there is room for 8 heads of 64: each has its own queries, keys and values, and so its own weights. Their
outputs are put side by side, 8 × 64 = 512, and projected by one more matrix:

$$projected = [output_1; \\dots; output_8] \\, W_{{output}}$$

{command_block(EIGHT_HEADS)}

| step | rows × columns |
| --- | ---: |
{shapes}

`W_query` holds the columns of all heads; `query`, `weights` and `output` are those of one. Scores are divided by
$\\sqrt{{64}} = 8$. The weights of the first two heads already differ:

{heads.table("weights", head=0)}

{heads.table("weights", head=1)}

![The weights of eight heads, concatenated and projected](../pictures/eight-heads.png)
"""


def positions() -> str:
    run, few = Run(POSITIONS), Run(FEW_POSITIONS)
    return f"""# Sinusoidal positions

Attention alone does not know the order of its inputs. Vaswani et al. 2017, §3.5, add to the vector at each position a row of
this table, waves of falling frequency:

$$PE(pos, 2i) = \\sin\\left(\\frac{{pos}}{{10000^{{2i/dim}}}}\\right) \\qquad
PE(pos, 2i + 1) = \\cos\\left(\\frac{{pos}}{{10000^{{2i/dim}}}}\\right)$$

A few of them, for 8 features; positions and features count from 0:

{command_block(FEW_POSITIONS)}

{few.table("positions")}

Position 0 is 0, 1, 0, 1, …, since $\\sin 0 = 0$ and $\\cos 0 = 1$; $PE(1, 0) = \\sin 1 \\approx {few.number("positions", 1, 0)}$ and
$PE(1, 2) = \\sin(1 / 10000^{{2/8}}) = \\sin 0.1 \\approx {few.number("positions", 1, 2)}$. Left features turn fast, right ones
slowly: together they are read like the hands of a clock.

{len(run.step("positions")["rows"])} positions of {len(run.step("positions")["columns"])} features:

{command_block(POSITIONS + " --picture positions.png")}

![Position downwards, feature to the right](../pictures/positions.png)

There is no greatest length: `regard.positions.Sinusoidal(dim)` makes any row when it is asked for.
"""


PAGES: dict[str, Callable[[], str]] = {
    "one-decoder-state.md": one_decoder_state,
    "three-inputs.md": three_inputs,
    "this-is-book.md": this_is_book,
    "positions.md": positions,
}

PICTURES = {
    "one-decoder-state.png": f'{ONE_STATE} --title "One decoder state, four annotations"',
    "three-inputs.png": f'{THREE_INPUTS} --title "Three inputs attend to each other"',
    "this-is-book.png": f"{SENTENCE} --title '\"This is book\": one head'",
    "eight-heads.png": f"{EIGHT_HEADS} --title '\"This is book\": eight heads of 64'",
    "positions.png": f'{POSITIONS} --title "Sinusoidal positions"',
}


def main(arguments: Sequence[str]) -> int:
    """Write everything, or with ``--check`` say which pages are old; the exit code."""
    old = []
    for name, make in PAGES.items():
        path, text = DOCS / "calculations" / name, make()
        if "--check" in arguments:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                old.append(name)
            continue
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(DOCS.parent))
    if "--check" in arguments:
        print(f"not what the code says: {', '.join(old)}; run python docs/make.py" if old else "up to date")
        return bool(old)
    for name, command in PICTURES.items():
        path = DOCS / "pictures" / name
        path.parent.mkdir(exist_ok=True)
        call([*shlex.split(command)[1:], "--picture", str(path), "--dpi", "100"])
        print(path.relative_to(DOCS.parent))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
