"""The decoder of Luong et al. 2015: attention after the cell; global or local, with or without input feeding."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from regard import masks, normalizers
from regard.errors import ArgumentError, UnknownNameError
from regard.masks.mask import Mask
from regard.models.encoders import Encoded
from regard.models.recurrent_decoder import Decoded, DecoderState, Readout, RecurrentDecoder
from regard.nn import Attended, Attention, Memory
from regard.tracing.module_calls import Module

SCOPES = ("global", "local-m", "local-p")


class LuongDecoder(RecurrentDecoder):
    """A recurrent decoder that attends after each step, and predicts from an attentional vector.

    .. math::

        h_t = cell(y_{t−1}, h_{t−1}),    with input feeding: cell([y_{t−1}; h̃_{t−1}], h_{t−1})
        c_t = attention(h_t, annotations)
        h̃_t = tanh(W [c_t; h_t])    or maxout

    Luong et al. 2015, §3, eq. 5 and §3.3. Our ``h̃`` has ``embedding_dim`` features, so that the output matrix can be
    tied to the embedding. Without input feeding, one call runs the cell over the whole sentence, and another
    computes the attention of all words.

    Args:
        embedding, output, summary_dim, hidden_dim, layers, cell, dropout: as for `RecurrentDecoder`.
        attention: queries of ``hidden_dim``, keys and values of ``annotation_dim`` features.
        annotation_dim: features of an annotation.
        readout: ``"tanh"`` or ``"maxout"``.
        input_feeding: whether the attentional vector of the previous step is an input of the cell.
        scope: ``"global"``; ``"local-m"``: only keys around ``p_t = t``, or around the last key where t is beyond it;
            ``"local-p"``: only keys around a predicted ``p_t`` (eq. 9), weighted by a Gaussian (eq. 10).
        window: the half-width D of a local scope, in keys: those with ``|s − p_t| ≤ D`` are visible.

    Raises:
        UnknownNameError: an unknown scope, cell or readout.
        ArgumentError: ``window`` is below 1, or the attention sees earlier weights, without input feeding or with a
            local scope.

    Example:
        >>> import torch
        >>> from regard import models, nn
        >>> embedding, output = torch.nn.Embedding(50, 8), torch.nn.Linear(8, 50)
        >>> attention = nn.Attention.create("general", query_dim=16, key_dim=6)
        >>> decoder = models.LuongDecoder(embedding, output, attention, 6, 6, 16, cell="gru", scope="local-m", window=1)
        >>> state = decoder.start(models.Encoded(torch.rand(1, 5, 6), torch.tensor([5]), torch.rand(1, 6)))
        >>> (decoder(torch.tensor([[1, 7, 9]]), state).weights > 0).long()
        tensor([[[1, 1, 0, 0, 0],
                 [1, 1, 1, 0, 0],
                 [0, 1, 1, 1, 0]]])
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
        cell: str = "lstm",
        readout: str = "tanh",
        dropout: float = 0.0,
        input_feeding: bool = True,
        scope: str = "global",
        window: int = 10,
    ):
        embedding_dim = embedding.embedding_dim
        fed_dim = embedding_dim if input_feeding else 0
        super().__init__(embedding, output, fed_dim, summary_dim, hidden_dim, layers, cell, dropout)
        if scope not in SCOPES:
            raise UnknownNameError("scope", scope, SCOPES)
        if window < 1:
            raise ArgumentError(f"window must be at least 1; it is {window}")
        if attention.sees_earlier and (not input_feeding or scope != "global"):
            raise ArgumentError("attention that sees earlier weights needs input feeding and the global scope")
        self.attention = attention
        self.input_feeding, self.scope, self.window = input_feeding, scope, window
        self.readout = Readout((annotation_dim, hidden_dim), embedding_dim, readout)
        self.position = PredictedPosition(hidden_dim) if scope == "local-p" else None

    def remember(self, encoded: Encoded) -> Memory:
        return self.attention.remember(encoded.annotations, encoded.lengths)

    def decode(self, tokens: Tensor, state: DecoderState) -> Decoded:
        embedded = self.dropout(self.embedding(tokens))
        after = state.position + tokens.shape[1]
        if not self.input_feeding:
            hidden, recurrent = self.recurrence(embedded, state.recurrent)
            attended = self.attend(hidden, state)
            readout = self.readout(attended.context.to(hidden.dtype), hidden)
            return Decoded(self.dropout(readout), replace(state, recurrent=recurrent, position=after), attended.weights)
        fed = embedded.new_zeros(len(tokens), embedded.shape[-1]) if state.fed is None else state.fed
        readouts, weights = [], []
        for token in embedded.unbind(1):
            hidden, recurrent = self.recurrence.step(torch.cat([token, fed.to(token.dtype)], -1), state.recurrent)
            attended = self.attend(hidden[:, None], state)
            if self.attention.sees_earlier and state.memory is not None:
                earlier = self.attention.following(hidden[:, None], state.memory, attended, state.earlier)
                state = replace(state, earlier=earlier)
            context, step_weights = attended
            fed = self.readout(context[:, 0].to(hidden.dtype), hidden)
            state = replace(state, recurrent=recurrent, fed=fed, position=state.position + 1)
            readouts.append(fed)
            weights.append(step_weights)
        return Decoded(self.dropout(torch.stack(readouts, dim=1)), state, torch.cat(weights, dim=1))

    def attend(self, hidden: Tensor, state: DecoderState) -> Attended:
        """Computes the contexts of some steps, of which the first has the position ``state.position``.

        Args:
            hidden: the queries, ``[batch, steps, hidden_dim]``.
            state: gives the memory.
        """
        assert state.memory is not None
        if self.scope == "global":
            return self.attention(hidden, state.memory, earlier=state.earlier)
        keys = state.memory.value.shape[1]
        if self.position is None:
            center = monotonic_center(state.position, hidden.shape[1], state.lengths)
            return self.attention(hidden, state.memory, mask=local_mask(center, keys, self.window))
        center = self.position(hidden, state.lengths)
        normalizer = normalizers.local_gaussian(self.attention.normalizer, center[:, None], self.window / 2)
        return self.attention(
            hidden, state.memory, mask=local_mask(center.detach(), keys, self.window), normalizer=normalizer
        )


class PredictedPosition(Module):
    """The center of local-p from a state h of ``hidden_dim`` features: ``p = length · σ(v · tanh(W h))`` (Luong et al.
    2015, eq. 9). Keys are counted from 0, so that ``p`` lies between 0 and the length."""

    def __init__(self, hidden_dim: int):
        super().__init__()
        self.hidden = nn.Linear(hidden_dim, hidden_dim, bias=False)
        self.weight = nn.Linear(hidden_dim, 1, bias=False)

    def forward(self, hidden: Tensor, lengths: Tensor) -> Tensor:
        """Returns positions ``[batch, steps]``, at least float32, for ``hidden [batch, steps, hidden_dim]``."""
        score = self.weight(self.hidden(hidden).tanh()).squeeze(-1)
        score = score if score.dtype == torch.float64 else score.float()
        return lengths[:, None] * score.sigmoid()


def monotonic_center(position: int, steps: int, lengths: Tensor) -> Tensor:
    """Returns the centers of local-m, ``p_t = min(t, length − 1)``, ``[batch, steps]``, of steps from t = ``position``
    on, which is counted from 0 (Luong et al. 2015, §3.2, where p is t)."""
    times = position + torch.arange(steps, device=lengths.device)
    return torch.minimum(times, (lengths[:, None] - 1).clamp(min=0))


def local_mask(center: Tensor, keys: int, window: int) -> Mask:
    """Returns the mask of the keys with ``|s − center| ≤ window``, with centers ``[batch, steps]``."""
    distance = torch.arange(keys, device=center.device) - center[..., None]
    return masks.keep((distance.abs() <= window)[:, None])
