"""How far measures of importance agree with leave-one-out on a user's texts, and what the deletion of tokens does."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.errors import ArgumentError, DataError, RegardError
from regard.names.answered import answered
from regard.shapes.checks import check_module, known_name, whole_number
from regard.watching.corpus import CorpusTokenizer, Text, batches
from regard.watching.faithfulness_report import Faithfulness
from regard.watching.faithfulness_scores import MethodScores, TextImportance
from regard.watching.importance import IMPORTANCE_METHODS, token_importance
from regard.watching.interception import evaluation_mode
from regard.watching.measured_output import MeasuredForward, MeasuredOutput, Metric
from regard.watching.progress_bar import progress_bar
from regard.watching.rank_correlation import kendall, spearman

REFERENCE, RANDOM = "leave_one_out", "random"

DEFAULT_METHODS = tuple(name for name in IMPORTANCE_METHODS if name not in ("flow", REFERENCE))
"""The methods that are compared if none is named: all but flow, which takes far longer than the others."""


@answered
def faithfulness(
    model: nn.Module,
    texts: Iterable[Text],
    tokenizer: Any = None,
    *,
    metric: Metric = None,
    methods: Sequence[str] | None = None,
    removal: int | str = "delete",
    signed: bool = False,
    fractions: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    query: int | None = None,
    layers: int | Sequence[int] | None = None,
    heads: int | Sequence[int] | None = None,
    special: Sequence[int] = (),
    max_length: int | None = None,
    forward: MeasuredForward | None = None,
    labels: Callable[[list[int]], Sequence[str]] | None = None,
    steps: int = 32,
    batch: int = 32,
    seed: int = 0,
    progress: bool = True,
) -> Faithfulness:
    r"""Measures on texts how far attention weights, and measures that use more, tell what a model's output depends on.

    ::

        result = regard.watching.faithfulness(model, texts, tokenizer)
        print(result)                        # a table, and what it says in sentences
        result.save("faithfulness.html")     # the report: curves, texts, the papers of both sides

    The reference is leave-one-out: each token that is not special is left out in turn, and the change of the number is
    its importance (Li et al. 2016, "Understanding Neural Networks through Representation Erasure"). Two comparisons
    are made for each method of `importance`, and for a random order:

    - its rank correlation with the reference, Kendall's τ-b (as Jain & Wallace 2019, "Attention is not Explanation",
      section 4.1) and Spearman's ρ, text by text;
    - the number :math:`y` after the deletion of the share f of tokens with the largest importance, and with these alone
      (DeYoung et al. 2020, "ERASER", section 4): means over ``fractions`` of

      .. math:: \text{comprehensiveness} = y - y_{\setminus f}, \qquad \text{sufficiency} = y - y_f

      A measure that finds what matters has a large comprehensiveness and a small sufficiency.

    Neither is the truth: two tokens that can replace each other count as nothing in leave-one-out, and shortened texts
    are unlike those that the model has learned from. What such numbers can show is disputed, and the report names the
    papers of both sides.

    Texts are run one by one, their shortened forms in batches; memory is that of one text, and of the scores.

    Args:
        model: any model whose attention `regard.watch` sees; it runs in evaluation mode, and its modes are restored.
        texts: texts, or token ids. Texts with fewer than two tokens that are not special are left out.
        tokenizer: as for `regard.survey`.
        metric: as for `importance`; a list has a label for each text.
        methods: names of `IMPORTANCE_METHODS`; None: all but ``"flow"``. Of these, methods that this model, or a
            package that is not installed, does not allow are named in the report.
        removal: how a token is left out: ``"delete"``, ``"hide"`` or a token id, as for `importance`.
        signed: whether ranks are of signed importance. False: of its magnitude, as weights have no sign.
        fractions: the shares of tokens that are deleted, or kept, in ascending order between 0 and 1; at least one
            token is, and never all.
        query, layers, heads, forward, steps: as for `importance`.
        special: ids of special tokens, besides those that the tokenizer marks; they are never left out.
        max_length: the number of tokens to which a longer text is cut; None: no text is cut.
        labels: ids → the text of each token in the report; None: what the tokenizer says, or the ids.
        batch: the number of shortened texts that run at once.
        seed: of the random order of each text.
        progress: whether to show the progress, on standard error in a terminal.

    Returns:
        the scores of each method and text. If the user interrupts, those of the texts that were done.

    Raises:
        KindError, ArgumentError, ShapeError, UnknownNameError: bad arguments; no text has two tokens.
        DataError: a text that the tokenizer or the model cannot take, by its number.
        UnseenError: a method that was named needs what cannot be seen in this model.
        MissingPartError: a method that was named needs a package that is not installed.

    Example:
        >>> import torch
        >>> from regard import models, watching
        >>> _ = torch.manual_seed(0)
        >>> model = models.LanguageModel(models.LanguageModelConfig(50, context=8, hidden=12, layers=2, heads=2))
        >>> result = watching.faithfulness(
        ...     model, [[5, 6, 7, 8], [9, 5, 6, 2, 4]], methods=["weights", "gradient_input"], metric=6
        ... )
        >>> result
        <Faithfulness of 2 methods over 2 texts>
        >>> result["leave_one_out"].kendall  # the reference itself
        array([1., 1.])
    """
    check_module("model", model)
    names = DEFAULT_METHODS if methods is None else (methods,) if isinstance(methods, str) else tuple(methods)
    for name in names:
        known_name("method", name, IMPORTANCE_METHODS)
    if _has_labels(metric) and isinstance(texts, Sequence) and len(metric) != len(texts):
        raise ArgumentError(f"metric must have a label for each text; it has {len(metric)} for {len(texts)} texts")
    whole_number("steps", steps, low=1)
    whole_number("batch", batch, low=1)
    shares = [float(share) for share in fractions]
    if not shares or not all(0 < share < 1 for share in shares) or sorted({*shares}) != shares:
        raise ArgumentError(f"fractions must ascend between 0 and 1; they are {shares}")
    options: dict[str, Any] = {
        "query": query, "layers": layers, "heads": heads, "removal": removal, "forward": forward, "steps": steps,
        "batch": batch,
    }  # fmt: skip
    reader = CorpusTokenizer(tokenizer, special, max_length)
    comparison = _Comparison([name for name in names if name != REFERENCE], methods is None, shares, signed, seed)
    with evaluation_mode(model):
        device = next((each.device for each in model.parameters() if not each.is_meta), torch.device("cpu"))
        try:
            for number, text in enumerate(_shown(texts, progress)):
                tokens = reader.tokens(text, number)
                if sum(tokens.counted) < 2:
                    comparison.short += 1
                    continue
                ids, counted = torch.tensor([tokens.ids], device=device), torch.tensor([tokens.counted])
                label = _label_of(metric, number)
                token_texts = _token_texts(list(tokens.ids), number, labels or reader.labels)
                try:
                    measured = MeasuredOutput(model, ids, label, counted=counted, **options)
                    comparison.add(measured, token_texts)
                except RegardError:
                    raise
                except Exception as error:
                    length = len(tokens.ids)
                    raise DataError(f"the model cannot run text {number} of {length} tokens: {error}") from error
        except KeyboardInterrupt:
            if not comparison.texts:
                raise
            comparison.interrupted = True
    return comparison.result(type(model).__name__, metric, removal)


class _Comparison:
    """Compares methods text by text, with the arguments of `faithfulness`."""

    def __init__(self, names: list[str], may_miss: bool, fractions: list[float], signed: bool, seed: int):
        self.names, self.may_miss, self.fractions, self.signed = names, may_miss, fractions, signed
        self.generator = np.random.default_rng(seed)
        self.texts: list[TextImportance] = []
        self.scores: dict[str, list[NDArray[np.float64]]] = {name: [] for name in (*names, REFERENCE, RANDOM)}
        self.missing: dict[str, str] = {}
        self.short, self.interrupted = 0, False

    def add(self, measured: MeasuredOutput, tokens: tuple[str, ...]) -> None:
        """Adds the scores of one text."""
        assert measured.counted is not None
        counted = measured.counted[0].numpy()
        count = int(counted.sum())
        importance = {REFERENCE: self._of_counted(measured, REFERENCE, counted)}
        for name in self.names:
            try:
                if name not in self.missing:
                    importance[name] = self._of_counted(measured, name, counted)
            except RegardError as error:
                if self.texts or not self.may_miss:
                    raise
                self.missing[name] = str(error)
        compared = importance | {RANDOM: self.generator.permutation(count).astype(np.float64)}
        whole, reference = float(measured.whole[0]), self._size(importance[REFERENCE])
        curves = self._curves(measured, counted, [np.argsort(-each, kind="stable") for each in compared.values()])
        for (name, numbers), curve in zip(compared.items(), curves, strict=True):
            size = self._size(numbers)
            tau, is_above = kendall(size, reference)
            is_top = reference[size.argmax()] == reference.max()
            self.scores[name].append(np.array([tau, spearman(size, reference), is_above, is_top, *curve]))
        self.texts.append(TextImportance(tokens, tuple(counted.tolist()), whole, importance))

    def _of_counted(self, measured: MeasuredOutput, name: str, counted: NDArray[np.bool_]) -> NDArray[np.float64]:
        return token_importance(measured, name)[0].double().numpy()[counted]

    def _size(self, importance: NDArray[np.float64]) -> NDArray[np.float64]:
        return importance if self.signed else np.abs(importance)

    def _curves(
        self, measured: MeasuredOutput, counted: NDArray[np.bool_], orders: list[NDArray[np.int64]]
    ) -> NDArray[np.float64]:
        """Returns for each order the numbers without the first tokens, then with these alone, at all fractions."""
        positions = np.flatnonzero(counted)
        remaining = np.ones((len(orders), 2, len(self.fractions), len(counted)), np.bool_)
        for of_order, order in zip(remaining, orders, strict=True):
            for index, fraction in enumerate(self.fractions):
                first = min(max(round(fraction * len(order)), 1), len(order) - 1)
                of_order[0, index, positions[order[:first]]] = False
                of_order[1, index, positions[order[first:]]] = False
        different, inverse = np.unique(remaining.reshape(-1, len(counted)), axis=0, return_inverse=True)
        numbers = measured.partial(0, torch.from_numpy(different)).numpy()
        return numbers[inverse.reshape(-1)].reshape(len(orders), -1)

    def result(self, model: str, metric: Metric, removal: int | str) -> Faithfulness:
        """Returns the result; raises ArgumentError if no text was compared."""
        if not self.texts:
            raise ArgumentError(f"texts must have one with two tokens that are not special; {self.short} had fewer")
        number = "the metric" if callable(metric) else f"the probability of the {'predicted ' * (metric is None)}label"
        whole = np.array([text.number for text in self.texts])
        scores = tuple(
            MethodScores.of(name, np.stack(rows), whole)
            for name, rows in self.scores.items()
            if name not in self.missing
        )
        return Faithfulness(
            model, scores, tuple(self.texts), number, removal, self.signed, tuple(self.fractions), self.short,
            self.missing, self.interrupted,
        )  # fmt: skip


def _has_labels(metric: Metric) -> TypeGuard[Sequence[int] | Tensor]:
    """Whether a metric has a label for each text."""
    return isinstance(metric, (Sequence, Tensor)) and getattr(metric, "shape", None) != ()


def _label_of(metric: Metric, number: int) -> Metric:
    """Returns the metric of one text; of labels, that of its number."""
    if not _has_labels(metric):
        return metric
    if number >= len(metric):
        raise ArgumentError(f"metric must have a label for each text; it has {len(metric)}")
    return metric[number]


def _shown(texts: Iterable[Text], progress: bool) -> Iterator[Text]:
    """Yields the texts, and shows how many are done."""
    corpus = (text for batch in batches(texts, 1) for text in batch.texts)
    total = len(texts) if hasattr(texts, "__len__") else None  # type: ignore[arg-type]
    with progress_bar(progress) as bar:
        yield from bar.track(corpus, total, description="texts")


def _token_texts(ids: list[int], number: int, labels: Callable[[list[int]], Sequence[str]]) -> tuple[str, ...]:
    """Returns the text of each token of a text; raises ArgumentError if the user's function returns others."""
    texts = tuple(labels(ids))
    if len(texts) != len(ids):
        raise ArgumentError(f"labels must return {len(ids)} texts for text {number}; got {len(texts)}")
    return texts
