"""Machine code is compiled once and kept; where nothing can be kept or compiled, attention works all the same."""

import ast
import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from kernels.tiny import call, tiny
from regard.errors import ArgumentError
from regard.kernels import availability
from regard.kernels.cpu import cache, kernel, machine_code, target

pytestmark = pytest.mark.usefixtures("forgotten", "_compiled_here")

PYTHON = sys.executable


@pytest.fixture
def _compiled_here(monkeypatch):
    """Kernels of these tests are compiled in this process: a worker for each test would import the compiler again."""
    monkeypatch.setattr(sys, "executable", None)


ATTEND = """
import sys, torch, regard
torch.manual_seed(0)
query, key, value = torch.randn(1, 1, 5, 3), torch.randn(1, 1, 7, 3), torch.randn(1, 1, 7, 2)
regard.plan(query, key, value)
assert "numba" not in sys.modules and "llvmlite" not in sys.modules
got = regard.attend(query, key, value, backend="cpu")
torch.testing.assert_close(got, regard.attend(query, key, value, backend="reference"))
assert "numba" not in sys.modules
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


def run(code, **environment):
    """What a fresh process says on stderr; it must get to its end."""
    done = subprocess.run(
        [PYTHON, "-c", code], env=os.environ | environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("done")
    return done.stderr


TINY = f"""
import sys
sys.path.insert(0, {os.path.dirname(os.path.dirname(__file__))!r})
from kernels.tiny import call, tiny
assert call(tiny()) == 7
print("done")
"""


def only_file(folder):
    (path,) = cache.files_of(folder)
    return path


@pytest.mark.slow
def test_a_kernel_of_attention_is_compiled_once_by_another_process(tmp_path):
    """No call imports the compiler."""
    first = run(ATTEND, REGARD_CACHE=str(tmp_path))
    assert "compiling the CPU kernel 'attention_forward_float32_product_softmax'" in first
    assert str(tmp_path) in first
    assert "compiled" in first
    assert "compil" not in run(ATTEND, REGARD_CACHE=str(tmp_path))


@pytest.mark.slow
def test_without_a_folder_kernels_are_compiled_for_the_process():
    said = run(TINY, REGARD_CACHE=f"{os.devnull}/nowhere")
    assert "no cache folder is writable" in said
    assert "compiled 'tiny_kernel_7'" in said


@pytest.mark.slow
def test_without_numba_the_plan_says_so_and_tiled_serves():
    assert "compil" not in run(MISSING)


def test_the_folder_is_named_after_the_sources(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    folder = cache.cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path / "regard"
    assert folder.is_dir()
    assert not list(folder.iterdir())


def test_the_users_cache_is_used_and_then_the_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("REGARD_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder().is_relative_to(tmp_path / "regard")
    cache.cache_folder.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", f"{os.devnull}/nowhere")
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert cache.cache_folder().is_relative_to(tmp_path / "temporary")


def test_no_cache_is_made_in_the_working_directory(tmp_path, monkeypatch):
    """An empty variable counts as unset; a relative path is refused in regard's, and ignored in the system's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REGARD_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    assert cache.cache_folder().is_relative_to(tmp_path / "users" / "regard")
    for user, home in (("relative", str(tmp_path / "home")), ("", "relative/home"), (".", "."), ("", "")):
        cache.cache_folder.cache_clear()
        monkeypatch.setenv("XDG_CACHE_HOME", user)
        monkeypatch.setenv("HOME", home)
        assert all(root.is_absolute() for root, _ in cache._locations())
    for own in ("cache", ".", "./x", "~/x"):
        monkeypatch.setenv("REGARD_CACHE", own)
        for use in (cache.cache_folder, lambda: list(cache.all_folders())):
            with pytest.raises(ArgumentError, match="REGARD_CACHE must be an absolute path; it is '") as caught:
                use()
            assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["users"]


def test_a_folder_of_somebody_else_is_not_trusted(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    if not hasattr(os, "getuid"):
        pytest.skip("there are no owners here")
    monkeypatch.setattr(cache.os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    assert cache.cache_folder() is None


def test_without_numba_the_reason_tells_what_to_install(monkeypatch):
    monkeypatch.setattr(availability, "_NUMBA", False)
    assert "pip install" in availability.why_missing()


def test_a_kept_kernel_is_loaded_and_gives_the_same(folder, said):
    assert call(tiny()) == 7
    assert len(said()) == 2
    before = only_file(folder).stat()
    assert call(tiny()) == 7
    assert not said()
    assert only_file(folder).stat().st_mtime_ns == before.st_mtime_ns
    assert before.st_mode & 0o777 == 0o600


def test_kernels_of_different_words_are_different(folder):
    for step in (2, 3, 2, 3):
        assert call(tiny(step)) == step
    assert len(cache.files_of(folder)) == 2


def overwrite(path, start, stop, content=None):
    data = bytearray(path.read_bytes())
    start, stop = int(start * len(data)), int(stop * len(data))
    data[start:stop] = os.urandom(stop - start) if content is None else content
    path.write_bytes(data)


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[int(place * (len(data) - 1))] ^= 0b100
    path.write_bytes(data)


def make_folder(path, *inside):
    path.unlink()
    path.mkdir()
    for name in inside:
        (path / name).write_text("somebody's")


def link_elsewhere(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def make_pipe(path):
    path.unlink()
    os.mkfifo(path)


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "one byte": lambda path: path.write_bytes(b"r"),
    "truncated in its head": lambda path: os.truncate(path, 37),
    "truncated in its middle": lambda path: os.truncate(path, path.stat().st_size // 2),
    "one byte short": lambda path: os.truncate(path, path.stat().st_size - 1),
    "one byte long": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "a bit of the magic number": lambda path: flip(path, 0.0),
    "a bit of the checksum": lambda path: overwrite(path, 0.003, 0.005),
    "a bit of the code": lambda path: flip(path, 0.5),
    "the last bit": lambda path: flip(path, 1.0),
    "a block of machine code": lambda path: overwrite(path, 0.2, 0.6),
    "a block of zeros": lambda path: overwrite(path, 0.3, 0.4, b"\0" * 257),
    "garbage": lambda path: overwrite(path, 0.0, 1.0),
    "a folder": make_folder,
    "a folder with a file": lambda path: make_folder(path, "notes.txt"),
    "a symbolic link": link_elsewhere,
    "a named pipe": make_pipe,
    "open to all": lambda path: path.chmod(0o666),
    "of an absurd size": lambda path: os.truncate(path, 1 << 40),
}


def test_a_damaged_file_is_named_and_compiled_again(folder, said):
    for name, damage in DAMAGE.items():
        call(tiny())
        path = only_file(folder)
        damage(path)
        said()
        assert call(tiny()) == 7, name
        lines = said()
        assert len([line for line in lines if "damaged" in line and str(path) in line and "again" in line]) == 1, lines
        assert len(lines) == 2, lines
        assert path.is_file(), name
        assert call(tiny()) == 7, name
        assert not said(), name


def test_a_foreign_folder_in_the_place_of_a_kernel_is_not_lost(folder):
    call(tiny())
    path = only_file(folder)
    make_folder(path, "notes.txt")
    call(tiny())
    assert [found.read_text() for found in folder.glob("*/notes.txt")] == ["somebody's"]


def test_a_file_of_another_kernel_is_not_taken_for_this_one(folder, said):
    call(tiny(2))
    two = only_file(folder)
    call(tiny(3))
    (three,) = set(cache.files_of(folder)) - {two}
    three.write_bytes(two.read_bytes())
    said()
    assert call(tiny(3)) == 3
    assert "damaged" in said()[0]


def test_machine_code_is_not_touched_before_its_checksum_is_verified(folder, monkeypatch):
    """Whatever a file holds, nothing of it reaches the linker unless the sum is right."""
    call(tiny())
    path, linked = only_file(folder), []
    monkeypatch.setattr(machine_code.MachineCode, "link", linked.append)
    content = path.read_bytes()
    for place in range(0, len(content), len(content) // 53):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(cache.DamagedFileError):
            cache.load(path, target.target())
    assert not linked


@pytest.mark.parametrize("fake", ["features", "name", "numba", "settings", "file of settings", "sources"])
def test_a_cache_made_elsewhere_is_not_loaded(folder, tmp_path, said, monkeypatch, fake):
    call(tiny())
    old = only_file(folder)
    if fake in ("features", "name"):
        line = {"features": "flags\t\t: fpu sse2", "name": "model name\t: Z80"}[fake]
        description = tmp_path / "cpuinfo"
        description.write_text(f"processor\t: 0\nflags\t\t: fpu\n{line}\n\nprocessor\t: 1\n")
        monkeypatch.setattr(target, "_CPUINFO", description)
        target.processor.cache_clear()
    elif fake == "numba":
        monkeypatch.setattr(target, "_versions", lambda: ("0.0.1",))
    elif fake == "settings":
        monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    elif fake == "file of settings":
        monkeypatch.chdir(tmp_path)
        (tmp_path / ".numba_config.yaml").write_text("cpu_name: generic\n")
    else:
        monkeypatch.setattr(target, "_SOURCES", b"edited")
    cache.cache_folder.cache_clear()
    said()
    other = cache.cache_folder()
    assert other != folder
    # Somebody who copies the whole folder to another machine under its new name.
    (other / old.name).write_bytes(old.read_bytes())
    (other / old.name).chmod(0o600)
    assert call(tiny()) == 7
    assert "damaged" in said()[0]
    target.processor.cache_clear()


def test_a_processor_that_the_system_does_not_describe_is_described_by_llvm(tmp_path, monkeypatch):
    import llvmlite.binding

    monkeypatch.setattr(target, "_CPUINFO", tmp_path / "none")
    found = target.processor.__wrapped__()
    assert found[0] == llvmlite.binding.get_host_cpu_name()

    def unknown():
        raise RuntimeError

    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", unknown)
    assert target.processor.__wrapped__() == (found[0], "")


def test_the_sources_that_bodies_are_made_of_count(tmp_path, monkeypatch):
    package = tmp_path / "kernels"
    (package / "cpu" / "bodies").mkdir(parents=True)
    names = (*target.SOURCES[:-1], "cpu/bodies/new.py")
    for name in names:
        (package / name).write_text("1")
    monkeypatch.setattr(target, "__file__", str(package / "cpu" / "target.py"))
    seen = {target._sources()}
    for name in names:
        (package / name).write_text("2")
        seen.add(target._sources())
    assert len(seen) == 1 + len(names)


def test_bodies_are_made_of_nothing_else():
    """Whatever a body imports of this package counts, or its machine code would be that of another version."""
    kernels = Path(target.__file__).parents[1]
    allowed = {f"regard.kernels.{name.removesuffix('.py').replace('/', '.')}" for name in target.SOURCES}
    allowed |= {"regard.errors", "regard.kernels.cpu.machine_code"}  # what fails, and where the code goes
    for path in [kernels / name for name in target.SOURCES[:-1]] + sorted((kernels / "cpu" / "bodies").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("regard"):
                modules = {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
                assert any(module in allowed or module.startswith("regard.kernels.cpu.bodies") for module in modules), (
                    path, node.module,
                )  # fmt: skip


def test_the_source_of_a_kernel_that_is_defined_elsewhere_counts(folder, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    names = set()
    for number in (1, 2):
        (tmp_path / "elsewhere_defined.py").write_text(f"NUMBER = {number}")
        names.add(kernel.Kernel("elsewhere_defined", "maker", "word").source.path(folder))
    assert len(names) == 2


def test_a_compiler_that_is_loaded_already_finds_the_same_folder(folder):
    call(tiny())
    assert "numba" in sys.modules
    assert "compil" not in run(TINY)


def test_object_code_without_the_function_is_damaged(folder, said):
    call(tiny())
    path = only_file(folder)
    found = machine_code.MachineCode.from_content(cache.load(path, target.target()))
    cache.store(path, target.target(), found._replace(symbol="another").content)
    said()
    assert call(tiny()) == 7
    assert "the code has no function 'another'" in said()[0]


def test_processes_that_compile_the_same_kernel_do_not_meet(folder, said):
    both = [subprocess.Popen([PYTHON, "-c", TINY], stderr=subprocess.PIPE) for _ in range(2)]
    for process in both:
        error = process.communicate(timeout=300)[1].decode()
        assert process.returncode == 0, error
        assert "damaged" not in error
    assert call(tiny()) == 7
    assert not said()


def test_whoever_reads_while_others_write_sees_a_whole_file(folder):
    path, stop = folder / "tiny-0123456789abcdef.kernel", threading.Event()
    codes = [bytes([fill]) * 100_003 for fill in range(2)]

    def write(code):
        while not stop.is_set():
            cache.store(path, b"target", code)

    writers = [threading.Thread(target=write, args=(code,)) for code in codes]
    for writer in writers:
        writer.start()
    try:
        seen = {cache.load(path, b"target") for _ in range(307)}
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert seen <= {None, *codes}
    assert list(cache.files_of(folder)) == [path]


def test_a_full_disk_is_one_warning(folder, said, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache.os, "replace", full)
    assert call(tiny(2)) == 2
    assert call(tiny(3)) == 3
    assert len([line for line in said() if "cannot be stored" in line and "No space" in line]) == 1
    assert not list(folder.iterdir())


def test_a_folder_that_vanishes_is_one_warning(folder, said):
    folder.rmdir()
    assert call(tiny(2)) == 2
    assert call(tiny(3)) == 3
    assert len([line for line in said() if "cannot be stored" in line and str(folder) in line]) == 1


def test_kernels_are_loaded_from_a_folder_that_can_only_be_read(folder, said, monkeypatch):
    call(tiny())
    monkeypatch.setattr(cache, "is_writable", lambda _: False)
    cache.cache_folder.cache_clear()
    said()
    assert cache.cache_folder() == folder
    assert call(tiny()) == 7
    assert not said()
    only_file(folder).unlink()
    cache.cache_folder.cache_clear()
    assert cache.cache_folder() is None


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
@pytest.mark.parametrize("which", ["regard", "kernels", "link"])
def test_a_folder_that_others_can_write_is_refused_in_one_line(folder, said, mode, which):
    open_one = folder if which == "kernels" else folder.parent
    if which == "link":
        folder.parent.rename(folder.parent.with_name("target"))
        folder.parent.symlink_to("target")
    open_one.chmod(mode)
    cache.cache_folder.cache_clear()
    assert cache.cache_folder() is None
    (line,) = said()
    assert str(open_one) in line
    assert "chmod go-w" in line
    open_one.chmod(0o700)
    cache.cache_folder.cache_clear()
    assert cache.cache_folder() == folder


def test_a_root_open_to_all_needs_the_sticky_bit(tmp_path, folder, said):
    tmp_path.chmod(0o777)
    cache.cache_folder.cache_clear()
    assert cache.cache_folder() is None
    assert str(tmp_path) in said()[0]
    tmp_path.chmod(0o1777)
    cache.cache_folder.cache_clear()
    assert cache.cache_folder() == folder


@pytest.mark.parametrize("which", ["root", "regard", "kernels", "link"])
def test_a_folder_of_another_user_is_refused_in_one_line(tmp_path, folder, said, monkeypatch, which):
    foreign = {"root": tmp_path, "kernels": folder}.get(which, folder.parent)
    if which == "link":
        folder.parent.rename(folder.parent.with_name("target"))
        folder.parent.symlink_to("target")
    real = {"stat": os.stat, "lstat": os.lstat}

    def pretend(name):
        def status(path, *rest, **more):
            found = real[name](path, *rest, **more)
            # Another user's symbolic link may well lead to a folder of one's own.
            foreign_one = str(path) == str(foreign) and (which != "link" or name == "lstat")
            return os.stat_result((*found[:4], os.getuid() + 1, *found[5:])) if foreign_one else found

        return status

    for name in real:
        monkeypatch.setattr(cache.os, name, pretend(name))
    cache.cache_folder.cache_clear()
    assert cache.cache_folder() is None
    (line,) = said()
    assert "another user" in line
    assert str(foreign) in line


def test_another_users_folder_in_the_temporary_folder_is_refused(tmp_path, said, monkeypatch):
    """Who made the folder first, or a link in its place, decides nothing."""
    shared = tmp_path / "temporary"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.delenv("REGARD_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", f"{os.devnull}/nowhere")
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(shared))
    made = shared / f"regard-{os.getuid()}"
    made.mkdir()
    made.chmod(0o777)
    assert cache.cache_folder() is None
    assert str(made) in said()[0]


def test_folders_are_made_for_their_owner_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path / "new" / "er"))
    before = os.umask(0)
    try:
        made = cache.cache_folder()
    finally:
        os.umask(before)
    for each in (made, *made.parents[:3]):
        assert each.stat().st_mode & 0o777 == 0o700, each


def test_clearing_removes_only_compiled_kernels(tmp_path, folder):
    call(tiny())
    old = folder.with_name("kernels-0123456789abcdef")
    old.mkdir(mode=0o700)
    (old / only_file(folder).name).write_bytes(b"damaged")
    (old / f"{only_file(folder).name}.k3_x.part").write_bytes(b"left by a process that was killed")
    foreign = [folder / "notes.txt", folder.parent / "notes.txt", folder.parent / "kernels-mine" / "a-b.kernel"]
    foreign.append(folder.parent / "other" / only_file(folder).name)
    outside = tmp_path / "outside"
    foreign.append(outside / only_file(folder).name)
    for path in foreign:
        path.parent.mkdir(exist_ok=True)
        path.write_text("somebody's")
    (folder.parent / "kernels-fedcba9876543210").symlink_to(outside)
    link = folder / "tiny_kernel-fedcba9876543210.kernel"
    link.symlink_to(outside)
    files, size = cache.clear()
    assert files == 3
    assert size > 1000
    assert all(path.read_text() == "somebody's" for path in foreign)
    assert link.is_symlink()
    assert not old.exists()
    assert not cache.files_of(folder)


SWITCHED_OFF = """
import torch, regard
from regard.kernels.availability import why_missing
query = torch.randn(1, 1, 5, 3)
large = torch.randn(1, 1, 3001, 64)
plan = regard.plan(large, large, large, score=regard.scores.Additive(torch.randn(64)))
assert plan.backend == "tiled", plan
assert "NUMBA_DISABLE_JIT" in plan.reasons["cpu"], plan
regard.attend(query, query, query, normalizer="sparsemax")
try:
    regard.attend(query, query, query, backend="cpu")
except regard.errors.BackendError as error:
    assert "NUMBA_DISABLE_JIT" in str(error)
else:
    raise AssertionError("a named backend runs or raises")
import numba
assert "NUMBA_DISABLE_JIT" in why_missing()
try:
    import regard.kernels.cpu.operators
except regard.errors.BackendError as error:
    assert "NUMBA_DISABLE_JIT" in str(error)
else:
    raise AssertionError("kernels that cannot be compiled were defined")
print("done")
"""


def test_with_the_compiler_switched_off_other_backends_serve():
    assert not run(SWITCHED_OFF, NUMBA_DISABLE_JIT="1")


@pytest.mark.parametrize(
    "settings",
    [
        {"NUMBA_DISABLE_JIT": "nonsense", "NUMBA_CACHE_DIR": f"{os.devnull}/nowhere"},
        {
            "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "",
            "NUMBA_OPT": "1", "NUMBA_DEBUG_CACHE": "1", "NUMBA_BOUNDSCHECK": "1",
        },
        {"NUMBA_OPT": "0"},
    ],
    ids=["folder", "processor and debugging", "unoptimized"],
)  # fmt: skip
def test_numbas_settings_change_where_kernels_are_kept_but_not_what_they_do(tmp_path, folder, settings):
    run(TINY, **settings)
    assert "compil" not in run(TINY, **settings)
    assert bool(cache.files_of(folder)) == ("NUMBA_CACHE_DIR" in settings)
    assert len(list(tmp_path.glob("regard/*/tiny_kernel*"))) == 1


HOLDING_ADDRESSES = """
import sys
sys.executable = None  # so that kernels are compiled here
from regard.kernels.cpu.bodies.parts import KernelLibrary
KernelLibrary.has_dynamic_globals = property(lambda library: True)
"""


def test_code_that_holds_addresses_of_its_process_is_not_kept(folder):
    said = run(HOLDING_ADDRESSES + TINY)
    assert len([line for line in said.splitlines() if "cannot be stored" in line]) == 1
    assert not cache.files_of(folder)
