"""On a device, a backend whose result differs from the specification is declined: by ``auto``, by name, in plans."""

import json
import os
import threading

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import regard
from emulated_device import counted, on_device
from regard import masks
from regard.attention import Backend, device_runs, register_backend, trials, unregister_backend
from regard.attention.backends.sdpa import device as sdpa_device
from regard.attention.backends.triton import backend as triton_backend
from regard.attention.call_kinds import CallKind
from regard.attention.device_report import kinds
from regard.attention.execution import BACKENDS, choose
from regard.attention.problem import validate
from regard.attention.readings import Gatherer
from regard.errors import BackendError
from regard.kernels.cpu import cache
from regard.shapes.grid import spread_heads, upcast

EMULATED = torch.device("emulated", 0)
DEVICES = [EMULATED, *([torch.device("cuda", 0)] if torch.cuda.is_available() else [])]


class Erring(Backend):
    """Softmax attention with a fault, as devices' kernels have had it."""

    name = "erring"

    def __init__(self, fault=None):
        self.fault, self.runs = fault, 0

    def run(self, problem, gatherer=None):
        self.runs += 1
        heads, fault = problem.grid.heads, self.fault
        query, key, value = problem.query, spread_heads(problem.key, heads), spread_heads(problem.value, heads)
        allowed = problem.mask.dense(problem.grid) if problem.mask is not None else None
        if fault == "the next token leaks" and allowed is not None:
            allowed = allowed | allowed.roll(1, -1)
        elif fault == "permuted keys are read as contiguous" and not key.is_contiguous():
            key = key.contiguous().view(key.transpose(1, 2).shape).transpose(1, 2)
        elif fault == "the last value is another" and value.shape[-1] != key.shape[-1]:
            value = torch.cat([value[..., :-1], value[..., :1]], -1)
        elif fault == "a query of NaN gives a number":
            query = query.nan_to_num()
        elif fault == "it gives half":
            value = value / 2
        elif fault == "it raises an error":
            raise RuntimeError("no such kernel")
        scores = upcast(query) @ upcast(key).mT / query.shape[-1] ** 0.5
        scores = scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
        output = (scores.softmax(-1) @ upcast(value)).to(value.dtype)
        return output + 0.2 * (output - output.detach()) if fault == "the gradient is too large" else output


FAULTS = {
    "the next token leaks": {"mask": "causal"},
    "permuted keys are read as contiguous": {"layout": "permuted"},
    "the last value is another": {"value_dim": 24},
    "a query of NaN gives a number": {},
    "the gradient is too large": {"gradient": True},
    "it raises an error": {},
}


@pytest.fixture(autouse=True)
def _tried(monkeypatch, tmp_path):
    """Backends are tried on the CPU as on a device, and no outcome is known."""
    open_folder = cache.open_folder

    def own_folder(fingerprint, content="kernels"):
        if content == "kernels":
            return open_folder(fingerprint)
        with monkeypatch.context() as patch:
            patch.setenv("REGARD_CACHE", str(tmp_path))
            return open_folder(fingerprint, content)

    monkeypatch.setattr(cache, "open_folder", own_folder)
    monkeypatch.setattr(trials, "UNTRIED_DEVICES", {"meta"})
    trials.forget()
    yield
    trials.forget()


@pytest.fixture
def registered():
    def register(fault=None):
        backend = Erring(fault)
        register_backend(backend, before="sdpa")
        return backend

    yield register
    unregister_backend("erring")


def of_kind(**fields):
    return CallKind("float32", **{"dim": 16, "value_dim": 16, **fields})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_declined(fault, dtype, registered):
    registered(fault)
    kind = of_kind(**FAULTS[fault])._replace(dtype=dtype)
    problem = kind.problem("cpu")
    assert choose(problem, "auto").name != "erring"
    with pytest.raises(BackendError, match="'erring' cannot run this: on this device it"):
        choose(problem, "erring")
    if FAULTS[fault]:
        assert choose(of_kind().problem("cpu"), "auto").name == "erring"


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("kind", kinds(("float32",)), ids=str)
def test_regards_backends_are_right_on_every_kind_of_call(kind, device):
    problem = kind.problem("cpu")
    with torch.set_grad_enabled(kind.gradient):
        assert CallKind.of(problem) == kind
    trial = trials.compare(BACKENDS["sdpa"], kind, device)
    assert trial is None or trial.objection is None
    assert trial is not None or kind.normalizer != "softmax" or kind.modifiers or "gradient" in kind.bias or (
        kind.primitive != "InnerProduct"
    )  # fmt: skip


@pytest.mark.parametrize("form", [sdpa_device.Form(), sdpa_device.Form(True), sdpa_device.Form(False, 72)], ids=str)
@pytest.mark.parametrize("mask", ["none", "causal", "causal at the end", "causal with empty rows", "Lengths"])
def test_every_form_of_a_call_of_pytorchs_kernels_is_right(form, mask, monkeypatch):
    monkeypatch.setattr(sdpa_device, "FORETELLING_DEVICES", {"emulated"})
    monkeypatch.setattr(sdpa_device, "_form", lambda sizes, case, enabled: form)
    for grouped in (False, True):
        kind = of_kind(mask=mask, dim=24, value_dim=40, grouped=grouped, gradient=True)
        assert trials.compare(BACKENDS["sdpa"], kind, EMULATED).objection is None
    monkeypatch.setattr(sdpa_device, "_form", lambda sizes, case, enabled: None)
    inputs = kind.problem(EMULATED)
    assert "no kernel with linear memory" in BACKENDS["sdpa"].declines(inputs)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"mask": "causal"},
        {"mask": "causal at the end", "grouped": True},
        {"mask": "window"},
        {"bias": "TensorBias"},
    ],
    ids=str,
)
def test_pytorchs_kernels_never_make_the_host_wait(fields):
    kind = of_kind(**fields, gradient=True)
    problem = kind.problem(EMULATED)
    grad_output = torch.ones_like(BACKENDS["sdpa"].run(problem))
    inputs = [problem.query, problem.key, problem.value]
    with counted() as count:
        assert BACKENDS["sdpa"].declines(problem) is None
        torch.autograd.grad(BACKENDS["sdpa"].run(problem), inputs, grad_output)
    assert count.operators
    assert not count.waits


def test_a_bias_of_large_magnitude_costs_no_digits_on_a_device():
    """A padding row that a finite bias hides from all keys keeps exact derivatives, without a look at any element."""
    inputs = of_kind(gradient=True).problem("cpu", torch.float64)
    bias = torch.zeros(inputs.grid.queries, inputs.grid.keys)
    bias[5] = -1e9
    leaves = [tensor.detach() for tensor in (inputs.query, inputs.key, inputs.value)]

    def gradients(backend, place, dtype):
        own = [place(tensor.to(dtype)).requires_grad_() for tensor in leaves]
        output = regard.attend(*own, bias=place(bias.to(dtype)), backend=backend)
        grad_output = torch.linspace(-1, 1, output.numel()).view(output.shape)
        return [grad.cpu().double() for grad in torch.autograd.grad(output, own, place(grad_output.to(dtype)))]

    expected = gradients("reference", lambda tensor: tensor, torch.float64)
    for grad, right in zip(gradients("sdpa", on_device, torch.float32), expected, strict=True):
        torch.testing.assert_close(grad, right, rtol=1e-3, atol=1e-4)


def test_a_kind_is_tried_once_and_other_kinds_by_themselves(registered):
    backend = registered()
    inputs = [torch.randn(1, 2, 20, 16) for _ in range(3)]
    regard.attend(*inputs)
    runs = backend.runs
    regard.attend(*(torch.randn(2, 2, 70, 16) for _ in range(3)))
    assert backend.runs == runs + 1
    regard.attend(*inputs, mask=masks.lengths([9]))
    assert backend.runs > runs + 2


def test_a_backend_that_breaks_the_device_is_not_tried_by_the_next_process(registered, monkeypatch):
    monkeypatch.setattr(Erring, "__module__", "regard.erring")
    backend, problem = registered(), of_kind().problem(EMULATED)
    error = RuntimeError("CUDA error: an illegal memory access was encountered")
    with monkeypatch.context() as broken:

        def refuse(*arguments):
            raise error

        def run(problem, gatherer=None):
            broken.setattr("emulated_device._described", refuse)
            raise error

        broken.setattr(backend, "run", run)
        with pytest.raises(BackendError, match=r"can run nothing on emulated:0 any more.*'erring' broke it: .*illegal"):
            choose(problem, "erring")
        with pytest.raises(BackendError, match=r"can run nothing on emulated:0 any more.*operation before this one"):
            choose(problem, "sdpa")
    trials.forget()
    with pytest.raises(BackendError, match=r"'erring' cannot run this: on this device it raised .*illegal"):
        choose(problem, "erring")
    assert choose(problem, "sdpa").name == "sdpa"


def test_outcomes_are_kept_for_the_versions_that_they_hold_for(monkeypatch, tmp_path):
    """Another process finds the outcome on a backend of regard; damaged files and other versions are tried again."""
    problem = of_kind().problem("cpu")
    sdpa = type(BACKENDS["sdpa"])
    run = sdpa.run

    def objection():
        trials.forget()
        return trials.objection(BACKENDS["sdpa"], problem)

    with monkeypatch.context() as patch:
        patch.setattr(sdpa, "run", lambda self, problem, gatherer=None: 1.5 * run(self, problem))
        reason = objection()
    assert "the specification gives" in reason
    assert objection() == reason
    with monkeypatch.context() as patch:
        patch.setattr(trials, "surroundings", lambda device: {"torch": "another"})
        assert objection() is None
    (file,) = [path for path in tmp_path.rglob("outcomes.json") if json.loads(path.read_text())["torch"] != "another"]
    assert json.loads(file.read_text())["torch"] == torch.__version__
    for damaged in ('{"outcomes": [1', "[" * 200_000):
        file.write_text(damaged)
        assert objection() is None
        assert json.loads(file.read_text())["outcomes"]
    torch.use_deterministic_algorithms(True)
    try:
        assert objection() is None
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(json.loads(file.read_text())["outcomes"]) == 2
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text('{"outcomes": {}}')
    for replace in (lambda: file.symlink_to(elsewhere), *([lambda: os.mkfifo(file)] if hasattr(os, "mkfifo") else [])):
        file.unlink()
        replace()
        assert objection() is None
    assert elsewhere.read_text() == '{"outcomes": {}}'


def test_a_trial_depends_on_nothing_of_the_caller_and_changes_nothing(registered):
    """Random state, grad mode, autocast, inference mode and the count of saved tensors are the caller's own."""
    backend = registered()
    state = torch.get_rng_state()
    of_kind(primitive="ReluSum").problem("cpu")
    inputs = [torch.randn(1, 2, 20, 16, generator=torch.Generator().manual_seed(1)) for _ in range(3)]
    for context in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)):
        trials.forget()
        with context:
            assert choose(validate(*inputs), "auto") is backend
    trials.forget()
    leaf = inputs[0].clone().requires_grad_()
    runs = backend.runs
    checkpoint(lambda: regard.attend(leaf, *inputs[1:]), use_reentrant=False).sum().backward()
    assert backend.runs > runs + 2
    assert torch.equal(torch.get_rng_state(), state)


def test_no_trial_under_transforms_and_inside_of_trials(registered, monkeypatch):
    backend = registered("it gives half")
    inputs = [torch.randn(3, 1, 2, 20, 16) for _ in range(3)]
    torch.func.vmap(lambda *parts: regard.attend(*parts, backend="erring"))(*inputs)
    assert backend.runs == 1

    calling = [threading.current_thread()]

    def run(self, problem, gatherer=None):
        calling.append(threading.current_thread())
        return regard.attend(problem.query, problem.key, problem.value, mask=problem.mask, backend="sdpa")

    monkeypatch.setattr(Erring, "run", run)
    single = [tensor[0] for tensor in inputs]
    torch.testing.assert_close(regard.attend(*single), regard.attend(*single, backend="reference"))
    assert calling[1] is not calling[0]
    assert calling[-1] is calling[0]


@pytest.fixture
def prepared(monkeypatch):
    """Prepares a call of ``triton`` on the emulated device, and returns its identity, delay and number of trials."""
    triton, compared, states = BACKENDS["triton"], [], {}
    monkeypatch.setattr(triton_backend, "_STATES", states)

    def prepare(problem, outcome):
        def compare(backend, kind, device):
            compared.append(kind)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        monkeypatch.setattr(trials, "compare", compare)
        triton.prepare(problem)
        for thread in threading.enumerate():
            if thread.name == "regard triton":
                thread.join()
        return trials.identity_of(triton, problem), triton.delay(problem), len(compared)

    return prepare


def test_a_trial_in_a_thread_is_kept_and_a_backend_that_was_declined_is_not_tried_again(prepared):
    problem, triton = of_kind(mask="causal").problem(EMULATED), BACKENDS["triton"]
    identity, delay, count = prepared(problem, trials.Trial(1.0, "it broke the context", True))
    assert (delay, count) == (None, 1)
    assert trials.objection(triton, problem) == "it broke the context"
    trials.forget()
    triton_backend._STATES.clear()
    assert prepared(problem, trials.Trial(0.0, None, True)) == (identity, None, 1)
    assert trials.objection(triton, problem) == "it broke the context"


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("memory is full"), BackendError("the context is broken")])
def test_an_error_in_the_thread_of_a_trial_is_said(prepared, error):
    problem = of_kind().problem(EMULATED)
    _, delay, count = prepared(problem, error)
    assert str(error) in delay
    assert count == 1
    if isinstance(error, BackendError):
        with pytest.raises(BackendError, match="context is broken"):
            BACKENDS["triton"].prepare(problem)


def test_kinds_of_triton_have_the_runs_dropout_and_readings_of_the_call():
    triton, inputs = BACKENDS["triton"], [torch.randn(1, 3, 40, 16) for _ in range(3)]
    parts = {
        "prefix": masks.window(5, 0) | masks.prefix(3) & masks.causal(),
        "documents": masks.documents(torch.arange(40) // 10),
        "dense": masks.keep(torch.rand(40, 40) < 0.5),
        "causal": masks.causal(),
    }
    for name, runs in (("prefix", 2), ("documents", 1), ("dense", 0), ("causal", 1)):
        problem = validate(*inputs, mask=parts[name], dropout=0.1)
        gatherer = Gatherer(problem, regard.Readings(peak=True, received=True))
        kind = triton.kind_of_call(problem, gatherer)
        assert (kind.runs, kind.dropout, kind.readings) == (runs, True, ("lse", "peak", "received"))
        small = kind.problem("cpu")
        assert triton.kind_of_call(small, Gatherer(small, gatherer.read))._replace(mask=kind.mask) == kind
        torch.use_deterministic_algorithms(True)
        try:
            assert not triton.kind_of_call(problem, gatherer).readings
        finally:
            torch.use_deterministic_algorithms(False)


def test_readings_of_a_backend_are_compared():
    kind = of_kind(mask="Lengths", gradient=True, readings=("lse", "entropy", "peak", "distance", "received"))
    assert trials.compare(BACKENDS["tiled"], kind, EMULATED).objection is None

    class Wrong(type(BACKENDS["tiled"])):
        def run(self, problem, gatherer=None):
            output = super().run(problem, gatherer)
            if gatherer is not None:
                gatherer.peak *= 2
            return output

    assert "for peak" in trials.compare(Wrong(), kind, EMULATED).objection


@pytest.mark.parametrize(
    "kind", [kind for kind in kinds(("float32",)) if kind.normalizer in ("ratio", "identity")], ids=str
)
def test_recurrences_are_compared(kind):
    assert trials.compare(BACKENDS["linear"], kind, EMULATED).objection is None


def test_runs_of_a_captured_graph_are_not_cached(monkeypatch):
    problem = validate(*(torch.randn(1, 2, 20, 16) for _ in range(3)), mask=masks.window(3, 0))
    monkeypatch.setattr(device_runs, "is_capturing", lambda device: True)
    captured = device_runs.device_runs(problem)
    monkeypatch.setattr(device_runs, "is_capturing", lambda device: False)
    kept = device_runs.device_runs(problem)
    assert kept is not captured
    monkeypatch.setattr(device_runs, "is_capturing", lambda device: True)
    assert device_runs.device_runs(problem) is kept


def test_triton_counts_a_scale_that_is_a_tensor_as_float32():
    inputs = [torch.randn(1, 2, 20, 256, dtype=torch.bfloat16) for _ in range(3)]
    score = regard.scores.ScaledDot(torch.ones(2, 1, 1))
    assert "up to 128 features" in triton_backend._obstacle(validate(*inputs, score=score))
    assert triton_backend._obstacle(validate(*inputs)) is None


def test_a_plan_says_what_is_compared_only_at_the_first_call():
    later = "its first call on the device is compared with 'reference'"
    with FakeTensorMode():
        fake = torch.empty(2, 3, 5, 7, device="mps")
        for query in (fake, torch.empty(2, 3, 5, 7, device="meta")):
            plan = regard.plan(query, query, query)
            assert plan.backend == "sdpa"
            assert plan.reasons["sdpa"].endswith(later)
            assert later not in regard.plan(query, query, query, backend="reference").reasons["reference"]
        assert "mps:0; FlexAttention has both passes on cuda and xpu" in regard.plan(fake, fake, fake).reasons["flex"]
    for query in (torch.randn(2, 3, 5, 7), on_device(torch.randn(2, 3, 5, 7))):  # here the plan compares it itself
        assert later not in str(regard.plan(query, query, query))
