"""A reading that is zero is +0.0 on every backend: of rows that see no key, one key, or put all weight on one."""

import pytest
import torch

import regard
from backends import ON_CPU
from cases import NORMALIZERS, SCORES, H, K, Q, problem
from regard import masks

READ = regard.Readings(
    entropy=True, peak=True, top_k=3, received=True, distance=True, pooled=(2, 3), rows=[0, -1], tile=((1, 4), (0, 2)),
    weights=True, shares=[masks.causal()],
)  # fmt: skip
MASKS = {
    "none": None,
    "own": masks.window(0, 0),
    "one_and_nobody": masks.lengths(torch.tensor([1, 0])),
    "two": masks.lengths([2, 1]),
    "dense": masks.where(lambda batch, head, query, key: key == query % 2),
}


@pytest.mark.parametrize("backend", ON_CPU)
def test_no_reading_is_minus_zero(backend):
    count = 0
    for dtype in (torch.float32, torch.float64):
        for keys in (1, K):
            read = READ if keys == K else regard.Readings(**{**vars(READ), "tile": None})
            for normalizer in NORMALIZERS if dtype is torch.float64 and keys == K else ("softmax", "sparsemax"):
                for name, mask in MASKS.items():
                    if keys == 1 and name == "two":
                        continue
                    inputs = [10 * tensor for tensor in problem(dtype, keys=keys)]
                    options = {"normalizer": NORMALIZERS[normalizer](), "mask": mask, "score": SCORES["dot"]()}
                    if regard.plan(*inputs, **options).reasons[backend].startswith("cannot"):
                        continue
                    observed = regard.observe(*inputs, **options, read=read, backend=backend)
                    for field, reading in observed._asdict().items():
                        if field != "output" and reading is not None:
                            minus = (reading == 0) & reading.signbit()
                            assert not minus.any(), f"{field} of {normalizer}, {name}, {keys} keys, {dtype}"
                    count += 1
    assert count or backend in ("flex", "triton"), f"{backend} of {H} heads and {Q} queries runs nothing"
