"""Trials: on a device, a backend's first call of each kind is compared with the specification on a small problem.

Kernels of a device may err where those of others do not, and no machine has all devices. So `objection` runs a small
problem of the same kind (`regard.attention.call_kinds`) before the first call of a backend other than the
specification's, forward and, if a gradient is wanted, backward. A backend whose result differs is declined, with the
difference as its reason. The outcome is kept in memory, and for regard's own backends in the user's cache folder, with
the device's name and the versions that it holds for.

A trial runs in a thread of its own, without the caller's autocast, transforms, hooks and modes, and draws no random
number from the caller's generators. It waits for the device. While PyTorch compiles, exports or captures a graph there
are only outcomes of earlier trials.
"""

import hashlib
import json
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.backends.backend import Backend
from regard.attention.backends.reference import Reference
from regard.attention.call_kinds import CallKind
from regard.attention.problem import Problem
from regard.attention.readings import Gatherer, Readings
from regard.attention.routes import forget_routes
from regard.biases import TensorBias
from regard.errors import BackendError, RegardError
from regard.files.atomic import write_atomically
from regard.files.fork_lock import ForkLock
from regard.files.regular import LARGEST_RECORD, path_inside, read_text
from regard.tracing.transforms import has_data, is_capturing, is_transformed

UNTRIED_DEVICES = {"cpu", "meta"}
"""Types of devices whose backends need no trial: the tests of regard cover the CPU."""

SPECIFICATION = ("reference", "tiled")
"""The backends that are the specification."""

TOLERANCES = {"float64": 1e-9, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""Largest allowed difference from the float64 specification, in units of the largest expected element. Kernels round
weights and gradients of scores to half precision before they multiply; faults differ by about 1."""

TF32_TOLERANCE = 1e-2
"""The same for float32 if the user allows products of TF32."""


class Trial(NamedTuple):
    """The result of one trial.

    Attributes:
        difference: the largest difference from the float64 specification, in units of the largest expected element;
            NaN if the backend raised an error.
        objection: why the backend must not run calls of this kind; None if it may.
        is_stable: whether the next process may rely on it; an error that was raised may have passed by then.
        has_broken: whether the backend broke the device's context, so that this process can run nothing there any more.
    """

    difference: float
    objection: str | None
    is_stable: bool
    has_broken: bool = False


class TrialKey(NamedTuple):
    """The calls that an outcome holds for.

    Attributes:
        device: with its index, since devices of one type may differ.
        precision: how float32 products are rounded.
        is_deterministic: whether PyTorch's deterministic algorithms are on, which are other kernels, or errors.
    """

    backend: Backend
    device: torch.device
    precision: str
    call: CallKind
    kind: tuple[object, ...]
    is_deterministic: bool

    @property
    def is_own(self) -> bool:
        """Whether the backend is regard's, whose version is known."""
        return type(self.backend).__module__.startswith("regard.")

    def __str__(self) -> str:
        words = ["deterministic"] if self.is_deterministic else []
        return " · ".join(str(part) for part in (self.backend.name, *self.kind, self.precision, *words))


_OUTCOMES: dict[TrialKey, str | None] = {}
_LOCK = ForkLock()
_THREAD_STATE = threading.local()


def objection(backend: Backend, problem: Problem, gatherer: Gatherer | None = None) -> str | None:
    """Returns why a trial on this problem's device speaks against a backend; None if it may run.

    Args:
        backend: it does not decline the problem.
        problem: the problem, on any device; on those of `UNTRIED_DEVICES` there are no trials.
    """
    if (
        problem.query.device.type in UNTRIED_DEVICES
        or backend.name in SPECIFICATION
        or getattr(_THREAD_STATE, "is_trial", False)
    ):
        return None
    identity = identity_of(backend, problem, gatherer)
    if identity not in _OUTCOMES and _may_wait(problem.query):
        try:
            decide(identity)
        except torch.OutOfMemoryError:
            return None  # the next call tries again
    return _OUTCOMES.get(identity)


def is_pending(backend: Backend, problem: Problem) -> bool:
    """Whether a backend will be compared with the specification at its first call of this kind on a device.

    So it is for tensors without elements, which no trial can follow, and while PyTorch compiles or exports.
    """
    device = problem.query.device.type
    if device == "cpu" or backend.name in SPECIFICATION:
        return False
    return device in UNTRIED_DEVICES or identity_of(backend, problem) not in _OUTCOMES


def verify(backend: Backend, problem: Problem) -> Trial | None:
    """Tries a backend on a small problem of this kind again, and keeps the outcome; returns as `compare`."""
    device = problem.query.device
    trial = compare(backend, CallKind.of(problem), device)
    if trial is not None and device.type not in UNTRIED_DEVICES and backend.name not in SPECIFICATION:
        _keep(identity_of(backend, problem), trial)
    return trial


@contextmanager
def no_trials() -> Iterator[None]:
    """Returns a context in which this thread has no trials and hears of no outcome."""
    outer = getattr(_THREAD_STATE, "is_trial", False)
    _THREAD_STATE.is_trial = True
    try:
        yield
    finally:
        _THREAD_STATE.is_trial = outer


def identity_of(backend: Backend, problem: Problem, gatherer: Gatherer | None = None) -> TrialKey:
    """Returns what the outcome of a call's trial holds for; the arguments are those of `objection`."""
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    kind = backend.kind_of_call(problem, gatherer)
    call = kind if isinstance(kind, CallKind) else CallKind.of(problem)
    return TrialKey(backend, problem.query.device, _precision(problem), call, kind, is_deterministic)


def decide(identity: TrialKey, compiles: bool = False) -> None:
    """Finds the outcome of a backend in the user's cache folder, or by a trial, and keeps it.

    Args:
        identity: what the outcome holds for.
        compiles: whether the trial also takes place if its outcome is known and speaks for the backend, since it
            compiles the kernels. A backend that was declined is never tried again: it may break the device's context.

    Raises:
        OutOfMemoryError, BackendError: as `compare`; the trial broke the device's context.
    """
    if identity not in _OUTCOMES and identity.is_own:
        stored, name = _stored(identity.device), str(identity)
        if name in stored:
            _OUTCOMES[identity] = stored[name]
    if identity in _OUTCOMES and not (compiles and _OUTCOMES[identity] is None):
        return
    trial = compare(identity.backend, identity.call, identity.device)
    if trial is None:
        _OUTCOMES[identity] = None
    else:
        _keep(identity, trial)


def _keep(identity: TrialKey, trial: Trial) -> None:
    _OUTCOMES[identity] = trial.objection
    forget_routes()
    if identity.is_own and trial.is_stable:
        _store(identity.device, str(identity), trial.objection)
    if trial.has_broken:
        raise _broken(identity.device, f"backend {identity.backend.name!r} broke it: {trial.objection}")


def _broken(device: torch.device, cause: str) -> BackendError:
    return BackendError(
        f"this process can run nothing on {device} any more, since the device's context is broken: "
        f"start a new process; {cause}"
    )


def _responds(device: torch.device) -> bool:
    """Whether a device still computes; after an error of a kernel, CUDA refuses everything in the process."""
    try:
        return float(torch.ones((), device=device) + 1.0) == 2.0
    except torch.OutOfMemoryError:
        return True
    except Exception:
        return False


def _precision(problem: Problem) -> str:
    """Returns how float32 products are rounded, which users may change; empty for other dtypes."""
    return str(torch.backends.cuda.matmul.fp32_precision) if problem.query.dtype == torch.float32 else ""


def _may_wait(query: Tensor) -> bool:
    """Whether elements may be read now: nothing traces, transforms or captures a graph."""
    return has_data(query) and not is_transformed() and not is_capturing(query.device)


def compare(backend: Backend, kind: CallKind, device: torch.device) -> Trial | None:
    """Runs a small problem of a kind, on the device and on the CPU in float64, and compares the results.

    Returns:
        The trial; None if there is no small problem of this kind, or the backend declines it.

    Raises:
        OutOfMemoryError: the device's memory is full.
        BackendError: the device's context was broken before.
    """
    return _in_own_thread(lambda: _compare(backend, kind, device), device)


def _compare(backend: Backend, kind: CallKind, device: torch.device) -> Trial | None:
    try:
        problem = kind.problem(device)
    except Exception as error:
        if isinstance(error, torch.OutOfMemoryError) or _responds(device):
            raise
        raise _broken(device, f"an operation before this one raised {_summary(error)}") from error
    if problem is None:
        return None
    expected = _expected(kind)
    try:
        with torch.set_grad_enabled(kind.gradient):
            if backend.declines(problem) is not None:
                return None
        results = _results(backend, problem, kind)
        has_ignored_nan = _ignores_nan(backend, problem)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        has_broken = not _responds(device)
        objection = f"on this device it raised {_summary(error)}, on a trial ({kind})"
        # The next process would break its context as well.
        return Trial(torch.nan, objection, has_broken, has_broken)
    differences = {name: _difference(results[name], tensor) for name, tensor in expected.items()}
    name = max(differences, key=differences.__getitem__)
    largest = differences[name]
    is_tf32 = kind.dtype == "float32" and torch.backends.cuda.matmul.fp32_precision == "tf32"
    if largest > (TF32_TOLERANCE if is_tf32 else TOLERANCES[kind.dtype]):
        where = _where(results[name], expected[name])
        numbers = (
            f"{results[name][where]:.6g} for {name}{list(where)}; the specification gives {expected[name][where]:.6g}"
        )
        return Trial(largest, f"on this device it gave {numbers}, on a trial ({kind})", True)
    if has_ignored_nan:
        return Trial(largest, f"on this device it gave a number for a query of NaN, on a trial ({kind})", True)
    return Trial(largest, None, True)


def _summary(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]:.200}"


@lru_cache(maxsize=1)
def _expected(kind: CallKind) -> dict[str, Tensor]:
    """Returns the results of the specification in float64, which several backends are compared with."""
    problem = kind.problem("cpu", torch.float64)
    assert problem is not None
    return _results(Reference(), replace(problem, dropout=0.0), kind)


def _results(backend: Backend, problem: Problem, kind: CallKind) -> dict[str, Tensor]:
    """Returns the output, the kind's readings, and the gradients if it wants them, in float64 on the CPU."""
    gatherer = None
    if kind.readings:
        gatherer = Gatherer(problem, Readings(**{name: True for name in kind.readings if name != "lse"}))  # type: ignore[arg-type]
    with torch.set_grad_enabled(kind.gradient):
        output = backend.run(problem, gatherer)
    results = {"output": output}
    if gatherer is not None:
        # Where a row sees no key, its log-sum-exp is −inf.
        results |= {name: getattr(gatherer, name).nan_to_num(nan=torch.nan, neginf=-1.0) for name in kind.readings}
    if kind.gradient:
        inputs = {"query": problem.query, "key": problem.key, "value": problem.value}
        if isinstance(problem.bias, TensorBias) and problem.bias.tensor.requires_grad:
            inputs["bias"] = problem.bias.tensor
        generator = torch.Generator().manual_seed(7)
        grad_output = torch.randn(output.shape, generator=generator).to(getattr(torch, kind.dtype)).to(output)
        gradients = torch.autograd.grad(output, list(inputs.values()), grad_output)
        results |= {f"grad_{name}": gradient for name, gradient in zip(inputs, gradients, strict=True)}
    return {name: tensor.detach().cpu().double() for name, tensor in results.items()}


@torch.no_grad()
def _ignores_nan(backend: Backend, problem: Problem) -> bool:
    """Whether the output of the last query, which sees a key, is finite even if the query is NaN."""
    query = problem.query.detach().clone(memory_format=torch.preserve_format)
    query[0, :, -1] = torch.nan
    spoilt = replace(problem, query=query, key=problem.key.detach(), value=problem.value.detach(), dropout=0.0)
    if backend.declines(spoilt) is not None:
        return False
    return bool(backend.run(spoilt)[0, :, -1].isfinite().any())


def _difference(result: Tensor, expected: Tensor) -> float:
    if result.shape != expected.shape or not bool(result.isfinite().all()):
        return torch.inf
    if not expected.numel():
        return 0.0
    return float((result - expected).abs().max() / expected.abs().max().clamp(min=1e-30))


def _where(result: Tensor, expected: Tensor) -> tuple[int, ...]:
    """Returns the index of the element that differs most."""
    difference = (result - expected).abs().nan_to_num(nan=torch.inf)
    return tuple(int(index) for index in torch.unravel_index(difference.argmax(), difference.shape))


def _in_own_thread(function: Callable[[], Any], device: torch.device) -> Any:
    """Returns the result of a function that runs in a new thread, whose state in PyTorch is the default one."""
    results: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        _THREAD_STATE.is_trial = True
        try:
            if device.index:
                torch.accelerator.set_device_index(device.index)
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="regard trial", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


@cache
def surroundings(device: torch.device) -> dict[str, str]:
    """Returns what outcomes depend on besides the kind of call: the device's name, and versions."""
    module = torch.get_device_module(device)
    get_name = getattr(module, "get_device_name", None)  # not every type of device has names
    name = device.type if get_name is None else str(get_name(device))
    return {
        "device": f"{device.type}: {name}",
        "system": f"{platform.system()} {platform.machine()} {platform.mac_ver()[0]}".strip(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda or torch.version.hip),
        **{package: _version(package) for package in ("regard", "triton")},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _file(device: torch.device) -> Path | None:
    """Returns the file of a device's outcomes; None if there is no folder for it, or something else in its place."""
    from regard.kernels.cpu.cache import open_folder

    fingerprint = hashlib.sha256(repr(surroundings(device)).encode()).hexdigest()[:16]
    folder = open_folder(fingerprint, "trials")
    try:
        return None if folder is None else path_inside(folder, "outcomes.json")
    except RegardError:
        return None  # a pipe, or a link that leads out of the folder


def _stored(device: torch.device) -> dict[str, str | None]:
    """Returns the outcomes in the user's cache folder; none of a file that is damaged, which the next one replaces."""
    path = _file(device)
    try:
        content = {} if path is None else json.loads(read_text(path, LARGEST_RECORD))
        outcomes = content.get("outcomes", {})
        return {name: outcome for name, outcome in outcomes.items() if outcome is None or isinstance(outcome, str)}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def _store(device: torch.device, name: str, outcome: str | None) -> None:
    """Adds an outcome to those in the user's cache folder, if there is one that can be written."""
    path = _file(device)
    if path is None:
        return
    with _LOCK:
        content = {**surroundings(device), "outcomes": {**_stored(device), name: outcome}}
        try:
            write_atomically(path, json.dumps(content, indent=1).encode())
        except RegardError:
            return  # a trial is repeated by the next process


def forget() -> None:
    """Forgets the outcomes in memory; those in the cache folder stay."""
    _OUTCOMES.clear()
    forget_routes()
