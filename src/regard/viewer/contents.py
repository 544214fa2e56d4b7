"""Weights in any form that they come in → the document that a view shows.

The number of axes determines their meaning:

- ``[queries, keys]``: one head;
- ``[heads, queries, keys]``: the heads of one layer; a batch without heads, as the averaged weights of
  `MultiheadAttention`, is ``weights[:, None]``;
- ``[batch, heads, queries, keys]``: a batch, of which ``example=`` chooses one;
- ``[layers, batch, heads, queries, keys]``: the layers of a model, stacked.

A sequence of tensors or arrays has one for each layer, as Hugging Face's ``outputs.attentions``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from regard.attention import Attended, Observed
from regard.attention.readings import WATCHING_LINE
from regard.errors import ArgumentError, KindError, ShapeError
from regard.explanations import Explanation
from regard.explanations.model_attention import head_arguments, head_matrices
from regard.names.counted import counted
from regard.records import AttentionRecord, Document, HeadGrid, StepsRecord
from regard.records.axis import is_whole_number
from regard.shapes.arrays import as_array
from regard.shapes.checks import type_text
from regard.viewer.padding import without_padding
from regard.viewer.token_labels import TokenLabels
from regard.viewer.watched_contents import STEPS_USAGE, document_of_watch
from regard.watching import AttentionCall, Watch
from regard.watching.call_records import numbered_records

MOST_READ = 2**21
"""The most weights of all records together that are read from tiles, so that a view of them is a small file."""

OUTPUT_FIELDS = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")
"""The fields of a model output of transformers that hold weights."""

NO_ATTENTIONS = (
    "the model returned no attentions, since its attention implementation (such as 'sdpa') computes no weights: write "
    "model.set_attn_implementation('eager') before the call with output_attentions=True, or keep it and write "
    f"{WATCHING_LINE}; then View(watched, tokenizer)"
)

MISSING_WEIGHTS = (
    "these weights are None: they were not read, or the model returned none, as one of transformers with "
    "output_attentions=True whose implementation (such as 'sdpa') computes none. Write "
    f"{WATCHING_LINE}; then View(watched, tokens); or "
    'observed = regard.observe(query, key, value, read="view"); then View(observed, tokens)'
)

ACCEPTED_CONTENTS = (
    "View shows weights (a tensor, an array or nested lists) with tokens, outputs.attentions, results of "
    "regard.watch, observe, attend_with_weights, explain, predict, survey or patch, records and a Document"
)


def as_document(
    content: Any, labels: TokenLabels | None = None, title: str | None = None, steps: Sequence[tuple[int, int]] = ()
) -> Document:
    """Returns a document of anything that a view can show.

    Args:
        content: as for `View`.
        labels: the tokens, and the example of a batch.
        title: one line; None: the one that the content has.
        steps: the (record, head) pairs, from 0, whose calculation a `Watch` adds, with the sources of its scores after
            ``watch(inputs=True)``.

    Raises:
        KindError: a content or tokens of another type.
        ArgumentError: something is missing, or ambiguous; the message has the line to write.
        ShapeError: a number of axes or tokens is wrong.
    """
    steps = _pairs(steps)
    if not isinstance(content, Watch) and steps:
        raise ArgumentError(f"steps must be of a result of regard.watch: {STEPS_USAGE}")
    document = _document(content, TokenLabels() if labels is None else labels, steps)
    if isinstance(content, (Watch, AttentionCall)):
        document = replace(document, records=_with_short_weights(document.records))
    document = without_padding(document)
    return document if title is None else replace(document, title=title)


def _with_short_weights(records: tuple[AttentionRecord, ...]) -> tuple[AttentionRecord, ...]:
    """Returns the records with the weights of their tiles, as after ``watch(keep=True)``, if all of them are few."""
    if sum(record.heads * len(record.queries) * len(record.keys) for record in records) > MOST_READ:
        return records
    return tuple(
        replace(record, weights=record.source.tile((0, len(record.queries)), (0, len(record.keys))))
        if record.weights is None and record.source is not None
        else record
        for record in records
    )


def _pairs(steps: Any) -> list[tuple[int, int]]:
    """Returns pairs of a record and a head, as integers of Python."""
    must = "steps must be (layer, head) pairs of integers, such as steps=[(0, 1)]"
    if isinstance(steps, (str, bytes)) or not isinstance(steps, Iterable):
        raise KindError(f"{must}; it is {type_text(steps)}")
    pairs = list(steps)
    for pair in pairs:
        if not isinstance(pair, (Sequence, np.ndarray)) or len(pair) != 2 or not all(map(is_whole_number, pair)):
            raise KindError(f"{must}; one entry is {str(pair)[:100]!r}")
    return [(int(layer), int(head)) for layer, head in pairs]


def _document(content: Any, labels: TokenLabels, steps: Sequence[tuple[int, int]]) -> Document:
    if isinstance(content, Document):
        labels.refuse("a Document")
        return content
    if isinstance(content, Explanation):
        return _of_parts([_labelled(content, labels)])
    if isinstance(content, Watch):
        return document_of_watch(content, labels, steps)
    if isinstance(content, AttentionCall):
        return _of_call(content, labels)
    if isinstance(content, (Observed, Attended)):
        return _of_result(content, labels)
    if content is None:
        raise ArgumentError(MISSING_WEIGHTS)
    fields = [name for name in OUTPUT_FIELDS if getattr(content, name, None) is not None]
    if fields or any(
        hasattr(type(content), name) or name in getattr(content, "__dict__", {}) for name in OUTPUT_FIELDS
    ):
        raise ArgumentError(_of_output(fields))
    own = getattr(content, "document", None)
    if callable(own) and not isinstance(content, type):
        labels.refuse(f"a {type(content).__name__}")
        return cast(Document, own())
    if isinstance(content, (AttentionRecord, StepsRecord, HeadGrid)):
        labels.refuse("a record")
        return _of_parts([content])
    if isinstance(content, (torch.Tensor, np.ndarray)):
        return _of_weights(content, labels)
    if isinstance(content, (str, bytes, dict)) or not isinstance(content, Iterable):
        figure = ", whose picture is .figure()" if hasattr(content, "figure") else ""
        raise KindError(f"{ACCEPTED_CONTENTS}; this is {type_text(content)}{figure}")
    parts = list(content)
    if parts and all(isinstance(part, Document) or callable(getattr(type(part), "document", None)) for part in parts):
        labels.refuse(f"a {type(parts[0]).__name__}")
        return _together([_document(part, labels, ()) for part in parts])
    if any(isinstance(part, (AttentionRecord, StepsRecord, HeadGrid, Explanation)) for part in parts):
        labels.refuse("a record")
        return _of_parts(parts)
    return _of_weights(parts, labels)


def _together(documents: Sequence[Document]) -> Document:
    """Returns the records of several documents, such as predictions of several inputs, as those of several texts."""
    named: dict[str, list[str]] = {}
    first = 1 if len(documents) > 1 else 0  # the first is the input, whose tokens stand in the list of texts
    for name, text in (pair for document in documents for pair in document.texts[first:]):
        named.setdefault(name, []).append(text)
    texts = tuple((name, " · ".join(each)) for name, each in named.items())
    titles = {document.title for document in documents}
    title = titles.pop() if len(titles) == 1 else counted(len(documents), "text")
    records, steps, grids = (
        tuple(part for one in documents for part in getattr(one, name)) for name in ("records", "steps", "grids")
    )
    return Document(title, records, steps, texts, grids)


def _of_parts(parts: Sequence[Any]) -> Document:
    records, steps, grids = [], [], []
    for number, part in enumerate(parts):
        if isinstance(part, AttentionRecord):
            records.append(part)
        elif isinstance(part, StepsRecord):
            steps.append(part)
        elif isinstance(part, HeadGrid):
            grids.append(part)
        elif isinstance(part, Explanation):
            steps += [steps_record(part, batch=batch, head=head) for batch, head in part.slices]
        else:
            raise KindError(f"a document must hold records; number {number} is {type_text(part)}")
    names = [one.name for one in records] or [one.name for one in steps] or [one.title for one in grids]
    return Document(names[0] if len(names) == 1 else "attention", tuple(records), tuple(steps), grids=tuple(grids))


def _labelled(explanation: Explanation, labels: TokenLabels) -> Explanation:
    if labels == TokenLabels():
        return explanation
    replace(labels, tokens=None, rows=None, columns=None).refuse("an Explanation")
    queries, keys = labels.axes(explanation.query.shape[-2], explanation.key.shape[-2])
    return explanation.labelled(queries.labels, keys.labels)


def _of_output(fields: Sequence[str]) -> str:
    """Returns the advice for a whole model output that has weights in some fields."""
    if not fields:
        return NO_ATTENTIONS
    lines = [
        f"View(outputs.{name}, rows=target_tokens, columns=source_tokens)"
        if name == "cross_attentions"
        else f"View(outputs.{name}, {name.removesuffix('_attentions') + '_tokens' if '_' in name else 'tokens'})"
        for name in fields
    ]
    return f"a model's output has more than weights; write {' or '.join(lines)}"


def _of_call(call: AttentionCall, labels: TokenLabels) -> Document:
    if call.weights is None and call.tiles is None:
        raise ArgumentError(f"the weights were not read; write {WATCHING_LINE}; then View(watched.calls[0], tokens)")
    row = labels.row(call.batch, "View(call, tokens, example=0)")
    (record,) = numbered_records([call], row)
    if (labels.tokens, labels.rows, labels.columns) != (None, None, None):
        queries, keys = labels.axes(call.queries, call.keys)
        record = replace(record, queries=queries, keys=keys)
    return Document(call.name or "attention", (record,))


def _of_result(result: Observed | Attended, labels: TokenLabels) -> Document:
    if result.weights is None:
        line = (
            'observed = regard.observe(query, key, value, read="view")'
            if isinstance(result, Observed)
            else "attended = regard.attend_with_weights(query, key, value)"
        )
        raise ArgumentError(f"the result has no weights; write {line}; then View({line.split()[0]}, tokens)")
    weights = result.weights
    if weights.dim() == 3:
        # The verbs read three axes as a batch of one head each.
        weights = weights[:, None]
    if weights.dim() == 4:
        row = labels.row(len(weights), f"View({type(result).__name__.lower()}, tokens, example=0)")
        weights, labels = weights[row], replace(labels, example=None)
    return _of_weights(weights, labels, signed=bool((weights < 0).any()))


def _of_weights(content: Any, labels: TokenLabels, signed: bool = False) -> Document:
    if labels.count is not None:
        return _of_texts(content, labels, signed)
    layers = _layers(content, labels)
    records = []
    for number, layer in enumerate(layers):
        if not signed and (layer < 0).any():
            raise ArgumentError(
                f"weights must be at least 0; one is {layer.min():.4g}. Scores become weights by a normalizer: "
                "View(scores.softmax(-1), tokens)"
            )
        queries, keys = labels.axes(*layer.shape[1:])
        kind = "self" if queries is keys else "cross"
        if kind == "self" and len(queries) > 1 and not np.triu(layer, 1).any():
            kind = "causal"
        name = "attention" if len(layers) == 1 else f"layer {number}"
        weights = layer.astype(np.float32, copy=False)
        records.append(AttentionRecord(name, number, kind, queries, keys, weights, signed=signed))
    return Document("attention", tuple(records))


def _of_texts(content: Any, labels: TokenLabels, signed: bool) -> Document:
    """Returns the weights of several texts: one entry of a list for each, as ``outputs.attentions``, or a batch."""
    count = labels.count or 0
    by_text = isinstance(content, (list, tuple)) and any(
        isinstance(layer, (torch.Tensor, np.ndarray))
        for part in content
        if isinstance(part, (list, tuple))
        for layer in part
    )
    if by_text:
        labels.check_count(len(content))
    chosen = range(count) if labels.example is None else [labels.row(count, "View(weights, tokens, example=0)")]
    records: list[AttentionRecord] = []
    for number in chosen:
        of_text = labels.of_text(number)
        if by_text:
            records += _of_weights(content[number], of_text, signed).records
        else:
            records += _of_weights(content, replace(of_text, example=number, batch=count), signed).records
    return Document("attention", tuple(records))


def _layers(content: Any, labels: TokenLabels) -> list[NDArray[Any]]:
    """Returns the weights of each layer ``[heads, queries, keys]``."""
    if isinstance(content, (list, tuple)):
        if not content or any(part is None for part in content):
            raise ArgumentError(NO_ATTENTIONS)
        if all(isinstance(part, (list, tuple)) for part in content) and any(
            isinstance(each, torch.Tensor) and each.dim() > 2 for part in content for each in part
        ):
            raise ArgumentError(
                "weights have a sequence of layers for each token that was generated, as generate of transformers "
                'returns them; write with regard.watch(model, read="view") as watched: model.generate(...); then '
                "View(watched, tokenizer)"
            )
        if all(isinstance(part, (torch.Tensor, np.ndarray)) and part.ndim > 1 for part in content):
            return [_one_layer(f"weights[{number}]", part, labels) for number, part in enumerate(content)]
    weights = as_array(content, "weights")
    if weights.ndim == 5:
        return [_one_layer(f"weights[{number}]", layer, labels) for number, layer in enumerate(weights)]
    return [_one_layer("weights", weights, labels)]


def _one_layer(name: str, content: Any, labels: TokenLabels) -> NDArray[Any]:
    layer = as_array(content, name)
    if layer.ndim == 4:
        line = "View(weights, tokens, example=0)"
        if name == "weights":
            line += ", or View(list(weights), tokens) if the first axis is that of layers"
        return layer[labels.row(len(layer), line)]
    if layer.ndim not in (2, 3):
        line = "; a vector of one query is View(weights[None], rows=[...], columns=[...])" if layer.ndim == 1 else ""
        raise ShapeError(
            f"{name} must be [queries, keys], [heads, queries, keys] or [batch, heads, queries, keys]; its shape is "
            f"{list(layer.shape)}{line}"
        )
    if labels.example is not None:
        message = f"{name} has no batch: its shape {list(layer.shape)} is [queries, keys]; leave example out"
        if layer.ndim == 3:
            by_batch = "weights[:, None]" if name == "weights" else "[layer[:, None] for layer in weights]"
            message = (
                f"{name} has no batch: its shape {list(layer.shape)} is read as [heads, queries, keys]; leave example "
                f"out, or, if the first axis is the batch, write View({by_batch}, tokens, example={labels.example})"
            )
        raise ArgumentError(message)
    return layer[None] if layer.ndim == 2 else layer


def steps_record(explanation: Explanation, *, batch: int = 0, head: int = 0, name: str | None = None) -> StepsRecord:
    """Returns the worked calculation of one head, with the steps that it has.

    Args:
        explanation: the result of `regard.explain`.
        batch: the batch row, from 0.
        head: the query head, from 0.
        name: shown to the reader; None: the number of the head, or of the batch row where there are no heads.

    Returns:
        the record, whose matrices are those of the head.

    Raises:
        KindError: not an `Explanation`.
        ArgumentError: there is no such batch row or head.

    Example:
        >>> import regard
        >>> from regard import viewer
        >>> explanation = regard.explain([[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], [[10.0], [20.0]])
        >>> record = viewer.steps_record(explanation)
        >>> list(record.matrices), record.score, record.normalizer
        (['query', 'key', 'value', 'scores', 'scaled', 'weights', 'output'], 'dot', 'softmax')
        >>> record.matrices["weights"].round(3)
        array([[0.67, 0.33]])
    """
    if not isinstance(explanation, Explanation):
        raise KindError(f"explanation must be a regard.Explanation; it is {type_text(explanation)}")
    explanation.check_slice(batch, head)
    matrices = head_matrices(explanation, batch, head)
    arguments = head_arguments(explanation, batch, head, matrices)
    return StepsRecord(
        name or (f"batch row {batch}" if explanation.scores.dim() == 3 else f"head {head}"),
        matrices,
        tuple(explanation.row_labels("query")),
        tuple(explanation.row_labels("key")),
        head=head,
        **arguments,
    )
