"""FlexAttention, run by PyTorch's own functions: score functions, block masks, grouped heads."""

import pytest
import torch
from torch import nn
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import regard
from watching.models import WEIGHTS

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


class Flex(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 8)

    def forward(self, x, **options):
        x = self.project(x)
        return flex_attention(
            x, x[:, :1] if "enable_gqa" in options else x, x[:, :1] if "enable_gqa" in options else x, **options
        )


def causal(batch, head, query, key):
    return query >= key


def relative(score, batch, head, query, key):
    return 2.0 * torch.tanh(score / 2.0) + (query - key) * 0.125 * (head + 1)


def test_flex_attention_is_watched_in_every_form():
    model, x = Flex(), torch.randn(2, 4, 128, 8)
    block_mask = create_block_mask(causal, None, None, 128, 128, device="cpu")
    options = [{}, {"block_mask": block_mask}, {"score_mod": relative, "scale": 0.5}, {"enable_gqa": True}]
    with torch.no_grad():
        expected = [model(x, **option) for option in options]
        with regard.watch(model, read=WEIGHTS) as seen:
            found = [model(x, **option) for option in options]
    for plain, watched in zip(expected, found, strict=True):
        assert torch.equal(plain, watched)
    assert [(call.mask, call.kind, call.kv_heads) for call in seen.calls] == [
        ("none", "self", 4),
        ("causal", "causal", 4),
        ("none", "self", 4),
        ("none", "self", 1),
    ]
    h = model.project(x).double()
    scores = h @ h.transpose(-1, -2)
    place = torch.arange(128)
    gap, head = place[:, None] - place, torch.arange(4)[:, None, None]
    wanted = [
        scores / 8**0.5,
        (scores / 8**0.5).masked_fill(gap < 0, -torch.inf),
        2 * torch.tanh(scores * 0.5 / 2) + gap * 0.125 * (head + 1),
        h @ h[:, :1].transpose(-1, -2) / 8**0.5,
    ]
    for call, score in zip(seen.calls, wanted, strict=True):
        torch.testing.assert_close(call.weights.double(), score.softmax(-1).detach(), rtol=1e-4, atol=1e-5)
    assert flex.flex_attention is flex_attention
