"""Calls of the fused kernels that are made again with other numbers: what the longer way gives, bit for bit."""

import pytest
import torch
from torch import nn

import regard
from in_threads import in_threads
from regard import masks
from regard.attention import register_backend, unregister_backend
from regard.attention.backends.reference import Reference
from regard.attention.kinds import kind_of
from regard.attention.routes import ROUTES, route_of
from regard.errors import RegardError
from regard.kernels.availability import is_slow_for_mkl, microkernel_is_faster, why_missing
from regard.scores import Additive

pytestmark = pytest.mark.skipif(why_missing() is not None, reason=str(why_missing()))


@pytest.fixture(autouse=True)
def _no_routes():
    ROUTES.clear()


def again(query, key, value, mask=None, score="scaled_dot", normalizer="softmax"):
    """Makes a call, and returns what prepared launches give; None if they did not run."""
    route = route_of(kind_of(query, key, value, score, normalizer, mask, None, 0.0, "auto"), query, key, value)
    if route is None or route.bound is None or route.backend.name != "cpu":
        regard.attend(query, key, value, score=score, normalizer=normalizer, mask=mask)
        return None
    return route.bound(query, key, value, score, mask)


def tensors(query, key, value_dim=None, **options):
    *rows, dim = key
    value = (*rows, dim if value_dim is None else value_dim)
    return [torch.randn(shape, **options) for shape in (query, key, value)]


def additive(*weight):
    return Additive(torch.randn(weight))


CALLS = {
    "additive": lambda: (tensors((2, 4, 16, 32), (2, 4, 16, 32)), additive(32), "softmax"),
    "additive, odd features": lambda: (tensors((2, 4, 17, 33), (2, 4, 19, 33), 5), additive(33), "softmax"),
    "additive, a weight for each head": lambda: (tensors((1, 2, 40, 24), (1, 2, 40, 24)), additive(2, 24), "softmax"),
    "additive, grouped heads": lambda: (tensors((2, 4, 32, 16), (2, 2, 32, 16)), additive(16), "softmax"),
    "additive, one weight for grouped heads": lambda: (tensors((2, 4, 3, 64), (2, 2, 64, 64)), additive(64), "softmax"),
    "additive, beyond the exponents": lambda: (
        [100 * tensor for tensor in tensors((2, 2, 20, 32), (2, 2, 20, 32))],
        additive(32),
        "softmax",
    ),
    "sparsemax": lambda: (tensors((2, 4, 15, 32), (2, 4, 80, 32)), "scaled_dot", "sparsemax"),
    "entmax15, dot": lambda: (tensors((2, 4, 15, 32), (2, 2, 80, 32), 16), "dot", "entmax15"),
    "few rows": lambda: (tensors((2, 2, 1, 64), (2, 2, 1 << 16, 64)), "scaled_dot", "softmax"),
    "few rows, grouped": lambda: (tensors((4, 8, 1, 64), (4, 2, 1 << 14, 64)), "scaled_dot", "softmax"),
}
if microkernel_is_faster():
    CALLS |= {
        "wide products": lambda: (tensors((1, 8, 128, 64), (1, 8, 128, 64)), "scaled_dot", "softmax"),
        "wide products, odd lengths": lambda: (tensors((2, 3, 150, 33), (2, 3, 161, 33), 17), "scaled_dot", "softmax"),
        "wide products, grouped heads": lambda: (tensors((2, 8, 90, 64), (2, 2, 100, 64)), "dot", "softmax"),
    }


@pytest.mark.parametrize("mask", [None, masks.causal(), masks.window(5, 1) | masks.prefix(3)])
@pytest.mark.parametrize("name", CALLS)
def test_a_later_call_is_an_earlier_one_with_other_numbers(name, mask):
    torch.manual_seed(1)
    call = CALLS[name]
    _, score, normalizer = call()
    for number in range(4):
        given, other, _ = call()
        if isinstance(score, Additive):
            score.weight.data.copy_(other.weight)
        options = {"score": score, "normalizer": normalizer, "mask": mask}
        is_chosen = regard.plan(*given, **options).backend == "cpu"
        assert is_chosen or mask is not None
        output = again(*given, mask, score, normalizer)
        assert (output is None) == (number < 2 or not is_chosen)
        wanted = regard.attend(*given, **options, backend="cpu")
        assert output is None or torch.equal(output, wanted)
    exact = regard.attend(*(each.double() for each in given), **options | _double(score), backend="reference")
    torch.testing.assert_close(wanted.double(), exact, rtol=1e-4, atol=2e-4)


def test_more_transposed_keys_than_are_held_at_once():
    for _ in range(3):
        given = tensors((1, 2, 128, 64), (1, 2, 4096, 64))
        assert torch.equal(regard.attend(*given), regard.attend(*given, backend=regard.plan(*given).backend))


def _double(score):
    return {"score": Additive(score.weight.double())} if isinstance(score, Additive) else {}


@pytest.mark.parametrize("heads", [4, 8])
def test_a_growing_cache_of_keys(heads):
    cache = torch.randn(2, 2, 4, 1 << 15, 64)
    query = torch.randn(2, heads, 1, 64)
    for number, keys in enumerate([1 << 14, (1 << 14) + 1, 1 << 15, (1 << 15) - 77, 1 << 14]):
        parts = cache[:, :, :, :keys].unbind()
        for key, value in (parts, [part.contiguous() for part in parts]):
            output = regard.attend(query, key, value, mask=masks.causal())
            assert torch.equal(output, regard.attend(query, key, value, backend="cpu"))
            assert number in (0, 2) or again(query, key, value) is not None
    assert len([kind for kind in ROUTES if kind[-1] == "auto"]) <= 2


@pytest.mark.parametrize("heads", [15, 16, 17])
@pytest.mark.parametrize("dim", [8, 64])
def test_a_growing_cache_that_many_heads_share(heads, dim):
    query, keys, values = torch.randn(1, heads, 1, dim), torch.randn(1, 1, 1 << 15, dim), torch.randn(1, 1, 1 << 15, 64)
    for count in (30_000, 30_001, 1 << 15, 30_000):
        key, value = keys[:, :, :count], values[:, :, :count]
        wanted = regard.attend(query, key, value, backend=regard.plan(query, key, value).backend)
        assert torch.equal(regard.attend(query, key, value), wanted)


def test_keys_that_many_heads_share_by_a_stride_of_zero():
    query, key = torch.randn(2, 4, 1, 64), torch.randn(2, 1, 1 << 14, 64)
    for _ in range(3):
        parts = [key.expand(-1, 4, -1, -1)] * 2
        assert torch.equal(regard.attend(query, *parts), regard.attend(query, *parts, backend="cpu"))
        rows = [torch.randn(2, 4, 1, 64).expand(-1, -1, 1 << 14, -1)] * 2
        assert torch.equal(regard.attend(query, *rows), regard.attend(query, *rows, backend="cpu"))


def given_additive(**options):
    return tensors((2, 4, 16, 32), (2, 4, 16, 32), **options)


def is_prepared(given, score, normalizer="softmax", mask=None):
    """Whether the third call is one that was kept."""
    outputs = [again(*given, mask, score, normalizer) for _ in range(3)]
    return outputs[2] is not None


def test_calls_that_need_a_gradient_are_not_prepared():
    score = additive(32)
    assert is_prepared(given_additive(), score)
    assert not is_prepared(given_additive(requires_grad=True), score)
    trained = Additive(nn.Parameter(score.weight.detach()))
    assert not is_prepared(given_additive(), trained)
    with torch.no_grad():
        assert is_prepared(given_additive(requires_grad=True), trained)
    query, key, value = given_additive()
    output = regard.attend(query, key, value, score=trained)
    output.sum().backward()
    assert trained.weight.grad.abs().max() > 0


def test_other_scores_and_masks_are_left_alone():
    given = given_additive()

    class Twice(Additive):
        def prepare(self, query, key):
            return super().prepare(2 * query, key)

    score = additive(32)
    assert not is_prepared(given, Additive.create(32, 32, 32).requires_grad_(False))
    assert not is_prepared(given, score, mask=masks.lengths([3, 16]))
    assert not is_prepared(given, Additive(score.weight.double()))
    twice = regard.attend(*given, score=Twice(score.weight))
    assert not torch.equal(twice, regard.attend(*given, score=score))
    assert torch.equal(twice, regard.attend(*given, score=Twice(score.weight)))


def test_calls_of_other_backends_are_not_prepared():
    few = tensors((1, 1, 4, 8), (1, 1, 4, 8))
    assert not is_prepared(few, additive(8))
    score = additive(32)
    assert is_prepared(given_additive(), score)

    class Own(Reference):
        name = "own"

    register_backend(Own(), before="sdpa")
    try:
        assert not is_prepared(given_additive(), score)
    finally:
        unregister_backend("own")
    assert is_prepared(given_additive(), score)


def test_mistakes_are_those_of_the_longer_way():
    query, key, value = given_additive()
    mistakes = [
        ((query, key[:, :3], value), {}),
        ((query, key, value[:, :, :3]), {}),
        ((query, key, value), {"score": additive(31)}),
        ((query, key, value), {"score": additive(3, 32)}),
        ((query, key, value), {"normalizer": "sparse"}),
        ((query, key, value), {"score": "additive"}),
    ]
    for given, options in mistakes:
        messages = []
        for _ in range(3):
            with pytest.raises(RegardError) as told:
                regard.attend(*given, **options)
            messages.append(str(told.value))
        assert messages[0] == messages[1] == messages[2]
    assert not ROUTES


def test_threads_of_python_do_not_share_a_record():
    score, given = additive(32), [given_additive() for _ in range(4)]
    wanted = [regard.attend(*each, score=score, backend="cpu") for each in given]
    assert is_prepared(given[0], score)
    wrong = []

    def work(place):
        right = [torch.equal(regard.attend(*given[place], score=score), wanted[place]) for _ in range(200)]
        wrong.extend([place] * right.count(False))

    in_threads(4, work)
    assert not wrong


def test_threads_of_python_share_no_memory_of_readings():
    read, key = regard.Readings(entropy=True, received=True), torch.randn(2, 4, 37, 32)
    queries = [torch.randn(2, 4, 37, 32) for _ in range(4)]
    wanted = [regard.observe(query, key, key, mask="causal", read=read, backend="reference") for query in queries]
    regard.observe(queries[0], key, key, read=read, backend="cpu")
    names = "lse", "entropy", "received"
    route, memories, wrong = None, [set() for _ in queries], []
    for _ in range(3):
        regard.observe(queries[0], key, key, mask="causal", read=read)
        kind = kind_of(queries[0], key, key, "scaled_dot", "softmax", "causal", None, 0.0, "auto")
        route = route_of(kind, queries[0], key, key)
    assert route.prepared is not None

    def work(place):
        for _ in range(50):
            seen = regard.observe(queries[place], key, key, mask="causal", read=read)
            is_right = [torch.allclose(getattr(seen, name), getattr(wanted[place], name), atol=1e-5) for name in names]
            wrong.extend([place] * is_right.count(False))
            memory, _ = route.prepared[1].take(queries[place], key)
            memories[place].add(memory.data_ptr())

    in_threads(4, work)
    assert not wrong
    assert sum(map(len, memories)) == len(set().union(*memories))


@pytest.mark.parametrize("read", [regard.Readings(entropy=True, top_k=2), regard.Readings(received=True)])
def test_readings_of_a_kind_are_those_of_its_latest_options_and_mask(read):
    query, key = torch.randn(2, 4, 37, 32), torch.randn(2, 4, 37, 32)
    others = [regard.Readings(peak=True), read, regard.Readings(entropy=True, top_k=5), read, regard.Readings(rows=[2])]
    hidden = [masks.lengths(torch.tensor([37, last])) for last in (4, 35, 27)]
    regard.observe(query, key, key, read=read, backend="cpu")
    for mask in (None, "causal", *hidden, masks.window(2, 0), *hidden):
        for _ in range(2):
            for each in others:
                seen = regard.observe(query, key, key, mask=mask, read=each)
                wanted = regard.observe(query, key, key, mask=mask, read=each, backend="reference")
                torch.testing.assert_close(seen._asdict(), wanted._asdict(), rtol=1e-5, atol=1e-5)


def test_numbers_that_are_not_finite():
    query, key, value = given_additive()
    query[0, 0, 0, 0], key[0, 1, 2, 3], value[1, 0, 0, 0] = torch.nan, torch.inf, torch.inf
    score = additive(32)
    for _ in range(3):
        output = regard.attend(query, key, value, score=score)
        torch.testing.assert_close(
            output, regard.attend(query, key, value, score=score, backend="reference"), equal_nan=True
        )


def test_one_query_over_many_keys_is_planned_by_the_processor():
    given = tensors((1, 8, 1, 64), (1, 8, 4096, 64))
    assert regard.plan(*given).backend == ("cpu" if is_slow_for_mkl() else "sdpa")
    output = regard.attend(*given)
    assert torch.equal(regard.attend(*given), output)
    assert torch.equal(regard.attend(*given, mask=masks.causal()), output)
