"""Tensors whose memory does not hold their numbers: views that negate as they are read, zeros without memory. Whatever
takes an address gives what it gives for the same numbers in memory; sparse and nested tensors are refused."""

import re
from pathlib import Path

import pytest
import torch

import regard
from cases import D, H, K, Q, problem
from regard import masks, nn, normalizers, scores
from regard.errors import BackendError, KindError, RegardError
from regard.kernels.cpu.kernel_arguments import address_of
from regard.models.chunked_loss import vocabulary_loss

SOURCE = Path(regard.__file__).parent
BACKENDS = ("reference", "tiled", "sdpa", "cpu")


def lazily_negated(tensor):
    return torch._neg_view(-tensor.detach())


def zeros_without_memory(tensor):
    return torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype)


def forms_of(tensor):
    """The tensor in its forms, each with the same numbers in memory."""
    if tensor.is_floating_point():
        yield "negated", lazily_negated(tensor), tensor
    yield "zeros", zeros_without_memory(tensor), torch.zeros_like(tensor)


def number(*shape, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).to(dtype)


def same(form, plain, name):
    """What is wrong with the results of a call; each of them a list of tensors."""
    if any((one is None) != (other is None) for one, other in zip(form, plain, strict=True)):
        return [f"{name}: a gradient is missing"]
    pairs = [(one, other) for one, other in zip(form, plain, strict=True) if other is not None]
    right = all(torch.allclose(one, other, 1e-5, 1e-6, equal_nan=True) for one, other in pairs)
    return [] if right else [f"{name}: other numbers"]


def wrong_forms(call, tensors, name):
    """What is wrong where one of the tensors, or the gradient of the result, is of such a form."""
    wrong = []

    def results(given, grad_output=None):
        given = [t.detach().requires_grad_(t.is_floating_point()) for t in given]
        torch.manual_seed(3)
        output = call(*given)
        if not output.requires_grad:
            return [output]
        leaves = [t for t in given if t.requires_grad]
        grad_output = torch.ones_like(output) if grad_output is None else grad_output
        return [output, *torch.autograd.grad(output, leaves, grad_output, allow_unused=True)]

    for place, tensor in enumerate(tensors):
        for kind, form, plain in forms_of(tensor):
            given, expected = ([*tensors[:place], value, *tensors[place + 1 :]] for value in (form, plain))
            what = f"{name}, tensor {place}, {kind}"
            try:
                reference = results(expected)
            except RegardError:
                continue  # numbers that the argument does not take, as a sigma of 0
            wrong += same(results(given), reference, what)
            with torch.no_grad():
                torch.manual_seed(3)
                first = call(*given)
                torch.manual_seed(3)
                wrong += same([first], [call(*expected)], f"{what}, without a gradient")
    output = call(*tensors)
    for kind, form, plain in forms_of(number(*output.shape, dtype=output.dtype)):
        if output.requires_grad or any(t.is_floating_point() for t in tensors):
            wrong += same(results(tensors, form), results(tensors, plain), f"{name}, the gradient, {kind}")
    return wrong


HOLDERS = {
    "mask": (torch.rand(Q, K, generator=torch.Generator().manual_seed(1)) < 0.7, lambda t: {"mask": t}),
    "mask of keys": (torch.tensor([1, 1, 0, 1, 1, 1, 0]).bool(), lambda t: {"mask": masks.keep(t)}),
    "lengths": (torch.tensor([5, 3]), lambda t: {"mask": masks.lengths(t)}),
    "documents": (torch.tensor([0, 1, 1, 0, 1, 1, 0]), lambda t: {"mask": masks.documents(t[:Q], t)}),
    "bias": (number(H, Q, K), lambda t: {"bias": t}),
    "additive": (number(D), lambda t: {"score": scores.Additive(t)}),
    "general": (number(D, D), lambda t: {"score": scores.General(t)}),
    "sink": (number(H), lambda t: {"normalizer": normalizers.softmax_with_sink(t)}),
    "center": (number(H, Q), lambda t: {"normalizer": normalizers.local_gaussian(normalizers.softmax, t, 1.5)}),
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_memory_form_of_a_tensor_gives_the_same_numbers(backend):
    inputs = problem()
    wrong = wrong_forms(lambda *given: regard.attend(*given, backend=backend), inputs, "attend")
    wrong += wrong_forms(
        lambda *given: regard.attend_with_weights(*given, backend=backend).weights.square(), inputs[:3], "weights"
    )
    wrong += wrong_forms(lambda *given: regard.observe(*given, backend=backend).entropy, inputs, "readings")
    runs = 0
    for name, (tensor, holder) in HOLDERS.items():

        def call(*given, holder=holder):
            return regard.attend(*given[:3], **holder(given[3]), backend=backend)

        try:
            call(*inputs, tensor.detach().requires_grad_(tensor.is_floating_point()))
        except BackendError:
            continue
        runs += 1
        wrong += wrong_forms(call, [*inputs, tensor], name)
    assert runs > 3
    assert not wrong, "\n".join(wrong)


def test_calls_that_are_made_again():
    """The shortest ways of `attend`, which later calls of the same sizes take."""
    wrong = []
    for name, inputs, options in (
        ("few rows", [number(1, 2, 1, 8, dtype=torch.float32), *(number(1, 2, 640, 8, dtype=torch.float32),) * 2], {}),
        ("small", [number(1, 2, n, 8, dtype=torch.float32) for n in (5, 7, 7)], {}),
        ("lengths", [number(2, 2, n, 8, dtype=torch.float32) for n in (5, 7, 7)], {"mask": masks.lengths([5, 3])}),
        ("additive", [number(1, 2, n, 8, dtype=torch.float32) for n in (33, 65, 65)], {"score": "additive"}),
        ("sparsemax", [number(1, 2, n, 8, dtype=torch.float32) for n in (65, 65, 65)], {"normalizer": "sparsemax"}),
    ):
        if options.get("score") == "additive":
            options = {"score": scores.Additive(number(8, dtype=torch.float32))}
        with torch.no_grad():
            for _ in range(3):
                regard.attend(*inputs, **options)
        wrong += wrong_forms(lambda *given, options=options: regard.attend(*given, **options), inputs, name)
    assert not wrong, "\n".join(wrong)


def decoder_steps(annotations, query, mask):
    torch.manual_seed(5)
    layer = nn.Attention.create("additive", 8, 8, 6, backend="cpu").to(annotations.dtype)
    memory = layer.remember(annotations, mask=mask)
    return torch.cat([layer(query, memory).output, layer(query.sin(), memory).output])


def of_layer(make, *names):
    """A call of a new layer; the last tensors are given by these names."""

    def call(*given):
        torch.manual_seed(5)
        by_position = len(given) - len(names)
        return make()(*given[:by_position], **dict(zip(names, given[by_position:], strict=True)))

    return call


FLOAT = {"dtype": torch.float32}
CALLS = {
    "steps": (decoder_steps, [number(2, 5, 8), number(2, 8), torch.tensor([[1, 0, 1, 1, 0], [1, 1, 1, 0, 0]]).bool()]),
    "entmax of rows": (lambda x: normalizers.entmax(1.5)(x), [number(40, 500, **FLOAT)]),
    "encoder": (
        of_layer(
            lambda: nn.TransformerEncoder.create(1, nn.LayerConfig(dim=8, heads=2, feedforward=8, dropout=0.0)),
            "lengths",
        ),
        [number(2, 5, 8, **FLOAT), torch.tensor([5, 3])],
    ),
    "vocabulary loss": (
        lambda *given: vocabulary_loss(*given).total,
        [number(64, 16, **FLOAT), number(600, 16, **FLOAT), number(600, **FLOAT), torch.arange(64)],
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_layers_take_every_memory_form(name):
    call, tensors = CALLS[name]
    wrong = wrong_forms(call, tensors, name)
    assert not wrong, "\n".join(wrong)


def test_addresses_are_taken_in_one_place():
    taken = {
        str(path.relative_to(SOURCE)): len(re.findall(r"\.data_ptr\(\)", path.read_text()))
        for path in SOURCE.rglob("*.py")
    }
    assert {path for path, count in taken.items() if count} == {
        "kernels/cpu/kernel_arguments.py",
        "cli/dry_run.py",  # of storages
        # compared, not read:
        "watching/softmax_tracking.py",
        "watching/call_problems.py",
        "watching/write_tracking.py",
    }
    assert taken["kernels/cpu/kernel_arguments.py"] == 1
    for form in (lazily_negated(number(3)), zeros_without_memory(number(3)), number(3).to("meta")):
        with pytest.raises(KindError, match=r"reads elements from a CPU"):
            address_of(form)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_calls_refuse_tensors_that_are_not_dense():
    inputs = problem()
    forms = {
        "sparse": lambda t: t.detach().to_sparse(),
        "nested": lambda t: torch.nested.nested_tensor(list(t.detach()), layout=torch.jagged),
        "mkldnn": lambda t: t.detach().float().to_mkldnn(),
        "quantized": lambda t: torch.quantize_per_tensor(t.detach().float(), 0.1, 0, torch.qint8),
    }
    for form in forms.values():
        for place in range(3):
            given = [form(t) if number == place else t for number, t in enumerate(inputs)]
            for backend in ("auto", *BACKENDS):
                with pytest.raises(KindError, match=r"must be a dense tensor|must hold floating-point"):
                    regard.attend(*given, backend=backend)
        with pytest.raises(KindError):
            regard.attend(*inputs, bias=form(number(2, H, Q, K)))
        with pytest.raises(KindError):
            regard.attend(*inputs, mask=form(number(2, H, Q, K)))
        for build in (
            lambda t: scores.Additive(t),
            lambda t: normalizers.softmax_with_sink(t),
            lambda t: normalizers.local_gaussian(normalizers.softmax, t, 1.0),
            lambda t: normalizers.entmax(t),
            lambda t: scores.General(t),
            lambda t: scores.Cosine(t),
        ):
            with pytest.raises(RegardError):
                build(form(number(H, Q)))
