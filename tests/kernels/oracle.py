"""What a kernel's results are measured against: the reference backend, on the same numbers in float64."""

from typing import Any

import torch
from torch import Tensor

import regard
from regard.scores import Additive


def tensors(seed: int = 7, dtype: torch.dtype = torch.float32, **shapes: tuple[int, ...]) -> dict[str, Tensor]:
    """Normally distributed tensors by name, rounded to ``dtype``."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for name, shape in shapes.items()
    }


def target_of(output: Tensor) -> Tensor:
    """The gradient of an output: random whole numbers, which no dtype rounds."""
    return torch.randint(-3, 4, output.shape, generator=torch.Generator().manual_seed(3)).to(output.dtype)


def outcome(
    backend: str, inputs: dict[str, Tensor], dtype: torch.dtype | None = None, **arguments: Any
) -> dict[str, Tensor]:
    """The output and the gradient of every input, for `target_of` the output.

    Args:
        backend: which one.
        inputs: query, key, value; with ``weight`` the score is additive; ``bias`` is added to scores.
        dtype: what to convert the inputs to; None leaves them.
        arguments: further ones of `regard.attend`.
    """
    leaves = {name: tensor.detach().to(dtype or tensor.dtype).requires_grad_() for name, tensor in inputs.items()}
    if "weight" in leaves:
        arguments["score"] = Additive(leaves["weight"])
    output = regard.attend(
        leaves["query"], leaves["key"], leaves["value"], bias=leaves.get("bias"), backend=backend, **arguments
    )
    gradients = torch.autograd.grad(output, list(leaves.values()), target_of(output))
    return {"output": output.detach(), **dict(zip(leaves, gradients, strict=True))}


def assert_as_exact(inputs: dict[str, Tensor], roundings: float, backend: str = "cpu", **arguments: Any) -> None:
    """The kernel's output and gradients are those of the oracle.

    Args:
        inputs: as for `outcome`, of the dtype to test.
        roundings: largest error, in units of the dtype's eps times the largest number of the result.
        backend: what to test.
        arguments: as for `outcome`.
    """
    got = outcome(backend, inputs, **arguments)
    exact = outcome("reference", inputs, torch.float64, **arguments)
    for name, expected in exact.items():
        assert got[name].dtype == inputs["query"].dtype
        eps = torch.finfo(got[name].dtype).eps
        bound = roundings * eps * max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(
            got[name].double(), expected, rtol=0, atol=bound, msg=lambda m, name=name: f"{name}: {m}"
        )
