"""What every test gets: one thread a worker, a fixed seed, and memory that was never written is NaN."""

import functools
import gc
import os
import runpy
import signal
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from torch.utils import _device

import backends
import covering
from browsers import chromium, launch, pages, wide_pages  # noqa: F401
from fonts import hide_system_fonts, need_system_fonts  # noqa: F401
from regard.attention.routes import forget_routes
from regard.kernels.availability import kernels_awaited
from regard.kernels.cpu import compiling_process
from regard.tracing.transforms import can_branch_on

settings.register_profile("regard", deadline=None, max_examples=20, print_blob=True)
settings.register_profile("full", settings.get_profile("regard"), max_examples=100)
settings.load_profile("regard")

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

# Compiling and exporting make millions of objects that are no garbage: the collector took a tenth of the time.
gc.set_threshold(50_000, 20, 20)


# A shell that starts the tests in the background lets them ignore these, and the commands that they start too.
for name, handler in {"SIGINT": signal.default_int_handler, "SIGHUP": signal.SIG_DFL}.items():
    number = getattr(signal, name, None)
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


def pytest_addoption(parser):
    parser.addoption(
        "--full",
        action="store_true",
        help="full grids of cases in place of samples (tests/support/covering.py), and more examples",
    )
    parser.addoption(
        "--site", action="store_true", help="also what `make docs-test` built, and every line of the pages"
    )


def pytest_configure(config):
    # Git ignores the joined viewer; the workers find the file that the process that starts them has written.
    if "PYTEST_XDIST_WORKER" not in os.environ:
        runpy.run_path(str(Path(__file__).parents[1] / "viewer" / "join.py"))["write"]()
    hide_system_fonts(config)
    backends.is_full = config.getoption("full")
    if backends.is_full:
        settings.load_profile("full")


def pytest_generate_tests(metafunc):
    covering.parametrize(metafunc)


def pytest_collection_modifyitems(items):
    """A test's name is the same in every process, or the workers would not have the same tests."""
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"the address of an object is part of a test's name; give it ids: {item.nodeid}")


def pytest_collection_finish():
    """Modules and the tests themselves are never garbage: the collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def is_full(request):
    """Whether ``--full`` was given. Without it gradients are checked along random directions, not number by number."""
    return request.config.getoption("full")


@pytest.fixture(autouse=True)
def _seeded():
    # To tell other devices their seeds, of which there are none, takes as long as many a test.
    (torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed)(20170612)


@pytest.fixture(autouse=True)
def _no_routes():
    """What an earlier test found out of a kind of calls, with other thresholds perhaps, serves no later one."""
    forget_routes()


@pytest.fixture(autouse=True, scope="session")
def _kernels_awaited():
    """``backend="auto"`` waits for kernels, so that no test depends on how long compiling takes.

    One worker compiles those of all tests.
    """
    patch = pytest.MonkeyPatch()
    patch.setattr(compiling_process, "_PROGRAM", "patient_compiler")
    with kernels_awaited():
        yield
    patch.undo()


@pytest.fixture
def no_kernel_awaited(monkeypatch):
    """``backend="auto"`` does not wait, as outside of tests."""
    from regard.kernels import availability

    monkeypatch.setattr(availability, "_WAITING", [])


@pytest.fixture(autouse=True, scope="session")
def _unsynced_files():
    """Nothing waits for a disk, dozens of times in each training: only a power cut would show what that is for."""
    patch = pytest.MonkeyPatch()
    patch.setattr(os, "fsync", lambda descriptor: None)
    yield
    patch.undo()


@pytest.fixture(autouse=True, scope="session")
def _poisoned_memory():
    """Memory that was never written holds NaN, or the largest integer, so that reading it shows."""
    patch = pytest.MonkeyPatch()
    # A device as a context knows the functions that it changes by what they are when it is first used.
    _device._device_constructors()
    for name in ("empty", "empty_like", "empty_strided", "empty_permuted"):
        patch.setattr(torch, name, _poisoning(getattr(torch, name)))
    for name in ("new_empty", "new_empty_strided"):
        patch.setattr(torch.Tensor, name, _poisoning(getattr(torch.Tensor, name)))
    yield
    patch.undo()


def _poisoning(function):
    @functools.wraps(function)
    def poisoned(*args, **kwargs):
        tensor = function(*args, **kwargs)
        if can_branch_on(tensor) and tensor.is_cpu and tensor.layout is torch.strided and "out" not in kwargs:
            number = torch.nan
            if not (tensor.is_floating_point() or tensor.is_complex()):
                number = True if tensor.dtype == torch.bool else torch.iinfo(tensor.dtype).max
            with torch.no_grad():
                tensor.fill_(number)
        return tensor

    return poisoned


@pytest.fixture
def run_command(capsys, monkeypatch):
    """Calls ``regard`` as a shell would; gives its exit code, standard output and standard error."""
    from regard import cli  # here, since only the tests of commands need it

    def call(*arguments):
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code or 0
        return code, *capsys.readouterr()

    return call
