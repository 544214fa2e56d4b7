"""How many operations attention takes, for `torch.utils.flop_counter.FlopCounterMode`.

::

    forward    2 · batch · heads · queries · keys · (dim + value_dim)
    backward   2 · batch · heads · queries · keys · (3 · dim + 2 · value_dim)

whatever the score, the mask and the backend are: 2.5 times as many backward, as PyTorch counts its own fused attention,
where the scores are made again. While a counter is active, a call runs as the operator of its verb
(`regard.attention.operators`), which is counted as one, so the numbers of all backends are the same. Only a score or a
normalizer that is a function runs as it is, and PyTorch counts its products.
"""

import sys
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import regard.attention.operators  # noqa: F401 (defines the operators)

COUNTER = "torch.utils.flop_counter"
"""PyTorch's module, which may import a compiler: it is only used where somebody imported it."""


def counts_operations() -> bool:
    """Whether a counter of operations is active."""
    if COUNTER not in sys.modules:
        return False
    kind = sys.modules[COUNTER]._FlopCounterMode
    modes: list[Any] = _get_current_dispatch_mode_stack()
    counters = [mode.counter for mode in modes if isinstance(mode, kind)]
    for counter in counters:
        _register(counter.flop_registry)
    return bool(counters)


def _forward(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **more: Any) -> int:
    return 2 * query.shape[:3].numel() * key.shape[2] * (key.shape[3] + value.shape[3])


def _backward(
    grad_output: Any, grad_weights: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **more: Any
) -> int:
    return 2 * query.shape[:3].numel() * key.shape[2] * (3 * key.shape[3] + 2 * value.shape[3])


def _register(registry: dict[Any, Any]) -> None:
    operators = torch.ops.regard
    for operator in (operators.attend, operators.attend_with_weights, operators.observe):
        registry.setdefault(operator, _forward)
    registry.setdefault(operators.attend_backward, _backward)


if COUNTER in sys.modules:
    _register(sys.modules[COUNTER].flop_registry)
