import pytest
import torch
from torch import nn

from regard.errors import ArgumentError, UnknownNameError
from regard.models import RecurrentEncoder


def encoder(cell="lstm", layers=2, dropout=0.0):
    torch.manual_seed(7)
    return RecurrentEncoder(nn.Embedding(13, 5), 6, layers, cell, dropout)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("layers", [1, 2])
def test_padding_has_no_part_in_anything(cell, layers):
    model = encoder(cell, layers)
    tokens = torch.randint(3, 13, (4, 7))
    lengths = torch.tensor([7, 3, 1, 5])
    together = model(tokens, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model(tokens[row : row + 1, :length], torch.tensor([length]))
        torch.testing.assert_close(together.annotations[row : row + 1, :length], alone.annotations)
        torch.testing.assert_close(together.summary[row : row + 1], alone.summary)
        assert not together.annotations[row, length:].any()


def test_an_empty_row_has_no_annotations():
    encoded = encoder()(torch.full((3, 5), 4), torch.tensor([5, 0, 2]))
    assert not encoded.annotations[1].any()
    assert encoded.summary.isfinite().all()


def test_each_annotation_knows_both_sides():
    model = encoder(layers=1)
    tokens, lengths = torch.randint(3, 13, (1, 5)), torch.tensor([5])
    first = model(tokens, lengths).annotations
    other = tokens.clone()
    other[0, 2] = tokens[0, 2] % 9 + 3
    changed = (model(other, lengths).annotations != first)[0]
    forward, backward = changed[:, :3].any(-1), changed[:, 3:].any(-1)
    assert forward.tolist() == [False, False, True, True, True]
    assert backward.tolist() == [True, True, True, False, False]


def test_recurrent_encoders_refuse_wrong_options():
    with pytest.raises(ArgumentError, match="hidden_dim must be even"):
        RecurrentEncoder(nn.Embedding(13, 5), 7)
    with pytest.raises(UnknownNameError, match="cell 'rnn'"):
        RecurrentEncoder(nn.Embedding(13, 5), 6, cell="rnn")
