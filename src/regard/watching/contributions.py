"""The output projection of each head, and what a head adds through it directly to the logits."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, KindError, ShapeError
from regard.watching.attention_call import AttentionCall

PATHS = (
    "out_proj", "o_proj", "c_proj", "output_proj", "out_lin", "o", "wo", "dense", "proj", "to_out", "to_out.0", "out",
    "linear_out", "W_O", "output",
)  # fmt: skip
"""Names of the projection inside the module of the attention."""

SIBLING_PATHS = ("output.dense", "output.o_proj", "out_proj", "o_proj", "output")
"""Its names in the module around the attention (BERT: ``attention.self`` and ``attention.output.dense``)."""


def output_projection(model: nn.Module, name: str) -> nn.Module:
    """The module that projects the heads of the attention ``name``.

    Raises:
        ArgumentError: there is none under its usual names.
    """
    around = name.rpartition(".")[0]
    for start, paths in ((name, PATHS), (around, SIBLING_PATHS)):
        for path in paths:
            projection = _submodule(model, f"{start}.{path}" if start else path)
            if projection is not None and getattr(getattr(projection, "weight", None), "ndim", 0) == 2:
                return projection
    raise ArgumentError(f"no output projection of {name!r} was found; its known names are {', '.join(PATHS)}")


def heads_of_projection(projection: nn.Module, heads: int, value_dim: int, name: str) -> Tensor:
    """The projection's weight by heads, ``[heads, value_dim, features]``.

    Raises:
        ArgumentError: its input is not the heads side by side.
    """
    weight = projection.weight
    assert isinstance(weight, Tensor)
    # Conv1D of GPT-2 multiplies by its weight, Linear by the transpose.
    matrix = weight if type(projection).__name__ == "Conv1D" else weight.t()
    if matrix.shape[0] != heads * value_dim:
        raise ArgumentError(
            f"the output projection of {name!r} takes {matrix.shape[0]} features; its {heads} heads of {value_dim} "
            f"have {heads * value_dim}"
        )
    return matrix.detach().unflatten(0, (heads, value_dim))


def _submodule(model: nn.Module, path: str) -> nn.Module | None:
    module: nn.Module | None = model
    for part in path.split("."):
        module = None if module is None else module._modules.get(part)
    return module


@torch.no_grad()
def logit_contributions(
    model: nn.Module,
    call: AttentionCall,
    token_ids: Sequence[int] | Tensor,
    *,
    unembedding: Tensor | None = None,
    scale: Tensor | None = None,
) -> Tensor:
    """The direct contribution of each head of one call to the logits of some tokens.

    .. math:: c_{b,h,i,t} = \\big(o_{b,h,i} W_O^h\\big) \\cdot (s_{b,i} \\, u_t)

    Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", section "Attention Heads are Independent
    and Additive": a residual stream is a sum, so a logit is a sum of contributions, as far as all that follows is
    linear. :math:`o` is the head's output, :math:`W_O^h` its part of the output projection, :math:`u_t` the token's row
    of the unembedding. A normalization before the unembedding is linear only if its statistics are held fixed; they are
    :math:`s`. Paths through later layers do not count: measure them by `ablate`.

    Args:
        model: the watched model.
        call: of ``regard.watch(model, outputs=True)``.
        token_ids: ``[tokens]``.
        unembedding: ``[vocabulary, features]``; None: that of the model, from ``get_output_embeddings()``.
        scale: the factor of each feature in a final normalization, broadcastable to ``[batch, queries, features]``,
            such as its gain over the standard deviation it had; None: 1.

    Returns:
        ``[batch, heads, queries, tokens]``, of the heads that the call has.

    Raises:
        ArgumentError: the call has no outputs, or the unembedding is not known.
        KindError, ShapeError: token ids, unembedding or scale of another type or shape.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import watching
        >>> layer = torch.nn.MultiheadAttention(16, num_heads=2, bias=False, batch_first=True)
        >>> unembedding, x = torch.randn(50, 16), torch.randn(1, 5, 16)
        >>> with regard.watch(layer, outputs=True) as seen:
        ...     output = layer(x, x, x)[0]
        >>> of_heads = watching.logit_contributions(layer, seen.calls[0], [7, 8, 9], unembedding=unembedding)
        >>> of_heads.shape
        torch.Size([1, 2, 5, 3])
        >>> torch.allclose(of_heads.sum(1), output @ unembedding[[7, 8, 9]].T, atol=1e-5)  # heads add up to the logits
        True
    """
    if call.head_output is None:
        raise ArgumentError("call must have the heads' outputs: watch with outputs=True")
    weight, rows = _unembedded(model, call, token_ids, unembedding, call.head_output.shape[-1])
    added = torch.einsum("bhqd,hdo->bhqo", call.head_output.to(weight.dtype), weight)
    if scale is not None:
        added = added * _scales(call, scale, weight.shape[2])[:, None]
    return added @ rows.t()


@torch.no_grad()
def value_logits(
    model: nn.Module,
    call: AttentionCall,
    token_id: int,
    *,
    unembedding: Tensor | None = None,
    scale: Tensor | None = None,
) -> Tensor:
    """What each value would add directly to one token's logit if it had the whole weight.

    .. math:: l_{b,h,i,j} = \\big(v_{b,h,j} W_O^h\\big) \\cdot (s_{b,i} \\, u_t)

    The weight of a pair times this is the pair's contribution to the logit. The contributions of a head's keys add up
    to `logit_contributions`, whose reservations hold here too.

    Args:
        model, call, unembedding, scale: as for `logit_contributions`.
        token_id: of the token.

    Returns:
        ``[batch, heads, queries, keys]``, or with one query, which stands for all, where there is no scale.

    Raises:
        ArgumentError: the call has no values, or the unembedding is not known.
        KindError, ShapeError: as for `logit_contributions`.

    Example:
        >>> import torch
        >>> import regard
        >>> from regard import watching
        >>> layer = torch.nn.MultiheadAttention(16, num_heads=2, bias=False, batch_first=True)
        >>> unembedding, x = torch.randn(50, 16), torch.randn(1, 5, 16)
        >>> with regard.watch(layer, read=regard.Readings(weights=True), outputs=True) as seen:
        ...     output = layer(x, x, x)[0]
        >>> call = seen.calls[0]
        >>> of_pairs = call.weights * watching.value_logits(layer, call, 7, unembedding=unembedding)
        >>> torch.allclose(of_pairs.sum((1, 3)), output @ unembedding[7], atol=1e-5)
        True
    """
    if call.value is None:
        raise ArgumentError("call must have its values: watch with outputs=True an attention that shows its values")
    weight, rows = _unembedded(model, call, [token_id], unembedding, call.value.shape[-1])
    one = rows if scale is None else rows * _scales(call, scale, weight.shape[2])
    added = torch.einsum("bhkd,hdo->bhko", call.value.to(weight.dtype), weight)
    return torch.einsum("bhko,bqo->bhqk", added, one.expand(len(added), *one.shape[-2:]))


def _unembedded(
    model: nn.Module, call: AttentionCall, token_ids: Sequence[int] | Tensor, unembedding: Tensor | None, value_dim: int
) -> tuple[Tensor, Tensor]:
    """The output projection of the call's heads, and the rows of the unembedding for some tokens."""
    ids = torch.as_tensor(token_ids)
    if ids.dim() != 1 or ids.is_floating_point() or ids.dtype == torch.bool:
        raise KindError(f"token_ids must be integers [tokens]; they have the shape {list(ids.shape)} of {ids.dtype}")
    matrix = _unembedding(model) if unembedding is None else unembedding
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < matrix.shape[0]:
        raise ArgumentError(f"token_ids must be from 0 to {matrix.shape[0] - 1}")
    projection = output_projection(model, call.name)
    weight = heads_of_projection(projection, call.heads, value_dim, call.name).cpu()
    if matrix.dim() != 2 or matrix.shape[1] != weight.shape[2]:
        raise ShapeError(f"unembedding must be [vocabulary, {weight.shape[2]}]; it has shape {list(matrix.shape)}")
    rows = matrix.detach().cpu()[ids.cpu()].to(weight.dtype)
    return weight[list(call.chosen_heads)], rows


def _scales(call: AttentionCall, scale: Tensor, features: int) -> Tensor:
    """The scale of each feature, ``[batch or 1, queries or 1, features]``."""
    shape = [call.batch, call.queries, features]
    try:
        torch.broadcast_shapes(scale.shape, shape)
    except RuntimeError as error:
        raise ShapeError(f"scale must broadcast to [batch, queries, features] = {shape}") from error
    return scale.detach().cpu()[(None,) * (3 - scale.dim())]


def _unembedding(model: nn.Module) -> Tensor:
    getter = getattr(model, "get_output_embeddings", None)
    weight = getattr(getter() if callable(getter) else None, "weight", None)
    if not isinstance(weight, Tensor):
        raise ArgumentError(
            f"unembedding must be given: {type(model).__name__} has no get_output_embeddings() that returns one"
        )
    return weight
