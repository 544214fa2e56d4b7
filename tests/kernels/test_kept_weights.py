"""Weights of an additive score that the forward pass keeps: the backward pass gives the same with them as without."""

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import regard
from covering import covering
from kernels.oracle import target_of, tensors
from regard import masks, normalizers
from regard.kernels.cpu import kernel_arguments, operators
from regard.kernels.cpu.kernel_arguments import KernelInputs
from regard.kernels.kinds import ENTMAX, ENTMAX15, SIGMOID, SOFTMAX, SPARSEMAX
from regard.scores import Additive, SoftCap

B, H, KV, Q, K, D, V = 2, 4, 2, 37, 300, 7, 5


def call_of(dtype=torch.float32, size=1.0, relu=False, **changes):
    inputs = tensors(dtype=dtype, query=(B, H, Q, D), key=(B, KV, K, D), value=(B, KV, K, V), weight=(H, D))
    inputs["key"] *= size
    powers, extents = operators.exponentials(inputs["key"], relu)
    return KernelInputs(**inputs, exponentials=powers, extents=extents, relu=relu, **changes)


def variants(dtype):
    extra = tensors(dtype=dtype, dense=(1, H, Q, K), diagonal=(H, Q + K - 1), offset=(H,))
    # Each row sees two runs with a gap between them; the third row sees nothing.
    start, stop = torch.zeros(1, 1, Q, 2, dtype=torch.int32), torch.full((1, 1, Q, 2), 3, dtype=torch.int32)
    start[..., 1], stop[..., 1] = 190, 290
    start[:, :, 2], stop[:, :, 2] = 0, 0
    mask = torch.rand(B, 1, Q, K, generator=torch.Generator().manual_seed(5)) < 0.7
    mask[:, :, 1] = False
    return {
        "plain": {},
        "large keys": {"size": 30.0},
        "relu": {"relu": True},
        "runs": {"start": start, "stop": stop, "normalizer": SPARSEMAX if dtype == torch.float64 else SOFTMAX},
        "mask": {"mask": mask, "bias": extra["dense"], "normalizer": ENTMAX15},
        "diagonal": {"bias": extra["diagonal"], "diagonal": True, "temperature": 2.0},
        "sink": {"sink": extra["offset"], "start": start, "stop": stop},
        "sigmoid": {"shift": extra["offset"], "normalizer": SIGMOID},
        "alphas": {"alphas": 1.2 + extra["offset"].sigmoid(), "normalizer": ENTMAX},
        "dropout": {"dropout": 0.4, "seed": 12345, "mask": mask},
    }


@covering(
    name=variants(torch.float64),
    dtype=[torch.float64, torch.float32],
    # Other kernels of float32 would be compiled for this test alone.
    sample_where=lambda name, dtype: dtype == torch.float64 or name in ("plain", "large keys", "relu", "runs"),
)
def test_gradients_are_those_of_weights_made_again(name, dtype):
    call = call_of(dtype, **variants(dtype)[name], return_weights=True)
    assert call.saves_weights
    output, statistics, weights = operators.attend(*call)
    grad_weights = target_of(weights)
    kept, made = (
        operators.attend_backward(target_of(output), grad_weights, statistics, some, *call) for some in (weights, None)
    )
    for gradient, one, other in zip(operators.GRADIENTS, kept, made, strict=True):
        scale = 1.0 + (float(other.abs().max()) if other.numel() else 0.0)
        torch.testing.assert_close(
            one, other, rtol=0, atol=500 * torch.finfo(dtype).eps * scale, msg=lambda m, n=gradient: f"{n}: {m}"
        )


def gradients_of(inputs, need_weights, **arguments):
    leaves = [inputs[name].clone().requires_grad_() for name in ("query", "key", "value", "weight")]
    attend = regard.attend_with_weights if need_weights else regard.attend
    found = attend(*leaves[:3], score=Additive(leaves[3]), backend="cpu", **arguments)
    output = found.output if need_weights else found
    return torch.autograd.grad(output, leaves, target_of(output))


@pytest.mark.parametrize("kept", [True, False])
def test_asking_for_weights_changes_no_bit_of_a_gradient(kept, monkeypatch):
    if not kept:
        monkeypatch.setattr(kernel_arguments, "SAVED_WEIGHTS", 0)
    shapes = {"query": (B, H, Q, D), "key": (B, KV, K, D), "value": (B, KV, K, V), "weight": (D,)}
    inputs = tensors(dtype=torch.float64, **shapes)
    for arguments in ({}, {"mask": masks.causal()}, {"normalizer": "sparsemax", "mask": masks.lengths([K, 17])}):
        with_weights, without = (gradients_of(inputs, need_weights, **arguments) for need_weights in (True, False))
        for one, other in zip(with_weights, without, strict=True):
            assert torch.equal(one, other)


def saved_numbers(**arguments):
    """Numbers that autograd saves for the backward pass, but for the inputs' own."""
    inputs = tensors(query=(B, H, Q, D), key=(B, KV, K, D), value=(B, KV, K, V), weight=(D,))
    leaves = {name: tensor.requires_grad_() for name, tensor in inputs.items()}
    own, saved = {tensor.data_ptr() for tensor in leaves.values()}, []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        score = arguments.pop("score", Additive)(leaves["weight"])
        regard.attend(leaves["query"], leaves["key"], leaves["value"], score=score, backend="cpu", **arguments)
    return sum(tensor.numel() for tensor in saved if tensor.data_ptr() not in own)


def test_weights_are_kept_up_to_a_limit(monkeypatch):
    pairs = B * H * Q * K
    kept = saved_numbers()
    monkeypatch.setattr(kernel_arguments, "SAVED_WEIGHTS", pairs - 1)
    assert kept - saved_numbers() == pairs


@pytest.mark.parametrize("name", ["cap", "window"])
def test_weights_are_not_kept_where_they_are_not_enough(name):
    center = torch.full((B, H, Q), 20.0)
    arguments = {
        "cap": {"score": lambda weight: SoftCap(Additive(weight), 3.0)},
        "window": {"normalizer": normalizers.local_gaussian("softmax", center, 9.0)},
    }[name]
    assert saved_numbers(**arguments) < B * H * Q * K


def test_nothing_is_kept_without_a_gradient(monkeypatch):
    seen = []
    attend_now = operators.attend_now
    monkeypatch.setattr(operators, "attend_now", lambda *given: seen.append(KernelInputs(*given)) or attend_now(*given))
    inputs = tensors(query=(B, H, Q, D), key=(B, KV, K, D), value=(B, KV, K, V), weight=(D,))
    regard.attend(
        inputs["query"], inputs["key"], inputs["value"], score=Additive(inputs["weight"]), mask=masks.causal(),
        backend="cpu",
    )  # fmt: skip
    assert [call.return_weights for call in seen] == [False]
