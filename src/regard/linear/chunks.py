"""The chunked form of linear attention: products of matrices inside of a chunk, and a state between chunks.

With :math:`G_t` the sum of the log-decays of a chunk up to token t, :math:`P_{ts} = \\sum_d q_{td} k_{sd}
e^{G_{td} - G_{sd}}` for :math:`s \\le t`, and S the state before the chunk,

.. math::

    O &= P \\, U + (Q \\odot e^{G}) \\, S \\\\
    S' &= \\mathrm{diag}(e^{G_C}) \\, S + (K \\odot e^{G_C - G})^\\top U

where U is V, or for the delta rule the solution of a unit lower triangular system, with :math:`R` as P but of keys with
keys, for :math:`s < t` (the UT transform of Yang et al. 2024, "Parallelizing linear transformers with the delta rule",
section 3.2)

.. math:: (I + \\mathrm{diag}(\\beta) \\, R) \\, U = \\mathrm{diag}(\\beta) \\, (V - (K \\odot e^{G}) \\, S)

Where a document begins, the state is 0: no product of pairs crosses it, nothing enters from before, and only tokens
after it leave the chunk.

A sum of log-decays over a run of tokens is at most 0, so every exponential here is at most 1: no decay, however strong,
can overflow. Sums are float64, since differences of large sums decide.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.kernels.cpu.linear_layout import CHUNK
from regard.linear.log_decays import bounded
from regard.shapes.axes import Bool, Float
from regard.tracing.transforms import exact_dtype

DIRECT_TOKENS = 4
"""Tokens of a block whose products are computed one by one, with an exponential for each gate of each pair."""


def by_operations(
    query: Float[Tensor, "batch heads length dim"],
    key: Float[Tensor, "batch heads length dim"],
    value: Float[Tensor, "batch heads length value_dim"],
    log_decay: Float[Tensor, "batch heads length gates"] | None = None,
    beta: Float[Tensor, "batch heads length"] | None = None,
    state: Float[Tensor, "batch heads dim value_dim"] | None = None,
    begins: Bool[Tensor, "batch length"] | None = None,
    chunk: int = CHUNK,
) -> tuple[Float[Tensor, "batch heads length value_dim"], Float[Tensor, "batch heads dim value_dim"]]:
    """Returns what `regard.linear.chunked` returns, by PyTorch's operations, for any dtype, device and derivative.

    Args:
        query, key, value, log_decay, beta, state, begins, chunk: as `regard.linear.chunked` takes them.
    """
    sizes = query.shape[:2]
    if query.shape[2] == 0:
        nothing = key.mT @ value
        return query @ nothing, nothing if state is None else state + nothing
    outputs = []
    carried = None if state is None else state.flatten(0, 1)
    queries, keys, values = (_split(tensor, chunk) for tensor in (query, key, value))
    none = [None] * len(queries)
    decays = none if log_decay is None else _split(_recorded(log_decay, state, begins), chunk)
    betas = none if beta is None else _split(beta[..., None], chunk)
    starts = none if begins is None else _split(begins[:, None, :, None].expand(-1, sizes[1], -1, 1), chunk)
    for q, k, v, g, b, d in zip(queries, keys, values, decays, betas, starts, strict=True):
        output, carried = _chunk(q, k, v, g, b, carried, None if d is None else d.cumsum(1))
        outputs.append(output)
    assert carried is not None
    return torch.cat(outputs, dim=1).unflatten(0, sizes), carried.unflatten(0, sizes)


def _recorded(log_decay: Tensor, state: Tensor | None, begins: Tensor | None) -> Tensor:
    """Returns finite log-decays, without a derivative at tokens before which the state is 0: it would be rounding."""
    log_decay, starts = bounded(log_decay), begins
    if state is None:
        first = torch.arange(log_decay.shape[2], device=log_decay.device) == 0
        starts = first[None] if begins is None else begins | first
    return log_decay if starts is None else torch.where(starts[:, None, :, None], log_decay.detach(), log_decay)


def _split(tensor: Tensor, chunk: int) -> tuple[Tensor, ...]:
    """Returns the chunks ``[batch · heads, tokens, n]`` of a tensor ``[batch, heads, length, n]``.

    The backward pass of a split is one concatenation; that of a slice would be as large as the whole tensor.
    """
    return tensor.flatten(0, 1).split(chunk, dim=1)


def _chunk(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor | None,
    beta: Tensor | None,
    state: Tensor | None,
    document: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Returns the outputs ``[batch · heads, tokens, value_dim]`` of one chunk, and the state after it.

    Args:
        document: the documents that have begun in the chunk up to each token, ``[batch · heads, tokens, 1]``.
    """
    decay = None if log_decay is None else log_decay.to(exact_dtype(log_decay.device)).cumsum(1)
    entering = None if decay is None else _kept(decay, key)
    hides = None if document is None else document != document.mT
    update = value
    if beta is not None:
        if state is not None:
            update = torch.baddbmm(update, _scaled(key, entering, document), state, alpha=-1)
        strengths = beta * _hidden(decayed_products(key, key, decay), hides)
        update = torch.linalg.solve_triangular(strengths, beta * update, upper=False, unitriangular=True)
    products = _hidden(decayed_products(query, key, decay).tril(), hides)
    if state is None:
        output = products @ update
    else:
        output = torch.baddbmm(_scaled(query, entering, document) @ state, products, update)
    if decay is not None:
        total = decay[:, -1:]
        key = key * _kept(total - decay, key)
        state = None if state is None else state * _kept(total, state).mT
    if document is not None:
        key = _hidden(key, document != document[:, -1:])
        state = None if state is None else _hidden(state, document[:, -1:] > 0)
    return output, key.mT @ update if state is None else torch.baddbmm(state, key.mT, update)


def _kept(log_decay: Tensor, like: Tensor) -> Tensor:
    """Returns what is left after a sum of log-decays, in the dtype of another tensor; 1 where the sum is above 0."""
    return log_decay.clamp(max=0.0).to(like.dtype).exp()


def _scaled(tensor: Tensor, factor: Tensor | None, document: Tensor | None) -> Tensor:
    """Returns queries or keys as they read the state before a chunk, which those of a new document do not."""
    scaled = tensor if factor is None else tensor * factor
    return scaled if document is None else _hidden(scaled, document > 0)


def _hidden(tensor: Tensor, hides: Tensor | None) -> Tensor:
    return tensor if hides is None else tensor.masked_fill(hides, 0.0)


def decayed_products(
    query: Float[Tensor, "rows tokens dim"],
    key: Float[Tensor, "rows tokens dim"],
    decay: Float[Tensor, "rows tokens gates"] | None,
) -> Float[Tensor, "rows tokens tokens"]:
    """Returns P of a chunk; what stands above its diagonal is finite and has no meaning.

    With a decay for each feature, P is no product of two matrices whose factors are bounded. But its quarter below the
    diagonal is one, because the first token of the second half lies between both tokens of each pair there; the two
    quarters on the diagonal are smaller problems of the same kind.

    Args:
        query, key: the tokens.
        decay: the sums of log-decays up to each token; None: nothing decays.
    """
    if decay is None:
        return query @ key.mT
    if decay.shape[-1] == 1:
        return (query @ key.mT) * _kept(decay - decay.mT, key)
    tokens = query.shape[1]
    size = DIRECT_TOKENS << (-(-tokens // DIRECT_TOKENS) - 1).bit_length()
    if size > tokens:
        query, key = (F.pad(tensor, (0, 0, 0, size - tokens)) for tensor in (query, key))
        decay = torch.cat((decay, decay[:, -1:].expand(-1, size - tokens, -1)), dim=1)
    return _quarters(query, key, decay)[:, :tokens, :tokens]


def _quarters(query: Tensor, key: Tensor, decay: Tensor) -> Tensor:
    """Returns `decayed_products` of a number of tokens that is `DIRECT_TOKENS` times a power of two."""
    rows, tokens, _ = query.shape
    if tokens == DIRECT_TOKENS:
        factors = _kept(decay[:, :, None] - decay[:, None], key)
        return ((query[:, :, None] * key[:, None]) * factors).sum(-1)
    halves = [tensor.reshape(2 * rows, tokens // 2, tensor.shape[-1]) for tensor in (query, key, decay)]
    diagonal = _quarters(*halves).unflatten(0, (rows, 2))
    second_query, first_key = halves[0][1::2], halves[1][0::2]
    first_decay, second_decay = halves[2][0::2], halves[2][1::2]
    between = first_decay[:, -1:]
    below = (second_query * _kept(second_decay - between, key)) @ (first_key * _kept(between - first_decay, key)).mT
    above = torch.zeros_like(below)
    return torch.cat((torch.cat((diagonal[:, 0], above), dim=2), torch.cat((below, diagonal[:, 1]), dim=2)), dim=1)
