"""Forward attention (Zhang, Ling & Dai 2018): softmax over the paths that stay or move on by one key."""

import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.fields import replaced, set_field
from regard.normalizers.alignment_normalizer import AlignmentNormalizer, on_visible_keys, shifted
from regard.normalizers.parameter import check_range
from regard.shapes.checks import check_broadcast
from regard.summaries import parameter_summary
from regard.tracing.transforms import can_read

LARGEST_EXPONENT = 60.0
"""Largest exponent at keys that no path reaches, where only derivatives read the exponentials."""


class ForwardAlignment(AlignmentNormalizer, fields=("transition", "previous")):
    """Weighs each key by softmax and by the weight with which the query before it stayed there or moved on to it.

    .. math:: \\alpha'_{ij} = \\big((1 - u_i) \\, \\alpha_{i-1,j} + u_i \\, \\alpha_{i-1,j-1}\\big) \\, y_{ij} \\qquad
        \\alpha_{ij} = \\alpha'_{ij} \\,/\\, \\textstyle\\sum_k \\alpha'_{ik}

    Zhang, Ling & Dai 2018, "Forward Attention in Sequence-to-Sequence Acoustic Modeling for Speech Synthesis": y is the
    softmax of the scores, our α their α̂, our u_i their u_{t−1}, the probability to move on. With u = 1/2, which the sum
    cancels, it is their forward attention, otherwise that with a transition agent, for which there is
    `regard.nn.ForwardAttention`. The first query begins at the first key. Hidden keys do not count: the next key is the
    next visible one. A row sums to 1, or to 0 if no path reaches a key that the query sees.

    Args:
        transition: u in [0, 1], a number, or a tensor that broadcasts to ``[batch, heads, queries]``; default 1/2.
        previous: weights of the last query before, as `given` binds them.

    Raises:
        ArgumentError: the transition is not in [0, 1].
        KindError: an argument is no number and no floating-point tensor.

    Numerics: the largest score of the keys that a path reaches is subtracted before the exponentials, so that no score
    overflows; a path ends where its weight is too small for the dtype. The derivative by what no path reaches (u of 0
    or 1) is exact up to a score of 60 above that one, and stays there beyond. Half precision is computed in float32.

    Example:
        >>> import torch
        >>> from regard import normalizers
        >>> scores = torch.zeros(3, 4)
        >>> normalizers.ForwardAlignment()(scores)
        tensor([[0.5000, 0.5000, 0.0000, 0.0000],
                [0.2500, 0.5000, 0.2500, 0.0000],
                [0.1250, 0.3750, 0.3750, 0.1250]])
        >>> normalizers.ForwardAlignment(transition=1.0)(scores)[2]
        tensor([0., 0., 0., 1.])
    """

    transition: float | Tensor

    def __init__(self, transition: float | Tensor = 0.5, previous: Tensor | None = None):
        super().__init__()
        check_range("transition", transition)
        if not isinstance(transition, Tensor):
            outside = not 0 <= transition <= 1
        else:  # elements on a device are not checked, since the host would wait for them
            outside = can_read(transition) and bool(((transition < 0) | (transition > 1)).any())
        if outside:
            raise ArgumentError(f"transition must be in [0, 1]; it is {parameter_summary(transition)}")
        set_field(self, "transition", transition)
        self.bind(previous)

    def given(self, previous: Tensor | None, transition: float | Tensor | None = None) -> "ForwardAlignment":
        """Returns this normalizer for the queries after those with these weights, as `AlignmentNormalizer.given`.

        Args:
            previous: weights of the last query before, broadcastable to ``[batch, heads, keys]``; None: there is none.
            transition: another one; None: the same.
        """
        transition = self.transition if transition is None else transition
        return replaced(self, previous=previous, transition=transition).train(self.training)

    def parts(self, row: Tensor, hidden: Tensor | None) -> tuple[Tensor, ...]:
        transition = self.transition
        if not isinstance(transition, Tensor):
            return row, row.new_full((*row.shape[:-1], 1), transition)
        check_broadcast("transition", transition, row.shape[:-1], "[batch, heads, queries]")
        return row, transition.to(row.dtype).expand(row.shape[:-1])[..., None]

    def advance(self, before: Tensor, hidden: Tensor | None, *parts: Tensor) -> Tensor:
        row, move = parts
        before = on_visible_keys(before, hidden)
        reached = (1 - move) * before + on_visible_keys(shifted(move * before), hidden)
        visible = row if hidden is None else row.masked_fill(hidden, -torch.inf)
        largest = visible.detach().masked_fill(reached.detach() == 0, -torch.inf).amax(-1, keepdim=True)
        # A NaN at a visible key belongs to the row, whether a path reaches it or not.
        largest = largest.masked_fill(largest == -torch.inf, 0.0)
        paths = reached * (visible - largest).clamp(max=LARGEST_EXPONENT).exp()
        total = paths.sum(-1, keepdim=True)
        return paths / total.masked_fill(total == 0, 1.0)
