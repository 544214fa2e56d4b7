"""The comparison of a sharded call between its processes, before anything else (`regard.distributed.agreement`)."""

import re
import sys
from functools import cache
from hashlib import blake2b, sha256
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from regard.attention.encoding import Parts, encode
from regard.attention.problem import Problem
from regard.attention.readings import Readings
from regard.distributed.agreement import agree
from regard.errors import BackendError
from regard.tracing.transforms import active_transform
from regard.tracing.versions import leaves_of

SHARDED_BACKEND = "sharded"
"""The name of the backend of sharded calls."""

_digests = WeakIdKeyDictionary()  # tensor → its version and its digest

_PROCESS_DETAILS = re.compile(r" at 0x[0-9a-fA-F]+|(?<=cuda):\d+|(?<=xpu):\d+")
"""Parts of a text that differ between processes for equal values: addresses and numbers of devices."""


def begin_call(
    problem: Problem, backend: str, verb: str, read: Readings | None = None, need_weights: bool = False
) -> None:
    """Waits until every process makes the same sharded call.

    Args:
        problem: the whole problem, with ``placed``.
        backend, read, need_weights: what else a call may ask for.
        verb: what begins.
    """
    placed = problem.placed
    assert placed is not None
    try:
        _check_runs(backend)
    except BackendError as error:
        placed.refuse(error)
        raise
    tensors = placed.query, placed.key, placed.value
    wants = torch.is_grad_enabled() and (problem.wants_gradient or any(one.requires_grad for one in tensors))
    described = {
        "version": _versions(),
        "shape": str([list(tensor.shape) for tensor in (problem.query, problem.key, problem.value)]),
        "dtype": " ".join(str(one.dtype) for one in tensors),
        "requires_grad": str([wants, *(wants and one.requires_grad for one in tensors)]),
        "order": f"{placed.queries.order_digest}; {placed.keys.order_digest}",
        "score": text_of(problem.score),
        "normalizer": text_of(problem.normalizer),
        "mask": text_of(problem.mask),
        "bias": text_of(problem.bias),
        "dropout": repr(problem.dropout),
        "read": f"{text_of(read)}, need_weights={need_weights}",
    }
    agree(placed.queries, f"call {placed.number} ({verb})", described)


def _check_runs(backend: str) -> None:
    if backend not in ("auto", SHARDED_BACKEND):
        raise BackendError(
            f"backend {backend!r} cannot run this: the sequence is sharded; only {SHARDED_BACKEND!r} runs it"
        )
    why = active_transform()
    if why is not None:
        raise BackendError(f"a sharded call has derivatives in reverse mode alone, and {why}")


@cache
def _versions() -> str:
    return f"regard {sys.modules['regard'].__version__}, PyTorch {torch.__version__}"


def text_of(value: Any) -> str:
    """Returns a text that is equal for equal values, with the contents of tensors as digests.

    An object that is no part of regard contributes its tensors, its numbers, and the instructions of its functions.
    """
    shown = _PROCESS_DETAILS.sub("", repr(value))
    if value is None:
        return shown
    parts = Parts(foreign=lambda one: f"{type(one).__name__} {sorted(map(_text_of_leaf, leaves_of(one)))}")
    contents = [str(encode(value, parts)), *map(repr, parts.numbers + parts.integers), *map(_digest, parts.tensors)]
    return f"{shown} with the contents {blake2b(' '.join(contents).encode(), digest_size=6).hexdigest()}"


def _text_of_leaf(leaf: Any) -> str:
    if isinstance(leaf, Tensor):
        return _digest(leaf)
    return _text_of_code(leaf.__code__) if isinstance(leaf, FunctionType) else repr(leaf)


def _text_of_code(code: CodeType) -> str:
    constants = [_text_of_constant(one) for one in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def _text_of_constant(constant: Any) -> str:
    if isinstance(constant, CodeType):
        return _text_of_code(constant)
    return repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def _digest(tensor: Tensor) -> str:
    """Returns a digest of the elements, calculated again after every change in place."""
    if type(tensor).__module__.startswith("torch.distributed"):
        return repr(tensor.shape)
    entry = _digests.get(tensor)
    version = None if tensor.is_inference() else tensor._version
    if entry is not None and version is not None and entry[0] == version:
        return entry[1]
    shape = f"{list(tensor.shape)} {tensor.dtype}"
    if tensor.is_meta:
        return shape
    with torch.no_grad():
        plain = tensor.detach().cpu().contiguous()
        data = plain.reshape(-1).view(torch.uint8).numpy().data if plain.numel() else b""
    digest = f"{shape} {sha256(data).hexdigest()}"
    _digests[tensor] = version, digest
    return digest
