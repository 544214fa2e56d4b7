"""A call of the forward kernel that is made again with other numbers.

Validating a call, choosing a backend and filling the kernel's record take longer than a small calculation. For tensors
of the same sizes and strides they give the same record, but for the addresses in it: so it is kept. A few queries ask
ever more keys, as a text is written: there the number of keys and their strides are filled in as well.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.attention.backends.cpu.lowering import kernel_inputs, with_heads_as_rows
from regard.attention.problem import Problem
from regard.kernels.cpu.fields import address_of
from regard.scores.score import TanhSum

if TYPE_CHECKING:
    from regard.kernels.cpu.launch import KeptLaunch

ROWS = 16
"""Rows of one head up to which a block has them all, whatever the number of keys."""

_OF_KEYS = ("keys", "key_batch", "key_head", "key_row", "value_batch", "value_head", "value_row")


class RepeatedCall(NamedTuple):
    """The launches of a call without a mask, a bias, dropout and gradient, of float32 tensors on a CPU.

    Attributes:
        launches: one after the other.
        output: its shape.
        scratch: how many numbers the other tensors have that kernels write, by their names.
        any_keys: whether it is made again with other numbers of keys, and other strides.
    """

    launches: "tuple[KeptLaunch, ...]"
    output: tuple[int, ...]
    scratch: dict[str, int]
    any_keys: bool = False

    @classmethod
    def of(cls, problem: Problem, any_keys: bool = False) -> "RepeatedCall | None":
        """The call of a problem that the fused kernels run; None if more than launches belongs to it.

        Args:
            problem: of a call.
            any_keys: whether it is made again with other numbers of keys, and other strides.
        """
        from regard.kernels.cpu import kernels, operators
        from regard.kernels.cpu.kernel_inputs import KernelInputs
        from regard.kernels.cpu.launch import TRANSPOSED_NUMBERS, KeptLaunch, Transposition, fill_arguments

        inputs, primitive = kernel_inputs(problem), problem.prepared.primitive
        given = {"query": problem.query, "key": problem.key, "value": problem.value}
        if isinstance(primitive, TanhSum):
            # The scale of an additive score is 1.
            given["weight"] = torch.atleast_2d(primitive.weight)
            inputs = inputs._replace(weight=given["weight"])
        inputs = with_heads_as_rows(inputs)
        taken = {name: tensor for name, tensor in inputs._asdict().items() if isinstance(tensor, Tensor)}
        as_given = taken.keys() == given.keys() and all(
            address_of(tensor) == address_of(given[name]) for name, tensor in taken.items()
        )
        if not as_given or problem.dropout or operators.readable(inputs) is not inputs:
            return None
        transposes = kernels.needs_transposed(inputs, "key")
        if any_keys and (transposes or inputs.query.shape[2] > ROWS):
            return None
        launches: list[KeptLaunch] = []
        batch, heads, queries, _ = inputs.query.shape
        key, scratch = inputs.key, {}
        if inputs.weight is not None:
            powers, extents = operators.exponentials_shapes(key)
            scratch = {"exponentials": powers.numel(), "extents": extents.numel()}
            kernel = kernels.exponentials(key.dtype)
            numbers = fill_arguments(KernelInputs(key, key, key, relu=inputs.relu))
            launches.append(KeptLaunch.of(kernel, numbers, extents.numel(), 8.0 * key.numel(), ("key", *scratch)))
        elif transposes:
            each, some = Transposition.of(key), batch * key.shape[1]
            scratch = {"key_transposed": some * each.numbers}
            if scratch["key_transposed"] > TRANSPOSED_NUMBERS:
                return None  # a few heads at a time
            launches.append(each.kept(some, ("key", *scratch)))
        scratch["statistics"] = 2 * batch * heads * queries
        numbers, (kernel, tasks) = fill_arguments(inputs, inputs.block), kernels.forward(inputs)
        names = (*given, *scratch, "output", *(_OF_KEYS if any_keys else ()))
        launches.append(KeptLaunch.of(kernel, numbers, tasks, inputs.work, names))
        return cls(tuple(launches), (*problem.query.shape[:3], problem.value.shape[3]), scratch, any_keys)

    def run(self, query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None) -> Tensor:
        """The output for tensors of the same sizes and strides, but for those of ``any_keys``.

        Args:
            query, key, value: of the call.
            weight: of an additive score; None for an inner product.
        """
        output, scratch = query.new_empty(self.output), query.new_empty(sum(self.scratch.values()))
        filled = {
            "query": address_of(query),
            "key": address_of(key),
            "value": address_of(value),
            "output": address_of(output),
        }
        if weight is not None:
            filled["weight"] = address_of(weight)
        address = address_of(scratch)
        for name, numbers in self.scratch.items():
            filled[name] = address
            address += numbers * scratch.element_size()
        if self.any_keys:
            filled |= zip(_OF_KEYS, (key.shape[2], *key.stride()[:3], *value.stride()[:3]), strict=True)
        for launch in self.launches:
            launch.launch(filled)
        return output
