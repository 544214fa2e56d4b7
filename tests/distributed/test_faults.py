"""Faults of sharded calls: one clear error on every process, never a hang, never a wrong number."""

import contextlib

import pytest

from process_groups import ProcessGroup
from sharded_faults import CALLS, FAILING, KILLED, REFUSED


@pytest.fixture
def three(groups):
    return groups(3)


@pytest.fixture
def four(groups):
    return groups(4)


@pytest.fixture
def two(groups):
    return groups(2)


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_differ_raise_one_error_everywhere_and_leave_the_processes_in_step(two, name):
    """None waits in vain. A process that refuses its arguments says why, and the others quote it."""
    answers, afterwards = zip(*two.call("sharded_faults", "faulty", "differs", name), strict=True)
    assert all("Error: " in answer and "in vain" not in answer for answer in answers), answers
    own = [answer for answer in answers if "cannot make this call" not in answer]
    for answer in set(answers) - set(own):
        assert answer.startswith("BackendError")
        assert own[0].partition("(known")[0] in answer
    if "must make the same calls" in answers[0]:
        assert answers[0] == answers[1]
    if name == "backward pass and call":  # one process has begun a call more
        assert all("call differs" in answer for answer in afterwards)
    else:
        assert set(afterwards) == {"True"}


@pytest.mark.parametrize("name", FAILING)
def test_a_process_that_leaves_a_call_is_not_waited_for(three, name):
    (own, _), *others = three.call("sharded_faults", "faulty", "fails", name)
    assert own == ("None" if name == "number of calls" else "_FailureError: of this process")
    for answer, afterwards in others:
        assert answer.startswith("BackendError")
        assert afterwards.startswith("BackendError")


@pytest.mark.parametrize("name", KILLED)
def test_a_process_that_dies_ends_the_call_of_the_others(name):
    group = ProcessGroup(3)
    for pipe in group.pipes:
        pipe.send(("sharded_faults", "faulty", ("dies", name)))
    answers = []
    for pipe in group.pipes:
        with contextlib.suppress(EOFError):
            answers.append(pipe.recv()[1])
    group.close()
    assert len(answers) == 2
    for answer, afterwards in answers:
        assert "one has left, has failed" in answer
        assert "start them again" in afterwards


@pytest.mark.parametrize("name", REFUSED)
def test_unsupported_sharded_calls_are_refused(two, name):
    for answer, afterwards in two.call("sharded_faults", "refused", name):
        assert answer.startswith(("KindError: ", "ArgumentError: ", "ShapeError: ", "BackendError: ")), answer
        assert "in vain" not in answer
        assert afterwards == "True"


@pytest.mark.parametrize(
    "placements",
    ["s s s", "r s s", "s r r", "s s r", "bs bs bs", "rs rs rs", "sr sr sr", "br bs bs", "rr bs bs", "rr sr sr"],
)
@pytest.mark.parametrize(
    ("axes", "dtype", "view"), [(4, "float64", False), (3, "float64", True), (4, "bfloat16", True)]
)
def test_placements_on_every_mesh_give_the_result_of_one_process(four, placements, axes, dtype, view):
    """On meshes of four processes for five queries, and of two by two; each letter is an axis of the mesh."""
    for difference in four.call("sharded_faults", "placed", placements.split(), axes, dtype, view):
        assert difference < (1e-12 if dtype == "float64" else 0.1)


@pytest.mark.parametrize("how", ["twice", "checkpoint", "compile"])
def test_ways_to_differentiate(two, how):
    assert two.call("sharded_faults", "repeated", how) == [True, True]


def test_tensors_without_versions_are_compared_at_every_call(two):
    for answer in two.call("sharded_faults", "changed_in_inference"):
        assert "mask differs" in answer


def test_autocast_of_a_sharded_call_is_that_of_one_process(two):
    for sharded, plain in two.call("sharded_faults", "cast"):
        assert sharded == plain


def test_results_of_dtensors_are_shown_without_their_elements(two):
    for texts in two.call("sharded_faults", "shown"):
        for text in texts:
            assert "output: [2, 3, 5, 6] float64, S(2)" in text
