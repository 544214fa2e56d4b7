"""The work of a key is the number of pairs in its column of the dense mask."""

import pytest
import torch

from cases import MASKS, B, H, K, Q
from regard import masks
from regard.errors import ArgumentError, KindError
from regard.masks.work import work_of_keys
from regard.shapes.grid import Grid


@pytest.mark.parametrize("name", sorted(set(MASKS) - {"none"}))
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_work_is_the_sum_of_columns(name, block, monkeypatch):
    monkeypatch.setattr("regard.masks.work.BLOCK_ELEMENTS", block)
    mask = MASKS[name]()
    expected = mask.dense(Grid.whole(B, H, Q, K)).sum((0, 1, 2))
    assert torch.equal(work_of_keys(mask, Q, K, batch=B, heads=H), expected)


def test_work_of_keys_names_wrong_arguments():
    with pytest.raises(KindError, match="mask must be a Mask"):
        work_of_keys("causal", 3, 3)
    with pytest.raises(ArgumentError, match="queries"):
        work_of_keys(masks.causal(), -1, 3)
    assert work_of_keys(masks.causal(), 0, 3).tolist() == [0, 0, 0]
