"""Functions of single pairs in the fused kernels, against the same function on a whole float64 matrix of scores."""

import json

import pytest
import torch

import regard
from regard import masks, normalizers, scores
from regard.attention.backends.cpu.row_functions import row_functions
from regard.attention.problem import validate
from regard.errors import ArgumentError, BackendError
from regard.kernels.availability import kernels_awaited

B, H, KV, Q, K, D, V = 2, 6, 3, 37, 53, 8, 5

GENERATOR = torch.Generator().manual_seed(7)
SLOPES = torch.rand(H, generator=GENERATOR).requires_grad_()
TABLE = torch.randn(H, Q + K - 1, generator=GENERATOR).requires_grad_()
PAIRS = torch.randn(B, H, Q, K, generator=GENERATOR).requires_grad_()
NUMBER = torch.tensor(0.3, requires_grad=True)
LEAVES = [SLOPES, TABLE, PAIRS, NUMBER]
IDS = torch.randint(0, 3, (B, K), generator=GENERATOR)


def _slope(score, batch, head, query, key):
    return score - SLOPES[head] * (query - key).abs()


def _cap(score, batch, head, query, key):
    return 5.0 * torch.tanh(score / 5.0)


def _distance(score, batch, head, query, key):
    return score + TABLE[head, query - key + K - 1]


def _pair(score, batch, head, query, key):
    return score * NUMBER + PAIRS[batch, head, query, key].sigmoid()


def _many(score, batch, head, query, key):
    near = torch.where(score > 0.2, score.exp() * 0.1, score**2) + torch.clamp(score, -0.5, 0.5)
    far = (query // 3).float().sqrt() + (key % 7) * torch.exp2(-(head + 1) / H) - torch.maximum(score, SLOPES[head])
    return near + 0.1 * far + (score.abs() + 1.0).log() - torch.sin(score) * torch.cos(score)


def _hiding(score, batch, head, query, key):
    return torch.where((query >= key) & ((query - key) % 5 != 0), score, -torch.inf)


FUNCTIONS = {
    "slope": _slope, "cap": _cap, "distance": _distance, "pair": _pair, "many": _many, "hiding": _hiding,
}  # fmt: skip


def _scattered(batch, head, query, key):
    return (query * 7 + key * 3 + head) % 5 < 2


def _documents(batch, head, query, key):
    return (IDS[batch, query] == IDS[batch, key]) & (query >= key) & (query != 4)


def draw(requires_grad=True, dtype=torch.float32):
    generator = torch.Generator().manual_seed(3)
    shapes = (B, H, Q, D), (B, KV, K, D), (B, KV, K, V)
    return [torch.randn(*shape, generator=generator).to(dtype).requires_grad_(requires_grad) for shape in shapes]


def positions():
    sizes = (B, H, Q, K)
    return [torch.arange(size)[(...,) + (None,) * (3 - axis)] for axis, size in enumerate(sizes)]


def exact(inputs, function=None, mask=None, normalize=None):
    """Returns the output of the plain formula in float64."""
    query, key, value = (tensor.double() for tensor in inputs)
    key, value = (tensor.repeat_interleave(H // KV, 1) for tensor in (key, value))
    score = query @ key.mT / D**0.5
    if function is not None:
        score = function(score, *positions())
    if mask is not None:
        score = torch.where(mask(*positions()), score, -torch.inf)
    if normalize is not None:
        return normalize(score) @ value
    exponentials = (score - score.amax(-1, keepdim=True).clamp(min=-1e30).detach()).exp()
    return exponentials / exponentials.sum(-1, keepdim=True).clamp(min=1e-300) @ value


def program_text(inputs, score):
    functions = row_functions(validate(*inputs, score=score))
    assert functions.score is not None
    return functions.score.text


def assert_equal_with_gradients(output, expected, inputs):
    torch.testing.assert_close(output.double(), expected, rtol=2e-5, atol=2e-5)
    gradient = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    leaves = [*inputs, *LEAVES]
    found = torch.autograd.grad(output, leaves, gradient.to(output.dtype), allow_unused=True)
    wanted = torch.autograd.grad(expected, leaves, gradient.double(), allow_unused=True)
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4, check_dtype=False)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("mask", [None, _scattered])
def test_modified_scores_have_exact_outputs_and_gradients(name, mask):
    inputs, function = draw(), FUNCTIONS[name]
    score, hidden = scores.Modified("scaled_dot", function), None if mask is None else masks.where(mask)
    output = regard.attend(*inputs, score=score, mask=hidden, backend="cpu")
    assert_equal_with_gradients(output, exact(inputs, function, mask), inputs)


def test_functions_of_masks_become_runs_of_keys():
    inputs = draw()
    problem = validate(*inputs, mask=masks.where(_documents) & masks.prefix(50))
    output = regard.attend(*inputs, mask=problem.mask, backend="cpu")
    functions = row_functions(problem)
    assert functions.mask is not None
    assert problem.mask is not None
    fields = functions.fields(problem.grid, gradient=True)
    assert "mask_function" not in fields
    allowed = problem.mask.dense(problem.grid)[:, :1]
    for row in range(Q):
        seen = torch.zeros(B, K, dtype=torch.bool)
        for start, stop in zip(fields["start"][:, 0, row].T, fields["stop"][:, 0, row].T, strict=True):
            seen |= (torch.arange(K) >= start[:, None]) & (torch.arange(K) < stop[:, None])
        assert torch.equal(seen, allowed[:, 0, row])

    def both(*pair):
        return _documents(*pair) & (pair[3] < 50)

    assert_equal_with_gradients(output, exact(inputs, mask=both), inputs)
    assert torch.equal(output[:, :, 4], torch.zeros(B, H, V))


def test_functions_combine_with_bias_and_other_normalizers():
    inputs = draw()
    arguments = {
        "score": scores.SoftCap(scores.Modified("scaled_dot", _distance), 2.0),
        "mask": masks.where(_scattered),
    }
    bias = torch.randn(H, Q, K, generator=torch.Generator().manual_seed(5))

    def capped(score, *pair):
        return 2.0 * torch.tanh(_distance(score, *pair) / 2.0) + bias.double()

    output = regard.attend(*inputs, **arguments, bias=bias, backend="cpu")
    assert_equal_with_gradients(output, exact(inputs, capped, _scattered), inputs)
    output = regard.attend(*inputs, **arguments, bias=bias, normalizer=normalizers.sigmoid, backend="cpu")
    assert_equal_with_gradients(output, exact(inputs, capped, _scattered, torch.sigmoid), inputs)


def test_modified_scores_in_float64_pass_gradcheck():
    inputs = [tensor[:1, :, :7].detach().double().requires_grad_() for tensor in draw()]
    table = torch.randn(H, 16, dtype=torch.float64, requires_grad=True)

    def call(query, key, value, table):
        def function(score, batch, head, query_index, key_index):
            return torch.tanh(score) * table[head, query_index - key_index + 7] + score.sigmoid()

        score = scores.Modified("scaled_dot", function)
        return regard.attend(query, key, value, score=score, mask="causal", backend="cpu")

    assert torch.autograd.gradcheck(call, (*inputs, table), fast_mode=True)


def test_half_precision_scores_are_modified_in_float32():
    inputs = draw(requires_grad=False, dtype=torch.bfloat16)
    output = regard.attend(*inputs, score=scores.Modified("scaled_dot", _distance), backend="cpu")
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.double(), exact(inputs, _distance), rtol=1e-2, atol=1e-2)


def test_observing_modified_scores_changes_no_bit_and_reads_them():
    inputs = draw(requires_grad=False)
    arguments = {"score": scores.Modified("scaled_dot", _distance), "mask": masks.where(_scattered), "backend": "cpu"}
    seen = regard.observe(*inputs, **arguments, read=regard.Readings(weights=True, entropy=True))
    assert torch.equal(seen.output, regard.attend(*inputs, **arguments))
    identity = torch.eye(K).expand(B, KV, K, K)
    torch.testing.assert_close(seen.weights.double(), exact((*inputs[:2], identity), _distance, _scattered))
    output, weights = regard.attend_with_weights(*inputs, **arguments)
    assert torch.equal(output, seen.output)
    torch.testing.assert_close(weights, seen.weights)


def test_hidden_keys_of_a_function_may_hold_nan():
    query, key, value = draw()
    score, mask = scores.Modified("scaled_dot", _distance), masks.where(lambda b, h, q, k: (k + q) % 2 * (k - 9) < 0)
    clean = regard.attend(query, key, value, score=score, mask=mask, backend="cpu")
    unseen = [tensor.detach().clone() for tensor in (key, value)]
    for tensor in unseen:
        tensor[:, :, 9:] = torch.nan
    dirty = regard.attend(query, *unseen, score=score, mask=mask, backend="cpu")
    assert torch.equal(clean, dirty)
    wanted, found = (torch.autograd.grad(output.sum(), [query, TABLE]) for output in (clean, dirty))
    for one, other in zip(wanted, found, strict=True):
        torch.testing.assert_close(one, other)


def test_changed_numbers_of_a_function_are_read_anew():
    inputs = draw(requires_grad=False)
    state = {"factor": 0.5, "offset": 3}

    def function(score, batch, head, query, key):
        return score * state["factor"] + (key - state["offset"]).abs() * 0.1

    score, programs = scores.Modified("scaled_dot", function), set()
    for factor, offset in ((0.5, 3), (2.0, 3), (2.0, 40)):
        state.update(factor=factor, offset=offset)
        output = regard.attend(*inputs, score=score, backend="cpu")
        torch.testing.assert_close(output.double(), exact(inputs, function), rtol=2e-5, atol=2e-5)
        programs.add(program_text(inputs, score))
    assert len(programs) == 1


def test_changed_code_of_a_function_is_compiled_anew():
    inputs, texts = draw(requires_grad=False), set()
    for power in (2, 3):
        score = scores.Modified("scaled_dot", lambda score, *pair, power=power: score**power)
        output = regard.attend(*inputs, score=score, backend="cpu")
        expected = exact(inputs, lambda score, *pair, power=power: score**power)
        torch.testing.assert_close(output.double(), expected, rtol=2e-5, atol=2e-5)
        texts.add(program_text(inputs, score))
    assert len(texts) == 2


def _branching(score, batch, head, query, key):
    return score if query.sum() > 3 else -score


def _drawing(score, batch, head, query, key):
    return score + torch.rand(())


def _cumulative(score, batch, head, query, key):
    return score.cumsum(-1)


SEEN: list[int] = []


def _counting(score, batch, head, query, key):
    SEEN[0] = len(SEEN)
    return score


@pytest.mark.parametrize(
    ("function", "obstacle"),
    [
        (_branching, "__gt__|__bool__|'if'"), (_drawing, "rand"), (_cumulative, "cumsum"), (_counting, "changes"),
        (lambda score, *pair: torch.erfinv(score), "erfinv"),
        (lambda score, batch, head, query, key: score + query * 0.1 % 0.3, "quotients of real numbers"),
        (lambda score, batch, head, query, key: score // 0.1 + key, "quotients of real numbers"),
        (lambda score, batch, head, query, key: score ** (key % 3), "may be negative to a power"),
        (lambda score, *pair: score.half().float(), "half precision"),
        (lambda score, batch, head, query, key: score + (key.int() * 99_999) ** 2, "more than 32 bits"),
        (lambda score, batch, head, query, key: score + (key * 99_999_999) ** 3, "more than 64 bits"),
        (lambda score, batch, head, query, key: score + key.div(2.0, rounding_mode="floor"), "quotients"),
    ],
)  # fmt: skip
def test_plans_name_what_keeps_a_function_from_kernels(function, obstacle):
    inputs = draw(requires_grad=False)
    score = scores.Modified("scaled_dot", function)
    with pytest.raises(BackendError, match=obstacle):
        regard.attend(*inputs, score=score, backend="cpu")
    reason = regard.plan(*inputs, score=score).reasons["cpu"]
    assert reason.startswith("cannot: the score is modified by a function that is not compiled: it ")


def test_plans_name_what_keeps_a_mask_from_kernels():
    inputs = draw(requires_grad=False)
    mask = masks.where(lambda batch, head, query, key: torch.isin(key, torch.arange(9)) & (query >= 0))
    plan = regard.plan(*inputs, mask=mask, backend="cpu")
    assert any("isin" in remark for remark in plan.remarks)
    output = regard.attend(*inputs, mask=mask, backend="cpu")
    torch.testing.assert_close(output.double(), exact(inputs, mask=mask.function), rtol=2e-5, atol=2e-5)


LARGE = torch.full((K,), 1 << 28)


def _integers(score, batch, head, query, key):
    is_seen, is_far = query >= key, key > 20
    truths = [
        is_seen * is_far, is_seen + is_far, torch.maximum(is_seen, is_far), torch.minimum(is_far, is_seen),
        is_seen ^ is_far, ~is_seen & is_far, torch.logical_or(is_seen, key), torch.logical_not(key), (key % 2).bool(),
        torch.eq(query, other=key), query.ne(key), key.gt(3.5), torch.less_equal(query, key), True ^ is_seen,
    ]  # fmt: skip
    numbers = [
        5 - key, torch.rsub(query, 3), key.sub(query), torch.subtract(query, other=key), (query - key) // 3,
        (query - key) % 5, torch.div(query - key, 7, rounding_mode="floor"), torch.remainder(query - key, 8),
        (query - key).floor_divide(4), abs(query - key), -key, ~key, (query ^ key) & 3, 6 | key, key.clamp(3, 9),
        torch.clamp(key, max=7), query.clamp_min(min=4), torch.minimum(query, key), query.maximum(key),
        torch.where(is_seen, query, key), query.where(is_far, other=key), key.masked_fill(is_seen, 2),
        torch.full_like(key, 3), torch.square(key), key**3, (key - 20).relu(), (is_far.int() - query).long(),
        is_seen.long() + is_far, 1 + is_far,
    ]  # fmt: skip
    wide = [
        ((key * 40) ** 3) % 7, (key * 1_000_003 * 50) % 7, (LARGE[key] * 9 + LARGE[key]) % 7,
        (key + 500_000_000 + 500_000_000 + 500_000_000 + 500_000_000 + 500_000_000) % 7,
    ]  # fmt: skip
    terms = [*truths, *numbers, *wide]
    return score + sum(0.001 * (index + 1) * term for index, term in enumerate(terms))


def _reals(score, batch, head, query, key):
    far = (query - key) * 0.1
    terms = [
        score.where(query >= key, score - 3.0), torch.where(key > 3, score, 0.5), far.where(score > 0, other=score),
        score.masked_fill(key > query, 2.0), 1 - score, torch.rsub(score, 2.0), torch.sub(2, score), 1.0 / (2 + far**2),
        torch.div(1, far.abs() + 1), 2.0**-score, torch.pow(3.0, score), score.pow(exponent=3), score.abs() ** 1.5,
        (score * score + 1) ** -2, (score * score + 1) ** -0.5, torch.clamp(score, -0.5, 0.3), score.clamp(max=0.1),
        torch.clamp_min(score, 0.2), torch.maximum(score, far), score.minimum(far), torch.sign(score) * score,
        far.floor(), torch.trunc(far), far.round(), torch.relu(score), torch.nn.functional.silu(score), score.tanh(),
        torch.exp2(score), torch.log2(1 + score.square()), torch.rsqrt(1 + score * score), torch.reciprocal(2 + far**2),
        torch.zeros_like(score), score.new_full((), 2.0), (score * 5).int() + 0.5, (key > query) / 2,
        -(key > 5).float(), torch.true_divide(key, 7), torch.lt(score, 0.3).to(score.dtype), score.detach(),
        +score, score.float(),
    ]  # fmt: skip
    return sum(0.03 * (index % 7 + 1) * term for index, term in enumerate(terms))


@pytest.mark.parametrize("function", [_integers, _reals])
def test_operations_on_pairs_give_the_numbers_of_pytorch(function):
    query, key, value = (tensor.double().detach() for tensor in draw())
    output = regard.attend(query, key, value, score=scores.Modified("scaled_dot", function), backend="cpu")
    wanted = exact((query, key, value), function)
    torch.testing.assert_close(output, wanted, rtol=1e-10, atol=1e-10)


def test_inference_mode_and_tables_made_in_a_function_are_recorded():
    table = torch.arange(K) % 3 == 0

    def function(score, batch, head, query, key):
        return torch.where(query >= key, score.square(), -1.0) + torch.where(table, 0.5, -0.5)[key]

    score = scores.Modified("scaled_dot", function)
    text = program_text(draw(), score)
    with torch.inference_mode():
        assert program_text(draw(requires_grad=False), score) == text


def test_second_derivatives_of_functions_are_refused():
    inputs = draw()
    output = regard.attend(*inputs, score=scores.Modified("scaled_dot", _distance), backend="cpu")
    for leaf in (TABLE, inputs[0]):
        (gradient,) = torch.autograd.grad(output.sum(), leaf, create_graph=True, retain_graph=True)
        with pytest.raises(BackendError, match="no second derivative"):
            torch.autograd.grad(gradient.square().sum(), [TABLE, *inputs], allow_unused=True)


def test_transforms_of_functions_run_elsewhere():
    inputs = [tensor.detach()[:1, :, :5] for tensor in draw()]
    score = scores.Modified("scaled_dot", lambda score, batch, head, query, key: score + TABLE[head, query - key + 9])
    with pytest.raises(BackendError, match="transform"):
        torch.func.vmap(lambda query: regard.attend(query, *inputs[1:], score=score, backend="cpu"))(inputs[0][None])
    expected = regard.attend(*inputs, score=score, backend="cpu")
    batched = torch.func.vmap(lambda query: regard.attend(query, *inputs[1:], score=score))(inputs[0][None])
    torch.testing.assert_close(batched[0], expected)


def test_indices_outside_of_a_tensor_are_refused():
    inputs = draw(requires_grad=False)
    short = torch.zeros(20)
    score = scores.Modified("scaled_dot", lambda score, batch, head, query, key: score + short[key])
    with pytest.raises(ArgumentError, match="at an index that it does not have"):
        regard.attend(*inputs, score=score, backend="cpu")
    output = regard.attend(*inputs, score=score, mask=masks.window(offset=-20, before=16, after=2), backend="cpu")
    assert output.isfinite().all()


def test_tensors_changed_after_the_forward_pass_are_refused():
    inputs, offset = draw(), torch.zeros(K)
    score = scores.Modified("scaled_dot", lambda score, batch, head, query, key: score + offset[key])
    output = regard.attend(*inputs, score=score, backend="cpu")
    offset += 1.0
    with pytest.raises(BackendError, match="changed in place"):
        output.sum().backward()


def test_programs_contain_nothing_but_known_operations():
    from regard.kernels.cpu.bodies.row_functions import OPERATIONS

    for function in FUNCTIONS.values():
        program = json.loads(program_text(draw(), scores.Modified("scaled_dot", function)))
        for name, kind, *_ in program["operations"]:
            assert name == "load" or name in OPERATIONS[kind]


def test_auto_takes_compiled_functions_once_they_are_ready():
    inputs = [torch.randn(1, 4, 512, 16) for _ in range(3)]
    with kernels_awaited():
        assert regard.plan(*inputs, score=scores.Modified("scaled_dot", _cap)).backend == "cpu"


def test_masks_of_many_runs_keep_what_they_read_for_the_backward_pass():
    inputs = draw()
    table = torch.rand(B, K, generator=torch.Generator().manual_seed(2)) < 0.5

    def chosen(batch, head, query, key):
        return ((key + query) % 2 == 0) ^ (table[batch, key] & (key > 45))

    output = regard.attend(*inputs, mask=masks.where(chosen), backend="cpu")
    unused = [torch.randn(B, K).bool() for _ in range(9)]
    assert_equal_with_gradients(output, exact(inputs, mask=chosen), inputs)
    assert len(unused) == 9
    output = regard.attend(*inputs, mask=masks.where(chosen), backend="cpu")
    table.logical_not_()
    with pytest.raises(BackendError, match="a tensor of mask"):
        output.sum().backward()
