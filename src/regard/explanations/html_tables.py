"""The steps of a calculation as HTML tables, for notebooks: self-contained, without scripts, all text escaped."""

from collections.abc import Sequence
from html import escape

from regard.explanations.matrix_texts import LIMIT, MatrixTexts
from regard.explanations.step import Step

DECIMALS = 4


def html_tables(steps: Sequence[Step], heads: int, rest: str = "") -> str:
    """One table a step, each below a line with its number, name, shape and note.

    Args:
        steps: in order; they are numbered from 1.
        heads: how many heads the calculation has; with more than one, a step says which it belongs to.
        rest: a last line that says what is not shown.
    """
    parts = [_table(number, step, heads) for number, step in enumerate(steps, start=1)]
    return f"<div>{''.join(parts)}{f'<p>{escape(rest)}</p>' if rest else ''}</div>"


def _table(number: int, step: Step, heads: int) -> str:
    additive = step.name == "weights"
    texts = MatrixTexts(step.matrix, step.row_labels, step.column_labels, decimals=DECIMALS, additive=additive)
    columns = texts.drawn(LIMIT)
    head = "".join(f"<th>{_shown(label)}</th>" for label, *_ in columns)
    rows = (
        f"<tr><th>{_shown(label)}</th>{''.join(f'<td>{escape(cells[row])}</td>' for cells in columns)}</tr>"
        for row, label in enumerate(texts.labels, start=1)
    )
    shape = "×".join(str(size) for size in step.matrix.shape)
    of_head = "" if step.head is None or heads == 1 else f", head {step.head}"
    caption = f"<b>{number}. {escape(step.name)}</b>{of_head} [{shape}]: {escape(step.note)}"
    return (
        f"<table style='margin-bottom:1em'><caption style='text-align:left;caption-side:top'>{caption}</caption>"
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def _shown(label: str) -> str:
    # A label of another direction does not reorder its neighbours.
    return f"<bdi>{escape(label)}</bdi>"
