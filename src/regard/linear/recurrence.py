"""The recurrent form of linear attention, one token after the other with a state of constant size, and sums of rows."""

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.shapes.axes import Float


def recurrent(
    query: Float[Tensor, "batch heads length dim"],
    key: Float[Tensor, "batch heads length dim"],
    value: Float[Tensor, "batch heads length value_dim"],
    log_decay: Float[Tensor, "batch heads length gates"] | None = None,
    beta: Float[Tensor, "batch heads length"] | None = None,
    state: Float[Tensor, "batch heads dim value_dim"] | None = None,
) -> tuple[Float[Tensor, "batch heads length value_dim"], Float[Tensor, "batch heads dim value_dim"]]:
    """Returns the outputs of causal linear attention, and the state after the last token.

    .. math::

        \\bar S_t &= \\mathrm{diag}(e^{g_t}) \\, S_{t-1} \\\\
        S_t &= \\bar S_t + k_t \\, u_t^\\top, \\qquad
        u_t = v_t \\;\\text{ or }\\; \\beta_t \\, (v_t - \\bar S_t^\\top k_t) \\\\
        o_t &= S_t^\\top q_t

    Katharopoulos et al. 2020, equations 16 to 20, without decay and delta rule; Sun et al. 2023, equation 6, with one
    decay a head; Yang et al. 2024 (gated linear attention), equation 3, with a decay for each feature of a key; Yang et
    al. 2024 (DeltaNet), section 2.2, with ``beta``; Yang et al. 2025 (gated DeltaNet), equation 10, with both.

    Args:
        query, key, value: the tokens; keys have as many heads as queries.
        log_decay: g, at most 0: the logarithm of what is left of the state at each token. One gate decays the whole
            state, ``dim`` gates decay a row each. −∞ clears it; one above 0, which would let it grow, is not refused.
            None: nothing decays.
        beta: the strength of the delta rule; None: each value is added as it is.
        state: the state before the first token; None is 0.
    """
    batch, heads, length, dim = query.shape
    if state is None:
        state = value.new_zeros(batch, heads, dim, value.shape[-1])
    outputs = []
    for token in range(length):
        k, update = key[:, :, token, :, None], value[:, :, token, None]
        if log_decay is not None:
            state = state * log_decay[:, :, token, :, None].exp()
        if beta is not None:
            update = beta[:, :, token, None, None] * (update - k.mT @ state)
        state = state + k * update
        outputs.append(query[:, :, token, None] @ state)
    return torch.cat(outputs, dim=2) if outputs else value.new_zeros(value.shape), state


def with_ones(value: Float[Tensor, "*shape dim"]) -> Float[Tensor, "*shape columns"]:
    """Returns values with one more column, of 1, whose output is the sum of a row's weights."""
    return F.pad(value, (0, 1), value=1.0)


def divided(output: Float[Tensor, "*shape columns"]) -> Float[Tensor, "*shape dim"]:
    """Returns the outputs of such values divided by their last column, the sum of their weights, without it.

    An infinite sum makes a row NaN, as keys compete; where the sum is 0 or has no inverse, the row is 0.
    """
    sums, total = output[..., :-1], output[..., -1:]
    is_empty = total.abs() < torch.finfo(total.dtype).tiny
    return sums / torch.where(is_empty, torch.inf, total + 0.0 * total.detach())
