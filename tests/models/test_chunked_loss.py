import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.nn import functional as F

from regard.errors import ArgumentError, ShapeError
from regard.models import chunked_loss, vocabulary_loss


def problem(rows=7, dim=3, vocabulary=11, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (rows, dim), (vocabulary, dim), (vocabulary,)
    features, weight, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes
    )
    return features, weight, bias, torch.randint(0, vocabulary, (rows,), generator=generator)


@given(
    rows=st.integers(0, 9),
    vocabulary=st.integers(1, 11),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    ignored=st.booleans(),
    with_bias=st.booleans(),
    chunk=st.integers(1, 40),
    on_host=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_equals_cross_entropy_in_value_and_gradients(rows, vocabulary, smoothing, ignored, with_bias, chunk, on_host):
    features, weight, bias, target = problem(rows, 3, vocabulary)
    bias = bias if with_bias else None
    ignore = 0 if ignored else None
    inputs = [tensor for tensor in (features, weight, bias) if tensor is not None]
    expected = F.cross_entropy(
        F.linear(features, weight, bias),
        target,
        label_smoothing=smoothing,
        ignore_index=-100 if ignore is None else ignore,
        reduction="sum",
    )
    with pytest.MonkeyPatch.context() as patch:
        # On an accelerator all rows are computed, and those that do not count are masked.
        patch.setattr(chunked_loss, "is_on_host", lambda tensor: on_host)
        found = vocabulary_loss(
            features, weight, bias, target, label_smoothing=smoothing, ignore=ignore, chunk_elements=chunk
        )
    torch.testing.assert_close(found.total, expected)
    for mine, theirs in zip(
        torch.autograd.grad(3 * found.total, inputs), torch.autograd.grad(3 * expected, inputs), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("vocabulary", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_vocabularies_around_whole_vectors(vocabulary, dtype):
    features, weight, bias, target = (
        tensor.detach().to(dtype) if tensor.is_floating_point() else tensor for tensor in problem(5, 3, vocabulary)
    )
    found = vocabulary_loss(features, weight, bias, target).nll
    expected = F.cross_entropy(F.linear(features, weight, bias), target, reduction="none")
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("target", [-1, 11])
def test_a_target_beyond_the_vocabulary_is_an_error(target):
    features, weight, bias, _ = problem()
    with pytest.raises((RuntimeError, IndexError), match=r"out of bounds|out of range"):
        vocabulary_loss(features, weight, bias, torch.full((7,), target))


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        *(("target", size, r"target must be \[7\]; it is") for size in ((1,), (6,), (8,), (7, 1), (7, 2), ())),
        *(("bias", size, r"bias must be \[11\]; it is") for size in ((1,), (10,), (12,), (1, 11), ())),
        *(("weight", size, r"weight must be \[\d+, 3\]; it is") for size in ((11, 2), (11, 3, 1))),
    ],
)
def test_shapes_that_do_not_fit(name, size, message):
    given = dict(zip(("features", "weight", "bias", "target"), problem(), strict=True))
    given[name] = torch.zeros(size, dtype=given[name].dtype)
    with pytest.raises(ShapeError, match=message):
        vocabulary_loss(**given)


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_logit_that_is_no_number_shows_in_its_row_alone(number):
    features, weight, bias, target = problem()
    features = features.detach().clone()
    features[2, 1] = number
    nll = vocabulary_loss(features, weight, bias, target).nll
    assert nll.isnan().tolist() == [row == 2 for row in range(7)]


def test_tensors_that_are_not_contiguous():
    features, weight, bias, target = problem(vocabulary=90)
    apart = [torch.stack([tensor.detach()] * 2, -1)[..., 0] for tensor in (features, weight, bias, target)]
    found, wanted = vocabulary_loss(*apart), vocabulary_loss(features, weight, bias, target)
    torch.testing.assert_close(found.nll, wanted.nll)


def test_gradients_of_the_chunked_loss_are_exact():
    features, weight, bias, target = problem()

    def total(*inputs):
        return vocabulary_loss(*inputs, target, label_smoothing=0.2, ignore=3, chunk_elements=22).total

    assert gradcheck(total, (features, weight, bias))


def test_negative_log_likelihood_is_not_smoothed():
    features, weight, bias, target = problem()
    found = vocabulary_loss(features, weight, bias, target, label_smoothing=0.3, ignore=int(target[2]))
    expected = F.cross_entropy(F.linear(features, weight, bias), target, reduction="none")
    torch.testing.assert_close(found.nll, expected * (target != target[2]))
    assert not found.nll.requires_grad


def test_large_logits_do_not_overflow():
    features = torch.tensor([[900.0], [-900.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [0.0], [-1.0]], requires_grad=True)
    found = vocabulary_loss(features, weight, None, torch.tensor([0, 0]))
    torch.testing.assert_close(found.nll, torch.tensor([0.0, 1800.0]))
    found.total.backward()
    torch.testing.assert_close(features.grad, torch.tensor([[0.0], [-2.0]]))


def test_without_gradient_the_value_is_the_same():
    features, weight, bias, target = problem()
    with torch.no_grad():
        quiet = vocabulary_loss(features, weight, bias, target)
    assert torch.equal(quiet.total, vocabulary_loss(features, weight, bias, target).total.detach())
    assert not quiet.total.requires_grad


def test_autocast_computes_in_half_precision_and_gives_full_gradients():
    features, weight, bias, target = problem(rows=17, vocabulary=29)
    inputs = [tensor.detach().float().requires_grad_() for tensor in (features, weight, bias)]
    exact = vocabulary_loss(*inputs, target, label_smoothing=0.1).total
    with torch.autocast("cpu", torch.bfloat16):
        half = vocabulary_loss(*inputs, target, label_smoothing=0.1, chunk_elements=50).total
    torch.testing.assert_close(half, exact, rtol=0.01, atol=0.01)
    for mine, theirs in zip(torch.autograd.grad(half, inputs), torch.autograd.grad(exact, inputs), strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, theirs, rtol=0.03, atol=0.05)


def test_the_chunked_loss_refuses_wrong_smoothing():
    features, weight, bias, target = problem()
    with pytest.raises(ArgumentError, match=r"label_smoothing must be in \[0, 1\]; it is 1.5"):
        vocabulary_loss(features, weight, bias, target, label_smoothing=1.5)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # PyTorch's own
def test_the_chunked_loss_compiles_in_one_graph():
    features, weight = torch.randn(32, 8, requires_grad=True), torch.randn(50, 8)
    bias, target = torch.randn(50), torch.randint(50, (32,))

    def total(features):
        return vocabulary_loss(features, weight, bias, target).total

    found = torch.compile(total, backend="aot_eager", fullgraph=True)(features)
    torch.testing.assert_close(found, total(features))
