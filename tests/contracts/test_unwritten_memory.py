"""Memory that was never written: the tests see it, and no kernel reads it."""

import ctypes
import sys

import pytest
import torch

import regard
from cases import MASKS, problem

PERTURB, ONES = -6, 0x100
"""Of glibc's ``mallopt``: what is allocated gets the bits 1 throughout, which are a NaN and the integer −1."""


def test_memory_of_torch_is_poisoned():
    like = torch.zeros(3, 2)
    for tensor in (
        torch.empty(3, 2),
        torch.empty((3,), dtype=torch.bfloat16, requires_grad=True),
        torch.empty_like(like),
        torch.empty_like(like, dtype=torch.float64),
        torch.empty_strided((3, 2), (1, 3)),
        like.new_empty(4),
        like.new_empty((2, 2), dtype=torch.float16),
    ):
        assert tensor.isnan().all()
    for dtype in (torch.uint8, torch.int32, torch.int64):
        assert (torch.empty(3, dtype=dtype) == torch.iinfo(dtype).max).all()
        assert (like.new_empty(3, dtype=dtype) == torch.iinfo(dtype).max).all()
    assert torch.empty(3, device="meta").is_meta
    with torch.device("meta"):
        assert torch.empty(3).is_meta


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc fills what it allocates")
def test_kernels_read_nothing_that_they_did_not_write():
    """Of what threads allocate themselves, which no function of PyTorch sees."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        pytest.skip("the C library has no mallopt")

    def results():
        for score, normalizer in (("scaled_dot", "softmax"), ("scaled_dot", "entmax15"), ("additive", "softmax")):
            for mask in ("none", "causal", "lengths", "where"):
                query, key, value = problem(requires_grad=True, queries=33, keys=70)
                weight = torch.linspace(-1, 1, query.shape[-1], dtype=torch.float64)
                options = {"score": regard.scores.Additive(weight) if score == "additive" else score}
                visible = MASKS[mask]()
                output = regard.attend(query, key, value, **options, normalizer=normalizer, mask=visible, backend="cpu")
                yield output.detach()
                yield from torch.autograd.grad(output.square().sum(), (query, key, value))
                with torch.no_grad():
                    observed = regard.observe(
                        query, key, value, **options, normalizer=normalizer, mask=visible, backend="cpu"
                    )
                yield observed.entropy
                yield observed.received

    expected = list(results())
    library.mallopt(PERTURB, ONES)
    try:
        memory = torch.frombuffer((ctypes.c_char * 4096).from_address(allocated(library, 4096)), dtype=torch.int32)
        assert (memory[64:-64] == -1).all(), "the C library does not fill what it allocates"
        found = list(results())
    finally:
        library.mallopt(PERTURB, 0)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert all(tensor.isfinite().all() for tensor in found)


def allocated(library, size):
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    return library.malloc(size)
