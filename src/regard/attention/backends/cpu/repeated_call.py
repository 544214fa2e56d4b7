"""A call of the forward kernel that is made again with other numbers.

Validating a call, choosing a backend and filling the kernel's record take longer than a small calculation. For tensors
of the same sizes and strides they give the same record, but for the addresses in it: so it is kept.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.attention.backends.cpu.lowering import kernel_inputs, with_heads_as_rows
from regard.attention.problem import Problem
from regard.scores.score import TanhSum

if TYPE_CHECKING:
    from regard.kernels.cpu.launch import KeptLaunch


class RepeatedCall(NamedTuple):
    """The launches of a call without a mask, a bias, dropout and gradient, of float32 tensors on a CPU.

    Attributes:
        launches: one after the other.
        output: its shape.
        scratch: how many numbers the other tensors have that kernels write, by their names.
    """

    launches: "tuple[KeptLaunch, ...]"
    output: tuple[int, ...]
    scratch: dict[str, int]

    @classmethod
    def of(cls, problem: Problem) -> "RepeatedCall | None":
        """The call of a problem that the fused kernels run; None if more than launches belongs to it."""
        from regard.kernels.cpu import operators, prepare
        from regard.kernels.cpu.forward import forward
        from regard.kernels.cpu.kernel_inputs import KernelInputs
        from regard.kernels.cpu.launch import KeptLaunch, fill_arguments, is_wide
        from regard.kernels.cpu.sizes import ceil_div

        inputs, primitive = kernel_inputs(problem), problem.prepared.primitive
        given = {"query": problem.query, "key": problem.key, "value": problem.value}
        if isinstance(primitive, TanhSum):
            # The scale of an additive score is 1.
            given["weight"] = torch.atleast_2d(primitive.weight)
            inputs = inputs._replace(weight=given["weight"])
        inputs = with_heads_as_rows(inputs)
        taken = {name: tensor for name, tensor in inputs._asdict().items() if isinstance(tensor, Tensor)}
        as_given = taken.keys() == given.keys() and all(
            tensor.data_ptr() == given[name].data_ptr() for name, tensor in taken.items()
        )
        if not as_given or problem.dropout or operators.readable(inputs) is not inputs:
            return None
        if operators.needs_transposed(inputs, "key"):
            return None
        launches: list[KeptLaunch] = []
        batch, heads, queries, _ = inputs.query.shape
        scratch = {"statistics": 2 * batch * heads * queries}
        key, dtype = inputs.key, inputs.query.dtype
        if inputs.weight is not None:
            powers, extents = operators.exponentials_shapes(key)
            written = {"exponentials": powers.numel(), "extents": extents.numel()}
            numbers = fill_arguments(KernelInputs(key, key, key, relu=inputs.relu))
            kernel, tasks = prepare.exponentials(dtype), extents.numel()
            launches.append(KeptLaunch.of(kernel, numbers, tasks, 8.0 * key.numel(), ("key", *written)))
            scratch = {**written, **scratch}
        kernel = forward(dtype, inputs.units, inputs.normalizer, is_wide(dtype))
        numbers, tasks = fill_arguments(inputs, inputs.block), batch * heads * ceil_div(queries, inputs.block)
        launches.append(KeptLaunch.of(kernel, numbers, tasks, inputs.work, (*given, *scratch, "output")))
        return cls(tuple(launches), (*problem.query.shape[:3], problem.value.shape[3]), scratch)

    def run(self, query: Tensor, key: Tensor, value: Tensor, weight: Tensor | None) -> Tensor:
        """The output for tensors of the same sizes and strides.

        Args:
            query, key, value: of the call.
            weight: of an additive score; None for an inner product.
        """
        output, scratch = query.new_empty(self.output), query.new_empty(sum(self.scratch.values()))
        addresses = {
            "query": query.data_ptr(),
            "key": key.data_ptr(),
            "value": value.data_ptr(),
            "output": output.data_ptr(),
        }
        if weight is not None:
            addresses["weight"] = weight.data_ptr()
        address = scratch.data_ptr()
        for name, numbers in self.scratch.items():
            addresses[name] = address
            address += numbers * scratch.element_size()
        for launch in self.launches:
            launch.launch(addresses)
        return output
