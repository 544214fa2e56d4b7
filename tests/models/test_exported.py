"""`torch.export` leaves batch and length open, with lengths given: the program is right for all other sizes."""

import functools

import pytest
import torch
from torch import nn as torch_nn
from torch.export import Dim, ExportedProgram, export

import module_cases
from covering import covering
from module_cases import MODULES, first_output, inputs_of

BATCH, LENGTH = Dim("batch", min=1, max=64), Dim("length", min=2, max=128)
SIZES = (3, 5), (1, 7), (2, 2), (6, 11)


@functools.cache
def exported(name: str, strict: bool = False) -> tuple[torch_nn.Module, ExportedProgram]:
    """A module in evaluation, and its program for any batch and any length."""
    torch.manual_seed(1)
    module = MODULES[name]().eval()
    inputs, longer, more = inputs_of(name, 3, 5), inputs_of(name, 3, 6), inputs_of(name, 4, 5)
    # The language model has learned positions.
    open_length = Dim("length", min=2, max=11) if name == "LanguageModel" else LENGTH
    axes = []
    for given, other_length, other_batch in zip(inputs, longer, more, strict=True):
        sizes, other_sizes = given.shape, other_batch.shape
        of_batch = [axis for axis, size in enumerate(other_sizes) if size != sizes[axis]]
        # The size of an open axis is a multiple of the length, plus a constant.
        factors = {axis: size - sizes[axis] for axis, size in enumerate(other_length.shape) if size != sizes[axis]}
        of_length = {axis: factor * open_length + (sizes[axis] - 5 * factor) for axis, factor in factors.items()}
        axes.append(of_length | dict.fromkeys(of_batch, BATCH))
    return module, export(module, inputs, dynamic_shapes=tuple(axes), strict=strict)


NAMES = [
    *(name for name in module_cases.LAYERS if name != "Attention"),
    *module_cases.BLOCKS,
    "AFF",
    *(name for name in module_cases.MODELS if "Classifier" in name),
    "LanguageModel",
]


MADE_OF_OTHERS = (
    "ChannelGate",
    "SpatialGate",
    "PositionAttention",
    "ChannelAttention",
    "MSCAM",
    "TransformerEncoderLayer",
    "TransformerDecoderLayer",
    "SoundClassifier transformer",
    "ImageClassifier cls",
)
"""What other cases consist of, or what consists of parts of them."""


@covering(name=NAMES, sample_where=lambda name: name not in MADE_OF_OTHERS)
def test_a_program_is_right_for_other_sizes(name):
    module, program = exported(name)
    call = program.module()
    for batch, length in SIZES:
        if name == "LanguageModel" and length > 10:
            continue
        inputs = inputs_of(name, batch, length)
        with torch.no_grad():
            torch.testing.assert_close(
                first_output(call(*inputs)), first_output(module(*inputs)), rtol=1e-4, atol=1e-5, msg=f"{name} {batch}"
            )


@covering(
    name=["TransformerDecoder", "TransformerDecoderLayer", "TextClassifier lstm"],
    # Strict programs of attention: tests/attention/test_compile.py.
    sample_where=lambda name: name == "TextClassifier lstm",
)
def test_a_strict_program_is_right_for_other_sizes(name):
    module, program = exported(name, strict=True)
    for size in SIZES:
        inputs = inputs_of(name, *size)
        with torch.no_grad():
            expected, got = module(*inputs), program.module()(*inputs)
        torch.testing.assert_close(first_output(got), first_output(expected), rtol=1e-4, atol=1e-5)


def test_a_loaded_program_hides_padding(tmp_path):
    """For a batch of one; tests/exports/test_programs.py loads programs in a process of their own."""
    for name in ("Transformer", "TextClassifier gru"):
        module, program = exported(name)
        inputs = inputs_of(name, 1, 7)
        path = tmp_path / f"{name.replace(' ', '')}.pt2"
        torch.export.save(program, path)
        with torch.no_grad():
            expected, got = module(*inputs), torch.export.load(path).module()(*inputs)
        torch.testing.assert_close(first_output(got), first_output(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["TransformerEncoder", "TransformerDecoder", "TextClassifier lstm"])
def test_padding_of_a_program_has_no_effect(name):
    module, program = exported(name)
    inputs = inputs_of(name, 2, 7)
    lengths = [given for given in inputs if given.dim() == 1]
    spoiled = []
    for given in inputs:
        if given.dim() > 1 and given.is_floating_point():
            length = lengths[len(spoiled)]
            given = given.masked_fill((torch.arange(given.shape[1]) >= length[:, None])[..., None], torch.nan)
        spoiled.append(given)
    with torch.no_grad():
        got, expected = first_output(program.module()(*spoiled)), first_output(module(*inputs))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("name", ["TransformerEncoder", "TransformerDecoder", "TextClassifier lstm", "SoundClassifier"])
def test_a_traced_program_reads_the_lengths_of_its_call(name):
    """`torch.jit.trace` bakes no length of the example into its program."""
    torch.manual_seed(1)
    module = MODULES[name]().eval()

    class Output(torch_nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, *inputs):
            return first_output(self.module(*inputs))

    traced = torch.jit.trace(Output(), inputs_of(name), check_trace=False)
    inputs = inputs_of(name)
    shorter = tuple((given + 1).div(2, rounding_mode="floor") if given.dim() == 1 else given for given in inputs)
    with torch.no_grad():
        for call in (inputs, shorter):
            torch.testing.assert_close(traced(*call), first_output(module(*call)), rtol=1e-4, atol=1e-5)
