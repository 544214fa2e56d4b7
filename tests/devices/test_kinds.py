"""A call on a device is planned once for its kind, as on a CPU (`tests/attention/test_kinds.py`)."""

import pytest
import torch

import regard
from regard import masks
from regard.attention import trials
from regard.attention.execution import BACKENDS
from regard.attention.kinds import kind_of
from regard.attention.problem import validate
from regard.attention.routes import ROUTES, forget_routes, route_of

MASKS = {
    "none": lambda: None,
    "causal": masks.causal,
    "name": lambda: "causal",
    "causal from the start": lambda: masks.causal(align="start"),
    "window": lambda: masks.window(3, 1),
    "lengths": lambda: masks.lengths(torch.tensor([4, 6])),
    "a tensor": lambda: torch.rand(9, 1) > 0.3,
}
SIZES = {
    "equal": (4, 9, 8), "grouped": (2, 9, 8), "one head": (1, 9, 8), "widths": (4, 9, 6), "more keys": (4, 11, 8),
    "fewer keys": (4, 6, 8),
}  # fmt: skip


def results(inputs, **options):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    output = regard.attend(*leaves, **options)
    return [output.detach(), *torch.autograd.grad(output, leaves, torch.ones_like(output))]


@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mask", MASKS)
def test_later_calls_on_a_device_give_the_result_of_the_first(mask, size, normalizer):
    kv_heads, keys, value_dim = SIZES[size]
    made = [
        [torch.randn(2, 4, 9, 8), torch.randn(2, kv_heads, keys, 8), torch.randn(2, kv_heads, keys, value_dim)]
        for _ in range(3)
    ]
    options = [{"mask": MASKS[mask](), "normalizer": normalizer} for _ in made]
    wanted = []
    for inputs, option in zip(made, options, strict=True):
        forget_routes()
        wanted.append([*results(inputs, **option), *regard.observe(*inputs, **option)])
    forget_routes()
    for inputs, option, right in zip(made, options, wanted, strict=True):
        seen = [*results(inputs, **option), *regard.observe(*inputs, **option)]
        assert all(one is other is None or (one == other).all() for one, other in zip(seen, right, strict=True))
    assert 0 < len(ROUTES) <= 2


def test_settings_of_the_device_are_parts_of_the_kind():
    inputs = [torch.randn(1, 2, 5, 8) for _ in range(3)]

    def kind(*tensors):
        return kind_of(*tensors, "scaled_dot", "softmax", "causal", None, 0.0, "auto")

    kinds = [kind(*inputs), kind(*(tensor.cpu() for tensor in inputs)), kind(inputs[0], inputs[1].cpu(), inputs[2])]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        kinds.append(kind(*inputs))
    torch.use_deterministic_algorithms(True)
    kinds.append(kind(*inputs))
    torch.use_deterministic_algorithms(False)
    precision, matmul = torch.backends.cuda.matmul.fp32_precision, torch.backends.cuda.matmul
    matmul.fp32_precision = "tf32" if precision == "ieee" else "ieee"
    kinds.append(kind(*inputs))
    matmul.fp32_precision = precision
    assert len(set(kinds)) == len(kinds)
    assert kind(*(tensor.to("meta") for tensor in inputs)) is None


def test_a_verdict_of_a_trial_holds_from_then_on():
    inputs = [torch.randn(1, 2, 5, 8) for _ in range(3)]
    for _ in range(3):
        right = regard.attend(*inputs)
    problem = validate(*inputs)
    assert regard.plan(*inputs).backend == "sdpa"
    identity = trials.identity_of(BACKENDS["sdpa"], problem)
    try:
        trials._keep(identity, trials.Trial(1.0, "it erred", is_stable=False))
        assert regard.plan(*inputs).backend != "sdpa"
        output = regard.attend(*inputs)
        kind = kind_of(*inputs, "scaled_dot", "softmax", None, None, 0.0, "auto")
        assert route_of(kind, *inputs).backend.name != "sdpa"
        torch.testing.assert_close(output, right)
    finally:
        trials.forget()
