from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from regard.models import RecurrentTranslator, TranslatorConfig

VOCABULARY = 13


class Batch(NamedTuple):
    source: Tensor
    source_lengths: Tensor
    target: Tensor
    target_lengths: Tensor


@pytest.fixture
def batch() -> Batch:
    """Seven pairs, sources of 5 to 1 tokens, targets of 4 to 0 words between bos (1) and eos (2)."""
    generator = torch.Generator().manual_seed(3)
    source_lengths = torch.tensor([5, 3, 1, 4, 5, 2, 3])
    target_lengths = torch.tensor([6, 4, 3, 2, 5, 6, 3])
    source = torch.randint(3, VOCABULARY, (7, 5), generator=generator)
    target = torch.randint(3, VOCABULARY, (7, 6), generator=generator)
    target[:, 0] = 1
    target[torch.arange(7), target_lengths - 1] = 2
    source[torch.arange(5) >= source_lengths[:, None]] = 0
    target[torch.arange(6) >= target_lengths[:, None]] = 0
    return Batch(source, source_lengths, target, target_lengths)


Make = Callable[..., RecurrentTranslator]


@pytest.fixture
def make() -> Make:
    """A small translator with these options, the same one each time."""

    def translator(**options: object) -> RecurrentTranslator:
        torch.manual_seed(11)
        shape = {"embedding": 10, "hidden": 14, "dropout": 0.0, **options}
        return RecurrentTranslator(TranslatorConfig(VOCABULARY, VOCABULARY, **shape))  # type: ignore[arg-type]

    return translator
