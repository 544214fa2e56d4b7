"""The result of `regard.watching.faithfulness`: a table, sentences that follow from its numbers, and the report."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import UnknownNameError
from regard.files.atomic import write_atomically
from regard.names.counted import counted
from regard.pictures.numbers import plain_percent
from regard.records.html_document import iframe
from regard.watching.faithfulness_page import page
from regard.watching.faithfulness_scores import (
    COLUMNS,
    TITLES,
    MethodScores,
    Numbers,
    TextImportance,
    decimals_of,
    deviation,
    margin,
    mean,
    shown,
)
from regard.watching.importance import IMPORTANCE_METHODS

if TYPE_CHECKING:
    from rich.table import Table

REMOVALS = {"delete": "deleted", "hide": "hidden by the mask"}


@dataclass(frozen=True, repr=False, eq=False)
class Faithfulness:
    """The scores of methods over texts, of `regard.watching.faithfulness`; ``result["weights"]`` has one method's.

    Attributes:
        model: the class of the model.
        methods: the scores of each method, and last of leave-one-out itself and of a random order.
        texts: the texts, with the importance of their tokens.
        number: the number of the output, in words.
        removal, signed, fractions: as for `regard.watching.faithfulness`.
        short: the number of texts that were left out, with fewer than two tokens.
        missing: the reasons for which methods are missing, by their names.
        interrupted: whether the user interrupted.

    Example:
        >>> import torch
        >>> from regard import models, watching
        >>> _ = torch.manual_seed(0)
        >>> model = models.LanguageModel(models.LanguageModelConfig(50, context=8, hidden=12, layers=2, heads=2))
        >>> result = watching.faithfulness(model, [[5, 6, 7, 8], [9, 5, 6]], methods=["weights"], progress=False)
        >>> result["weights"].deletion.shape, len(result.sentences())  # texts × fractions
        ((2, 9), 5)
        >>> result.save("faithfulness.html").stat().st_size > 10_000
        True
    """

    model: str
    methods: tuple[MethodScores, ...]
    texts: tuple[TextImportance, ...]
    number: str
    removal: int | str
    signed: bool
    fractions: tuple[float, ...]
    short: int
    missing: dict[str, str]
    interrupted: bool

    def __getitem__(self, name: str) -> MethodScores:
        for method in self.methods:
            if method.name == name:
                return method
        raise UnknownNameError("method", name, [method.name for method in self.methods])

    @property
    def compared(self) -> tuple[MethodScores, ...]:
        """The methods without leave-one-out and the random order; the report speaks of the first one."""
        return self.methods[:-2]

    @property
    def whole(self) -> Numbers:
        """The number of each whole text."""
        return np.array([text.number for text in self.texts])

    def sentences(self) -> list[str]:
        """Returns what the numbers say, in sentences: the outcome for the first method, and what it rests on."""
        return [*(self._of_first() if self.compared else ()), *self._about()]

    def _of_first(self) -> list[str]:
        method, *others = self.compared
        valid, title = int(np.isfinite(method.kendall).sum()), method.title
        if not valid:
            return [f"Here {title} are the same for all tokens of each text: they tell nothing of the output."]
        tau, width = mean(method.kendall), margin(method.kendall)
        word = "more than" if tau > width else "less than" if tau < -width else "no more than"
        amount = "a little" if tau < 0.3 else "something" if tau < 0.6 else "much"
        opening = f"Here the order of {title} tells {amount} of"
        if tau <= width:
            opening = f"These texts do not show that the order of {title} tells"
        chance, reference = self["random"], self["leave_one_out"]
        index = int(np.abs(np.array(self.fractions) - 0.2).argmin())
        digits = decimals_of(self.texts)
        at = {each: shown(mean(each.deletion[:, index]), digits) for each in (method, chance, reference)}
        whole = shown(mean(self.whole), digits)
        expected = sum(1 / sum(text.counted) for text in self.texts)
        lines = [
            f"{opening} what the output depends on: it agrees with that of leave-one-out {word} a random "
            f"order does. Kendall's τ is {shown(tau)} on average (95% interval {shown(tau - width)} to "
            f"{shown(tau + width)}; 1 is the same order, 0 chance), with a standard deviation of "
            f"{shown(deviation(method.kendall))} between texts.",
            f"It agrees more than 95% of random orders do in {method.is_above.sum():.0f} of "
            f"{counted(valid, 'text')}. The most important token is that of leave-one-out in "
            f"{method.is_top.sum():.0f}; a random token would be in {expected:.1f}.",
            f"Without the {plain_percent(self.fractions[index])} of tokens that it puts first, {self.number} is "
            f"{at[method]} on average, instead of {whole}; without random tokens {at[chance]}, without the first of "
            f"leave-one-out {at[reference]}.",
        ]
        best = max(others, key=lambda other: np.nan_to_num(mean(other.kendall), nan=-2.0), default=None)
        if best is not None:
            more = best.kendall - method.kendall
            is_clear = abs(mean(more)) > margin(more)
            clear = "about as much as" if not is_clear else "more than" if mean(more) > 0 else "less than"
            lines.append(
                f"Of the other orders that of {best.title} agrees most with leave-one-out, {clear} that of {title}: τ "
                f"is {shown(mean(best.kendall))}, the difference {shown(mean(more))} ± {shown(margin(more))}."
            )
        opposing = np.concatenate([text.importance["leave_one_out"] for text in self.texts]) < 0
        if not IMPORTANCE_METHODS[method.name].signed and opposing.any():
            lines.append(
                f"Without {plain_percent(float(opposing.mean()))} of the tokens, each by itself, {self.number} rises, "
                f"which numbers without a sign, such as {title}, cannot tell."
            )
        return lines

    def _about(self) -> list[str]:
        tokens = np.mean([sum(text.counted) for text in self.texts])
        lines = [
            f"Measured on {counted(len(self.texts), 'text')} of {tokens:.1f} tokens on average. In leave-one-out "
            f"each token is {REMOVALS.get(str(self.removal), f'replaced by token {self.removal}')} in turn, and the "
            f"change of {self.number} is its importance; "
            f"{'signed importances' if self.signed else 'magnitudes of importance'} are compared."
        ]
        if self.short:
            lines.append(f"{counted(self.short, 'text')} with fewer than two tokens could not be compared.")
        if self.interrupted:
            lines.append("The comparison was interrupted, so later texts are missing.")
        return lines + [f"Not compared: {TITLES[name]}, because {reason}" for name, reason in self.missing.items()]

    def table(self) -> "Table":
        """Returns a table of Rich, a row for each method: means over texts, and the standard deviation of τ."""
        from rich.table import Table

        title = f"agreement with leave-one-out, {counted(len(self.texts), 'text')}"
        table = Table(title=title, title_justify="left")
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == "method" else "right")
        for method in self.methods:
            table.add_row(*method.cells(decimals_of(self.texts)))
        return table

    def __str__(self) -> str:
        from regard.explanations.tables import as_text

        return "\n".join([as_text(self.table()), *self.sentences()])

    def __repr__(self) -> str:
        return f"<Faithfulness of {len(self.compared)} methods over {counted(len(self.texts), 'text')}>"

    def to_html(self) -> str:
        """Returns the report, one page that loads nothing: sentences, table, curves, texts and papers of both sides."""
        subject = f"{self.model} · {counted(len(self.texts), 'text')} · {self.number}"
        return page(subject, self.sentences(), self.methods, self.texts, self.fractions)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes `to_html` to a file.

        Raises:
            WriteError: the file cannot be written.
        """
        write_atomically(path, self.to_html().encode())
        return Path(path)

    def _repr_html_(self) -> str:
        return iframe(self.to_html(), 720, "agreement with leave-one-out")
