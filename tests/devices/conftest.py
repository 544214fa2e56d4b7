"""Every test of this folder runs on an accelerator: a GPU if there is one, otherwise the emulated device.

::

    pytest tests/devices      # also on a machine with a GPU
"""

import warnings
from contextlib import contextmanager

import pytest
import torch

from regard.shapes.grid import Grid

HAS_GPU = torch.cuda.is_available()

if not HAS_GPU:
    import emulated_device


def pytest_collection_modifyitems(config, items):
    """Of the laws of other folders the last case runs here; with ``--full`` all."""
    laws = [item for item in items if item.path.name == "test_laws.py"]
    if not config.getoption("full"):
        last = {item.originalname: item for item in laws}
        left_out = set(laws) - set(last.values())
        items[:] = [item for item in items if item not in left_out]


class HostGenerator(torch.Generator):
    """A generator of the emulated device, which draws on the host."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls, "cpu")


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """Makes every tensor on the accelerator, and returns its name."""
    name = "cuda" if HAS_GPU else emulated_device.NAME
    if not HAS_GPU:
        monkeypatch.setattr(emulated_device.MODULE, "is_visible", True)
        monkeypatch.setattr("regard.tracing.transforms.READS_PINNED_MEMORY", (emulated_device.NAME,))
        monkeypatch.setattr(torch, "Generator", HostGenerator)
    whole = Grid.whole

    def whole_on_device(*sizes, **device):
        return whole(*sizes, **device) if device or len(sizes) > 4 else whole(*sizes, torch.empty(0).device)

    monkeypatch.setattr(Grid, "whole", whole_on_device)
    for function in ("randn", "rand") if HAS_GPU else ():
        monkeypatch.setattr(torch, function, _drawn_on_host(getattr(torch, function)))
    torch.manual_seed(20170612)
    with torch.device(name), torch.autograd.set_multithreading_enabled(HAS_GPU):
        yield name


def _drawn_on_host(function):
    """Returns the function for calls with a CPU's generator, whose numbers a GPU cannot draw."""

    def drawn(*sizes, generator=None, **options):
        if generator is None:
            return function(*sizes, **options)
        requires_grad = options.pop("requires_grad", False)
        numbers = function(*sizes, generator=generator, **{**options, "device": generator.device})
        return numbers.to(torch.empty(0).device).requires_grad_(requires_grad)

    return drawn


@pytest.fixture
def never_waits():
    """Returns a context in which an operator that makes the host wait for the accelerator is an error."""

    @contextmanager
    def context():
        if HAS_GPU:
            torch.cuda.synchronize()
            with warnings.catch_warnings(action="ignore"):  # the mode is a prototype, it says
                torch.cuda.set_sync_debug_mode("error")
            try:
                yield
            finally:
                torch.cuda.set_sync_debug_mode("default")
            return
        with emulated_device.counted() as count:
            yield
        assert not count.waits, "\n".join(count.waits)

    return context


@pytest.fixture
def operators():
    """Returns a function that counts the operators of a call."""
    if HAS_GPU:
        pytest.skip("operators are counted on the emulated device")

    def count(call):
        with emulated_device.counted() as counted:
            call()
        return counted.operators

    return count


@pytest.fixture
def accelerator(monkeypatch):
    """The name of the accelerator for ``regard.train(accelerator=...)``; other tensors are made on the host again."""
    with torch.device("cpu"):
        if HAS_GPU:
            yield "gpu"
            return
        _register(monkeypatch)
        monkeypatch.setattr(torch.nn.Module, "to", _moved_with_ties(torch.nn.Module.to))
        yield emulated_device.NAME


def _moved_with_ties(move):
    """PyTorch gives a module new parameters on the emulated device, and tied ones would be two."""

    def moved(module, *arguments, **options):
        names = {}
        for name, parameter in module.named_parameters(remove_duplicate=False):
            names.setdefault(parameter, []).append(name)
        move(module, *arguments, **options)
        for first, *others in names.values():
            for owner, _, own_name in (other.rpartition(".") for other in others):
                setattr(module.get_submodule(owner), own_name, module.get_parameter(first))
        return module

    return moved


def _register(monkeypatch):
    """Lets Lightning's Fabric know the emulated device."""
    from lightning.fabric.accelerators import ACCELERATOR_REGISTRY, CPUAccelerator
    from lightning.fabric.strategies import SingleDeviceStrategy

    class Emulated(CPUAccelerator):
        def setup_device(self, device):
            pass

        @staticmethod
        def get_parallel_devices(devices):
            return [torch.device(emulated_device.NAME, 0)]

    # Fabric puts one device of an accelerator that it does not know on the CPU, unless a strategy names the device.
    strategy = SingleDeviceStrategy(torch.device(emulated_device.NAME, 0))
    ACCELERATOR_REGISTRY.register(emulated_device.NAME, Emulated, override=True)
    monkeypatch.setattr("regard.training.processes._strategy", lambda training: strategy)
    monkeypatch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)


@pytest.fixture
def waits():
    """Returns a function that calls another one and returns the waits of it, each with the lines that led to it."""

    def waits_of(call):
        if HAS_GPU:
            pytest.skip("waits are counted on the emulated device; a GPU only tells whether there is one")
        with emulated_device.counted() as counted:
            call()
        return counted.waits

    return waits_of
