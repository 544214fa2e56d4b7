"""The memory of a training: no graph outlives its step, what is in use does not grow, what is freed is returned."""

import ctypes
import gc
import os
import subprocess
import sys
import textwrap

import pytest
import torch

from regard.tasks.registry import find
from regard.training import resident_memory
from regard.training.reporter import SilentReporter
from regard.training.resident_memory import MemoryRelease, bound_primitive_caches
from regard.training.run import train_run
from regard.training.run_folder import RunFolder

LIBRARY = ctypes.CDLL(None) if os.name == "posix" else None
glibc = pytest.mark.skipif(not hasattr(LIBRARY, "mallinfo2"), reason="mallinfo2 is a function of glibc 2.33 and later")

MEMORY = """
    import ctypes

    class MallocInfo(ctypes.Structure):
        names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
        _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = MallocInfo

    def used():
        "Megabytes of the allocator that are in use."
        found = mallinfo2()
        return (found.uordblks + found.hblkhd) / 2**20

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4096 / 2**20
"""


def run_fresh(code):
    """The numbers that a script prints in a new process."""
    script = textwrap.dedent(MEMORY) + textwrap.dedent(code)
    environment = {name: value for name, value in os.environ.items() if not name.endswith("CACHE_CAPACITY")}
    output = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return [float(number) for number in output.stdout.split()]


class GraphCounter(SilentReporter):
    """After each step, counts the new tensors that hold a graph; what only the garbage collector would free counts."""

    def __init__(self):
        gc.collect()
        gc.freeze()  # what there is already is not counted: other tests keep tensors of theirs
        self.found = []

    def alive(self):
        tensors = (thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, torch.nn.Parameter))
        return sum(tensor.grad_fn is not None for tensor in tensors)

    def step(self, fraction, text):
        self.found.append(self.alive())


@pytest.mark.parametrize("attention", ["none", "bahdanau", "luong", "hard"])
def test_no_graph_outlives_its_step(tiny, tmp_path, attention):
    config = tiny({"attention": attention}, epochs=1, validate_every=3)
    counter = GraphCounter()
    train_run(find(config.task), config, RunFolder.create(tmp_path / "run"), reporter=counter)
    assert len(counter.found) > 6
    assert max(counter.found) == 0


@glibc
def test_memory_in_use_is_flat_over_batches_of_all_lengths(is_full):
    """After the first passes over all lengths, nothing that the steps allocated is still in use."""
    kinds = ("none", "bahdanau", "luong", "hard") if is_full else ("bahdanau", "hard")
    found = run_fresh(f"""
        import gc, torch
        from regard.models.recurrent_translator import RecurrentTranslator, TranslatorConfig

        torch.set_num_threads(1)
        for attention in {kinds}:
            model = RecurrentTranslator(TranslatorConfig(50, 50, embedding=16, hidden=32, attention=attention)).train()
            optimizer = torch.optim.AdamW(model.parameters())
            for step in range(90):  # 30 different batches
                pairs, source, target = 1 + step % 5, 1 + step % 2, 2 + step % 3
                sides = [torch.randint(3, 50, (pairs, length)) for length in (source, target)]
                lengths = [torch.full((pairs,), length) for length in (source, target)]
                optimizer.zero_grad()
                model.loss(sides[0], lengths[0], sides[1], lengths[1]).total.backward()
                optimizer.step()
                if step in (39, 89):
                    gc.collect()
                    print(used())
    """)
    growth = [after - before for before, after in zip(found[::2], found[1::2], strict=True)]
    assert max(growth) < 0.25, growth


@glibc
def test_compiled_primitives_are_bounded():
    """Products of ever new shapes in bfloat16 do not use ever more memory."""
    after_300, after_900 = run_fresh("""
        import torch
        from regard.training.resident_memory import bound_primitive_caches

        bound_primitive_caches()
        torch.set_num_threads(1)
        matrix = torch.ones(32, 32, dtype=torch.bfloat16)
        for rows in range(1, 901):
            torch.ones(rows, 32, dtype=torch.bfloat16) @ matrix
            if rows in (300, 900):
                print(used())
    """)
    assert after_900 - after_300 < 20


@glibc
def test_freed_memory_is_returned_though_blocks_above_it_are_in_use():
    freed, released = run_fresh("""
        import torch
        from regard.training.resident_memory import release_freed_memory

        blocks = [torch.ones(16_000) for _ in range(1600)]  # 64 kB each
        kept = blocks[::20]
        del blocks
        print(resident())
        release_freed_memory()
        print(resident())
    """)
    assert freed - released > 60


@glibc
def test_large_blocks_between_blocks_in_use_are_returned_when_freed():
    kept, returned = run_fresh("""
        import torch
        from regard.training.resident_memory import return_large_blocks

        def left():
            "Megabytes that stay resident when every other block of 16 MiB is freed."
            before = resident()
            blocks = [torch.ones(1 << 22) for _ in range(8)]
            del blocks[::2]
            print(resident() - before)
            del blocks

        torch.ones(1 << 22)  # the first that is freed raises the threshold
        left()
        return_large_blocks()
        left()
    """)
    assert returned < 70 < 100 < kept


def test_a_number_of_the_user_is_kept(monkeypatch):
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    monkeypatch.delenv("LRU_CACHE_CAPACITY", raising=False)
    bound_primitive_caches()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "7"
    assert os.environ["LRU_CACHE_CAPACITY"] == str(resident_memory.PRIMITIVES)


def test_memory_is_released_when_the_time_has_come(monkeypatch):
    released = []
    monkeypatch.setattr(resident_memory, "release_freed_memory", lambda: released.append(1))
    clock = iter([0.0, 4.0, 5.0, 6.0, 10.0])
    monkeypatch.setattr(resident_memory.time, "monotonic", lambda: next(clock))
    release = MemoryRelease(5.0)
    counts = []
    for _ in range(4):
        release.step()
        counts.append(len(released))
    assert counts == [0, 1, 1, 2]
