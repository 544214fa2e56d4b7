"""Compiled calls of FlexAttention: one for each kind of call, whatever the lengths and the numbers are."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from itertools import count
from threading import Lock
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx.experimental import _config as shapes_config

from regard.attention.backends.flex.blocks import BLOCK, FlexBlocks
from regard.attention.pair_rules import SHORT_LENGTH, Rule
from regard.errors import BackendError

COMPILER = "inductor"
"""The compiler of `torch.compile`. With ``"eager"`` PyTorch's unfused operations run, in quadratic memory."""

DYNAMIC = True
"""Whether one kernel serves all lengths and batches; otherwise each combination is a kind of its own."""

CACHED_KERNELS = 128
"""Kinds of calls whose kernels are cached; the kind that was not used for longest is forgotten first."""

LONGEST_REASON = 300
"""Characters of a compiler's message that are shown."""


class FlexCall(NamedTuple):
    """The arguments of one call of FlexAttention.

    Attributes:
        query, key, value: ``[batch, heads, length, dim]`` of one dtype; keys and values may have fewer heads.
        scale: a factor of the inner product.
        score: changes each score; None if nothing does.
        mask: which pairs are visible; None if all are.
        blocks: the blocks of this mask.
        needs_lse: whether the log-sum-exps of rows are needed.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    score: Rule | None
    mask: Rule | None
    blocks: FlexBlocks | None
    needs_lse: bool

    @property
    def wide(self) -> bool:
        """Whether indices must be int64."""
        is_long = max(self.query.shape[2], self.key.shape[2]) > SHORT_LENGTH
        return is_long and any(rule is not None and rule.wide for rule in (self.score, self.mask))

    @property
    def whole_blocks(self) -> tuple[bool, bool]:
        """Whether the queries are whole blocks, and whether the keys are: then the kernel checks no limits."""
        return self.query.shape[2] % BLOCK == 0, self.key.shape[2] % BLOCK == 0

    @property
    def kind(self) -> Hashable:
        """A value that is equal for calls that the same compiled kernel serves."""
        inputs = self.query, self.key, self.value
        rules = [(rule.text, tuple(map(_form, rule.inputs))) if rule else None for rule in (self.score, self.mask)]
        blocks = None if self.blocks is None else tuple(map(_form, self.blocks[:2]))
        forms = tuple((_form(tensor), tensor.shape[1], tensor.shape[3], _order(tensor)) for tensor in inputs)
        sizes = self.whole_blocks if DYNAMIC else tuple(tensor.shape for tensor in inputs)
        settings = self.scale, self.needs_lse, self.wide, torch.is_grad_enabled(), torch.get_float32_matmul_precision()
        return COMPILER, forms, sizes, tuple(rules), blocks, settings


def _form(tensor: Tensor) -> Hashable:
    """Returns all that a compiled kernel depends on: an axis of length 1 is compiled for this length, others for all
    lengths."""
    ones = tuple(length == 1 for length in tensor.shape)
    return tensor.dtype, tensor.device, tensor.requires_grad, ones


def _order(tensor: Tensor) -> Hashable:
    """Returns the order of a tensor's axes in memory."""
    return tuple(sorted(range(4), key=lambda axis: (-tensor.stride(axis), axis)))


COMPILED_KERNELS: OrderedDict[Hashable, Callable[..., Any]] = OrderedDict()
"""The compiled kernel of each kind of call."""

FAILED_KERNELS: OrderedDict[Hashable, str] = OrderedDict()
"""Why a kind of call could not be compiled."""

_LOCK = Lock()
_NUMBER = count()


def failure(call: FlexCall) -> str | None:
    """Returns why this kind of call could not be compiled; None if it was, or was not tried."""
    return FAILED_KERNELS.get(call.kind)


def is_compiled(call: FlexCall) -> bool:
    """Whether a call of this kind was run already."""
    return call.kind in COMPILED_KERNELS


def run(call: FlexCall) -> tuple[Tensor, Tensor | None]:
    """Returns the output, and the log-sum-exps if they are needed; the first call of a kind compiles its kernel."""
    kind = call.kind
    with _LOCK:
        kernel = COMPILED_KERNELS.get(kind)
        if kernel is not None:
            COMPILED_KERNELS.move_to_end(kind)
    inputs = tuple(() if rule is None else rule.inputs for rule in (call.score, call.mask))
    arguments = call.query, call.key, call.value, *inputs, call.blocks
    return _compiled(call, kind, arguments) if kernel is None else kernel(*arguments)


def _compiled(call: FlexCall, kind: Hashable, arguments: tuple[Any, ...]) -> tuple[Tensor, Tensor | None]:
    """Compiles the kernel of a call by running it, and caches it."""
    kernel = torch.compile(_kernel(call), backend=COMPILER, fullgraph=True, dynamic=DYNAMIC)
    try:
        # Otherwise sizes that happen to be equal in the first call would have to be equal in all calls.
        with shapes_config.patch(use_duck_shape=False):  # pyright: ignore[reportAttributeAccessIssue]
            result = kernel(*arguments)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        cause = " ".join(str(error).split("\n\n")[0].split())
        reason = f"PyTorch could not compile it ({type(error).__name__}: {cause[:LONGEST_REASON]})"
        with _LOCK:
            FAILED_KERNELS[kind] = reason
            while len(FAILED_KERNELS) > CACHED_KERNELS:
                FAILED_KERNELS.popitem(last=False)
        raise BackendError(f"backend 'flex' cannot run this: {reason}; with backend='tiled' it runs") from error
    with _LOCK:
        COMPILED_KERNELS[kind] = kernel
        while len(COMPILED_KERNELS) > CACHED_KERNELS:
            COMPILED_KERNELS.popitem(last=False)
    return result


def _kernel(call: FlexCall) -> Callable[..., Any]:
    """Returns the function to compile for calls of this kind."""
    from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

    attend: Callable[..., Any] = flex_attention
    score = None if call.score is None else call.score.function
    mask = None if call.mask is None else call.mask.function
    whole_blocks = call.whole_blocks
    index = torch.int64 if call.wide else torch.int32
    dtype = torch.float64 if call.query.dtype == torch.float64 else torch.float32
    options: dict[str, Any] = {
        "scale": call.scale,
        "enable_gqa": call.query.shape[1] != call.key.shape[1],
        "return_aux": AuxRequest(lse=call.needs_lse),
        # One kernel for all lengths: the one for few queries has other limits.
        "kernel_options": {"FORCE_USE_FLEX_ATTENTION": True},
    }

    def kernel(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        score_inputs: tuple[Tensor, ...],
        mask_inputs: tuple[Tensor, ...],
        blocks: FlexBlocks | None,
    ) -> tuple[Tensor, Tensor | None]:
        for is_whole, tensor in zip(whole_blocks, (query, key), strict=True):
            if is_whole:
                torch._check(tensor.shape[2] % BLOCK == 0)

        def score_mod(one: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            assert score is not None
            return score(one.to(dtype), b.to(index), h.to(index), q.to(index), k.to(index), score_inputs)

        def mask_mod(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            assert mask is not None
            return mask(b.to(index), h.to(index), q.to(index), k.to(index), mask_inputs)

        block_mask = None
        if blocks is not None and mask is not None:
            lengths = query.shape[2], key.shape[2]
            block_mask = BlockMask(lengths, *blocks, BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=mask_mod)
        output, aux = attend(query, key, value, None if score is None else score_mod, block_mask, **options)
        return output, aux.lse

    # PyTorch limits how often one code object is compiled, so each kind has its own.
    code = kernel.__code__.replace(co_name=f"flex_kernel_{next(_NUMBER)}")
    return FunctionType(code, kernel.__globals__, code.co_name, None, kernel.__closure__)
