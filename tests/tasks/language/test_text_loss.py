"""Every token is predicted once, from as much context as the windows say."""

import math

import numpy as np
import pytest
import torch

from regard.data.text.running_text import TokenTable
from regard.data.text.tokenizers import TextTokenizer
from regard.models import LanguageModel, LanguageModelConfig
from regard.tasks.outputs import text_loss as module
from regard.tasks.outputs.text_loss import TextLoss, Windows, text_loss

CONTEXT = 7


@pytest.mark.parametrize("predicted", [1, 2, 6, 7, 8, 13, 14, 15, 53])
@pytest.mark.parametrize("stride", [1, 3, 6, 7])
def test_windows_predict_every_token_once(predicted, stride):
    windows = Windows.over(predicted, CONTEXT, stride)
    found = []
    for start, counted in zip(windows.starts, windows.counted, strict=True):
        assert 0 <= start <= start + windows.length <= predicted
        assert 1 <= counted <= windows.length
        found += range(start + windows.length - counted + 1, start + windows.length + 1)
        # Tokens that are read before each predicted one: all, or at least what the stride leaves.
        assert start == 0 or windows.length - counted + 1 > CONTEXT - stride
    assert found == list(range(1, predicted + 1))


@pytest.fixture
def model():
    torch.manual_seed(3)
    sizes = {"context": CONTEXT, "hidden": 16, "layers": 2, "heads": 2}
    model = LanguageModel(LanguageModelConfig(11, **sizes, position="learned", dropout=0.0)).double().eval()
    for parameter in model.parameters():
        parameter.data.mul_(5)
    return model


TOKENIZER = TextTokenizer("char", ["<end>", "<unk>", *"abcdéfgh日"])
IDS = np.random.default_rng(5).integers(0, 11, 41)


@pytest.mark.parametrize("stride", [0, 1, 4])
@pytest.mark.parametrize("limit", [0, 1, 12, 999])
def test_the_loss_is_the_sum_over_tokens(model, monkeypatch, stride, limit):
    monkeypatch.setattr(module, "TOKENS_PER_BATCH", 3 * CONTEXT)
    table = TokenTable([IDS[:20], IDS[20:]])
    found = text_loss(model, table, TOKENIZER, stride=stride, limit=limit)
    predicted = min(limit or 40, 40)
    windows, total = Windows.over(predicted, CONTEXT, stride or CONTEXT), 0.0
    for start, counted in zip(windows.starts, windows.counted, strict=True):
        tokens = torch.from_numpy(IDS[start : start + windows.length + 1])[None]
        logs = model(tokens[:, :-1]).log_softmax(-1).gather(2, tokens[:, 1:, None])
        total -= float(logs[0, windows.length - counted :].sum().detach())
    targets = IDS[1 : predicted + 1]
    assert found.nats == pytest.approx(total, rel=1e-9)
    assert found.tokens == predicted
    assert found.unknown == (targets == 1).sum()
    assert found.bytes == len(TOKENIZER.decode(targets).replace("⁇", "").encode())
    assert found.loss == pytest.approx(total / predicted)
    assert found.perplexity == pytest.approx(math.exp(total / predicted))


def test_bits_per_byte_of_an_equal_choice():
    # 8 equally likely pieces of 2 bytes each: 3 bits a piece.
    assert TextLoss(10 * math.log(8), 10, 20, 0).bits_per_byte == pytest.approx(1.5)
    assert TextLoss(1.0, 1, 0, 1).bits_per_byte == math.inf


def test_processes_share_the_windows(model, monkeypatch):
    monkeypatch.setattr(module, "TOKENS_PER_BATCH", 2 * CONTEXT)
    table = TokenTable([IDS])
    parts = []

    def gather(found, own):
        parts.append(own)
        found[:] = [own, TextLoss(0.0, 0, 0, 0)]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    for rank in (0, 1):
        text_loss(model, table, TOKENIZER, rank=rank, world_size=2)
    whole = text_loss(model, table, TOKENIZER)
    assert sum(part.tokens for part in parts) == whole.tokens
    assert all(part.tokens < whole.tokens for part in parts)
    assert sum(part.nats for part in parts) == pytest.approx(whole.nats)
