"""The laws of attention on an accelerator: the same tests that run on the CPU, and what only a device can get wrong."""

from functools import partial

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

import regard
from attention import test_contracts as contracts
from attention import test_nonfinite as nonfinite
from cases import H, K
from covering import covering
from regard import masks, normalizers, scores
from regard.attention.backends import tiled
from regard.masks import as_mask
from regard.shapes.grid import Grid


@pytest.fixture
def _small_blocks(monkeypatch):
    """Blocks of two queries, so that small problems have several."""
    monkeypatch.setattr(tiled, "BLOCK_ELEMENTS", 2 * H * K)
    monkeypatch.setattr(tiled, "DEVICE_BYTES", 1 << 50)
    monkeypatch.setattr("regard.attention.backends.sdpa.backend.ROWS", 2)


SINGLE, HALF = torch.float32, torch.bfloat16

LAWS = {
    nonfinite.test_nonfinite_hidden_inputs_reach_no_result: [
        ("sdpa", SINGLE, "nan", "tiny"),
        ("reference", SINGLE, "inf", "tiny"),
    ],
    nonfinite.test_nonfinite_hidden_inputs_pass_through_no_score: [
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
    contracts.test_a_query_that_sees_no_key_gets_nothing: [("reference", SINGLE), ("tiled", HALF)],
    contracts.test_observing_never_changes_the_output: [
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
def test_a_law_of_the_cpu_holds_on_a_device(law, arguments):
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
def test_gradients_on_a_device_are_those_of_the_reference(case, monkeypatch):
    contracts.test_gradients_of_every_backend_are_those_of_the_reference(*case, monkeypatch)


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


def test_a_mask_may_be_changed_before_the_backward_pass():
    """The derivative is that of the mask that was read."""
    allowed = torch.ones(5, 5, dtype=torch.bool).tril()
    query = torch.randn(1, 2, 5, 4, requires_grad=True)
    gradients = []
    for is_changed in (False, True):
        output = regard.attend(query, query, query, mask=masks.keep(allowed), backend="sdpa")
        if is_changed:
            allowed.fill_(True)
        gradients += torch.autograd.grad(output.square().sum(), query)
    torch.testing.assert_close(*gradients)


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
    allowed = query.new_ones(shape, dtype=torch.bool)
    allowed = allowed.tril() if is_causal else allowed if attn_mask is None else attn_mask
    additive = allowed if allowed.is_floating_point() else query.new_zeros(shape).masked_fill(~allowed, -torch.inf)
    group = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(group, dim=1) for tensor in (key, value))
    return MultipliesHidden.apply(query, key, value, additive, scale)


ROWS, KEYS, BATCH = 11, 13, 2


def hiding():
    """Arguments that hide keys from all queries, or all keys from queries, by the sizes, by numbers or by pairs."""
    chosen = torch.rand(BATCH, 1, ROWS, KEYS, generator=torch.Generator("cpu").manual_seed(2)).to(torch.empty(0)) < 0.6
    chosen[:, :, 3], chosen[..., 5], chosen[0, :, :, 9:] = False, False, False
    by_heads = torch.rand(BATCH, 4, 1, KEYS, generator=torch.Generator("cpu").manual_seed(3)).to(torch.empty(0)) < 0.5
    by_heads[0, 0] = by_heads[1, 2:] = False
    padding = torch.arange(KEYS) < torch.tensor([KEYS - 4, 0])[:, None]
    ids = torch.arange(ROWS) // 3
    ids[-2:] = -1
    key_ids = torch.arange(KEYS) // 4
    key_ids[-3:] = -1
    return {
        "lengths": masks.lengths(torch.tensor([KEYS - 4, 0])),
        "listed": masks.lengths([KEYS - 4, 0]),
        "both": masks.lengths(torch.tensor([KEYS - 4, 3]), torch.tensor([ROWS - 2, 0])),
        "keep keys": masks.keep(padding[:, None, None]),
        "ignore keys": masks.ignore(~padding[:, None, None]),
        "keep keys by heads": masks.keep(by_heads),
        "keep queries": masks.keep(chosen.any(-1, keepdim=True)),
        "keep": masks.keep(chosen),
        "where": masks.where(lambda batch, head, query, key: (key != 2) & (query != 4)),
        "documents": masks.documents(ids, key_ids),
        "prefix": masks.prefix(torch.tensor([4, 0])),
        "causal from the start": masks.causal(align="start"),
        "causal with offsets": masks.causal(offset=torch.tensor([-3, -40])),
        "window": masks.window(2, 1, align="start"),
        "causal lengths": masks.causal() & masks.lengths(torch.tensor([KEYS - 4, 0])),
        "bias": torch.zeros(BATCH, 1, ROWS, KEYS).masked_fill(~chosen, -torch.inf),
        "bias of keys": torch.zeros(BATCH, 1, 1, KEYS).masked_fill(~padding[:, None, None], -torch.inf),
    }


HIDING = [
    "lengths", "listed", "both", "keep keys", "ignore keys", "keep keys by heads", "keep queries", "keep", "where",
    "documents", "prefix", "causal from the start", "causal with offsets", "window", "causal lengths", "bias",
    "bias of keys",
]  # fmt: skip


@covering(
    backend=["sdpa", "auto", "tiled"],
    hides=HIDING,
    poison=nonfinite.POISONS,
    kv_heads=[1, 2, 4],
    kernel=["PyTorch's", "worst"],
)
def test_padding_never_matters(backend, hides, poison, kv_heads, kernel, monkeypatch):
    """A key that no query of its batch row sees reaches nothing, nor does a query that sees no key."""
    if kernel == "worst" and not torch.cuda.is_available():
        monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", multiplying_kernel)
    by = hiding()[hides]
    arguments = {"bias": by} if isinstance(by, torch.Tensor) else {"mask": by}
    seen = (by != -torch.inf) if isinstance(by, torch.Tensor) else by.allows(Grid.whole(BATCH, 4, ROWS, KEYS))
    seen = seen.expand(BATCH, 4, ROWS, KEYS)
    results, numbers = [], nonfinite.poison_of(poison, SINGLE)
    blind = ~seen.any(-1, keepdim=True)
    unseen = ~seen.unflatten(1, (kv_heads, -1)).any(2).any(2)[..., None]
    for is_spoilt in (False, True):
        generator = torch.Generator("cpu").manual_seed(4)
        sizes = {"query": (4, ROWS), "key": (kv_heads, KEYS), "value": (kv_heads, KEYS), "gradient": (4, ROWS)}
        tensors = {name: torch.randn(BATCH, *size, 8, generator=generator) for name, size in sizes.items()}
        if is_spoilt:
            places = {"query": blind, "key": unseen, "value": unseen, "gradient": blind}
            tensors = {name: nonfinite.fill(tensor, places[name], numbers) for name, tensor in tensors.items()}
        gradient = tensors.pop("gradient")
        leaves = [tensor.requires_grad_() for tensor in tensors.values()]
        output = regard.attend(*leaves, backend=backend, **arguments)
        results.append([output, *torch.autograd.grad(output, leaves, gradient)])
    for clean, spoilt in zip(*results, strict=True):
        torch.testing.assert_close(spoilt, clean, rtol=1e-4, atol=1e-5)
    for result, hidden in zip(results[1], (blind, blind, unseen, unseen), strict=True):
        assert not result.masked_select(hidden).any()


@pytest.mark.parametrize("mask", [masks.causal(), masks.lengths([4]), masks.prefix(2) & masks.causal()])
@pytest.mark.parametrize("backend", ["sdpa", "tiled", "reference"])
def test_batched_derivatives_are_right(backend, mask):
    query, key, value = (torch.randn(1, 2, 6, 4, requires_grad=True) for _ in range(3))
    output = regard.attend(query, key, value, mask=mask, backend=backend)
    gradients = torch.randn(2, *output.shape)

    def derivative(gradient, **options):
        return torch.autograd.grad(output, (query, key, value), gradient, retain_graph=True, **options)

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


COSTS = {
    "causal": (lambda lengths: masks.causal(), True),
    "window": (lambda lengths: masks.window(3, 0), False),
    "lengths": (lambda lengths: masks.lengths(lengths), False),
    "a tensor of keys": (lambda lengths: torch.arange(9) < lengths[:, None, None, None], False),
}
"""The mask of a call, and whether PyTorch's kernel knows it, so that no tensor tells it."""


@pytest.mark.parametrize("backend", ["auto", "sdpa"])
@pytest.mark.parametrize("mask", COSTS)
def test_a_mask_costs_few_operators_beside_the_kernel(operators, mask, backend):
    """PyTorch gets the mask as a tensor that is ready, regard as the user writes it, made in the call."""
    make, is_causal = COSTS[mask]
    lengths, numbers = torch.tensor([5, 9]), []
    grid = Grid.whole(2, 2, 9, 9)
    ready = None if is_causal else as_mask(make(lengths)).allows(grid).expand(2, 1, 9, 9)

    def pytorch(*inputs):
        return scaled_dot_product_attention(*inputs, attn_mask=ready, is_causal=is_causal)

    def ours(*inputs):
        return regard.attend(*inputs, mask=given if is_tensor else make(lengths), backend=backend)

    given = make(lengths)
    is_tensor = isinstance(given, torch.Tensor)
    for function in (pytorch, ours):
        inputs = [torch.randn(2, 2, 9, 8, requires_grad=True) for _ in range(3)]
        # The first call of each kind on a device is compared with the specification.
        function(*inputs).sum().backward()
        with torch.no_grad():
            function(*inputs)
            forward = operators(lambda f=function, x=inputs: f(*x))
        numbers.append((forward, operators(lambda f=function, x=inputs: f(*x).sum().backward())))
    (forward, both), (our_forward, our_both) = numbers
    assert our_forward - forward <= (0 if is_causal else 3)
    assert our_both - both <= (0 if is_causal else 6)


STRONG = {
    "features linear": lambda: {"score": scores.Features("elu"), "normalizer": "ratio"},
    "dot linear": lambda: {"score": "dot", "normalizer": "identity"},
    "gates linear": lambda: {"score": scores.Decayed("dot", -torch.rand(2, 1, 9, 4)), "normalizer": "identity"},
    "delta linear": lambda: {"score": scores.DeltaRule("cosine", torch.rand(2, 2, 9)), "normalizer": "identity"},
    **{
        f"{normalizer} {backend}": lambda normalizer=normalizer: {"normalizer": normalizer}
        for normalizer in ("softmax", "sparsemax", "sigmoid")
        for backend in ("reference", "tiled")
    },
}
"""The score and the normalizer of a call of a backend that isolates."""

BY_POSITION = {
    "causal": masks.causal,
    "lengths": lambda: masks.causal() & masks.lengths([7, 9]),
    "window": lambda: masks.window(2, 1),
    "prefix": lambda: masks.causal() | masks.prefix(2),
    "documents": lambda: masks.documents(torch.arange(9) // 3),
}


def is_taken(case, mask):
    return "linear" not in case or mask == "causal" or (mask == "lengths" and "delta" not in case)


@covering(
    where=lambda case, mask, spoilt, poison: is_taken(case, mask),
    case=STRONG,
    mask=BY_POSITION,
    spoilt=["key", "value"],
    poison=nonfinite.POISONS,
)
def test_a_mask_by_position_hides_pair_by_pair_in_backends_that_isolate(case, mask, spoilt, poison):
    """Rows that do not see a spoilt key have their outputs and gradients, whatever it holds; NaN reaches the others."""
    hiding, at = BY_POSITION[mask](), 4
    seen = hiding.dense(Grid.whole(2, 2, 9, 9))[..., at]
    results, rule = [], STRONG[case]()
    for number in (0.5, nonfinite.poison_of(poison, SINGLE)[0]):
        generator = torch.Generator("cpu").manual_seed(4)
        tensors = {name: torch.randn(2, 2, 9, 4, generator=generator) for name in ("query", "key", "value")}
        tensors[spoilt][:, :, at] = number
        leaves = [tensor.requires_grad_() for tensor in tensors.values()]
        output = regard.attend(*leaves, mask=hiding, backend=case.split()[-1], **rule)
        (grad_query,) = torch.autograd.grad(output, leaves[0], torch.ones_like(output))
        results.append((output, grad_query))
    for clean, spoilt_result in zip(*results, strict=True):
        torch.testing.assert_close(spoilt_result[~seen], clean[~seen], rtol=1e-4, atol=1e-5)
    if poison == "nan":
        assert results[1][0][seen].isnan().all()


@pytest.mark.parametrize(
    ("backend", "mask", "is_remarked"),
    [
        ("sdpa", masks.causal(), True),
        ("sdpa", masks.lengths([5, 9]), True),
        ("sdpa", None, False),
        ("tiled", masks.causal(), False),
        ("reference", masks.causal(), False),
    ],
)
def test_a_plan_says_that_masked_keys_must_be_finite_and_what_keeps_them_apart(backend, mask, is_remarked):
    query = torch.randn(2, 2, 9, 8)
    said = [line for line in regard.plan(query, query, query, mask=mask, backend=backend).remarks if "finite" in line]
    assert len(said) == is_remarked
    assert all('backend="tiled"' in line for line in said)
