"""All steps of one direction of an LSTM layer over packed rows, and their gradients, each in one launch.

The products of a step have few rows: called one by one, PyTorch's take a third longer than a kernel's microkernel, and
its threads wait for each other after each.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.kernels.availability import microkernel_is_faster, multiplies_bfloat16
from regard.kernels.cpu import kernels
from regard.kernels.cpu.fields import address_of
from regard.kernels.cpu.kernel import Kernel
from regard.kernels.cpu.launch import transposed
from regard.kernels.cpu.own_record import OwnRecord
from regard.kernels.cpu.record import SEQUENCE, SEQUENCE_MATRICES
from regard.kernels.cpu.sizes import LANES, SEQUENCES, ceil_div

_RECORD = OwnRecord(SEQUENCE)

WORK = 2.0
"""Elementary operations of a product's term, roughly."""


def runs(dtype: torch.dtype) -> bool:
    """Whether the kernels are there for a dtype, and faster than steps one by one."""
    return dtype == torch.float32 and microkernel_is_faster()


def product_dtype(dtype: torch.dtype, units: int) -> torch.dtype:
    """What the kernels multiply where products are wanted in a dtype."""
    return dtype if dtype == torch.bfloat16 and units % LANES == 0 and multiplies_bfloat16() else torch.float32


def lstm_sequence(starts: Sequence[int], counts: Sequence[int], weight: Tensor, **matrices: Tensor) -> None:
    """All steps, in place; states begin with zeros.

    Args:
        starts: the first packed row of each step, in the order of the loop.
        counts: rows of each step, likewise. Those that have a step before come first.
        weight: of the hidden state, ``[4 · units, units]``; products are of its dtype, which `product_dtype` gave.
        matrices: packed rows, contiguous: ``gates [rows, 4 · units]``, the sums without the hidden state's products,
            which become the gates; ``cells``, ``tanh_cells`` and ``hidden [rows, units]``, which receive the cell state
            after each step, its tanh, and the hidden state. Where products are of bfloat16, ``short`` receives the
            hidden state in it.
    """
    short = weight.dtype == torch.bfloat16
    factors = _pairs(weight).t().contiguous() if short else transposed(weight.contiguous()[None, None])[0, 0]
    _run(kernels.lstm_sequence(weight.dtype), weight.dtype, starts, counts, factors, matrices)


def lstm_sequence_gradients(starts: Sequence[int], counts: Sequence[int], weight: Tensor, **matrices: Tensor) -> None:
    """The gradients of all steps, in place.

    Args:
        starts, counts, weight: as for `lstm_sequence`.
        matrices: contiguous: ``gates``, ``cells`` and ``tanh_cells`` after `lstm_sequence`; ``grad_gates [rows, 4 ·
            units]``, which receives the gradient of the sums, and so does ``short`` where products are of bfloat16;
            ``grad_hidden`` and ``grad_cell [sequences, units]``, those of the last states, which are used up. With
            neighbouring numbers: ``grad_outputs [rows, units]``.
    """
    factors = weight.contiguous()
    if weight.dtype == torch.bfloat16:
        factors = _pairs(weight.unflatten(0, (-1, 2)).transpose(1, 2))[..., 0]
    _run(kernels.lstm_sequence_gradients(weight.dtype), weight.dtype, starts, counts, factors, matrices)


def _pairs(weight: Tensor) -> Tensor:
    """Each two neighbours of the last axis, of bfloat16, as one number."""
    weight = weight.contiguous()
    return (weight.clone() if weight.storage_offset() % 2 else weight).view(torch.int32)


def _run(
    kernel: Kernel, products: torch.dtype, starts: Sequence[int], counts: Sequence[int], weight: Tensor,
    matrices: dict[str, Tensor],
) -> None:  # fmt: skip
    rows, units = matrices["cells"].shape
    zeros, places = matrices["cells"].new_zeros(units), torch.tensor([starts, counts])
    addresses = dict.fromkeys(SEQUENCE_MATRICES, 0)
    addresses |= {name: address_of(matrix) for name, matrix in matrices.items()}
    outer = matrices.get("grad_outputs")
    _RECORD.launch(
        kernel,
        ceil_div(max(counts), SEQUENCES),
        WORK * rows * weight.numel(),
        sequences=max(counts),
        steps=len(starts),
        units=units,
        starts=address_of(places[0]),
        counts=address_of(places[1]),
        zeros=address_of(zeros),
        weight=address_of(weight),
        weight_row=weight.stride(0),
        multiply=kernels.multiply(products).address,
        grad_outputs_row=0 if outer is None else outer.stride(0),
        **addresses,
    )
