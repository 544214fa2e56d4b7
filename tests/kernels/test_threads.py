"""However many threads there are, of whichever kind: the same bits."""

import ctypes

import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

import regard
from kernels.oracle import outcome, tensors
from regard import masks, normalizers
from regard.kernels.cpu import kernels, launch
from regard.kernels.cpu import launch as launch_module
from regard.kernels.cpu.kernel_arguments import POSITIONS, KernelInputs
from regard.scores import Additive

READ_ALL = regard.Readings(entropy=True, peak=True, top_k=5, received=True, distance=True, pooled=(5, 7), rows=[3, -1])


@pytest.fixture(autouse=True)
def _own_threads():
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["openmp", "python"])
def teams(request, monkeypatch):
    """Counts how often a team of several threads was asked for; Python's threads stand in where there is no OpenMP."""
    if request.param == "openmp" and launch_module.openmp() is None:
        pytest.skip("PyTorch's OpenMP library cannot be entered here")
    sizes = []
    enter, start = launch_module.openmp(), launch_module.threading.Thread
    if request.param == "openmp":

        def count(kernel, parameters, threads, flags):
            sizes.append(threads)
            enter(kernel, parameters, threads, flags)

        monkeypatch.setattr(launch_module, "openmp", lambda: count)
    else:

        def thread(target, args):
            sizes.append(2)
            return start(target=target, args=args)

        monkeypatch.setattr(launch_module, "openmp", lambda: None)
        monkeypatch.setattr(launch_module.threading, "Thread", thread)
    return sizes


def with_threads(count, run):
    torch.set_num_threads(count)
    return run()


def assert_equal(one, other):
    for name in one:
        assert torch.equal(one[name], other[name]), name


@pytest.mark.parametrize("score", ["product", "additive"])
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "entmax"])
def test_outputs_and_gradients(score, normalizer, teams):
    shapes = {"query": (1, 2, 257, 17), "key": (1, 1, 263, 17), "value": (1, 1, 263, 19), "bias": (2, 257, 263)}
    inputs = tensors(**shapes)
    if score == "additive":
        inputs = tensors(dtype=torch.float64, **shapes, weight=(17,))
    chosen = {"softmax": "softmax", "sparsemax": normalizers.sparsemax, "entmax": normalizers.entmax(1.3)}
    sinks = masks.window(40, 2) | masks.prefix(4) | masks.lengths(263, queries=1)
    for mask in (None, masks.causal(), sinks, masks.where(lambda batch, head, query, key: (query + key) % 3 != 0)):
        arguments = {"normalizer": chosen[normalizer], "mask": mask}
        one, *others = (
            with_threads(count, lambda arguments=arguments: outcome("cpu", inputs, **arguments))
            for count in (1, 2, 3, 2)
        )
        for other in others:
            assert_equal(one, other)
    assert teams
    assert min(teams) == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_small_problems_if_a_team_runs_them(teams, dtype, monkeypatch):
    monkeypatch.setattr(launch_module, "SERIAL_WORK", 0)
    inputs = tensors(dtype=dtype, query=(2, 3, 17, 5), key=(2, 3, 19, 5), value=(2, 3, 19, 3), weight=(3, 5))
    one, two = (
        with_threads(count, lambda: outcome("cpu", inputs, dropout=0.0, mask=masks.lengths([19, 4])))
        for count in (1, 2)
    )
    assert_equal(one, two)
    assert teams


@pytest.mark.parametrize("score", ["scaled_dot", "additive"])
def test_threads_change_no_bit_of_the_readings(score, teams):
    inputs = tensors(query=(1, 2, 257, 17), key=(1, 2, 263, 17), value=(1, 2, 263, 3), weight=(17,))
    scoring = Additive(inputs["weight"]) if score == "additive" else score
    query, key, value = (inputs[name] for name in ("query", "key", "value"))
    for mask in (None, masks.window(40, 2), masks.window(40, 2) | masks.prefix(4)):
        one, two = (
            with_threads(
                count,
                lambda mask=mask: regard.observe(
                    query, key, value, score=scoring, mask=mask, read=READ_ALL, backend="cpu"
                ),
            )
            for count in (1, 2)
        )
        for name, first, second in zip(one._fields, one, two, strict=True):
            assert first is None or torch.equal(first, second), name
    assert teams


def test_threads_change_no_bit_of_dropout(teams):
    inputs = tensors(query=(1, 2, 257, 17), key=(1, 2, 263, 17), value=(1, 2, 263, 3))

    def run():
        torch.manual_seed(5)
        return outcome("cpu", inputs, dropout=0.3)

    assert_equal(with_threads(1, run), with_threads(2, run))
    assert teams


def test_small_problems_wake_nobody(teams):
    inputs = tensors(query=(1, 1, 5, 3), key=(1, 1, 7, 3), value=(1, 1, 7, 3))
    with_threads(2, lambda: outcome("cpu", inputs))
    assert not teams


def test_the_number_of_threads_is_left_as_it_was(teams):
    inputs = tensors(query=(1, 2, 257, 17), key=(1, 2, 263, 17), value=(1, 2, 263, 3))
    with_threads(2, lambda: outcome("cpu", inputs))
    assert torch.get_num_threads() == 2


def test_a_stage_begins_after_all_tasks_of_the_stage_before(teams, monkeypatch):
    """The transposed keys of a few heads overwrite those of the heads before."""
    monkeypatch.setattr(kernels, "is_wide", lambda inputs: True)
    for name in ("SERIAL_WORK", "TRANSPOSED_ELEMENTS", "THREAD_TASKS"):
        monkeypatch.setattr(launch_module, name, 1)
    query, key, value = torch.randn(3, 1, 12, 40, 16)
    wanted = with_threads(1, lambda: regard.attend(query, key, value, backend="cpu"))
    for _ in range(30):
        assert torch.equal(with_threads(4, lambda: regard.attend(query, key, value, backend="cpu")), wanted)
    assert len(teams) >= 30


def test_blocks_depend_on_shapes_alone():
    query, key = torch.empty(1, 8, 1024, 64), torch.empty(1, 8, 1024, 64)
    one, two = (with_threads(count, lambda: KernelInputs(query, key, key).block) for count in (1, 2))
    assert one == two


@pytest.fixture
def memory(monkeypatch):
    """Stands in for C's malloc in kernels: gives memory as long as the list that it returns holds a true value."""
    answers = []
    real = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(launch._SHARED_ARGUMENTS[POSITIONS["malloc"]])

    @ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
    def malloc(size):
        return real(size) if answers.pop(0) else 0

    numbers = launch._SHARED_ARGUMENTS.copy()
    numbers[POSITIONS["malloc"]] = ctypes.cast(malloc, ctypes.c_void_p).value
    monkeypatch.setattr(launch, "_SHARED_ARGUMENTS", numbers)
    yield answers
    # Until here it lives: kernels know its address alone.
    del malloc


@pytest.mark.parametrize("backward", [False, True])
def test_where_no_thread_gets_memory_there_is_an_error(memory, backward):
    query = torch.randn(2, 2, 70, 16, requires_grad=True)
    memory[:] = [True, False] if backward else [False]
    torch.set_num_threads(1)
    with pytest.raises(MemoryError, match=r"attention_(backward|forward)_float32_"):
        regard.attend(query, query, query, normalizer="entmax15", backend="cpu").sum().backward()
    assert not memory


def test_a_thread_without_memory_leaves_its_tasks_to_others(memory, monkeypatch):
    monkeypatch.setattr(launch_module, "SERIAL_WORK", 0)
    query = torch.randn(2, 2, 70, 16)
    memory[:] = [True] * 50
    wanted = regard.attend(query, query, query, normalizer="entmax15", backend="cpu")
    memory[:] = [False] + [True] * 50
    torch.set_num_threads(2)
    assert torch.equal(regard.attend(query, query, query, normalizer="entmax15", backend="cpu"), wanted)


def test_a_stage_without_memory_ends_before_the_next_stage(memory, monkeypatch):
    """The first thread gets no memory for the first stage; the second one comes when the first one has left."""
    query, key = torch.randn(2, 2, 70, 16), torch.randn(2, 2, 70, 16)
    row = kernels.row_normalizer("entmax", 1.0, 1.5)

    def attended_twice():
        stages, tensors = [], [query]
        for _ in range(2):
            inputs = KernelInputs(tensors[-1], key, key, **row)
            output, statistics = torch.full_like(query, torch.nan), torch.empty(2, 2, 70, 2)
            tensors += statistics, output
            kernel, tasks = kernels.forward(inputs)
            numbers = launch.fill_arguments(inputs, inputs.block, output=output, statistics=statistics)
            stages.append(launch.Stage.of(kernel, numbers, tasks, 1e9))
        launch.run_stages(stages)
        return tensors[-1]

    def one_after_the_other(kernel, arguments, tasks, work):
        for _ in range(2):
            launch.function_at(kernel.address)(arguments)

    memory[:] = [True] * 4
    torch.set_num_threads(1)
    wanted = attended_twice()
    torch.set_num_threads(2)
    monkeypatch.setattr(launch, "run_on_threads", one_after_the_other)
    memory[:] = [False, True, True]
    assert torch.equal(attended_twice(), wanted)
    memory[:] = [False, False]
    with pytest.raises(MemoryError, match="attention_forward"):
        attended_twice()
