"""Predictions of typed inputs in a terminal: the input, the answer, how sure the model is, what it attended to."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.training.results import Prediction
    from regard.training.task import Trained

EMPTY_ANSWER = "(empty)"
"""The text that is printed for an empty answer."""


def print_reports(trained: "Trained", predictions: "Sequence[Prediction]", ranked: bool) -> None:
    """Prints each prediction, with an empty line between two of them.

    Args:
        ranked: whether the answers to an input are numbered.
    """
    # A console keeps the standard output of the moment when it is created.
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    for number, prediction in enumerate(predictions):
        if number:
            print()
        print("\n".join(report_lines(trained, prediction, ranked)))
        report = prediction.report()
        if report is not None:
            console.print(report)


def report_lines(trained: "Trained", prediction: "Prediction", ranked: bool) -> Iterator[str]:
    """Yields the lines of a prediction, each with the name of what it says; see `print_reports`."""
    from regard.tasks.attended import attended_line

    named = [prediction.texts()[0]]
    if ranked:
        for rank, one in enumerate(prediction.n_best, start=1):
            certainty = ", ".join(f"{name} {value:.4f}" for name, value in one.certainty.items())
            named.append((str(rank), _answer(one) + (f"  ({certainty})" if certainty else "")))
    elif prediction.is_empty or prediction.shown:
        named.append((trained.task.answer_name.lower(), _answer(prediction)))
        named += [(name, f"{value:.4f}") for name, value in prediction.certainty.items()]
    named.append(("attended to", attended_line(trained, prediction)))
    width = 1 + max(len(name) for name, _ in named)
    for name, text in named:
        first, *others = text.splitlines() or [""]
        yield f"{name + ':':<{width}}  {first}".rstrip()
        yield from (f"{'':<{width}}  {line}".rstrip() for line in others)


def _answer(prediction: "Prediction") -> str:
    return EMPTY_ANSWER if prediction.is_empty else prediction.shown
