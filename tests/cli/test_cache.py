"""``regard cache``: what it says of compiled kernels, what it removes, and compiling in advance, interrupted or not."""

import logging
import sys
from functools import partial

import numpy as np
import pytest

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import torch

import regard as package
from regard.cli import cache as command
from regard.kernels import availability
from regard.kernels.cpu import cache, kernel, kernels, packed_call


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    cache.cache_folder.cache_clear()
    yield
    cache.cache_folder.cache_clear()


@pytest.fixture
def regard(run_command):
    """Calls ``regard cache``; gives its exit code, standard output and standard error."""
    return partial(run_command, "cache")


def tiny(step):
    """A kernel that is compiled in a moment."""
    return kernel.Kernel(__name__, "tiny_kernel", str(step))


def tiny_kernel(word):
    from regard.kernels.cpu.bodies.intrinsics import array_at

    zero, step = np.int64(0), int(word)

    def body(address):
        array_at(address, 1, zero)[0] += step

    return body


def assert_one_line(found, *words):
    code, output, error = found
    assert code == 2, error
    assert error.startswith("regard: error:")
    assert error.count("\n") == 1
    assert "Traceback" not in output + error
    for word in words:
        assert word in error


def test_cache_prints_folder_count_and_size_of_its_kernels(regard, tmp_path):
    code, output, _ = regard()
    folder = cache.cache_folder()
    assert code == 0
    assert str(folder) in output
    assert "kernels  0" in output
    assert "usable   yes" in output
    tiny(2).address  # noqa: B018
    assert "kernels  1 (0.0 MB)" in regard()[1]
    old = folder.with_name("kernels-0123456789abcdef")
    old.mkdir(mode=0o700)
    (old / "old-0123456789abcdef.kernel").write_bytes(bytes(3_200_000))
    assert "1 (3.2 MB) in 1 folder of other versions or processors" in regard()[1]


def test_where_no_folder_can_be_used_it_says_so(regard, tmp_path):
    tmp_path.chmod(0o777)
    code, output, _ = regard()
    assert code == 0
    assert "folder   none" in output
    assert "usable   no" in output
    assert "REGARD_CACHE" in output


def test_clearing_leaves_what_is_not_ours(regard):
    tiny(2).address  # noqa: B018
    folder = cache.cache_folder()
    (file,) = cache.files_of(folder)
    file.write_bytes(b"damaged")
    (folder / "notes.txt").write_text("somebody's")
    assert regard("--clear") == (0, "removed  1 (0.0 MB)\n", "")
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert regard("--clear") == (0, "removed  0\n", "")


def test_kernels_that_cannot_be_removed_are_one_line(regard, monkeypatch):
    tiny(2).address  # noqa: B018

    def refuse(self, **_):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(cache.Path, "unlink", refuse)
    assert_one_line(regard("--clear"), "cannot remove", "Permission denied", str(cache.cache_folder()))


@pytest.mark.parametrize("option", [(), ("--warm",), ("--clear", "--warm")], ids="_".join)
def test_without_numba_it_is_one_line(regard, monkeypatch, option):
    monkeypatch.setattr(availability, "_NUMBA", False)
    assert_one_line(regard(*option), "Numba is not installed", "pip install")


def test_without_numba_kernels_can_be_cleared(regard, monkeypatch):
    tiny(2).address  # noqa: B018
    monkeypatch.setattr(availability, "_NUMBA", False)
    monkeypatch.setitem(sys.modules, "numba", None)
    assert regard("--clear")[0] == 0
    assert not list(cache.all_folders())


def test_kernels_that_can_be_kept_nowhere_are_not_compiled_in_advance(regard, tmp_path):
    tmp_path.chmod(0o777)
    assert_one_line(
        (*regard("--warm")[:2], "regard: error: " + regard("--warm")[2].split("regard: error: ")[1]), "kept"
    )


def test_an_unknown_dtype_is_refused(regard):
    code, _, error = regard("--warm", "--dtype", "float16")
    assert code == 2
    assert "float16" in error


def test_compiling_in_advance_goes_on_where_it_was_interrupted(regard, monkeypatch):
    interrupted = [True]

    def problems(dtype):
        def interrupt():
            if interrupted.pop():
                raise KeyboardInterrupt

        yield f"{dtype} first", lambda: tiny(2).address
        yield f"{dtype} second", lambda: interrupted and interrupt()
        yield f"{dtype} third", lambda: tiny(3).address

    monkeypatch.setattr(command, "problems", problems)
    code, _, error = regard("--warm")
    assert code == 130
    assert "goes on" in error
    folder = cache.cache_folder()
    before = {path: path.stat().st_mtime_ns for path in cache.files_of(folder)}
    assert len(before) == 1
    code, output, error = regard("--warm")
    assert code == 0
    assert "kernels  2" in output
    assert "3/3 float32 third" in error
    assert "left" in error
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())


@pytest.mark.parametrize("packed", [True, False])
def test_training_has_its_kernels_warmed(monkeypatch, packed):
    asked, kernel = set(), kernels._kernel
    monkeypatch.setattr(packed_call, "microkernel_is_faster", lambda: packed)

    def ask(module, maker, *words):
        asked.add("_".join((maker, *words)).removesuffix("_float32"))
        return kernel(module, maker, *words)

    monkeypatch.setattr(kernels, "_kernel", ask)
    *_, (name, run) = command.problems("float32")
    run()
    assert name == "float32 training"
    assert asked == ({"multiply", "packed_attention", "packed_attention_gradients"} if packed else set())


def test_dtypes_are_compiled_as_asked(regard, monkeypatch):
    seen = []

    def problems(dtype):
        seen.append(dtype)
        return iter(())

    monkeypatch.setattr(command, "problems", problems)
    for dtype in ("float32", "float64", "all"):
        assert regard("--warm", "--dtype", dtype)[0] == 0
    assert seen == ["float32", "float64", "float32", "float64"]


@pytest.mark.slow
def test_kernels_compiled_in_advance_serve_usual_calls(monkeypatch, caplog):
    # In the user's own folder: most of it is there already.
    monkeypatch.delenv("REGARD_CACHE")
    cache.cache_folder.cache_clear()
    for _, run in command.problems("float32"):
        run()
    caplog.clear()
    query, key = torch.randn(2, 3, 11, 5, requires_grad=True), torch.randn(2, 3, 13, 5, requires_grad=True)
    with caplog.at_level(logging.INFO, logger="regard"):
        for score in ("scaled_dot", package.scores.Additive(torch.randn(5))):
            for normalizer in ("softmax", "sparsemax", package.normalizers.entmax(1.5)):
                for mask in (None, package.masks.causal(), package.masks.window(3, 0)):
                    kind = {"score": score, "normalizer": normalizer, "mask": mask}
                    package.attend(query, key, key, backend="cpu", **kind).sum().backward()
                    package.observe(query, key, key, backend="cpu", **kind)
    assert not caplog.records
