"""Scores of linear recurrences: products that decay with distance, and the delta rule."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.errors import ArgumentError, ShapeError
from regard.linear.log_decays import bounded
from regard.names.answered import answered
from regard.scores.inner_product import InnerProduct
from regard.scores.modifiers import WrappingScore
from regard.scores.names import Scoring
from regard.scores.score import Places, Prepared, Primitive
from regard.scores.weights import check_device, check_heads, register_weight
from regard.shapes.axes import Float
from regard.shapes.checks import check_broadcast
from regard.shapes.grid import spread_heads, upcast
from regard.shapes.layout import Keys, Pairs, Queries
from regard.tracing.transforms import can_read, exact_dtype

KEY_BLOCK = 256
"""The keys whose weights are solved for at once, divided by the elements of a pair."""


@dataclass(eq=False)
class DecayedProduct(Primitive):
    """Computes ``Σ_d q_d k_d exp(−|G_d(q) − G_d(k)|)`` of rows of a vector, its sums of log-decays, and its position.

    The absolute value is that of a sum that never grows: the later position's sum minus the earlier one's. So the
    derivative at a decay of 0, where all sums are equal, is that from below.

    Attributes:
        gates: number of sums: 1 for all features, or one each.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> query, key = torch.tensor([[[[2.0, -3.0, 0.0, 1.0]]]]), torch.tensor([[[[5.0, -1.0, 0.0, 0.0]]]])
        >>> scores.DecayedProduct(gates=1)(query, key)
        tensor([[[[1.3534]]]])
    """

    gates: int

    def parts(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Returns the vectors, their sums of log-decays as a rounded number and the rest of it, and the positions."""
        dim = rows.shape[-1] - 2 * self.gates - 1
        vectors, sums, rest, position = upcast(rows).split((dim, self.gates, self.gates, 1), dim=-1)
        return vectors, sums, rest, position

    def __call__(
        self, query: Float[Tensor, "batch heads queries dim"], key: Float[Tensor, "#batch kv_heads keys dim"]
    ) -> Pairs:
        q, q_sums, q_rest, at = self.parts(query)
        k, k_sums, k_rest, key_at = self.parts(spread_heads(key, query.shape[1]))
        is_later = at < key_at.mT
        if self.gates == 1:
            return (q @ k.mT) * _kept((q_sums - k_sums.mT) + (q_rest - k_rest.mT), is_later)
        sums, rest = (
            one[..., :, None, :] - other[..., None, :, :] for one, other in ((q_sums, k_sums), (q_rest, k_rest))
        )
        return (q[..., :, None, :] * k[..., None, :, :] * _kept(sums + rest, is_later[..., None])).sum(-1)

    def elements_per_pair(self, query: Tensor, key: Tensor) -> int:
        return self.gates


def _kept(difference: Tensor, is_later: Tensor) -> Tensor:
    """Returns what is left between two tokens, from the difference of the query's sum and the key's.

    Args:
        difference: at most 0 where the key is not later, and at least 0 where it is.
        is_later: whether the key is later than the query.
    """
    return torch.where(is_later, -difference, difference).exp()


@dataclass(eq=False)
class DeltaProduct(Primitive):
    """Computes the weights of the delta rule, of rows that end with the strength of a key, the document, the position.

    A key corrects what earlier keys of its document hold, and a query reads keys of its document.

    Attributes:
        inner: the product of queries with keys, and of keys with keys.

    Example:
        >>> import torch
        >>> from regard import scores
        >>> # a feature, a strength, a document, a position
        >>> key = torch.tensor([[[[1.0, 1.0, 0.0, 0.0], [1.0, 0.5, 0.0, 1.0]]]])
        >>> query = torch.tensor([[[[1.0, 0.0, 1.0]]]])
        >>> scores.DeltaProduct(scores.InnerProduct())(query, key)
        tensor([[[[0.5000, 0.5000]]]])
    """

    inner: Primitive

    def __call__(self, query: Queries, key: Float[Tensor, "#batch kv_heads keys key_dim"]) -> Pairs:
        key = spread_heads(upcast(key), query.shape[1])
        rows, beta, document, position = key[..., :-3], key[..., -3:-2], key[..., -2:-1], key[..., -1:]
        query, within, at = upcast(query[..., :-2]), query[..., -2:-1], query[..., -1:]
        reads = torch.where((position.mT <= at) & (document.mT == within), self.inner(query, rows), 0.0)
        size, count = max(KEY_BLOCK // self.inner.elements_per_pair(query, rows), 1), rows.shape[-2]
        # A compiler, which has no number of keys that a loop could count to, solves for all of them.
        is_compiled = torch.compiler.is_compiling()
        size, firsts = (count, (0,)) if is_compiled else (size, reversed(range(0, count, size)))
        weights = reads[..., count:]
        # The last keys come first: what later keys correct is known then. So memory is linear in the keys.
        for first in firsts:
            block, later = slice(first, first + size), slice(first + size, None)
            columns, own = rows[..., block, :], document[..., block, :].mT
            within_block, after = (
                beta[..., part, :]
                * torch.where(document[..., part, :] == own, self.inner(rows[..., part, :], columns), 0.0)
                for part in (block, later)
            )
            left = reads[..., block] - weights @ after
            solved = torch.linalg.solve_triangular(within_block, left, upper=False, left=False, unitriangular=True)
            weights = torch.cat((solved, weights), dim=-1)
        return weights * beta.mT

    def elements_per_pair(self, query: Tensor, key: Tensor) -> int:
        return 2 * self.inner.elements_per_pair(query, key)


@answered
class Decayed(WrappingScore, fields=("score", "log_decay")):
    """Lets the score of a pair decay with what lies between its query and its key.

    .. math::

        score(q_i, k_j) = Σ_d q_{id} k_{jd} exp(−|G_{id} − G_{jd}|),    G_t = g_1 + … + g_t

    g are logarithms of decays, at most 0; a query's own position is that of `masks.causal`, whose ends align. With a
    causal mask and ``normalizer="identity"`` this is

    - retention, with one constant decay a head, g = log γ: Sun et al. 2023, "Retentive Network", equation 5;
    - gated retention and state space duality, with one decay a token and head: Dao & Gu 2024, "Transformers are SSMs",
      equation 16 (1-semiseparable masks);
    - gated linear attention, with one decay for each token and feature: Yang et al. 2024, "Gated Linear Attention
      Transformers with Hardware-Efficient Training", equation 4.

    Without a causal mask keys after the query decay alike, by the distance to them.

    Args:
        score: a score that lowers to an inner product, or its name; default ``"scaled_dot"`` of the layers.
        log_decay: g: ``[heads]``; ``[batch, heads, keys]``; or ``[batch, heads, keys, features]``, with as many
            features as the keys of the inner product. Axes of length 1 broadcast. −∞ lets nothing earlier through.
            Differentiable.

    Raises:
        KindError: ``log_decay`` is not a floating-point tensor.
        ShapeError: it has another rank.
        ArgumentError: it is above 0 or NaN (checked on a CPU, when it is used), there are more queries than keys
            with a decay a token, or the inner score is no inner product.

    Numerics: sums of g are taken in float64 and kept as two numbers of the dtype of the calculation, so that the
    difference of two large sums is as exact as that of small ones. No exponential exceeds 1.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import scores
        >>> x = torch.ones(3, 1)
        >>> retention = scores.Decayed("dot", torch.tensor([0.5]).log())
        >>> regard.attend_with_weights(x, x, x, score=retention, normalizer="identity", mask="causal").weights
        tensor([[1.0000, 0.0000, 0.0000],
                [0.5000, 1.0000, 0.0000],
                [0.2500, 0.5000, 1.0000]])
    """

    log_decay: Tensor

    def __init__(self, score: Scoring, log_decay: Tensor):
        super().__init__(score)
        register_weight(
            self, "log_decay", log_decay, "[heads]", "[batch, heads, keys]", "[batch, heads, keys, features]"
        )

    def check(self, query: Tensor, key: Tensor) -> None:
        super().check(query, key)
        check_device("log_decay", self.log_decay, query)
        batch, heads, queries, _ = query.shape
        keys = key.shape[2]
        if self.log_decay.dim() == 1:
            check_heads("log_decay", self.log_decay.shape[0], query)
        else:
            pairs = self.log_decay[..., 0] if self.log_decay.dim() == 4 else self.log_decay
            check_broadcast("log_decay", pairs, (batch, heads, keys), "[batch, heads, keys]")
            if queries > keys:
                raise ArgumentError(
                    f"log_decay has a decay for each of {keys} keys, so there may be at most as many queries; "
                    f"there are {queries}"
                )
        if can_read(self.log_decay) and not bool((self.log_decay <= 0).all()):
            raise ArgumentError("log_decay must be at most 0: it is the logarithm of a decay in [0, 1]")

    def prepare(self, query: Queries, key: Keys) -> Prepared:
        return self.prepare_at(query, key, Places.whole(query, key))

    def prepare_at(self, query: Queries, key: Keys, places: Places) -> Prepared:
        prepared = self._product(query, key, places)
        features = prepared.key.shape[-1]
        if self.log_decay.dim() == 4 and self.log_decay.shape[3] not in (1, features):
            raise ArgumentError(
                f"log_decay must have {features} features, as the keys of the product; it has {self.log_decay.shape[3]}"
            )
        of_queries, of_keys = self._sums(query, places)
        rows = _with_columns(prepared.query, of_queries), _with_columns(prepared.key, of_keys)
        return replace(prepared, query=rows[0], key=rows[1], primitive=DecayedProduct((of_keys.shape[-1] - 1) // 2))

    def _product(self, query: Tensor, key: Tensor, places: Places) -> Prepared:
        prepared = _product_of(self, query, key, places)
        if not isinstance(prepared.primitive, InnerProduct):
            raise ArgumentError(f"{type(self).__name__} takes no score that decays already; it has {self.score!r}")
        return prepared

    def _sums(self, query: Tensor, places: Places) -> tuple[Tensor, Tensor]:
        """Returns the columns of queries and of keys, ``[batch or 1, heads or 1, length, 2 · gates + 1]``: the sums of
        log-decays as two numbers, and the position."""
        queries, keys, dtype = places.queries, places.keys, upcast(query).dtype
        exact = bounded(self.log_decay).to(exact_dtype(query.device))
        if exact.dim() == 1:
            position = torch.arange(min(keys - queries, 0), keys, device=query.device).to(exact.dtype)
            sums = exact[None, :, None, None] * position[:, None]
        else:
            sums = (exact[..., None] if exact.dim() == 3 else exact).expand(-1, -1, keys, -1).cumsum(2)
        sums = sums - sums[:, :, -1:].detach()  # the latest ones are the smallest and the most exact
        rounded = sums.to(dtype)
        length = sums.shape[2]
        position = torch.arange(length, dtype=dtype, device=query.device)[:, None].expand(*sums.shape[:3], 1)
        both = torch.cat((rounded, (sums - rounded.to(sums.dtype)).to(dtype), position), dim=-1)
        both = places.of_batch(both)
        of_queries, of_keys = both[:, :, length - queries :], both[:, :, length - keys :]
        return of_queries.index_select(2, places.query_index), of_keys.index_select(2, places.key_index)


@answered
class ForgetGate(Decayed, fields=("score", "log_decay")):
    """Adds the logarithms of the forget gates between key and query to the score of a pair.

    .. math::

        score(q_i, k_j) = inner(q_i, k_j) + G_i − G_j,    G_t = g_1 + … + g_t

    Lin et al. 2025, "Forgetting Transformer: Softmax Attention with a Forget Gate", section 3: g are logarithms of
    gates, ``g_t = log f_t``, and a token is forgotten by the product of the gates after it; the mask is causal. With a
    slope for each token it is a data-dependent ALiBi, and with one constant a head, g = −slope, ALiBi itself. The
    difference is two more features of queries and keys, ``[G_i, 1] · [1, −G_j]``, so that every kernel of inner
    products runs it, in linear memory; the gates get their gradients through these features.

    Args:
        score: a score that lowers to an inner product, or its name.
        log_decay: g, at most 0: ``[heads]`` or ``[batch, heads, keys]``. Axes of length 1 broadcast. Differentiable.

    Raises:
        As `Decayed`; ShapeError for a decay of each feature.

    Numerics: sums of g are taken in float64 and counted from the last key; a score is as exact as its rounded sums, to
    about ``6e-8 · |G|`` in float32. A gate of 0, g = −∞, counts as −104, or −746 in float64.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import scores
        >>> x, gates = torch.zeros(3, 1), torch.tensor([1.0, 0.5, 0.5])
        >>> score = scores.ForgetGate("scaled_dot", gates.log()[None, None])
        >>> regard.attend_with_weights(x, x, x, score=score, mask="causal").weights
        tensor([[1.0000, 0.0000, 0.0000],
                [0.3333, 0.6667, 0.0000],
                [0.1429, 0.2857, 0.5714]])
    """

    def __init__(self, score: Scoring, log_decay: Tensor):
        super().__init__(score, log_decay)
        if log_decay.dim() == 4:
            raise ShapeError(f"log_decay must be [heads] or [batch, heads, keys]; it has shape {list(log_decay.shape)}")

    def prepare_at(self, query: Queries, key: Keys, places: Places) -> Prepared:
        prepared, sums = self._product(query, key, places), self._sums(query, places)
        of_queries, of_keys = (one[..., :1] for one in sums)
        scale = prepared.scale
        scale = places.of_batch(scale) if isinstance(scale, Tensor) and scale.dim() == 4 else scale
        query = _with_columns(prepared.query * scale, torch.cat((of_queries, torch.ones_like(of_queries)), dim=-1))
        key = _with_columns(prepared.key, torch.cat((torch.ones_like(of_keys), -of_keys), dim=-1))
        return replace(prepared, query=query, key=key, scale=1.0)


@answered
class DeltaRule(WrappingScore, fields=("score", "beta")):
    """Weighs values as the delta rule does, which replaces what a key recalls by its value.

    .. math::

        S_t = D_t S_{t−1} + β_t k_t (v_t − (D_t S_{t−1})ᵀ k_t)ᵀ,    o_t = S_tᵀ q_t
        W = tril(Q Kᵀ ⊙ Γ) (I + strictly lower(diag(β) (K Kᵀ ⊙ Γ)))⁻¹ diag(β)

    The outputs o are the products of W, the scores, with the values. D and Γ are the decays of `Decayed`, or 1. Yang et
    al. 2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", section 2.2 and the UT
    transform of section 3.2; Yang et al. 2025, "Gated Delta Networks", equation 10, with ``Decayed``.

    A weight depends on all keys up to the query, so there is no other mask than ``"causal"`` (with equal ends), alone
    or with `masks.documents`, each of which has a state of its own. No mask means a causal one: later keys have weight
    0. The normalizer is ``"identity"`` in the papers.

    Args:
        score: a score that lowers to an inner product, or its name, or `Decayed` of one; keys of unit length, as those
            of ``"cosine"``, keep the recurrence stable. Its scale holds for products with queries alone.
        beta: β, the strength of each token, ``[batch, heads, keys]``, in [0, 1] (up to 2 with keys of unit length); 0
            for padding. Axes of length 1 broadcast. Differentiable.

    Raises:
        KindError: ``beta`` is not a floating-point tensor.
        ShapeError: it has another rank, or does not broadcast.
        ArgumentError: the mask is not causal, there are more queries than keys, or the inner score is no inner product.

    Memory: the weights of a row are solved for a block of keys at a time. The backend ``linear`` makes no weights.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import scores
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.6, 0.8]])
        >>> delta = scores.DeltaRule("dot", torch.full((1, 1, 3), 0.5))
        >>> regard.attend_with_weights(x, x, x, score=delta, normalizer="identity", mask="causal").weights
        tensor([[0.5000, 0.0000, 0.0000],
                [0.2500, 0.5000, 0.0000],
                [0.0750, 0.1500, 0.5000]])
    """

    beta: Tensor

    def __init__(self, score: Scoring, beta: Tensor):
        super().__init__(score)
        self.is_causal = True
        register_weight(self, "beta", beta, "[batch, heads, keys]")

    def check(self, query: Tensor, key: Tensor) -> None:
        super().check(query, key)
        check_device("beta", self.beta, query)
        batch, heads, queries, _ = query.shape
        keys = key.shape[2]
        check_broadcast("beta", self.beta, (batch, heads, keys), "[batch, heads, keys]")
        if queries > keys:
            raise ArgumentError(f"the delta rule needs a key for each query; there are {queries} queries, {keys} keys")

    def prepare(self, query: Queries, key: Keys, documents: tuple[Tensor, Tensor] | None = None) -> Prepared:
        """Lowers this score for one problem.

        Args:
            query, key: as for every score.
            documents: the documents of queries and of keys, ``[length]`` or ``[batch, length]``; None: there is one.
        """
        prepared = _product_of(self, query, key)
        queries, keys = query.shape[2], key.shape[2]
        dtype = upcast(query).dtype
        position = torch.arange(keys, device=query.device).to(dtype)[None, None, :, None]
        of_queries, of_keys = _document_columns(documents, queries, keys, position)
        beta = self.beta.to(dtype)[..., None].expand(-1, -1, keys, -1)
        rows = prepared.key
        for column in (beta, of_keys, position):
            rows = _with_columns(rows, column)
        read = _with_columns(_with_columns(prepared.query, of_queries), position[:, :, keys - queries :])
        return replace(prepared, query=read, key=rows, primitive=DeltaProduct(prepared.primitive))


def _document_columns(
    documents: tuple[Tensor, Tensor] | None, queries: int, keys: int, like: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns columns ``[batch or 1, 1, length, 1]`` that are equal for a query and a key of one document.

    A document's number is how many keys have a smaller one, since an id may exceed what a floating-point number holds.
    """
    if documents is None:
        column = torch.zeros_like(like[:, :, :1])
        return column.expand(-1, -1, queries, -1), column.expand(-1, -1, keys, -1)
    of_queries, of_keys = (ids.view(-1, ids.shape[-1]) for ids in documents)
    ordered = of_keys.sort(1).values
    if len(of_queries) > len(ordered):
        ordered = ordered.expand(len(of_queries), -1).contiguous()
    numbers = (torch.searchsorted(ordered, ids.expand(len(ordered), -1).contiguous()) for ids in (of_queries, of_keys))
    of_queries, of_keys = (number.to(like.dtype)[:, None, :, None] for number in numbers)
    return of_queries, of_keys


def _product_of(wrapper: WrappingScore, query: Tensor, key: Tensor, places: Places | None = None) -> Prepared:
    """Returns the inner score of a wrapper, which must lower to a product, prepared in the dtype of the calculation."""
    score = wrapper.score
    prepared = score.prepare(query, key) if places is None else score.prepare_at(query, key, places)
    if not isinstance(prepared.primitive, InnerProduct | DecayedProduct) or prepared.modifiers:
        raise ArgumentError(
            f"the score inside {type(wrapper).__name__} must lower to an inner product; {wrapper.score!r} does not"
        )
    return replace(prepared, query=upcast(prepared.query), key=upcast(prepared.key))


def _with_columns(rows: Tensor, columns: Tensor) -> Tensor:
    """Returns ``rows [batch, heads, length, dim]`` with columns after them, which may be more batch rows or heads."""
    batch, heads = (own if other == 1 else other for own, other in zip(rows.shape[:2], columns.shape[:2], strict=True))
    rows = spread_heads(rows.expand(batch, -1, -1, -1), heads)
    return torch.cat((rows, columns.expand(batch, heads, -1, -1)), dim=-1)
