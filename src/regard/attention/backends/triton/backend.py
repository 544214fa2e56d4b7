"""``triton``: fused kernels for GPUs, compiled at run time from Python; linear memory, forward and backward.

`declines` says why the kernels cannot run a problem, and `call_of` turns it into their arguments.
"""

from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from regard.attention.backends.backend import Backend
from regard.attention.backends.tiled import Tiled
from regard.attention.call_kinds import NOTHING_DROPPED, CallKind
from regard.attention.device_runs import device_runs
from regard.attention.problem import Capabilities, Problem
from regard.attention.readings import Gatherer
from regard.errors import BackendError
from regard.scores import InnerProduct, TanhSum
from regard.scores.modifiers import Cap
from regard.shapes.grid import upcast, with_one_grouping
from regard.tracing.transforms import active_transform, can_branch_on, is_capturing

if TYPE_CHECKING:
    from regard.kernels.triton.call import Call

CAPABILITIES = Capabilities(
    primitives=(InnerProduct, TanhSum),
    rows=frozenset({"softmax", "entmax", "sigmoid"}),
    modifiers=(Cap,),
    row_tensors=frozenset({"sink"}),
)

LARGEST_DIM = {2: 256, 4: 128}
"""The widest queries and values of which a tile fits into a processor's memory, by the bytes of an element."""

MOST_HEADS = 2**16 - 1
"""The number of programs along the second axis of a grid in CUDA."""


def _why_missing(problem: Problem) -> str | None:
    """Returns why there are no kernels for the problem's device; None if there are."""
    device = problem.query.device
    if torch.version.hip:
        return "PyTorch is for GPUs of AMD; its kernels are for those of NVIDIA"
    if not (device.type == "cuda" or (device.type == "cpu" and _is_interpreted())):
        return f"the inputs are on {device}; its kernels are for GPUs of NVIDIA"
    return "Triton is not installed (pip install triton)" if find_spec("triton") is None else None


def _is_interpreted() -> bool:
    """Whether Triton runs kernels in its interpreter, on a CPU; it reads this setting once, when it is imported."""
    import os

    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on")


class Triton(Backend):
    """Runs inner products and additive scores × softmax (with a sink), entmax and sigmoid × masks and biases."""

    name = "triton"
    reads = True
    isolates = True
    why = "its fused kernels compute this in linear memory"

    def declines(self, problem: Problem) -> str | None:
        return _why_missing(problem) or _obstacle(problem)

    def kind_of_call(self, problem: Problem, gatherer: Gatherer | None = None) -> CallKind:
        """Names also what the kernels are compiled for: the runs of a mask or a dense mask, dropout, and readings."""
        runs = None
        if problem.hiding_mask is not None:
            known_runs = device_runs(problem)
            runs = 0 if known_runs is None else known_runs.start.shape[3]
        names = () if gatherer is None else _read_by_kernel(gatherer)
        return CallKind.of(problem)._replace(runs=runs, dropout=problem.dropout > 0.0, readings=names)

    def delay(self, problem: Problem, gatherer: Gatherer | None = None) -> str | None:
        if problem.query.is_cpu:
            return "its interpreter runs calls that name it"
        state = _STATES.get((problem.query.device, self.kind_of_call(problem, gatherer)), COMPILING)
        return None if state is None else str(state)

    def prepare(self, problem: Problem, gatherer: Gatherer | None = None) -> None:
        """Compiles the kernels of this kind of call in a thread, by a trial; `_STATES` says how far it is.

        The trial allocates memory and waits for the device. A CUDA graph that another thread captures in the mode
        ``global``, which is PyTorch's default, fails meanwhile: warm up the calls of the graph before.

        Raises:
            BackendError: a trial broke the device's context.
        """
        device_kind = problem.query.device, self.kind_of_call(problem, gatherer)
        state = _STATES.get(device_kind)
        if isinstance(state, BackendError):
            raise state
        if problem.query.is_cpu or device_kind in _STATES or is_capturing(problem.query.device):
            return
        from regard.attention import trials

        _STATES[device_kind] = COMPILING
        identity = trials.identity_of(self, problem, gatherer)

        def compile_kernels() -> None:
            state: str | BackendError | None = None
            try:
                trials.decide(identity, compiles=True)
            except BackendError as error:
                state = error
            except Exception as error:
                state = f"its trial on a small problem ended with {type(error).__name__}: {error}"
            _STATES[device_kind] = state

        Thread(target=compile_kernels, name="regard triton", daemon=True).start()

    def read(self, problem: Problem, gatherer: Gatherer) -> None:
        if _read_by_kernel(gatherer):
            super().read(problem, gatherer)
        else:
            Tiled().read(problem, gatherer)

    def run(self, problem: Problem, gatherer: Gatherer | None = None) -> Tensor:
        from regard.kernels.triton.launch import attend

        call = call_of(problem)
        if problem.dropout > NOTHING_DROPPED:
            call = call._replace(seed=int(torch.randint(2**31, ()).item()))
        output, maximum, total = attend(call)
        if gatherer is not None:
            _read(problem, call, maximum, total, gatherer)
        if not problem.query.is_cpu:
            device_kind = problem.query.device, self.kind_of_call(problem, gatherer)
            if _STATES.get(device_kind, COMPILING) is not None:
                _STATES[device_kind] = None
        return output


COMPILING = "its kernels for this kind of call are being compiled"

_STATES: dict[tuple[torch.device, CallKind], str | BackendError | None] = {}
"""Why the kernels of kinds of calls are not ready; None if this process has compiled them."""


def _read_by_kernel(gatherer: Gatherer) -> tuple[str, ...]:
    """Returns the names of the readings; none if there are others than of rows and columns, which the kernel does not
    take, or if the sums of columns must have the same order in each call."""
    read = gatherer.read
    if any((read.top_k, read.pooled, read.rows is not None, read.tile, read.weights, read.shares)):
        return ()
    if read.received and torch.are_deterministic_algorithms_enabled():
        return ()
    return "lse", *(name for name in ("entropy", "peak", "distance", "received") if getattr(read, name))


@torch.no_grad()
def _read(problem: Problem, call: "Call", maximum: Tensor, total: Tensor, gatherer: Gatherer) -> None:
    """Fills a gatherer: by the kernel, if there are only readings of rows and columns; else by the specification."""
    from regard.kernels.triton.launch import read

    names = _read_by_kernel(gatherer)
    if not names:
        Tiled().read(problem, gatherer)
        return
    read(call, maximum, total, {name: getattr(gatherer, name) for name in names}, gatherer.grid.offset)


def _obstacle(problem: Problem) -> str | None:
    if problem.pairs == 0:
        return "there are no pairs"
    transform = active_transform()
    if transform is not None:
        return f"{transform}, and the fused kernels have a reverse mode only"
    if not can_branch_on(problem.query, problem.key, problem.value):
        return "the call is traced or batched"
    if problem.grid.batch * problem.grid.heads > MOST_HEADS:
        return f"the kernels take up to {MOST_HEADS:,} heads of all batch rows together"
    if problem.query.dtype == torch.float64:
        return "the kernels calculate in float32, and the inputs are float64"
    lowered = problem.lowered
    reason = CAPABILITIES.obstacle(lowered)
    if reason is not None:
        return reason
    prepared, row = lowered.score, lowered.row
    assert row is not None
    if row.center is not None:
        return "there is no kernel for a local window over the weights"
    if row.kind == "entmax" and not 1.0 < row.alpha <= 2.0:
        return "entmax is computed for an alpha up to 2"
    widths = prepared.query.shape[3], problem.value.shape[3]
    if min(widths) == 0:
        return "there are no features"
    is_units = not isinstance(prepared.primitive, InnerProduct)
    # `call_of` multiplies by a scale that is a tensor in float32.
    sizes = prepared.query.element_size(), problem.value.element_size(), 4 * isinstance(prepared.scale, Tensor)
    largest = LARGEST_DIM[max(2, *sizes)]
    if widths[1] > largest or (widths[0] > largest and not is_units):
        return f"the kernels take up to {largest} features"
    if is_units and isinstance(prepared.scale, Tensor):
        return "the scale of an additive score is a tensor"
    if _passes_to_bias(problem) and torch.are_deterministic_algorithms_enabled():
        return "the gradient of a bias is summed in an order that differs between calls"
    return None


def _passes_to_bias(problem: Problem) -> bool:
    """Whether the bias needs a gradient."""
    return problem.bias is not None and torch.is_grad_enabled() and problem.bias.needs_gradient(problem.query)


def call_of(problem: Problem) -> "Call":
    """Returns the arguments of the kernels, but the seed, for a problem that the backend does not decline."""
    from regard.kernels.triton.call import Call

    lowered, grid = problem.lowered, problem.grid
    prepared, row, runs = lowered.score, lowered.row, device_runs(problem)
    assert row is not None
    query, key, scale, weight = prepared.query, prepared.key, prepared.scale, None
    if isinstance(scale, Tensor):
        # Multiplied in float32: in half precision the product would lose digits.
        query, key, scale = upcast(query) * scale, upcast(key), 1.0
    if isinstance(prepared.primitive, TanhSum):
        weight = prepared.primitive.weight.float() * scale
        weight, scale = weight[None] if weight.dim() == 1 else weight, 1.0
    key, value = with_one_grouping(key, problem.value, grid.batch, grid.heads)
    mask = None
    if lowered.mask is not None and runs is None:
        mask = lowered.mask.with_four_axes(grid)
    diagonals = lowered.diagonals
    bias = lowered.dense_bias() if diagonals is None else diagonals
    sink = row.sink
    if sink is not None:
        sink = torch.as_tensor(sink, dtype=torch.float32, device=query.device).reshape(-1)
    names = {1.5: "entmax15", 2.0: "sparsemax"}
    assert not isinstance(row.alpha, Tensor)
    return Call(
        query=query,
        key=key.to(query.dtype),
        value=value,
        weight=weight,
        bias=None if bias is None else bias.float(),
        sink=sink,
        start=None if runs is None else runs.start,
        stop=None if runs is None else runs.stop,
        mask=mask,
        normalizer=names.get(row.alpha, "entmax") if row.kind == "entmax" else row.kind,
        scale=float(scale),
        cap=next((modifier.cap for modifier in prepared.modifiers if isinstance(modifier, Cap)), 0.0),
        temperature=row.temperature,  # type: ignore[arg-type]
        shift=row.shift,  # type: ignore[arg-type]
        alpha=row.alpha,
        dropout=problem.dropout,
    )
