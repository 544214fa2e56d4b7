"""Encoders turn an input into annotations that a decoder attends to."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, UnknownNameError
from regard.models.recurrence import CELLS, initialize_forget_bias, run_sequences
from regard.summaries import summarized
from regard.tracing.module_calls import Module


@summarized
@dataclass(frozen=True)
class Encoded:
    """The output of an encoder for a batch.

    Attributes:
        annotations: ``[batch, source, dim]``; zero after the end of a row.
        lengths: ``int64 [batch]``, number of annotations of each row.
        summary: ``[batch, summary_dim]``, from which the first state of a recurrent decoder is computed: the last state
            of a recurrent encoder, or the mean of the annotations of an image; None for an encoder without one.

    Example:
        >>> import torch
        >>> from regard import models
        >>> encoded = models.Encoded(torch.rand(2, 5, 8), torch.tensor([5, 3]))
        >>> rows = encoded.select(torch.tensor([1, 1, 0]))  # two hypotheses of the second row, one of the first
        >>> rows.annotations.shape, rows.lengths
        (torch.Size([3, 5, 8]), tensor([3, 3, 5]))
    """

    annotations: Tensor
    lengths: Tensor
    summary: Tensor | None = None

    def select(self, index: Tensor) -> "Encoded":
        """Returns the rows ``index [rows]``, in that order; a row may occur several times."""
        summary = None if self.summary is None else self.summary[index]
        return Encoded(self.annotations[index], self.lengths[index], summary)


class RecurrentEncoder(Module):
    """An embedding and a bidirectional LSTM or GRU.

    Each annotation is the forward and the backward state of the top layer at that token, concatenated
    (Bahdanau et al. 2015, §3.2 and A.2.1). Rows are packed, so that padding has no influence on a state.

    Args:
        embedding: tokens → ``[..., embedding_dim]``; may be shared with a decoder.
        hidden_dim: features of an annotation; even, half of them for each direction.
        layers: number of layers.
        cell: ``"lstm"`` or ``"gru"``.
        dropout: rate on embeddings, between layers and on annotations.

    Raises:
        ArgumentError: ``hidden_dim`` is odd.
        UnknownNameError: an unknown cell.

    Example:
        >>> import torch
        >>> from regard import models
        >>> encoder = models.RecurrentEncoder(torch.nn.Embedding(100, 8), hidden_dim=6)
        >>> encoded = encoder(torch.randint(100, (2, 5)), lengths=torch.tensor([5, 3]))
        >>> encoded.annotations.shape, encoded.summary.shape
        (torch.Size([2, 5, 6]), torch.Size([2, 12]))
        >>> encoded.annotations[1].abs().sum(-1) > 0
        tensor([ True,  True,  True, False, False])
    """

    def __init__(
        self, embedding: nn.Embedding, hidden_dim: int, layers: int = 1, cell: str = "lstm", dropout: float = 0.0
    ):
        super().__init__()
        if hidden_dim % 2:
            raise ArgumentError(f"hidden_dim must be even, half for each direction; it is {hidden_dim}")
        if cell not in CELLS:
            raise UnknownNameError("cell", cell, CELLS)
        self.embedding = embedding
        self.hidden_dim = hidden_dim
        self.summary_dim = hidden_dim * (2 if cell == "lstm" else 1)
        kind = nn.LSTM if cell == "lstm" else nn.GRU
        between = dropout if layers > 1 else 0.0
        self.rnn = kind(
            embedding.embedding_dim, hidden_dim // 2, layers, batch_first=True, bidirectional=True, dropout=between
        )
        if cell == "lstm":
            initialize_forget_bias(self.rnn)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Encoded:
        """Computes the annotations of a batch.

        Args:
            tokens: ``int64 [batch, source]``, the values of padding tokens do not matter.
            lengths: ``int64 [batch]``, tokens of each row.

        Returns:
            Annotations ``[batch, source, hidden_dim]``; the summary is the top layer's last state of both directions
            (for an LSTM, hidden and cell).
        """
        embedded = self.dropout(self.embedding(tokens))
        annotations, last = run_sequences(self.rnn, embedded, lengths)
        summary = torch.cat([tensor[direction] for tensor in last for direction in (-2, -1)], dim=-1)
        return Encoded(self.dropout(annotations), lengths, summary)
