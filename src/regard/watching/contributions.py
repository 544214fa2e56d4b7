"""The direct contributions of heads to the logits, through their output projections."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, KindError, ShapeError
from regard.names.answered import answered
from regard.watching.attention_call import AttentionCall
from regard.watching.linear_maps import ModuleCall, wide_tensor
from regard.watching.logit_path import LogitPath

LOST_PATH = "watch with outputs=True; a record that was pickled or sent to another process loses it"


@torch.no_grad()
@answered
def logit_contributions(
    model: nn.Module,
    call: AttentionCall,
    token_ids: Sequence[int] | Tensor,
    *,
    unembedding: Tensor | None = None,
    scale: Tensor | None = None,
) -> Tensor:
    """Computes the direct contribution of each head of one call to the logits of some tokens.

    .. math:: c_{b,h,i,t} = \\big(o_{b,h,i} W_O^h\\big) \\cdot (s_{b,i} \\, u_t)

    Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", section "Attention Heads are Independent
    and Additive": a residual stream is a sum, so a logit is a sum of contributions, as far as the following modules are
    linear. :math:`o` is the head's output, :math:`W_O^h` its part of the output projection, and :math:`u_t` has the
    effect of each feature of the residual stream on the token's logit. A final normalization is linear only with fixed
    statistics: those of the watched run, which are in :math:`s`. Paths through later layers do not count: measure them
    by `ablate`.

    Projection, normalizations and output layer are called with probing inputs, so that adapters, parametrizations,
    quantized weights and hooks count; hooks run in these calls too. Everything that follows the projection in the
    model's own run is taken into account: sums, factors, normalizations, linear modules. A path that is not linear is
    an error: a transform before the output layer (BERT), a cap on the logits (Gemma 2), or a residual stream that is
    itself normalized after each sum (post-norm).

    Args:
        model: the watched model.
        call: of ``regard.watch(model, outputs=True)``.
        token_ids: ``[tokens]``.
        unembedding: ``[vocabulary, features]``, in place of the model's own output layer and all after it; None: the
            model's.
        scale: the factor of each feature between the projection and the unembedding, in place of the model's own
            modules there, broadcastable to ``[batch, queries, features]``; None: those modules. Without
            ``unembedding`` it is combined with the one that ``model.get_output_embeddings()`` returns.

    Returns:
        ``[batch, heads, queries, tokens]``, of the heads that the call has; 0 for padding.

    Raises:
        ArgumentError: the call has no outputs; the model's output is not linear in that of the heads, by the name of
            the module; its output layer is not known.
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
    ids = _ids(token_ids)
    if scale is None:
        path = _path(call, ids, unembedding)
        of_features = _projection(call) @ path.directions(ids, unembedding).t()
        assert path.scale is not None
        added = torch.einsum("bhqd,hdt->bhqt", call.head_output.to(of_features.dtype), of_features)
        return added * path.scale[..., None].to(added.dtype)
    projection, rows = _projection(call), _unembedded(model, call, ids, unembedding)
    added = torch.einsum("bhqd,hdo->bhqo", call.head_output.to(projection.dtype), projection)
    return (added * _scales(call, scale, rows.shape[1])[:, None]) @ rows.t()


@torch.no_grad()
def value_logits(
    model: nn.Module,
    call: AttentionCall,
    token_id: int,
    *,
    unembedding: Tensor | None = None,
    scale: Tensor | None = None,
) -> Tensor:
    """Computes how much each value would add directly to one token's logit if it had the whole weight.

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
    ids = _ids([token_id])
    if scale is None:
        path = _path(call, ids, unembedding)
        assert path.scale is not None
        of_features = _projection(call) @ path.directions(ids, unembedding)[0]
        added = torch.einsum("bhkd,hd->bhk", call.value.to(of_features.dtype), of_features)[:, :, None]
        return added if bool((path.scale == 1).all()) else added * path.scale[..., None].to(added.dtype)
    projection, rows = _projection(call), _unembedded(model, call, ids, unembedding)
    one = rows * _scales(call, scale, rows.shape[1])
    added = torch.einsum("bhkd,hdo->bhko", call.value.to(projection.dtype), projection)
    return torch.einsum("bhko,bqo->bhqk", added, one.expand(len(added), *one.shape[-2:]))


def _ids(token_ids: Sequence[int] | Tensor) -> Tensor:
    ids = torch.as_tensor(token_ids).cpu()
    if ids.dim() != 1 or ids.is_floating_point() or ids.dtype == torch.bool:
        raise KindError(f"token_ids must be integers [tokens]; they have the shape {list(ids.shape)} of {ids.dtype}")
    return ids


def _check_ids(ids: Tensor, vocabulary: int) -> None:
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary:
        raise ArgumentError(f"token_ids must be from 0 to {vocabulary - 1}")


def _path(call: AttentionCall, ids: Tensor, unembedding: Tensor | None) -> LogitPath:
    """Returns the path from the call's projection to the logits, or to the position of another unembedding."""
    path = _known(call)
    if unembedding is not None:
        features = _check_unembedding(unembedding, ids)
        path = path.before(features)
    elif path.reason:
        raise ArgumentError(f"the contributions of {call.name!r} to the logits are not known: {path.reason}")
    elif not path.has_output_layer:
        raise ArgumentError(
            "unembedding must be given: the output of the watched model is its residual stream, and no logits"
        )
    else:
        _check_ids(ids, path.features)
    return path


def _known(call: AttentionCall) -> LogitPath:
    if call.path is None:
        raise ArgumentError(f"the path after the heads of {call.name!r} is not known: {call.unprojected or LOST_PATH}")
    return call.path


def _projection(call: AttentionCall) -> Tensor:
    """Returns the output projection of the call's heads, ``[heads, value_dim, features]``, on the CPU."""
    matrix = _known(call).projection.matrix().cpu()
    return matrix.unflatten(0, (call.heads, -1))[list(call.chosen_heads)]


def _unembedded(model: nn.Module, call: AttentionCall, ids: Tensor, unembedding: Tensor | None) -> Tensor:
    """Returns the rows of the unembedding for some tokens."""
    known = _known(call).projection
    features = known.output.shape[-1]
    if unembedding is not None:
        if _check_unembedding(unembedding, ids) != features:
            raise ShapeError(f"unembedding must be [vocabulary, {features}]; it has shape {list(unembedding.shape)}")
        return wide_tensor(unembedding.detach().cpu()[ids])
    getter = getattr(model, "get_output_embeddings", None)
    layer = getter() if callable(getter) else None
    if not callable(layer):
        raise ArgumentError(
            f"unembedding must be given: {type(model).__name__} has no get_output_embeddings() that returns one"
        )
    output_layer = ModuleCall("the module of get_output_embeddings()", layer, known.output, known.output)
    output_layer.output, output_layer.autocast = output_layer.ask(known.output), known.autocast
    _check_ids(ids, output_layer.output.shape[-1])
    return output_layer.matrix(ids).t().cpu()


def _check_unembedding(unembedding: Tensor, ids: Tensor) -> int:
    """Returns the number of features of an unembedding; raises an error if it lacks one of the ids."""
    if unembedding.dim() != 2:
        raise ShapeError(f"unembedding must be [vocabulary, features]; it has shape {list(unembedding.shape)}")
    _check_ids(ids, unembedding.shape[0])
    return unembedding.shape[1]


def _scales(call: AttentionCall, scale: Tensor, features: int) -> Tensor:
    """Returns the scale of each feature, ``[batch or 1, queries or 1, features]``."""
    shape = [call.batch, call.queries, features]
    try:
        torch.broadcast_shapes(scale.shape, shape)
    except RuntimeError as error:
        raise ShapeError(f"scale must broadcast to [batch, queries, features] = {shape}") from error
    return scale.detach().cpu()[(None,) * (3 - scale.dim())]
