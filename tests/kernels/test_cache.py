"""Machine code is compiled once and kept; where nothing can be kept or compiled, attention works all the same."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from regard.kernels import availability
from regard.kernels.cpu import compiled

ATTEND = """
import torch, regard
torch.manual_seed(0)
query, key, value = torch.randn(3, 1, 1, 5, 3).unbind()
key = torch.randn(1, 1, 7, 3)
value = torch.randn(1, 1, 7, 2)
got = regard.attend(query, key, value, backend="cpu")
torch.testing.assert_close(got, regard.attend(query, key, value, backend="reference"))
print("done")
"""

MISSING = """
import sys
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numba" else find(name, *rest)
sys.modules["numba"] = None
import torch, regard
query = torch.randn(1, 1, 5, 3)
additive = regard.scores.Additive(torch.randn(3))
large = torch.randn(1, 1, 3001, 64)
wide = regard.scores.Additive(torch.randn(64))
plan = regard.plan(large, large, large, score=wide)
assert plan.backend == "tiled", plan
assert "Numba is not installed" in plan.reasons["cpu"], plan
assert "pip install" in plan.reasons["cpu"], plan
assert regard.attend(query, query, query, score=additive).shape == query.shape
try:
    regard.attend(query, query, query, score=additive, backend="cpu")
except regard.errors.BackendError as error:
    assert "Numba is not installed" in str(error)
else:
    raise AssertionError("a named backend runs or raises")
print("done")
"""

IMPORT = """
import sys
import regard, torch
regard.plan(*torch.randn(3, 1, 1, 5, 3).unbind())
assert "numba" not in sys.modules and "llvmlite" not in sys.modules
print("done")
"""


def run(code, **environment):
    """What a fresh process says on stderr; it must get to its end."""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("done")
    return done.stderr


@pytest.mark.slow
def test_a_kernel_is_compiled_once(tmp_path):
    first = run(ATTEND, REGARD_CACHE=str(tmp_path))
    assert "compiling the CPU kernel 'attention_forward_float32_product_softmax_" in first
    assert str(tmp_path) in first
    assert "compiled" in first
    assert "compil" not in run(ATTEND, REGARD_CACHE=str(tmp_path))


@pytest.mark.slow
def test_without_a_folder_kernels_are_compiled_for_the_process():
    said = run(ATTEND, REGARD_CACHE=f"{os.devnull}/nowhere")
    assert "no cache folder can be written" in said
    assert "compiled 'attention_forward_float32_product_softmax_" in said


@pytest.mark.slow
def test_without_numba_the_plan_says_so_and_tiled_serves():
    assert "compil" not in run(MISSING)


@pytest.mark.slow
def test_importing_and_planning_imports_no_compiler():
    run(IMPORT)


@pytest.fixture(autouse=True)
def _forgotten():
    """What was found out about this machine's folders and packages is found out again."""
    compiled.cache_folder.cache_clear()
    yield
    compiled.cache_folder.cache_clear()


def test_the_folder_is_named_after_the_sources(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    folder = compiled.cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path / "regard"
    assert folder.is_dir()
    assert not list(folder.iterdir())


def test_the_users_cache_is_used_and_then_the_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("REGARD_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compiled.cache_folder().is_relative_to(tmp_path / "regard")
    compiled.cache_folder.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", f"{os.devnull}/nowhere")
    monkeypatch.setattr(compiled.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert compiled.cache_folder().is_relative_to(tmp_path / "temporary")


def test_a_folder_of_somebody_else_is_not_trusted(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    if not hasattr(os, "getuid"):
        pytest.skip("there are no owners here")
    monkeypatch.setattr(compiled.os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert compiled.cache_folder() is None


def test_without_numba_the_reason_tells_what_to_install(monkeypatch):
    monkeypatch.setattr(availability, "_NUMBA", False)
    assert "pip install" in availability.why_missing()
