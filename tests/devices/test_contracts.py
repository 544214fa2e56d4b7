"""The laws of attention on an accelerator: the same tests that run on the CPU, and what only a device can get wrong."""

from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import regard
from attention import test_contracts as contracts
from attention import test_nonfinite as nonfinite
from cases import H, K
from covering import covering
from regard import masks, normalizers
from regard.attention.backends import tiled
from regard.errors import BackendError
from regard.shapes import Grid


@pytest.fixture
def _small_blocks(monkeypatch):
    """Blocks of two queries, so that small problems have several."""
    monkeypatch.setattr(tiled, "BLOCK_ELEMENTS", 2 * H * K)
    monkeypatch.setattr(tiled, "DEVICE_BYTES", 1 << 50)
    monkeypatch.setattr("regard.attention.backends.sdpa.backend.ROWS", 2)


SINGLE, HALF = torch.float32, torch.bfloat16

LAWS = {
    nonfinite.test_what_is_hidden_reaches_nothing: [
        ("sdpa", SINGLE, "nan", "tiny"),
        ("reference", SINGLE, "inf", "tiny"),
    ],
    nonfinite.test_what_is_hidden_reaches_nothing_through_any_score: [
        ("scaled_dot", "entmax15", "nan", "lengths", False),
        ("cosine", "sigmoid", "inf", "causal", False),
        ("general_heads", "sink", "huge", "lengths", False),
        ("additive_projected", "softmax", "nan", "lengths", False),
        ("mlp", "sparsemax", "inf", "lengths", False),
        ("distance", "entmax13", "huge", "lengths", False),
        ("unsquared", "tempered", "inf", "lengths", False),
        ("soft_cap", "hard", "nan", "causal", False),
        ("modified", "local", "nan", "lengths", False),
    ],
    nonfinite.test_a_visible_nan_is_seen: [
        ("window", "sparsemax", "additive"),
        ("keep", "entmax15", "cosine"),
        ("documents", "hard", "scaled_dot"),
        ("lengths", "sigmoid", "distance"),
    ],
    nonfinite.test_a_score_of_minus_infinity_is_hidden: [
        ("auto", "softmax", SINGLE),
        ("tiled", "entmax15", SINGLE),
        ("sdpa", "softmax", SINGLE),
    ],
    nonfinite.test_auto_agrees_with_the_reference_at_every_size: [
        ("scaled_dot", (1, 2, 37, 41)),
        ("scaled_dot", (1, 2, 521, 523)),
        ("distance", (1, 2, 37, 41)),
    ],
    contracts.test_a_query_that_sees_no_key_gets_nothing: [("reference", SINGLE), ("tiled", HALF)],
    contracts.test_to_look_changes_nothing: [
        ("sdpa", 0.0, SINGLE, "causal", "softmax"),
        ("tiled", 0.4, HALF, "where", "gumbel"),
        ("reference", 0.4, SINGLE, "lengths", "entmax15"),
    ],
}
"""Laws of the CPU's tests, and the arguments with which they run here."""


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize(
    ("law", "arguments"),
    [
        pytest.param(law, arguments, id=f"{law.__name__[5:]}-{'-'.join(map(str, arguments))}")
        for law, cases in LAWS.items()
        for arguments in cases
    ],
)
def test_a_law(law, arguments):
    law(*arguments)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.parametrize(
    "case",
    [
        ("scaled_dot", "tempered", "causal"),
        ("cosine", "sparsemax", "window"),
        ("additive_heads", "entmax13", "documents"),
        ("distance", "sink", "lengths_both"),
        ("soft_cap", "local", "where"),
        ("location", "sigmoid", "nobody"),
    ],
    ids="-".join,
)
def test_gradients_are_those_of_the_reference(case, monkeypatch):
    contracts.test_gradients_are_those_of_the_reference(*case, monkeypatch)


@pytest.mark.parametrize("backend", ["tiled", "reference"])
@pytest.mark.parametrize("normalizer", ["softmax", "gumbel"])
def test_both_passes_draw_the_same_numbers(backend, normalizer, monkeypatch):
    """The output is linear in the values, so that its gradient gives the output again."""
    monkeypatch.setattr("regard.attention.backends.tiled.block_elements", lambda device: 100)
    query, key, value = (torch.randn(2, 2, 9, 4, requires_grad=True) for _ in range(3))
    normalizing = normalizers.hard("gumbel") if normalizer == "gumbel" else normalizer
    output = regard.attend(query, key, value, dropout=0.4, normalizer=normalizing, backend=backend)
    factor = torch.randn_like(output)
    torch.randn(3)
    (gradient,) = torch.autograd.grad((output * factor).sum(), value)
    torch.testing.assert_close((gradient * value).sum(), (output * factor).sum())


def test_a_counted_call_leaves_the_random_generator_of_the_device_alone(device):
    query = torch.randn(1, 2, 5, 4)
    drawn = []
    for calls in (False, True):
        torch.manual_seed(3)
        if calls:
            with FlopCounterMode(display=False):
                regard.attend(query, query, query, dropout=0.5, backend="reference")
        drawn.append(torch.rand(4))
    assert torch.equal(*drawn)


NORMALIZERS = {
    "softmax": ("softmax", 37, 90),
    "sparsemax": ("sparsemax", 80, 170),
    "entmax15": (normalizers.entmax(1.5), 90, 200),
    "entmax13": (normalizers.entmax(1.3), 500, 1050),
}
"""Most operators of a block, without and with a gradient."""


@pytest.mark.parametrize(("normalizer", "is_causal"), [("softmax", False), *((name, True) for name in NORMALIZERS)])
def test_operators_follow_from_the_number_of_blocks(operators, normalizer, is_causal, monkeypatch):
    normalizing, forward, both = NORMALIZERS[normalizer]
    mask = masks.causal() if is_causal else None
    batch, heads, length = 3, 2, 8
    inputs = [torch.randn(batch, heads, length, 4, requires_grad=True) for _ in range(3)]
    elements = batch * heads * length**2
    for limit in (elements, elements // 3, elements // 7):
        monkeypatch.setattr("regard.attention.backends.tiled.block_elements", lambda device, limit=limit: limit)
        most = max(1, 4 * elements // limit)
        attend = partial(regard.attend, *inputs, normalizer=normalizing, mask=mask, backend="tiled")
        with torch.no_grad():
            assert operators(attend) <= forward * most + 20
        assert operators(lambda attend=attend: attend().sum().backward()) <= both * most + 30


def test_blocks_fill_the_memory_of_a_device(operators):
    """32 heads of 8,192 keys took 2,048 launches of each operation in blocks that are made for a CPU's cache."""
    from emulated_device import MODULE
    from regard.attention.problem import validate

    problem = validate(*(torch.empty(1, 32, 8192, 1) for _ in range(3)))
    memory = MODULE.total_memory
    tiled.device_memory.cache_clear()
    try:
        MODULE.total_memory = 80 << 30
        batch, queries = tiled.block_shape(problem)
        assert batch == 1
        assert -(-8192 // queries) <= 16
    finally:
        MODULE.total_memory = memory
        tiled.device_memory.cache_clear()


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("spoilt", ["key", "value"])
def test_hidden_numbers_reach_no_second_derivative(backend, spoilt):
    clean, poisoned = [], []
    for results, hidden in ((clean, 0.0), (poisoned, torch.nan)):
        generator = torch.Generator("cpu").manual_seed(4)
        inputs = {name: torch.randn(1, 2, 5, 4, generator=generator) for name in ("query", "key", "value")}
        inputs[spoilt][:, :, 4:] = hidden
        leaves = [tensor.requires_grad_() for tensor in inputs.values()]
        output = regard.attend(*leaves, mask=masks.lengths([4]), backend=backend)
        first = torch.autograd.grad((output * output).sum(), leaves, create_graph=True)
        results += torch.autograd.grad(sum((gradient * gradient).sum() for gradient in first), leaves)
    for dirty, expected in zip(poisoned, clean, strict=True):
        torch.testing.assert_close(dirty, expected)


VISIBLE = {"inf": (torch.inf, torch.inf), "-inf": (-torch.inf, -torch.inf), "nan": (torch.inf, -torch.inf)}
"""The sum of two visible numbers."""


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("hidden", [0.0, torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("total", VISIBLE)
def test_a_visible_infinity_is_seen_whatever_is_hidden_beside_it(backend, hidden, total):
    query, key, value = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 3, 4), torch.ones(1, 1, 3, 2)
    value[..., 0] = torch.tensor([*VISIBLE[total], hidden])
    keep = torch.tensor([[True, True, False], [False, False, True]])
    output = regard.attend(query, key, value, mask=masks.keep(keep), backend=backend)[0, 0]
    expected = torch.tensor([[float(total), 1.0], [hidden, 1.0]])
    torch.testing.assert_close(output, expected, equal_nan=True)


@pytest.mark.parametrize("hides", ["runs", "pairs"])
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_a_visible_nan_in_a_value_spoils_the_gradients_that_it_does_in_the_reference(hides, squared, kv_heads):
    mask = masks.causal() if hides == "runs" else masks.keep(torch.ones(6, 6, dtype=torch.bool).tril())
    generator = torch.Generator("cpu").manual_seed(4)
    query = torch.randn(1, 2, 6, 4, generator=generator)
    key, value = (torch.randn(1, kv_heads, 6, 4, generator=generator) for _ in range(2))
    value[:, 0, 3, 1] = torch.nan
    results = []
    for backend in ("sdpa", "reference"):
        leaves = [tensor.clone().requires_grad_() for tensor in (query, key, value)]
        output = regard.attend(*leaves, mask=mask, backend=backend)
        results.append([output, *torch.autograd.grad((output * output if squared else output).sum(), leaves)])
    for fused, expected in zip(*results, strict=True):
        torch.testing.assert_close(fused, expected, equal_nan=True, rtol=1e-4, atol=1e-5)


def test_a_mask_that_was_changed_before_the_backward_pass_is_an_error():
    allowed = torch.ones(5, 5, dtype=torch.bool).tril()
    query = torch.randn(1, 2, 5, 4, requires_grad=True)
    output = regard.attend(query, query, query, mask=masks.keep(allowed), backend="sdpa")
    allowed.fill_(True)
    with pytest.raises(BackendError, match="changed in place"):
        output.sum().backward()


class MultipliesHidden(torch.autograd.Function):
    """A fused kernel as the worst GPU's: hidden scores are added to −∞, and hidden weights multiply gradients by 0."""

    @staticmethod
    def forward(ctx, query, key, value, additive, scale):
        scores = query @ key.mT * scale + additive
        weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
        ctx.save_for_backward(query, key, value, weights)
        ctx.scale = scale
        return weights @ value

    @staticmethod
    def backward(ctx, gradient):
        query, key, value, weights = ctx.saved_tensors
        by_weights = gradient @ value.mT
        by_scores = weights * (by_weights - (gradient * (weights @ value)).sum(-1, keepdim=True)) * ctx.scale
        return by_scores @ key, by_scores.mT @ query, weights.mT @ gradient, None, None


def multiplying_kernel(query, key, value, attn_mask=None, dropout=0.0, is_causal=False, scale=1.0, enable_gqa=False):
    shape = *query.shape[:3], key.shape[2]
    allowed = query.new_ones(shape, dtype=torch.bool).tril() if is_causal else attn_mask
    additive = allowed if allowed.is_floating_point() else query.new_zeros(shape).masked_fill(~allowed, -torch.inf)
    group = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(group, dim=1) for tensor in (key, value))
    return MultipliesHidden.apply(query, key, value, additive, scale)


@covering(
    poison=nonfinite.POISONS, spoilt=["query", "key", "value", "gradient"], hides=["causal", "window", "keep", "bias"]
)
def test_hidden_numbers_reach_nothing_whatever_the_kernel_multiplies_by_0(hides, spoilt, poison, monkeypatch):
    if not torch.cuda.is_available():
        monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", multiplying_kernel)
    length, at = 11, 6
    mask = masks.causal() if hides == "causal" else masks.window(2, 1)
    seen = mask.dense(Grid.whole(1, 1, length, length))[0, 0]
    mask = masks.keep(seen) if hides == "keep" else None if hides == "bias" else mask
    bias = torch.zeros(length, length).masked_fill(~seen, -torch.inf) if hides == "bias" else None
    results = []
    for numbers in ((0.5,), nonfinite.poison_of(poison, SINGLE)):
        generator = torch.Generator("cpu").manual_seed(4)
        heads = {"query": 4, "key": 2, "value": 2, "gradient": 4}
        tensors = {name: torch.randn(2, number, length, 8, generator=generator) for name, number in heads.items()}
        tensors[spoilt][:, :, at] = numbers[0]
        gradient = tensors.pop("gradient")
        leaves = [tensor.requires_grad_() for tensor in tensors.values()]
        output = regard.attend(*leaves, mask=mask, bias=bias, backend="sdpa")
        results.append([output, *torch.autograd.grad(output, leaves, gradient)])
    rows = seen[:, at] if spoilt in ("key", "value") else torch.arange(length) == at
    keys = (seen & rows[:, None]).any(0)
    assert not rows.all()
    for clean, poisoned, reached in zip(*results, (rows, rows, keys, keys), strict=True):
        torch.testing.assert_close(poisoned[:, :, ~reached], clean[:, :, ~reached])


@pytest.mark.parametrize("backend", ["sdpa", "tiled", "reference"])
def test_batched_derivatives_are_right_or_refused(backend):
    query, key, value = (torch.randn(1, 2, 6, 4, requires_grad=True) for _ in range(3))
    output = regard.attend(query, key, value, mask=masks.causal(), backend=backend)
    gradients = torch.randn(2, *output.shape)

    def derivative(gradient, **options):
        return torch.autograd.grad(output, (query, key, value), gradient, retain_graph=True, **options)

    if backend == "sdpa":
        with pytest.raises(BackendError, match="no batched derivatives"):
            derivative(gradients, is_grads_batched=True)
        return
    batched = derivative(gradients, is_grads_batched=True)
    for got, right in zip(batched, zip(*map(derivative, gradients), strict=True), strict=True):
        torch.testing.assert_close(got, torch.stack(right))


@pytest.mark.parametrize("backend", ["sdpa", "tiled", "reference"])
@pytest.mark.parametrize(
    ("mask", "values", "in_range"),
    [
        (masks.lengths, [99, -3], [7, 0]),
        (masks.lengths, [2**63 - 1, -(2**63)], [7, 0]),
        (lambda offset: masks.causal(offset=offset), [2**63 - 1, -(2**63)], [7, -5]),
        (masks.prefix, [2**63 - 1, -1], [7, 0]),
    ],
)
def test_integers_out_of_range_on_a_device_read_nothing_outside(backend, mask, values, in_range):
    query, key = torch.randn(2, 2, 5, 4), torch.randn(2, 2, 7, 4)
    got, expected = (
        regard.attend(query, key, key, mask=mask(torch.tensor(integers)), backend=backend)
        for integers in (values, in_range)
    )
    torch.testing.assert_close(got, expected)
    assert not got[1].any()


def test_a_causal_mask_costs_a_fixed_number_of_operators_beside_the_kernel(operators):
    numbers = []
    for mask in (None, masks.causal()):
        query, key, value = (torch.randn(1, 2, 9, 4, requires_grad=True) for _ in range(3))
        attend = partial(regard.attend, query, key, value, mask=mask, backend="sdpa")
        attend().sum().backward()
        with torch.no_grad():
            attend()
            numbers.append(operators(attend))
        numbers.append(operators(lambda attend=attend: attend().sum().backward()))
    forward, both, causal_forward, causal_both = numbers
    assert causal_forward - forward <= 35
    assert causal_both - both <= 80
