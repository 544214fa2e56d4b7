"""The score of a pair as a sum over what was written to the residual stream: `explain_weight`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from regard.errors import ArgumentError, KindError
from regard.names.answered import answered
from regard.records import ScoreParts, WriteSource
from regard.records.attention_record import Kind
from regard.scores.inner_product import InnerProduct
from regard.shapes.checks import known_name, type_text
from regard.watching.attention_call import AttentionCall
from regard.watching.call_problems import MULTI_HEAD
from regard.watching.call_records import ProblemTiles
from regard.watching.change import whole_index
from regard.watching.generation import JoinedPart
from regard.watching.linear_maps import rounding, wide_tensor
from regard.watching.mask_kind import hides
from regard.watching.watch import Watch
from regard.watching.weight_parts import WeightParts
from regard.watching.write_steps import (
    ElementFactors,
    HeadsWrite,
    LinearStep,
    Product,
    ScoreSteps,
    Write,
    is_capped,
    pulled,
)

USAGE = "with regard.watch(model, inputs=True) as seen"

KEYS_AT_ONCE = 32
"""The number of keys whose parts are added up at once."""

MOST_TOKENS, MOST_PARTS = 64, 1 << 18
"""The most tokens, and about the most numbers of one side, of the parts of all scores of a head."""

OTHER_SHARE = 1e-3
"""The least share of an attention's output, besides rounding, that is not explained by its heads and is a part."""

_ADVICE = {
    MULTI_HEAD: "; call the module with need_weights=False",
    **dict.fromkeys(
        ("MultiheadAttention", "TransformerEncoderLayer"),
        "; call the model after torch.backends.mha.set_fastpath_enabled(False)",
    ),
}
"""What to change, by the function that computed a call."""

Vectors = dict[WriteSource, Tensor]
"""The features that each source adds to a query, or to a weighted sum of keys: ``float64 [features]``."""


@dataclass(frozen=True, eq=False)
class ScoreRow:
    """One query's scores.

    Attributes:
        query: the step and the elements of the query, ``[features]``.
        key: those of each key, ``[keys, features]``.
        scale: the factor of each inner product, ``[keys]``, as all that follow.
        cap: the change by a cap or by another function; None: all that the parts and the bias do not add.
        bias: what is added then.
        scores: the scores before the mask.
        visible: which keys the query sees.
    """

    query: tuple[LinearStep, Tensor]
    key: tuple[LinearStep, Tensor]
    scale: Tensor
    cap: Tensor | None
    bias: Tensor
    scores: Tensor
    weights: Tensor
    visible: Tensor


@answered
@torch.no_grad()
def explain_weight(
    seen: Watch,
    layer: int,
    head: int,
    query: int,
    key: int,
    *,
    against: int | Literal["mean"] | None = None,
    kind: Kind | None = None,
    name: str | None = None,
    batch_row: int = 0,
    sequence: int = -1,
) -> WeightParts:
    r"""Explains a weight: the score of a query and a key as a sum over what earlier modules wrote.

    .. math:: s_{ij} = \sum_{a, b} scale \cdot q_{i,a} \cdot k_{j,b} + cap_{ij} + bias_{ij},
        \qquad q_{i,a} = L_{q,i}\, x_{i,a}, \quad k_{j,b} = L_{k,j}\, x_{j,b}

    The input of the projections is the residual stream, a sum of what embeddings, heads (:math:`x_a = o_h W_O^h`),
    other modules and biases wrote: so the score is a bilinear form (Elhage et al. 2021, "A Mathematical Framework for
    Transformer Circuits", sections "QK circuit" and "Composition"; Kamath et al. 2025, "Tracing Attention Computation
    Through Feature Interactions"). :math:`L` is all that lies between: normalizations, also those of queries and keys,
    which are linear as their statistics are held fixed at those of the run; projections with adapters; rotary
    positions, which rotate each part. With these statistics the parts add up to the score exactly, up to rounding,
    whose size is named (`WeightParts.rest`); how a change of one part would change the statistics does not count. A
    cap of the scores is a last step that is not linear, and has a line of its own; so have biases by position.

    What a module that is not linear wrote, such as a feedforward network, is one part, and not divided further. Heads
    are divided where their output projection is known. Biases of all linear modules are one part.

    Args:
        seen: of ``regard.watch(model, inputs=True)``, after the model was called.
        layer: the number of the layer, from 0, as `AttentionCall.layer` says.
        head: the number of the query head, from 0.
        query, key: positions in their sequences, from 0; with a cache, in the whole sequence so far.
        against: explains the difference from the score of another key, or from the ``"mean"`` over all visible keys:
            the softmax ignores what all keys have in common. None: the score itself.
        kind: ``"self"``, ``"causal"`` or ``"cross"``, where a layer has several attentions.
        name: the name of the attention's module, where these say too little.
        batch_row: its number, from 0.
        sequence: as for `Watch.stitched`.

    Returns:
        The parts: a table when printed, and in a notebook.

    Raises:
        ArgumentError: there is no such layer, head, query or key; the query does not see the key; the watch kept no
            inputs; or the way back is not known, with the reason.
        KindError, UnknownNameError: bad arguments.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import models, watching
        >>> _ = torch.manual_seed(0)
        >>> model = models.LanguageModel(models.LanguageModelConfig(50, context=8, hidden=12, layers=2, heads=2)).eval()
        >>> with torch.no_grad(), regard.watch(model, inputs=True) as seen:
        ...     _ = model(torch.tensor([[5, 6, 7, 5]]))
        >>> parts = watching.explain_weight(seen, layer=1, head=0, query=3, key=1)
        >>> [source.label for source in parts.sources][:3]
        ['embedding', 'head 0 of layer 0', 'head 1 of layer 0']
        >>> bool(abs(parts.total - parts.score) < 1e-6 > abs(parts.rest))
        True
    """
    if not isinstance(seen, Watch):
        raise KindError(f"seen must be the result of regard.watch; it is {type_text(seen)}")
    numbers = {"layer": layer, "head": head, "query": query, "key": key, "batch_row": batch_row}
    layer, head, query, key, batch_row = (whole_index(name, number) for name, number in numbers.items())
    if kind is not None:
        known_name("kind", kind, get_args(Kind))
    if against is not None and not (isinstance(against, str) and against == "mean"):
        against = whole_index("against", against)
    part, keys = _part(seen, layer, kind, name, query, batch_row, sequence)
    call, row = part.call, int(part.rows[batch_row])
    positions = part.places(keys).tolist()
    for argument, number in (("key", key), ("against", against)):
        if isinstance(number, int) and number not in positions:
            raise ArgumentError(f"{argument} must be one of the {keys} keys that query {query} has; it is {number}")
    if head >= call.heads:
        raise ArgumentError(f"head must be below {call.heads}, the heads of {call.name!r}; it is {head}")
    scores = _score_row(call, row, head, query - part.first_query)
    columns = {position: int(column) for position, column in zip(positions, part.columns, strict=True)}
    for number in (key, against):
        if isinstance(number, int) and not bool(scores.visible[columns[number]]):
            raise ArgumentError(f"the mask of {call.name!r} hides key {number} from query {query}")
    own, other = columns[key], columns[against] if isinstance(against, int) else against
    sources, pairs, bias, cap, rest = _parts(scores, _share(scores.visible, own, other))
    order = scores.scores.masked_fill(~scores.visible, -torch.inf)
    return WeightParts(
        layer,
        head,
        query,
        key,
        against,
        call.name,
        call.kind,
        sources,
        pairs.numpy(),
        bias,
        cap,
        rest,
        float(scores.scores[own]),
        float(scores.weights[own]),
        1 + int((order > order[own]).sum()),
        int(scores.visible.sum()),
    )


def _share(visible: Tensor, key: int, against: int | Literal["mean"] | None) -> Tensor:
    """Returns the factor of each key's score in the number that is explained; ``against`` is a key too."""
    share = torch.zeros(len(visible), dtype=torch.float64, device="cpu")
    if against == "mean":
        share[visible] = -1 / float(visible.sum())
    elif against is not None:
        share[against] = -1
    share[key] += 1
    return share


def _part(
    seen: Watch, layer: int, kind: Kind | None, name: str | None, query: int, batch_row: int, sequence: int
) -> tuple[JoinedPart, int]:
    """Returns the part of a call that has a query, and the number of keys of its sequence."""
    modules = [parts for parts in seen.parts(sequence) if parts]
    if not modules:
        raise ArgumentError(f"no attention call was watched yet; call the model inside of the context: {USAGE}")
    chosen = [
        parts
        for parts in modules
        for first in (parts[0].call,)
        if first.layer == layer and kind in (None, first.kind, parts[-1].call.kind) and name in (None, first.name)
    ]
    if len(chosen) != 1:
        known = [(call.name, call.layer, call.kind) for call in (parts[0].call for parts in chosen or modules)]
        raise ArgumentError(
            f"layer, kind and name must name one attention, and {len(chosen)} have this layer, kind and name: "
            f"(name, layer, kind) may be {', '.join(map(str, known[:16]))}{' …' if len(known) > 16 else ''}"
        )
    (parts,) = chosen
    if batch_row >= len(parts[-1].rows):
        raise ArgumentError(f"batch_row must be below {len(parts[-1].rows)}; it is {batch_row}")
    part = next((part for part in parts if part.first_query <= query < part.end), None)
    if part is None:
        raise ArgumentError(f"query must be from {parts[0].first_query} to {parts[-1].end - 1}; it is {query}")
    return part, max(part.first_key + part.keys for part in parts) + parts[-1].source


def _score_row(call: AttentionCall, row: int, head: int, query: int) -> ScoreRow:
    """Returns the scores of one query, and where they come from; raises ArgumentError if that is not known."""
    origin, tiles = call.origin, call.tiles
    if origin is None or tiles is None:
        raise ArgumentError(
            f"the inputs of {call.name!r} were not kept: write {USAGE}; a record that was pickled has none"
        )
    source = tiles[row]
    if not isinstance(source, ProblemTiles):
        weights = torch.from_numpy(source.tile((query, query + 1), (0, call.keys))[call.chosen_heads.index(head), 0])
        return _own_row(call, origin, row, head, query, weights)
    problem = source.problem
    if origin.query is None or origin.key is None:
        reason = "the way from the residual stream to its queries and keys is not known"
        raise _unknown(call, f"{reason}{_ADVICE.get(call.source, '')}")
    prepared, grid, features = problem.prepared, problem.grid, problem.query.shape[-1]
    if not isinstance(prepared.primitive, InnerProduct) or not torch.equal(
        prepared.query.to(problem.query.dtype), problem.query
    ):
        score = type(problem.score).__name__
        raise _unknown(call, f"its score is no scaled inner product of queries and keys, but {score}")
    steps = source.steps(range(query, query + 1))
    scaled, capped, biased, masked, weights = (each[0, head, 0].double() for each in steps[1:])
    scale, kv_heads = prepared.scale, problem.key.shape[1]
    if isinstance(scale, Tensor):
        key = prepared.key[0, head * prepared.key.shape[1] // grid.heads].double()
        inner = key @ prepared.query[0, head, query].double()
        largest = int(inner.abs().argmax())
        scale = float(scaled[largest] / inner[largest]) if float(inner[largest]) else 1.0
    own = torch.arange(features, device="cpu")
    of_query = ((row * grid.heads + head) * grid.queries + query) * features + own
    first = (row * kv_heads + head // (grid.heads // kv_heads)) * grid.keys
    of_keys = (first + torch.arange(grid.keys, device="cpu"))[:, None] * features + own
    return ScoreRow(
        (origin.query, of_query),
        (origin.key, of_keys),
        scaled.new_full((grid.keys,), scale),
        capped - scaled,
        biased - capped,
        torch.where(hides(masked), biased, masked),  # `intervene` changes scores after the mask
        weights,
        ~hides(masked),
    )


def _own_row(call: AttentionCall, origin: ScoreSteps, row: int, head: int, query: int, weights: Tensor) -> ScoreRow:
    """Returns the scores of one query that the model computed itself."""
    if origin.scores is None or origin.values is None:
        raise _unknown(call, "the way from the residual stream to its scores is not known")
    count = call.keys
    index = ((row * call.heads + head) * call.queries + query) * count + torch.arange(count, device="cpu")
    ends = pulled(origin.scores, ElementFactors(index, torch.eye(count, dtype=torch.float64, device="cpu")))
    products = [(step, elements) for step, elements in ends.items() if isinstance(step, Product)]
    if len(products) != 1 or len(products[0][1].index) != count:
        raise _unknown(call, "its scores are no sum of one product of queries and keys and others")
    (step, elements), bias = products[0], torch.zeros(count, dtype=torch.float64, device="cpu")
    for write, part in ends.items():
        if isinstance(write, Write):
            bias = bias + write.total(part)
    sizes, order = elements.factors.abs().max(1)
    order = torch.where(sizes > 0, order, torch.arange(count, device="cpu"))  # a mask has replaced the others
    indices = [side.expand(count, -1)[order] for side in step.factors_of(elements.index)]
    sides = list(zip(step.sides, indices, strict=True))
    if count > 1 and bool((indices[0] != indices[0][:1]).any()):
        sides = sides[::-1]
    (query_step, of_query), key = sides
    scores = origin.values[row, head, query].cpu().double()
    scale = elements.factors.gather(1, order[:, None])[:, 0]
    cap = None if is_capped(origin.scores) else torch.zeros_like(bias)
    return ScoreRow((query_step, of_query[0]), key, scale, cap, bias, scores, weights, ~hides(scores))


def _unknown(call: AttentionCall, reason: str) -> ArgumentError:
    return ArgumentError(f"the weights of {call.name!r} cannot be explained: {reason}")


def _parts(row: ScoreRow, share: Tensor) -> tuple[tuple[WriteSource, ...], Tensor, float, float, float]:
    """Returns the sources, the pairs ``[sources, sources]``, and bias, cap and rest of a sum of scores."""
    (step, index), sources_of = row.query, _Sources()
    of_query = sources_of.vectors(step, _features(index))
    of_keys: Vectors = {}
    step, indices = row.key
    used = share.nonzero()[:, 0]
    for keys in used.split(KEYS_AT_ONCE):
        factors = torch.eye(indices.shape[1], dtype=torch.float64, device="cpu")[:, None]
        factors = (factors * (share * row.scale)[keys, None]).flatten(1)
        for source, vector in sources_of.vectors(step, ElementFactors(indices[keys].flatten(), factors)).items():
            of_keys[source] = of_keys.get(source, 0) + vector
    sources, (left, right) = _stacked([of_query, of_keys])
    pairs = left @ right.t()
    score, bias = (float(share[used] @ each[used]) for each in (row.scores, row.bias))
    rest = score - bias - float(pairs.sum())
    cap = rest if row.cap is None else float(share[used] @ row.cap[used])
    rest -= cap
    return sources, pairs, bias, cap, rest


@torch.no_grad()
def score_parts(call: AttentionCall, batch_row: int, head: int) -> ScoreParts:
    """Returns what each source adds to all scaled scores of a head; raises ArgumentError if that is not known.

    Sources beyond `MOST_PARTS` numbers, the smallest ones, are added up.
    """
    if max(call.queries, call.keys) > MOST_TOKENS:
        raise _unknown(call, f"there are more than {MOST_TOKENS} tokens")
    rows = [_score_row(call, batch_row, head, query) for query in range(call.queries)]
    sources_of = _Sources()
    of_queries = [sources_of.vectors(row.query[0], _features(row.query[1])) for row in rows]
    step, indices = rows[0].key
    of_keys = [sources_of.vectors(step, _features(index)) for index in indices]
    sources, both = _stacked([*of_queries, *of_keys])
    query, key = (side.transpose(0, 1) for side in both.split((len(of_queries), len(of_keys))))
    scale = torch.stack([row.scale for row in rows])
    parts = [query @ key.sum(0).t() * scale, query.sum(0) @ key.transpose(1, 2) * scale]
    most = max(2, MOST_PARTS // scale.numel())
    if len(sources) > most:
        size = torch.stack(parts).abs().amax((0, 2, 3))
        shown, others = (
            each.sort().values for each in size.argsort(descending=True).split((most - 1, len(size) - most + 1))
        )
        parts = [torch.cat([part[shown], part[others].sum(0, keepdim=True)]) for part in parts]
        sources = (*(sources[number] for number in shown.tolist()), WriteSource("others"))
    return ScoreParts(sources, parts[0].numpy(), parts[1].numpy())


def _stacked(vectors: Sequence[Vectors]) -> tuple[tuple[WriteSource, ...], Tensor]:
    """Returns all sources, and what each adds, ``[vectors, sources, features]``."""
    sources = tuple(sorted({source for each in vectors for source in each}, key=lambda source: source.order))
    none = torch.zeros_like(next(iter(vectors[0].values())))
    return sources, torch.stack([torch.stack([each.get(source, none) for source in sources]) for each in vectors])


def _features(index: Tensor) -> ElementFactors:
    return ElementFactors(index, torch.eye(len(index), dtype=torch.float64, device="cpu"))


class _Sources:
    """Divides elements among what wrote them; each output projection is asked for its matrix once."""

    def __init__(self) -> None:
        self._projections: dict[Write, tuple[Tensor, Tensor]] = {}

    def vectors(self, step: LinearStep, elements: ElementFactors) -> Vectors:
        """Returns what each source adds to sums of elements."""
        vectors: Vectors = {}
        for write, part in pulled(step, elements).items():
            if isinstance(write, Product):
                raise ArgumentError("scores without a softmax are added to the residual stream, which is not followed")
            for source, vector in self._parts(write, part):
                vectors[source] = vectors.get(source, 0) + vector
        return vectors

    def _parts(self, write: Write, part: ElementFactors) -> Iterator[tuple[WriteSource, Tensor]]:
        """Yields the sources of one write: a module, or heads and the bias of their projection."""
        total = write.total(part)
        if not isinstance(write, HeadsWrite):
            yield WriteSource.of(write.kind, write.name), total
            return
        call, left, heads = write.call, total, write.call.chosen_heads
        if call.head_output is not None:
            if write not in self._projections:
                matrix = write.projection.matrix().cpu().double().unflatten(0, (call.heads, -1))[list(heads)]
                self._projections[write] = matrix, wide_tensor(write.projection.constant()).cpu().double()
            matrix, constant = self._projections[write]
            rows, factors = write.row_factors(part)
            numbers = write.rows.flatten()[rows]
            outputs = call.head_output[numbers // write.queries, :, numbers % write.queries].double()
            of_heads, biases = torch.einsum("rhv,hvo,sro->hs", outputs, matrix, factors), factors.sum(1) @ constant
            for head, vector in zip(heads, of_heads, strict=True):
                yield WriteSource("head", call.name, call.layer, head), vector
            yield WriteSource("bias"), biases
            left = total - of_heads.sum(0) - biases
        share = OTHER_SHARE + 4 * rounding(write.tensor)
        if len(heads) < call.heads or bool(left.abs().max() > share * total.abs().max()):
            yield WriteSource("head", call.name, call.layer), left
