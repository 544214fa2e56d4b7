"""A simple rule beside a classifier, so that its metric has a scale: a linear model, or always the most frequent label.

The linear model is scikit-learn's logistic regression, where that package is installed. It learns from at most so many
examples that it takes some seconds, and from the same ones each time.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from regard.tasks.lazy import np

if TYPE_CHECKING:
    from regard.tasks.inputs.input import Examples, Input

log = logging.getLogger("regard")

MOST_FREQUENT = "always the most frequent label"

MOST_LABELS = 100
"""With more labels the linear model takes too long."""

MOST_ROWS, MOST_CHARACTERS = 10_000, 2_000_000
"""The most examples, and characters of texts, from which a linear model learns if there are few labels."""

LONGEST_TEXT = 2_000
"""The most characters of a text that the linear model reads."""

MOST_FEATURES = 50_000
"""The most words and pieces of words that the linear model knows if there are few labels."""

MOST_ITERATIONS = 60
"""The most steps of the linear model's optimizer."""


@dataclass(frozen=True)
class LabelRule:
    """A rule that gives labels: what it does, such as ``"a linear model of words and characters"``, and the number of
    the label of each content of an input (`Input.content`)."""

    name: str
    labels: Callable[[Sequence[Any]], list[int]]


def label_rule(
    source: Input, rows: Any, examples: Callable[[], Examples], number: Callable[[str], int], labels: int
) -> LabelRule:
    """Returns a linear model of the training examples, or else the rule of the most frequent label."""
    if source.plain and 1 < labels <= MOST_LABELS and find_spec("sklearn") is not None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an optimizer that has not converged gives a rule too
                return _linear_rule(source, rows, examples, number, labels)
        except Exception as error:  # the training is complete without its scale
            reason = (str(error).splitlines() or [""])[0]
            log.warning("no linear model beside the network: %s: %s", type(error).__name__, reason)
    counts = Counter(map(number, source.targets(rows)))
    most = max(range(labels), key=lambda label: counts[label])
    return LabelRule(MOST_FREQUENT, lambda contents: [most] * len(contents))


def _linear_rule(
    source: Input, rows: Any, examples: Callable[[], Examples], number: Callable[[str], int], labels: int
) -> LabelRule:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    is_text = source.kind == "text"
    most = MOST_ROWS if is_text else min(MOST_ROWS // 2, 100_000 // labels)
    contents, names = source.labelled_contents(rows, examples, most)
    if is_text:
        contents = _within([text[:LONGEST_TEXT] for text in contents], min(MOST_CHARACTERS, 70_000_000 // labels))
    true = [number(name) for name in names[: len(contents)]]
    features = _text_features(min(MOST_FEATURES, 500_000 // labels)) if is_text else _scaled()
    model: Any = make_pipeline(features, LogisticRegression(C=10.0 if is_text else 0.1, max_iter=MOST_ITERATIONS))

    def prepared(contents: Sequence[Any]) -> Any:
        return (
            [text[:LONGEST_TEXT] for text in contents]
            if is_text
            else np.stack(list(map(source.plain_features, contents)))
        )

    model.fit(prepared(contents), true)
    name = f"a linear model of {source.plain}"
    if len(contents) < len(rows):
        name += f" (of {len(contents):,} of {len(rows):,} {source.examples})"
    return LabelRule(name, lambda contents: model.predict(prepared(contents)).tolist() if len(contents) else [])


def _within(texts: list[str], characters: int) -> list[str]:
    """Returns the first texts, at least one, whose characters together do not exceed a number."""
    last = int(np.searchsorted(np.cumsum([len(text) for text in texts]), characters, side="right"))
    return texts[: max(1, last)]


def _text_features(most: int) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    options: dict[str, Any] = {"sublinear_tf": True, "max_features": most}
    return make_union(
        TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b", **options),
        TfidfVectorizer(ngram_range=(1, 3), analyzer="char_wb", **options),
    )


def _scaled() -> Any:
    from sklearn.preprocessing import StandardScaler

    return StandardScaler()
