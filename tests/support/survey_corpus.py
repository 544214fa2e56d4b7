"""A corpus of token ids, and a small encoder of PyTorch alone: what programs that survey it load quickly."""

import torch
from torch import nn

SPECIAL = (0, 1, 2)


def corpus(count=17, seed=4):
    """Token ids of few kinds, so that tokens come again; some texts are empty, or special tokens alone."""
    generator = torch.Generator().manual_seed(seed)
    texts = []
    for number in range(17):
        length = int(torch.randint(1, 14, (), generator=generator))
        ids = torch.randint(3, 9, (length,), generator=generator).tolist()
        texts.append([1, *ids, 2] if number % 3 else ids)
    texts[5], texts[7] = [], [1, 2]
    return texts[:count]


class Encoder(nn.Module):
    """Token ids → states, by two layers of two heads with random weights, always the same."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(8)
        self.embedding = nn.Embedding(9, 6)
        layer = nn.TransformerEncoderLayer(6, 2, 5, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.double()

    def forward(self, ids):
        return self.encoder(self.embedding(ids) * 3)
