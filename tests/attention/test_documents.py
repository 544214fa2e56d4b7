"""Short documents of one sequence have a kernel of their own: the same results, whoever packed them."""

import pytest
import torch

import regard
from regard import masks
from regard.kernels import availability
from regard.kernels.cpu import packed_attention, packed_call

if availability.why_missing() is not None:
    pytest.skip("kernels are compiled by Numba", allow_module_level=True)

SELF = torch.tensor([[0, 0, 0, 1, 2, 2, 2, 2, 2, 4, 4], [3, 3, 5, 5, 5, 5, 5, 5, 5, 5, 9]])
KEYS = torch.tensor([[0, 1, 1, 1, 2, 4, 4], [3, 4, 4, 5, 5, 9, 9]])
MASKS = {
    "documents": masks.documents(SELF),
    "shared": masks.documents(SELF[0]),
    "causal": masks.documents(SELF) & masks.causal(),
    "window": masks.window(2, 1) & masks.documents(SELF),
    "other keys": masks.documents(SELF, KEYS),
}


@pytest.fixture
def launches(monkeypatch):
    """The calls that the kernel ran."""
    monkeypatch.setattr(packed_call, "microkernel_is_faster", lambda: True)
    calls, attend = [], packed_attention.attend

    def counted(*arguments):
        calls.append(arguments)
        return attend(*arguments)

    monkeypatch.setattr(packed_attention, "attend", counted)
    return calls


def inputs(mask, dtype=torch.float32):
    torch.manual_seed(3)
    length = 7 if "key_ids" in repr(mask) else 11
    query, key, value = (torch.randn(2, heads, size, 5) for heads, size in ((6, 11), (2, length), (2, length)))
    return [tensor.to(dtype).requires_grad_() for tensor in (query, key, value)]


@pytest.mark.parametrize("score", ["scaled_dot", "cosine"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_documents_give_the_result_of_the_specification(launches, mask, score):
    query, key, value = inputs(mask)
    outputs, grads = [], []
    for backend in ("auto", "reference"):
        output = regard.attend(query, key, value, mask=mask, score=score, backend=backend)
        outputs.append(output)
        grads.append(torch.autograd.grad(output.sin().sum(), (query, key, value)))
    assert len(launches) == 1
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(*grads)
    assert regard.plan(query, key, value, mask=mask, score=score).backend == "cpu"


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_observing_them_changes_no_bit(launches, mask):
    query, key, value = inputs(mask)
    seen = regard.observe(query, key, value, mask=mask, read=regard.Readings(entropy=True, weights=True))
    output, weights = regard.attend_with_weights(query, key, value, mask=mask)
    assert len(launches) == 2
    assert torch.equal(seen.output, output)
    assert torch.equal(output, regard.attend(query, key, value, mask=mask))
    torch.testing.assert_close(seen.weights, weights)


def test_nan_in_a_document_reaches_no_other_document(launches):
    mask = MASKS["causal"]
    query, key, value = inputs(mask)
    expected = regard.attend(query, key, value, mask=mask)
    key = key.detach().clone()
    key[0, :, 6] = torch.nan  # the third of five tokens
    output = regard.attend(query, key, value, mask=mask)
    touched = torch.zeros(2, 11, dtype=torch.bool)
    touched[0, 6:9] = True
    assert output.transpose(1, 2)[touched].isnan().all()
    torch.testing.assert_close(output.transpose(1, 2)[~touched], expected.transpose(1, 2)[~touched])


OTHERS = {
    "padding": masks.documents(torch.tensor([0, 0, 1, 1, 1, 1, 2, 2, 2, 2, -1])),
    "not ascending": masks.documents(torch.tensor([1, 1, 1, 0, 0, 0, 0, 2, 2, 2, 2])),
    "causal of other keys": masks.documents(SELF, SELF.roll(1).sort().values) & masks.causal(),
    "prefix": masks.documents(SELF) & masks.prefix(2),
}


@pytest.mark.parametrize("mask", OTHERS.values(), ids=OTHERS)
def test_other_documents_are_left_to_other_kernels(launches, mask):
    query, key, value = inputs(None)
    output = regard.attend(query, key, value, mask=mask, backend="cpu")
    assert not launches
    torch.testing.assert_close(output, regard.attend(query, key, value, mask=mask, backend="reference"))


def test_long_documents_of_the_same_sizes_are_another_kind(launches):
    query = torch.randn(1, 2, 70, 5)
    for number, end in enumerate((66, 35, 66, 35)):
        mask = masks.documents((torch.arange(70) >= end).long())
        output = regard.attend(query, query, query, mask=mask, backend="cpu")
        torch.testing.assert_close(output, regard.attend(query, query, query, mask=mask, backend="reference"))
        assert len(launches) == (number + 1) // 2
