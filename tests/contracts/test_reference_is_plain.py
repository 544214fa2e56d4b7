"""The backend ``reference`` is plain PyTorch: it imports no kernel, and runs none, down every path."""

import ast
import itertools
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import regard
from cases import BIASES, MASKS, NORMALIZERS, SCORES, H, problem
from regard import normalizers
from regard.kernels.cpu.kernel import Kernel
from regard.normalizers import compiled_rows

LEARNED = {
    "entmax_heads": lambda: normalizers.entmax(torch.tensor([1.2, 1.5, 2.5], dtype=torch.float64)),
    "own_function": lambda: lambda scores: normalizers.entmax(1.75)(scores),
    "local_entmax": lambda: normalizers.local_gaussian(normalizers.entmax(1.5), torch.tensor(3.0).double(), 1.5),
    "gumbel": lambda: normalizers.hard("gumbel"),
}
READ = regard.Readings(entropy=True, peak=True, top_k=3, received=True, distance=True, pooled=(2, 3), weights=True)


@pytest.fixture
def refused(monkeypatch):
    """Compiled rows are wanted for any number of scores, and no kernel runs."""

    def refuse(kernel):
        raise AssertionError(f"the kernel {kernel.name} was wanted")

    monkeypatch.setattr(Kernel, "address", property(refuse))
    monkeypatch.setattr(Kernel, "load", refuse)
    monkeypatch.setattr(compiled_rows, "KERNEL_NUMBERS", 1)


def cases():
    """Every score, normalizer, mask and bias, each with some of the others."""
    every = {**NORMALIZERS, **LEARNED}
    turns = itertools.cycle(every.values())
    for score, _ in itertools.product(SCORES.values(), range(3)):
        yield {"score": score(), "normalizer": next(turns)()}
    for mask, _ in itertools.product(MASKS.values(), range(3)):
        yield {"normalizer": next(turns)(), "mask": mask()}
    for normalizer in every.values():
        yield {"normalizer": normalizer(), "mask": MASKS["causal"](), "score": SCORES["additive"]()}
    for bias in BIASES.values():
        yield {"bias": bias(), "normalizer": normalizers.entmax(1.3)}


def test_no_kernel_runs_in_reference(refused):
    for arguments in cases():
        inputs = problem(requires_grad=True)
        output = regard.attend(*inputs, **arguments, dropout=0.3, backend="reference")
        output.square().sum().backward()
        inputs = problem()
        regard.observe(*inputs, **arguments, read=READ, backend="reference")
        regard.attend_with_weights(*inputs, **arguments, backend="reference")


def test_no_kernel_runs_where_something_is_not_finite(refused):
    """The path that isolates what a mask hides runs the same lines."""
    for normalizer in (*NORMALIZERS.values(), *LEARNED.values()):
        query, key, value = problem()
        value[0, :, 1:] = torch.nan
        leaves = [tensor.requires_grad_() for tensor in (query, key, value)]
        output = regard.attend(
            *leaves, normalizer=normalizer(), mask=MASKS["window"](), dropout=0.3, backend="reference"
        )
        output.nansum().backward()


def test_a_normalizer_on_its_own_is_compiled(refused):
    """So the test above would see a kernel."""
    if find_spec("numba") is None:
        pytest.skip("kernels are compiled by Numba")
    with pytest.raises(AssertionError, match="entmax"):
        normalizers.entmax(1.75)(torch.randn(H, 5, 7))


PROGRAM = """
import sys, torch, regard
from regard import masks, normalizers
inputs = [torch.randn(2, 4, 67, 8, requires_grad=True) for _ in range(3)]
regard.observe(*inputs, backend="tiled")  # the verbs and the planner, which knows every backend
before = set(sys.modules)
for normalizer in ("softmax", "sparsemax", normalizers.entmax(1.75), normalizers.entmax(torch.tensor(1.3))):
    for mask in (None, masks.causal()):
        for dropout in (0.0, 0.2):
            output = regard.attend(*inputs, normalizer=normalizer, mask=mask, dropout=dropout, backend="reference")
            output.sum().backward()
            regard.observe(*inputs, normalizer=normalizer, mask=mask, backend="reference")
print(*sorted(name for name in set(sys.modules) - before if name.startswith(("regard.kernels", "numba"))))
"""


def test_the_reference_loads_no_module_of_kernels():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def _imported(module):
    """The modules of regard that a module's source names in imports, in functions too."""
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if node.module.startswith("regard") and spec_of(name) else node.module


def spec_of(name):
    """A module's spec; None where the name is no module's."""
    try:
        return find_spec(name)
    except ModuleNotFoundError:
        return None


def test_files_of_the_reference_import_no_kernel():
    """But for the rows of a normalizer that is called on its own."""
    waiting, known = ["regard.attention.backends.reference"], set()
    for room in ("scores", "normalizers", "masks", "biases"):
        folder = Path(regard.__file__).parent / room
        waiting.extend(f"regard.{room}.{file.stem}" for file in folder.glob("*.py") if file.stem != "__init__")
    while waiting:
        module = waiting.pop()
        if module in known or module == "regard.normalizers.compiled_rows":
            continue
        known.add(module)
        waiting.extend(name for name in _imported(module) if name.startswith("regard."))
    assert "regard.attention.problem" in known
    assert not [name for name in known if name.startswith("regard.kernels")]
