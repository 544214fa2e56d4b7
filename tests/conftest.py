"""What every test gets: one thread a worker, a fixed seed, and memory that was never written is NaN."""

import gc
import os
import signal
import sys

import pytest
import torch
from hypothesis import settings

from browsers import chromium  # noqa: F401
from regard.kernels.cpu import compiling_process

settings.register_profile("regard", deadline=None, max_examples=30, print_blob=True)
settings.load_profile("regard")

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
    # The workers take all processors: further processes that compile kernels would only wait for them.
    compiling_process._processors = lambda: 1


# A shell that starts the tests in the background lets them ignore these, and the commands that they start too.
for name, handler in {"SIGINT": signal.default_int_handler, "SIGHUP": signal.SIG_DFL}.items():
    number = getattr(signal, name, None)
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


def pytest_collection_finish():
    """Modules and the tests themselves are never garbage: the collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(20170612)


@pytest.fixture(autouse=True)
def _poisoned_memory():
    """`torch.empty` gives NaN, so that reading what was never written shows."""
    fill = torch.utils.deterministic.fill_uninitialized_memory
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.utils.deterministic.fill_uninitialized_memory = fill


@pytest.fixture(params=["bfloat16 instructions", "no bfloat16 instructions"])
def processor(request, monkeypatch):
    """Products are made as on both kinds of processors."""
    from regard.nn import matrix_products  # here, since only the tests of products need it

    monkeypatch.setattr(matrix_products, "_has_no_bfloat16", lambda: request.param.startswith("no"))
    return request.param


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
