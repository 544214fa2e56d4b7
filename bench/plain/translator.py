"""The recurrent translator in plain PyTorch: `torch.nn.LSTM`, `torch.nn.LSTMCell` and eager attention.

It is what a user writes without regard: the same layers, parameters and losses, from modules and functions of PyTorch
alone. `PlainTranslator.like` copies the parameters of our model, so that the losses of both can be compared.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bench.plain.parameters import with_parameters_of
from regard.data.text.batches import PairBatch
from regard.models.recurrent_translator import RecurrentTranslator, TranslatorConfig

SMOOTHING = 0.1
DECAY = 0.9  # of the baseline of REINFORCE


class PlainTranslator(nn.Module):
    """A bidirectional LSTM encoder and an LSTM decoder of one layer each, with the attention of a configuration.

    Args:
        config: attention, sizes and dropout of the model: LSTM, global scope, tanh readout, tied target embedding.
    """

    baseline: Tensor

    def __init__(self, config: TranslatorConfig):
        super().__init__()
        E, H, V = config.embedding, config.hidden, config.target_vocabulary
        self.config = config
        self.before_cell = config.attention in ("bahdanau", "hard")
        self.loops = self.before_cell or (config.attention == "luong" and config.input_feeding)
        self.source_embedding = nn.Embedding(config.source_vocabulary, E)
        self.encoder = nn.LSTM(E, H // 2, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * H, 2 * H)
        self.embedding = nn.Embedding(V, E)
        fed = H if self.before_cell else E
        self.decoder = nn.LSTMCell(E + fed, H) if self.loops else nn.LSTM(E, H, batch_first=True)
        self.query = nn.Linear(H, H, bias=False) if self.before_cell else None
        self.key = nn.Linear(H, H) if self.before_cell else None
        self.energy = nn.Linear(H, 1, bias=False) if self.before_cell else None
        general = config.attention == "luong" and config.score == "general"
        self.general = nn.Linear(H, H, bias=False) if general else None
        context = 0 if config.attention == "none" else H
        token = 0 if config.attention == "luong" else E
        self.readout = nn.Linear(H + token + context, E)
        self.output = nn.Linear(E, V)
        self.output.weight = self.embedding.weight
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("baseline", torch.zeros(()))

    @classmethod
    def like(cls, model: RecurrentTranslator) -> "PlainTranslator":
        """A plain translator with the configuration and a copy of the parameters of ours."""
        plain = cls(model.config)
        suffix = "" if plain.loops else "_l0"
        names = {
            "source_embedding.weight": "encoder.embedding.weight",
            "embedding.weight": "decoder.embedding.weight",
            "output.bias": "decoder.output.bias",
            "readout.weight": "decoder.readout.linear.weight",
            "readout.bias": "decoder.readout.linear.bias",
            "bridge.weight": "decoder.bridge.weight",
            "bridge.bias": "decoder.bridge.bias",
            "query.weight": "decoder.attention.score.query_projection.weight",
            "key.weight": "decoder.attention.score.key_projection.weight",
            "key.bias": "decoder.attention.score.key_projection.bias",
            "energy.weight": "decoder.attention.score.weight",
            "general.weight": "decoder.attention.score.weight",
        }
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            names[f"decoder.{name}{suffix}"] = f"decoder.recurrence.rnn.{name}_l0"
            for direction in ("_l0", "_l0_reverse"):
                names[f"encoder.{name}{direction}"] = f"encoder.rnn.{name}{direction}"
        # Our general score is query · W · key; the plain one projects the keys.
        return with_parameters_of(model, plain, names.__getitem__)

    def encode(self, batch: PairBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Annotations ``[batch, source, hidden]``, and the decoder's first state and cell ``[batch, hidden]``."""
        source = self.dropout(self.source_embedding(batch.source))
        packed = pack_padded_sequence(source, batch.source_lengths, batch_first=True, enforce_sorted=False)
        outputs, (hidden, cell) = self.encoder(packed)
        annotations, _ = pad_packed_sequence(outputs, batch_first=True, total_length=batch.source.shape[1])
        hidden, cell = self.bridge(torch.cat([*hidden, *cell], dim=-1)).tanh().chunk(2, dim=-1)
        return self.dropout(annotations), hidden, cell

    def loss(self, batch: PairBatch) -> Tensor:
        """The training loss of a batch: mean over target tokens, with label smoothing and REINFORCE."""
        annotations, hidden, cell = self.encode(batch)
        embedded = self.dropout(self.embedding(batch.target[:, :-1]))
        padding = torch.arange(batch.source.shape[1]) >= batch.source_lengths[:, None]
        labels = batch.target[:, 1:]
        is_token = torch.arange(labels.shape[1]) < (batch.target_lengths - 1)[:, None]
        choices: list[tuple[Tensor, Tensor]] = []
        if not self.loops:
            steps, _ = self.decoder(embedded, (hidden[None].to(embedded.dtype), cell[None].to(embedded.dtype)))
            if self.config.attention == "none":
                readout = self.readout(torch.cat([steps, embedded], dim=-1)).tanh()
            else:
                scores = (steps @ self.keys(annotations).transpose(1, 2)).masked_fill(padding[:, None], -torch.inf)
                readout = self.readout(torch.cat([scores.softmax(-1) @ annotations, steps], dim=-1)).tanh()
        elif self.before_cell:
            readout = self._bahdanau(embedded, annotations, padding, hidden, cell, choices)
        else:
            readout = self._input_feeding(embedded, annotations, padding, hidden, cell)
        logits = self.output(self.dropout(readout)).flatten(0, 1)
        targets = labels.masked_fill(~is_token, -100).flatten()
        total = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=SMOOTHING)
        if choices:
            total = total + self._reinforce(logits, targets, is_token, choices)
        return total / is_token.sum()

    def keys(self, annotations: Tensor) -> Tensor:
        """What the scores compare a query with."""
        if self.key is not None:
            return self.key(annotations)
        return annotations if self.general is None else F.linear(annotations, self.general.weight)

    def _bahdanau(
        self,
        embedded: Tensor,
        annotations: Tensor,
        padding: Tensor,
        hidden: Tensor,
        cell: Tensor,
        choices: list[tuple[Tensor, Tensor]],
    ) -> Tensor:
        assert self.query is not None
        assert self.energy is not None
        keys, rows = self.keys(annotations), torch.arange(len(annotations))
        readouts = []
        for token in embedded.unbind(1):
            scores = self.energy((self.query(hidden)[:, None] + keys).tanh()).squeeze(-1)
            weights = scores.masked_fill(padding, -torch.inf).softmax(-1)
            if self.config.attention == "hard":
                chosen = torch.multinomial(weights, 1).squeeze(-1) if self.training else weights.argmax(-1)
                logs = weights.clamp(min=torch.finfo(weights.dtype).tiny).log()
                choices.append((logs[rows, chosen], -(weights * logs).sum(-1)))
                context = annotations[rows, chosen]
            else:
                context = (weights[:, None] @ annotations).squeeze(1)
            hidden, cell = self.decoder(torch.cat([token, context], dim=-1), (hidden, cell))
            readouts.append(torch.cat([hidden, token, context], dim=-1))
        return self.readout(torch.stack(readouts, dim=1)).tanh()

    def _input_feeding(
        self, embedded: Tensor, annotations: Tensor, padding: Tensor, hidden: Tensor, cell: Tensor
    ) -> Tensor:
        keys = self.keys(annotations).transpose(1, 2)
        fed = torch.zeros_like(embedded[:, 0])
        readouts = []
        for token in embedded.unbind(1):
            hidden, cell = self.decoder(torch.cat([token, fed], dim=-1), (hidden, cell))
            scores = (hidden[:, None] @ keys).squeeze(1).masked_fill(padding, -torch.inf)
            context = (scores.softmax(-1)[:, None] @ annotations).squeeze(1)
            fed = self.readout(torch.cat([context, hidden], dim=-1)).tanh()
            readouts.append(fed)
        return torch.stack(readouts, dim=1)

    def _reinforce(
        self, logits: Tensor, targets: Tensor, is_token: Tensor, choices: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        with torch.no_grad():
            reward = -F.cross_entropy(logits.float(), targets, reduction="none").view_as(is_token)
            advantage = ((reward - self.baseline) * is_token).flip(-1).cumsum(-1).flip(-1)
            if self.training:
                self.baseline.mul_(DECAY).add_(reward.sum() / is_token.sum(), alpha=1 - DECAY)
        log_probability, entropy = (torch.stack(parts, dim=1) for parts in zip(*choices, strict=True))
        return -((log_probability * advantage + self.config.entropy_weight * entropy) * is_token).sum()
