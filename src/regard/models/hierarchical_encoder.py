"""The hierarchical attention network: attention over the words of each sentence, then over sentences."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from regard.models.encoders import RecurrentEncoder
from regard.models.recurrence import run_sequences
from regard.nn import AttentionPooling, Pooled
from regard.normalizers import Normalizing
from regard.scores.names import ContentScoreName
from regard.tracing.module_calls import Module
from regard.tracing.transforms import can_read


class HierarchicalEncoder(Module):
    """Makes one vector of a text: from words to sentences, and from sentences to the text.

    .. math::

        h_{it} = GRU(words of sentence i)_t,    s_i = Σ_t α_{it} h_{it}
        h_i = GRU(s_1 … s_n)_i,    v = Σ_i α_i h_i

    Yang et al. 2016, "Hierarchical Attention Networks for Document Classification", equations 1 to 10: α are the
    weights of an `AttentionPooling` each; h has ``hidden_dim`` features, an even number. A sentence ends with a token
    of ``ends`` that no other one follows, and after ``longest`` tokens at the latest.

    Example:
        >>> import torch
        >>> from regard.models.hierarchical_encoder import HierarchicalEncoder
        >>> encoder = HierarchicalEncoder(torch.nn.Embedding(50, 8), 6, ends=[4])
        >>> tokens = torch.tensor([[7, 8, 4, 9, 10, 11, 4]])
        >>> encoder.sentences(tokens, torch.tensor([7]))
        tensor([[0, 0, 0, 1, 1, 1, 1]])
        >>> pooled = encoder(tokens, torch.tensor([7]), need_weights=True)
        >>> pooled.output.shape, pooled.weights.shape, pooled.weights.sum().round(decimals=4).item()
        (torch.Size([1, 6]), torch.Size([1, 1, 7]), 1.0)
    """

    ends: Tensor

    def __init__(
        self,
        embedding: nn.Embedding,
        hidden_dim: int,
        ends: Sequence[int],
        layers: int = 1,
        score: ContentScoreName = "additive",
        normalizer: Normalizing = "softmax",
        dropout: float = 0.0,
        longest: int = 50,
    ):
        super().__init__()
        self.longest = longest
        self.register_buffer("ends", torch.tensor(list(ends), dtype=torch.int64), persistent=False)
        self.words = RecurrentEncoder(embedding, hidden_dim, layers, "gru", dropout)
        self.word_pooling = AttentionPooling(hidden_dim, score=score, normalizer=normalizer)
        between = dropout if layers > 1 else 0.0
        self.texts = nn.GRU(hidden_dim, hidden_dim // 2, layers, batch_first=True, bidirectional=True, dropout=between)
        self.sentence_pooling = AttentionPooling(hidden_dim, score=score, normalizer=normalizer)

    @property
    def embedding(self) -> nn.Embedding:
        """The embedding of the words."""
        return self.words.embedding

    def sentences(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Returns the number of the sentence of each token, ``int64 [batch, length]``, from 0; −1 for padding."""
        return self._sentence_positions(tokens, lengths)[0]

    def _sentence_positions(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the sentence of each token, and its position in it."""
        position = torch.arange(tokens.shape[1], device=tokens.device)
        present = position < lengths[:, None]
        ends = torch.isin(tokens, self.ends) & present
        goes_on = ends.roll(-1, 1) & (position < tokens.shape[1] - 1)
        after_end = (ends & ~goes_on).roll(1, 1) | (position == 0)
        begins = torch.where(after_end, position, 0).cummax(1).values
        within = (position - begins) % self.longest
        number = (within == 0).cumsum(1) - 1
        return number.masked_fill(~present, -1), within

    def forward(self, tokens: Tensor, lengths: Tensor, *, need_weights: bool = False) -> Pooled:
        """Computes the vector of each text ``[batch, length]``, ``[batch, hidden_dim]``, 0 for a text of no token, and
        the weight of each token in its text, ``[batch, 1, length]``: that in its sentence times that of the sentence.
        Padding has no effect."""
        batch, length = tokens.shape
        if not batch or not length:
            empty = self.words.embedding.weight.new_zeros(batch, 1, length)
            return Pooled(empty.new_zeros(batch, self.words.hidden_dim), empty if need_weights else None)
        number, within = self._sentence_positions(tokens, lengths)
        # On a device the host does not wait for the number of sentences: there may be as many as tokens.
        known = can_read(tokens)
        S = max(1, int(number.max()) + 1) if known else length
        W = int(within.masked_fill(number < 0, 0).max()) + 1 if known else min(length, self.longest)
        slot = torch.where(number < 0, S * W, number * W + within)
        padded = tokens.new_zeros(batch, S * W + 1).scatter(1, slot, tokens)[:, : S * W]
        sentence = torch.where(number < 0, S, number)
        counts = tokens.new_zeros(batch, S + 1).scatter_add(1, sentence, torch.ones_like(tokens))[:, :S]
        annotations = self.words(padded.reshape(batch * S, W), counts.flatten()).annotations
        sentences, in_sentence = self.word_pooling(annotations, counts.flatten(), need_weights=need_weights)
        present = (counts > 0).sum(1)
        states, _ = run_sequences(self.texts, sentences.view(batch, S, -1), present)
        text, of_sentence = self.sentence_pooling(states, present, need_weights=need_weights)
        if in_sentence is None or of_sentence is None:
            return Pooled(text, None)
        weights = (in_sentence.view(batch, S, W) * of_sentence[:, 0, :, None]).flatten(1)
        weights = torch.cat([weights, weights.new_zeros(batch, 1)], dim=1).gather(1, slot)
        return Pooled(text, weights[:, None])
