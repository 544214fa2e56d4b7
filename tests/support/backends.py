"""Which backends a law is tested on, and everything that one call of them gives."""

import torch

import regard
from regard.attention.backends.cpu.backend import required_kernels
from regard.attention.execution import BACKENDS
from regard.attention.problem import validate

ON_CPU = [name for name, backend in BACKENDS.items() if backend.declines(validate(*torch.zeros(3, 1, 1, 2, 2))) is None]
"""The backends that run the plainest problem of tensors on a CPU; `flex` does not (tests/attention/test_flex.py)."""

EVERY = [*ON_CPU, "auto"]

READ_ALL = regard.Readings(
    entropy=True, peak=True, top_k=3, received=True, distance=True, pooled=(2, 3), rows=[0, -1], tile=((1, 4), (2, 6)),
    weights=True,
)  # fmt: skip

ROW_READINGS = ("lse", "entropy", "peak", "top_weights", "top_indices", "distance", "weights")
"""Readings that have one entry for each query."""


is_full = False
"""Whether ``--full`` was given; `conftest` sets it."""

COMPILED = {
    ("float32", "relu"): ("softmax",),
    ("float64", "relu"): ("softmax", "entmax15", "sigmoid"),
    ("float32", "tanh"): ("softmax",),
}
"""The kernels that are compiled without ``--full``: dtype and units of a score → normalizers; of the others all.

Compiling them takes seconds each. Inner products meet every normalizer in both dtypes, sums of tanh in float64.
"""


def accepts(backend, inputs, **arguments):
    """Whether a backend runs this problem; ``auto`` runs all."""
    if backend == "auto":
        return True
    accepted = not regard.plan(*inputs, **arguments).reasons[backend].startswith("cannot")
    return accepted and (backend != "cpu" or is_compiled(inputs, **arguments))


def is_compiled(inputs, **arguments):
    """Whether the kernels of a problem that ``cpu`` runs are among those that are compiled."""
    required = required_kernels(validate(*inputs, **arguments), None)
    if is_full or not required:
        return True
    *_, dtype, units, normalizer = required[-1].name.split("_")
    return normalizer in COMPILED.get((dtype, units), (normalizer,))


def measure(backend, inputs, parameters=(), grad_output=None, **arguments):
    """Output, every reading and every gradient of one call, by name.

    Args:
        backend: its name.
        inputs: query, key and value.
        parameters: ``{name: tensor}`` of further tensors whose gradients are wanted.
        grad_output: the gradient of the output; ones unless given.
        arguments: of `regard.observe`.
    """
    leaves = {
        name: tensor.detach().clone().requires_grad_()
        for name, tensor in zip(("query", "key", "value"), inputs, strict=True)
    }
    observed = regard.observe(*leaves.values(), read=READ_ALL, backend=backend, **arguments)
    wanted = {**leaves, **dict(parameters)}
    grad_output = torch.ones_like(observed.output) if grad_output is None else grad_output
    gradients = torch.autograd.grad(observed.output, list(wanted.values()), grad_output, allow_unused=True)
    measured = {name: value.detach() for name, value in observed._asdict().items() if value is not None}
    for (name, tensor), gradient in zip(wanted.items(), gradients, strict=True):
        measured[f"grad_{name}"] = torch.zeros_like(tensor) if gradient is None else gradient
    return measured


def assert_same(got, expected, rtol=None, atol=None, context=""):
    """Each named result equals its counterpart; NaN equals NaN."""
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            got[name], value, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m, name=name: f"{context} {name}: {m}"
        )
