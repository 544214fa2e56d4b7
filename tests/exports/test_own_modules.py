"""`torch.onnx.export` of a user's module that calls `attend` or a layer: operators of ONNX alone, and the same numbers.

They are compared with onnxruntime, for other batches and lengths than the example's.
"""

import contextlib
import io
from typing import Any

import pytest
import torch
from torch import nn as torch_nn
from torch.export import Dim

import regard
from covering import covering
from module_cases import LAYERS, first_output, inputs_of
from regard import masks, nn, normalizers, positions, scores
from regard.exports import portable_operations
from regard.exports.torch_programs import quiet

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

H, D, V = 4, 8, 6
BATCH, QUERIES, KEYS = Dim("batch", min=1, max=64), Dim("queries", min=1, max=128), Dim("keys", min=1, max=128)
SIZES = (2, 5, 7), (3, 11, 11), (1, 1, 4), (2, 9, 3)

CASES = {
    "plain": dict,
    "causal": lambda: {"mask": "causal"},
    "causal at the start": lambda: {"mask": masks.causal(align="start")},
    "empty rows": lambda: {"mask": masks.causal(offset=-2)},
    "window": lambda: {"mask": masks.window(1, 0, align="start")},
    "combined": lambda: {"mask": ~masks.prefix(2) | masks.causal() & masks.dilated(2)},
    "where": lambda: {"mask": masks.where(lambda batch, head, query, key: (query + key + head) % 3 > 0)},
    "alibi": lambda: {"bias": "alibi", "mask": "causal", "normalizer": normalizers.Softmax(2.0)},
    "relative": lambda: {"bias": positions.RelativeBias(H)},
    "shaw": lambda: {"bias": positions.RelativePosition(D, 3)},
    "additive": lambda: {"score": scores.Additive.create(D, D, 6)},
    "general": lambda: {"score": scores.General.create(D, D), "mask": "causal"},
    "cosine": lambda: {"score": scores.Cosine.create(H)},
    "distance": lambda: {"score": "distance", "normalizer": "sigmoid"},
    "mlp": lambda: {"score": scores.MLP.create(D, D, (3,))},
    "soft cap": lambda: {"score": scores.SoftCap("scaled_dot", 3.0), "mask": "causal"},
    "features": lambda: {"score": scores.Features("elu"), "normalizer": "ratio", "mask": "causal"},
    "modified": lambda: {"score": scores.Modified("dot", lambda score, b, h, q, k: score - 0.1 * (q - k).abs())},
    "temperatures": lambda: {"normalizer": normalizers.Softmax(torch_nn.Parameter(torch.linspace(0.5, 2.0, H)))},
    "sink": lambda: {"normalizer": normalizers.softmax_with_sink(torch_nn.Parameter(torch.zeros(H)))},
    "sparsemax": lambda: {"normalizer": "sparsemax", "mask": "causal"},
    "entmax15": lambda: {"normalizer": "entmax15"},
    "entmax13": lambda: {"normalizer": normalizers.entmax(1.3), "mask": "causal"},
    "hard": lambda: {"normalizer": "hard"},
    "top k": lambda: {"normalizer": normalizers.top_k(2)},
    "over queries": lambda: {"normalizer": normalizers.over_queries},
}
SAMPLE = ("plain", "empty rows")
GROUPED = ("plain", "causal", "relative", "entmax13")
ONE_OPERATOR = (
    "plain", "causal", "causal at the start", "empty rows", "window", "combined", "where", "alibi", "relative", "shaw",
    "general", "cosine",
)  # fmt: skip
"""Softmax of scaled inner products, which ONNX has as one operator."""


class Attend(torch_nn.Module):
    """A user's module around `attend`, whose fourth input, if there is one, becomes the mask."""

    def __init__(self, arguments, mask=None):
        super().__init__()
        self.arguments, self.mask = arguments, mask
        self.parts = torch_nn.ModuleList(part for part in arguments.values() if isinstance(part, torch_nn.Module))

    def forward(self, query, key, value, numbers=None):
        mask = {} if self.mask is None else {"mask": self.mask(numbers)}
        return regard.attend(query, key, value, **self.arguments, **mask)


class FirstOutput(torch_nn.Module):
    """A module's result without what is None."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return first_output(self.module(*inputs))


def exported(module, inputs, axes, path, opset):
    """Writes a module as a user does, and returns the names of its operators and a session of onnxruntime."""
    with quiet(), contextlib.redirect_stdout(io.StringIO()):
        program = torch.onnx.export(
            module, inputs, dynamo=True, dynamic_shapes=axes, verbose=False, opset_version=opset
        )
    assert program is not None
    program.save(str(path))
    assert {node.domain for node in program.model.graph} <= {""}  # operators of ONNX itself
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return {node.op_type for node in program.model.graph}, session


def computed(session, inputs):
    names = [one.name for one in session.get_inputs()]
    feeds = {name: tensor.numpy() for name, tensor in zip(names, inputs, strict=True)}
    return torch.from_numpy(session.run(None, feeds)[0])


def inputs_for(batch, queries, keys, kv_heads=H):
    torch.manual_seed(batch * 100 + queries)
    return (
        torch.randn(batch, H, queries, D),
        torch.randn(batch, kv_heads, keys, D),
        torch.randn(batch, kv_heads, keys, V),
    )


AXES = {0: BATCH, 2: QUERIES}, {0: BATCH, 2: KEYS}, {0: BATCH, 2: KEYS}


@covering(case=CASES, opset=[18, 23], sample_where=lambda case, opset: case in SAMPLE and opset == 23)
def test_a_call_gives_the_same_numbers(case, opset, tmp_path):
    module, kv_heads = Attend(CASES[case]()), 2 if case in GROUPED else H
    names, session = exported(module, inputs_for(2, 5, 7, kv_heads), AXES, tmp_path / "model.onnx", opset)
    assert ("Attention" in names) == (case in ONE_OPERATOR and opset == 23)
    for sizes in SIZES:
        inputs = inputs_for(*sizes, kv_heads)
        with torch.no_grad():
            torch.testing.assert_close(
                computed(session, inputs), module(*inputs), rtol=1e-4, atol=1e-5, msg=f"{case} {sizes}"
            )


def lengths_of(batch, keys):
    """The first row has no key."""
    return torch.arange(batch) % (keys + 1)


MASKS = {
    "lengths": (masks.lengths, lambda b, q, k: lengths_of(b, k), {0: BATCH}),
    "offsets": (lambda offset: masks.causal(offset=offset), lambda b, q, k: lengths_of(b, k) - 2, {0: BATCH}),
    "pairs": (masks.keep, lambda b, q, k: torch.rand(b, 1, q, k) > 0.6, {0: BATCH, 2: QUERIES, 3: KEYS}),
    "padding": (
        lambda hidden: masks.ignore(hidden[:, None, None]) & masks.causal(),
        lambda b, q, k: torch.rand(b, k) > 0.6,
        {0: BATCH, 1: KEYS},
    ),
}


@covering(
    mask=MASKS,
    call=["softmax", "entmax15"],
    opset=[18, 23],
    sample_where=lambda mask, call, opset: (
        (mask, call, opset) in (("lengths", "softmax", 23), ("padding", "entmax15", 18))
    ),
)
def test_a_mask_that_is_an_input_hides_what_it_hides(mask, call, opset, tmp_path):
    """What padding holds reaches no output, and a row without keys is 0."""
    make, numbers, axes = MASKS[mask]
    module = Attend({"normalizer": call}, make)
    example = *inputs_for(2, 5, 7), numbers(2, 5, 7)
    _, session = exported(module, example, (*AXES, axes), tmp_path / "model.onnx", opset)
    for sizes in SIZES:
        query, key, value = inputs_for(*sizes)
        given = numbers(*sizes)
        expected = module(query, key, value, given)
        seen = make(given).dense(regard.plan(query, key, value).candidates.problem.grid).any(2)[..., None]
        spoiled = torch.where(seen, key, torch.nan), torch.where(seen, value, torch.inf)
        got = computed(session, (query, *spoiled, given))
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5, msg=f"{mask} {sizes}")
        if mask == "lengths":
            assert not got[0].any()


LAYER: dict[str, Any] = {"dim": 12, "heads": 2, "feedforward": 17, "dropout": 0.0}
SEQUENCES = {
    name: lambda name=name: nn.LayerConfig(**LAYER, attention=name).encoder_layer()
    for name in ("differential", "latent", "gated", "qk_norm", "talking_heads", "linear", "retention", "gated_linear")
}
EVERY_LAYER = {**{name: make for name, make in LAYERS.items() if name != "Attention"}, **SEQUENCES}


@covering(
    name=EVERY_LAYER, opset=[18, 23],
    sample_where=lambda name, opset: (name, opset) in (("TransformerEncoderLayer", 23), ("retention", 18)),
)  # fmt: skip
def test_a_layer_gives_the_same_numbers(name, opset, tmp_path):
    torch.manual_seed(1)
    module = FirstOutput(EVERY_LAYER[name]()).eval()

    def inputs(batch, length):
        return (
            inputs_of("TransformerEncoder", batch, length)[:1] if name in SEQUENCES else inputs_of(name, batch, length)
        )

    length = Dim("length", min=2, max=128)
    axes = []
    for given, longer, more in zip(inputs(3, 5), inputs(3, 6), inputs(4, 5), strict=True):
        open_axes = {0: BATCH} if more.shape[0] != given.shape[0] else {}
        axes.append(open_axes | {
            axis: length + (size - 6) for axis, size in enumerate(longer.shape) if size != given.shape[axis]
        })  # fmt: skip
    _, session = exported(module, inputs(3, 5), (tuple(axes),), tmp_path / "model.onnx", opset)
    for sizes in ((3, 5), (1, 7), (2, 2), (5, 11)):
        with torch.no_grad():
            torch.testing.assert_close(
                computed(session, inputs(*sizes)), module(*inputs(*sizes)), rtol=1e-4, atol=1e-5, msg=f"{name} {sizes}"
            )


def test_a_program_that_was_exported_before_is_converted(tmp_path):
    """A program of `torch.export` has an operator of regard, which its conversion replaces."""
    module, inputs = Attend({"mask": "causal", "normalizer": "sparsemax"}), inputs_for(2, 5, 7)
    program = torch.export.export(module, inputs, dynamic_shapes=AXES)
    assert "regard.attend" in str(program.graph)
    _, session = exported(program, inputs, None, tmp_path / "model.onnx", 18)
    longer = inputs_for(3, 11, 13)
    torch.testing.assert_close(computed(session, longer), module(*longer), rtol=1e-4, atol=1e-5)


def test_weights_and_readings_are_converted(tmp_path):
    class Observe(torch_nn.Module):
        def forward(self, query, key, value):
            seen = regard.observe(query, key, value, mask="causal", read=regard.Readings(entropy=True, received=True))
            weights = regard.attend_with_weights(query, key, value, mask="causal").weights
            return torch.cat((seen.entropy, seen.received, weights.flatten(2)), dim=-1)

    module, inputs = Observe(), inputs_for(3, 11, 13)
    _, session = exported(module, inputs_for(2, 5, 7), AXES, tmp_path / "model.onnx", 18)
    torch.testing.assert_close(computed(session, inputs), module(*inputs), rtol=1e-4, atol=1e-5)


def test_shapes_of_a_compiled_call_are_not_those_of_its_operations():
    """With open sizes PyTorch would compute the shapes of an operator by its operations, and fix sizes."""
    traced = torch.export.export(
        Attend({"normalizer": normalizers.entmax(1.3)}), inputs_for(2, 5, 7), dynamic_shapes=AXES
    )
    assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [
        torch.ops.regard.attend.default
    ]


def test_a_delta_rule_of_an_open_length_is_one_that_pytorch_computes():
    """ONNX solves no triangular system; a program of PyTorch's operations does."""
    torch.manual_seed(1)
    module, x = FirstOutput(nn.DeltaNet(8, 2)).eval(), torch.randn(3, 5, 8)
    with portable_operations():
        program = torch.export.export(module, (x,), dynamic_shapes=(({1: Dim("length", min=2, max=128)},),))
    assert "regard" not in str(program.graph)
    longer = torch.randn(3, 11, 8)
    torch.testing.assert_close(program.module()(longer), module(longer), rtol=1e-4, atol=1e-5)
