"""An accelerator in Python: real numbers in host memory, its own device type, and a count of operators and waits.

PyTorch's dispatcher sends every operator on a tensor of this device to `_run`, which runs it on the same memory as a
CPU tensor. The tensors are plain `torch.Tensor`, so regard and autograd take the branches of an accelerator.

::

    x = on_device(torch.randn(2, 3))       # device emulated:0
    with counted() as count:
        x.softmax(-1).sum().backward()
    count.operators, count.waits           # launches, and operators that would make the host wait

Autograd gives a device its threads at the first backward pass of a process. If there was one before this module was
imported, backward passes need ``torch.autograd.set_multithreading_enabled(False)``.

As on a GPU, tensors of two devices do not mix (CPU scalars do), and the host waits where a number, or a size that
depends on numbers, comes back: ``item``, ``bool``, ``tolist``, ``cpu``, ``equal``, ``nonzero``, an index of bools; and
where it copies to the device without ``non_blocking``.
"""

import ctypes
import traceback
from collections import Counter
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from functools import cache, partial
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch.utils import dlpack
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

NAME = "emulated"

_HOST, _DEVICE = 1, 12
"""DLPack's codes of the device types: CPU, and a device of an extension."""

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


class _Module(_DummyBackendModule):
    """What PyTorch expects under ``torch.emulated``.

    Attributes:
        is_visible: whether PyTorch lists the device among those that are available.
        total_memory: bytes of the device.
    """

    _initialized = True
    is_visible = False
    total_memory = 1 << 30

    def __init__(self):
        self._generator = torch.Generator()

    def is_available(self):
        return self.is_visible

    def device_count(self):
        return int(self.is_visible)

    def get_rng_state(self, device=NAME):
        return self._generator.get_state()

    def set_rng_state(self, state, device=NAME):
        self._generator.set_state(state)

    def manual_seed_all(self, seed):
        self._generator.manual_seed(seed)

    @contextmanager
    def own_generator(self):
        """Random numbers in this context come from the device's generator."""
        state = torch.get_rng_state()
        torch.set_rng_state(self.get_rng_state())
        try:
            yield
        finally:
            self.set_rng_state(torch.get_rng_state())
            torch.set_rng_state(state)

    def get_device_properties(self, device=NAME):
        return SimpleNamespace(name="emulated", total_memory=self.total_memory)

    @contextmanager
    def device(self, device):
        yield

    def get_amp_supported_dtype(self):
        return [torch.bfloat16, torch.float16]


class Count:
    """What the device was asked to do.

    Attributes:
        names: how often each operator ran that reads or writes numbers.
        waits: where the host waited: each operator, and the lines of regard that led to it.
    """

    def __init__(self):
        self.names = Counter()
        self.waits = []

    @property
    def operators(self):
        """How many operators ran."""
        return self.names.total()


_counts = []


@contextmanager
def counted():
    """Counts what the device does in this context, in all threads."""
    _counts.append(Count())
    try:
        yield _counts[-1]
    finally:
        _counts.pop()


def on_device(tensor):
    """Returns a leaf of the emulated device with the numbers of a CPU tensor, in memory of its own."""
    moved = _retyped(tensor.detach().clone(), _DEVICE)
    return moved.requires_grad_(tensor.requires_grad)


def on_host(tensor):
    """Returns the numbers of a tensor of any device, without counting."""
    tensor = tensor.detach()
    return _retyped(tensor, _HOST).clone() if tensor.device.type == NAME else tensor.cpu()


def _retyped(tensor, code):
    """Returns the same memory as a tensor of another device type."""
    negative = tensor.is_neg()
    capsule = dlpack.to_dlpack(torch._neg_view(tensor) if negative else tensor)
    # A DLTensor begins with the address of its data, the device's type and its number.
    ctypes.c_int32.from_address(_capsule_pointer(capsule, b"dltensor") + 8).value = code
    result = dlpack.from_dlpack(capsule)
    return torch._neg_view(result) if negative else result


_READS_NUMBERS = {
    "aten::_local_scalar_dense", "aten::equal", "aten::nonzero", "aten::masked_select", "aten::_unique2",
    "aten::unique_dim", "aten::unique_consecutive", "aten::bincount", "aten::is_nonzero", "aten::_ctc_loss",
    "aten::_ctc_loss_backward",
}  # fmt: skip
_COPIES = {"aten::copy_", "aten::_copy_from", "aten::_to_copy", "aten::_copy_from_and_resize"}
_FREE = {
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::set_", "aten::resize_",
    "aten::record_stream", "aten::_has_same_storage_numel", "aten::_fused_sdp_choice",
}  # fmt: skip
"""Operators that launch nothing, besides views."""


def _makes_host_wait(name, devices, values, arguments):
    if name in _READS_NUMBERS:
        return True
    if name == "aten::repeat_interleave":
        return arguments.get("output_size") is None
    if name in _COPIES:
        return len(devices) > 1 and not (arguments.get("non_blocking") or any(value is True for value in values))
    if name in ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"):
        indices = [value for value in values[1:] if isinstance(value, torch.Tensor)]
        is_fill = name != "aten::index" and indices[-1].dim() == 0
        return any(index.dtype in (torch.bool, torch.uint8) for index in indices) and not is_fill
    return False


def _as_tensor(number, arguments):
    """Returns a number as a tensor without axes, which promotes no other floating-point dtype."""
    is_floating = any(isinstance(value, torch.Tensor) and value.is_floating_point() for value in arguments)
    return torch.tensor(
        number, dtype=torch.float64 if is_floating and isinstance(number, float) else None, device="cpu"
    )


class _Operator(NamedTuple):
    """What `_run` reads of an operator's schema, whose every look is slow.

    Attributes:
        name: with its namespace.
        tensors: for each argument by position, whether it is a tensor.
        outputs: names of the arguments that take results.
        is_view: whether a result shares the memory of an argument.
        draws: whether it draws random numbers.
    """

    name: str
    tensors: tuple[bool, ...]
    outputs: tuple[str, ...]
    is_view: bool
    draws: bool


@cache
def _described(operator):
    schema = operator._schema
    aliases = [value.alias_info for value in schema.returns]
    return _Operator(
        schema.name,
        tuple(str(value.type) == "Tensor" for value in schema.arguments),
        tuple(value.name for value in schema.arguments if value.is_out),
        any(alias is not None and not alias.is_write for alias in aliases),
        torch.Tag.nondeterministic_seeded in operator.tags,
    )


def _leaves(values):
    """Yields arguments, and in place of a list its members."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _leaves(value)
        else:
            yield value


def _each(function, value):
    """Returns the function's result; for a list or tuple, one of results."""
    if isinstance(value, (list, tuple)):
        return type(value)([_each(function, member) for member in value])
    return function(value)


@torch.inference_mode(False)
def _run(operator, *args, **kwargs):
    described = _described(operator)
    name = described.name
    # PyTorch passes a number in place of a tensor as a number.
    args = [
        _as_tensor(value, args) if is_tensor and isinstance(value, (int, float)) else value
        for value, is_tensor in zip(args, described.tensors, strict=False)
    ]
    values = [*_leaves(args), *_leaves(kwargs.values())]
    devices, requested = set(), []
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.dim() or value.device.type == NAME:
                devices.add(value.device.type)
        elif isinstance(value, torch.device):
            requested.append(value.type)
    if name in _COPIES:
        devices.update(requested)
    elif len(devices) > 1:
        raise RuntimeError(f"{name}: tensors of {' and '.join(sorted(devices))} do not mix")
    if _counts:
        _count(described, devices, values, kwargs)
    if name in ("aten::resize_", "aten::set_"):
        raise NotImplementedError(f"{name} changes the memory of a tensor, which the emulated device cannot")
    originals = {}
    written = [id(kwargs[output]) for output in described.outputs if output in kwargs]

    def on_cpu(value):
        if isinstance(value, torch.Tensor) and value.device.type == NAME:
            # Memory of another device type cannot grow, so that an empty output gets other memory.
            is_new = id(value) in written and value.shape == (0,)
            original, value = value, value.new_empty(0, device="cpu") if is_new else _retyped(value, _HOST)
            originals[id(value)] = original
        elif isinstance(value, torch.device) and value.type == NAME:
            return torch.device("cpu")
        return value

    args, kwargs = _each(on_cpu, args), {key: _each(on_cpu, value) for key, value in kwargs.items()}
    if name == "aten::_copy_from":
        args[1].copy_(args[0])
        return values[1]
    with MODULE.own_generator() if described.draws else nullcontext():
        result = _CELLS.get(name, operator)(*args, **kwargs)
    if name == "aten::copy_" and args[0].device.type == "cpu" and id(args[0]) not in originals:
        return result
    stays_on_host = name in _COPIES and "cpu" in requested

    def back(value):
        if not isinstance(value, torch.Tensor) or stays_on_host:
            return value
        original = originals.get(id(value))
        if original is not None and original.shape != value.shape:
            original.data = _retyped(value, _DEVICE)
        return _retyped(value, _DEVICE) if original is None else original

    return _each(back, result)


def _lstm_cell(inputs, hiddens, cell, *biases):
    gates = sum((bias for bias in biases if bias is not None), inputs + hiddens)
    entry, forget, change, exit_ = gates.chunk(4, 1)
    parts = entry.sigmoid(), forget.sigmoid(), change.tanh(), exit_.sigmoid()
    after = parts[1] * cell + parts[0] * parts[2]
    return parts[3] * after.tanh(), after, torch.cat(parts, 1)


def _lstm_cell_backward(grad_hidden, grad_cell, before, after, parts, has_bias):
    entry, forget, change, exit_ = parts.chunk(4, 1)
    grad_hidden, grad_cell = (torch.zeros_like(after) if grad is None else grad for grad in (grad_hidden, grad_cell))
    grad_after = grad_cell + grad_hidden * exit_ * (1 - after.tanh().square())
    grad_gates = torch.cat(
        [
            grad_after * change * entry * (1 - entry),
            grad_after * before * forget * (1 - forget),
            grad_after * entry * (1 - change.square()),
            grad_hidden * after.tanh() * exit_ * (1 - exit_),
        ],
        1,
    )
    return grad_gates, grad_after * forget, grad_gates.sum(0) if has_bias else None


def _gru_cell(inputs, hiddens, hidden, input_bias=None, hidden_bias=None):
    inputs = inputs if input_bias is None else inputs + input_bias
    hiddens = hiddens if hidden_bias is None else hiddens + hidden_bias
    of_reset, of_update, of_change = inputs.chunk(3, 1)
    own_reset, own_update, own_change = hiddens.chunk(3, 1)
    reset, update = (of_reset + own_reset).sigmoid(), (of_update + own_update).sigmoid()
    change = (of_change + reset * own_change).tanh()
    return change + update * (hidden - change), torch.cat([reset, update, change, hidden, own_change], 1)


def _gru_cell_backward(grad, parts, has_bias):
    reset, update, change, hidden, own_change = parts.chunk(5, 1)
    of_update = grad * (hidden - change) * update * (1 - update)
    of_change = grad * (1 - update) * (1 - change.square())
    of_reset = of_change * own_change * reset * (1 - reset)
    grads = torch.cat([of_reset, of_update, of_change], 1), torch.cat([of_reset, of_update, of_change * reset], 1)
    return *grads, grad * update, *(each.sum(0) if has_bias else None for each in grads)


_CELLS = {
    "aten::_thnn_fused_lstm_cell": _lstm_cell,
    "aten::_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
    "aten::_thnn_fused_gru_cell": _gru_cell,
    "aten::_thnn_fused_gru_cell_backward": _gru_cell_backward,
}
"""Operators of accelerators that a CPU has no kernel of."""


def _count(described, devices, values, kwargs):
    for count in _counts:
        if not described.is_view and described.name not in _FREE:
            count.names[described.name.removeprefix("aten::")] += 1
        if _makes_host_wait(described.name, devices, values, kwargs):
            frames = [frame for frame in traceback.extract_stack() if "/regard/" in frame.filename]
            places = [f"{frame.filename.rpartition('/regard/')[2]}:{frame.lineno}" for frame in frames[-3:]]
            count.waits.append(f"{described.name.removeprefix('aten::')} from {' > '.join(places)}")


def _copied(tensor, memo):
    """Returns what `copy.deepcopy` gives for a tensor, whose memory is not made by an allocator of the device."""
    if tensor.device.type != NAME:
        return _deepcopy(tensor, memo)
    if id(tensor) not in memo:
        copy = memo[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        copy.grad = deepcopy(tensor.grad, memo)
    return memo[id(tensor)]


def _storage_on_host(storage):
    """Returns what ``storage.cpu()`` gives, as `torch.save` needs it."""
    if storage.device.type != NAME or not storage.nbytes():
        return torch.UntypedStorage() if storage.device.type == NAME else _storage_cpu(storage)
    memory = (ctypes.c_ubyte * storage.nbytes()).from_address(storage.data_ptr())
    return torch.frombuffer(memory, dtype=torch.uint8).clone().untyped_storage()


_deepcopy, torch.Tensor.__deepcopy__ = torch.Tensor.__deepcopy__, _copied
_storage_cpu, torch.UntypedStorage.cpu = torch.UntypedStorage.cpu, _storage_on_host
MODULE = _Module()
_setup_privateuseone_for_python_backend(NAME, MODULE)


def _convolution_backward(grad_output, input, weight, *rest):
    return _run(torch.ops.aten.convolution_backward.default, grad_output, input, weight, [grad_output.shape[1]], *rest)


_CONVOLUTIONS = torch.library.Library("aten", "IMPL")
_CONVOLUTIONS.impl("convolution_overrideable", partial(_run, torch.ops.aten.convolution.default), "PrivateUse1")
_CONVOLUTIONS.impl("convolution_backward_overrideable", _convolution_backward, "PrivateUse1")
_FALLBACK = torch.library.Library("_", "IMPL")
_FALLBACK.fallback(_run, "PrivateUse1")
