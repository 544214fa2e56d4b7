"""The decoder of Chorowski et al. 2015: attention that sees where it was at the step before."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, UnknownNameError
from regard.models.recurrent_decoder import AttendedStep, ContextDecoder, DecoderState
from regard.nn import Attention
from regard.normalizers import Normalizer, as_normalizer
from regard.tracing.transforms import exact_dtype

FOCUS_NAMES = ("softmax", "smoothing", "sparsemax", "entmax15")


def smoothed(scores: Tensor) -> Tensor:
    """Returns weights that spread over several keys: logistic functions instead of exponentials.

    .. math::

        α_j = σ(e_j) / Σ_k σ(e_k)

    Chorowski et al. 2015, section 2.3, "smooth focus". Logarithms avoid 0 / 0 if all ``scores [..., keys]`` of a row
    are large and negative; −inf gives weight 0.
    """
    return torch.softmax(torch.nn.functional.logsigmoid(scores), dim=-1)


def focus(name: str) -> Normalizer:
    """Returns the normalizer of a decoder's attention, by its name in `FOCUS_NAMES`."""
    if name not in FOCUS_NAMES:
        raise UnknownNameError("normalizer", name, FOCUS_NAMES)
    return as_normalizer(smoothed if name == "smoothing" else name)


def window_around(weights: Tensor, half_width: int) -> Tensor:
    """Returns which annotations a step may attend to: those near the median of the weights of the step before.

    .. math::

        p = min(j : Σ_{k ≤ j} α_k ≥ ½ Σ_k α_k),    p − w ≤ j ≤ p + w

    Chorowski et al. 2015, section 2.3, windowing: α are the ``weights [batch, annotations]`` of the step before, w is
    ``half_width``. In the result, bool ``[batch, annotations]``, True means "may be attended to".
    """
    if half_width < 0:
        raise ArgumentError(f"half_width must be at least 0; it is {half_width}")
    total = weights.to(exact_dtype(weights.device)).cumsum(-1)
    median = (total < 0.5 * total[..., -1:]).sum(-1, keepdim=True)
    position = torch.arange(weights.shape[-1], device=weights.device)
    return (position - median).abs() <= half_width


class LocationDecoder(ContextDecoder):
    """A recurrent decoder whose attention sees the weights of the step before.

    .. math::

        α_t, c_t = attention(s_{t−1}, α_{t−1}, annotations)
        s_t = cell([y_{t−1}; c_t], s_{t−1})
        readout = tanh(W [s_t; y_{t−1}; c_t])

    Chorowski et al. 2015, eq. 5 to 9: their g_t is our c_t. α_0 is 0.

    Args:
        embedding, output, summary_dim, hidden_dim, layers, dropout: as for `regard.models.RecurrentDecoder`.
        attention: with a score that sees earlier weights, such as `regard.scores.LocationAware`, or any other.
        annotation_dim: features of an annotation.

    Attributes:
        window: half-width of the window around the median of the weights of the step before, in annotations; None:
            all annotations are attended to. The first step has no window. It may be set at any time.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        output: nn.Linear,
        attention: Attention,
        annotation_dim: int,
        summary_dim: int,
        hidden_dim: int,
        layers: int = 1,
        dropout: float = 0.0,
    ):
        super().__init__(embedding, output, attention, annotation_dim, summary_dim, hidden_dim, layers, dropout=dropout)
        self.window: int | None = None

    def attend(self, hidden: Tensor, token: Tensor, state: DecoderState) -> AttendedStep:
        attention, memory, earlier = self.attention, state.memory, state.earlier
        mask = None if self.window is None or earlier is None else window_around(earlier.previous, self.window)
        attended = attention(hidden, memory, mask=mask, earlier=earlier if attention.sees_earlier else None)
        state = replace(state, earlier=attention.following(hidden, memory, attended, earlier))
        return AttendedStep(*attended, state)
