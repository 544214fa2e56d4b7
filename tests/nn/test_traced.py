"""Torch's program transformations over `MultiheadAttention`: each gives what the eager module gives."""

import functools

import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from covering import covering
from regard.nn import MultiheadAttention

BATCH, HEADS, LENGTH, EMBED = 3, 2, 5, 14
OPTIONS = {"plain": {}, "appended": {"add_bias_kv": True, "add_zero_attn": True}, "grouped": {"kv_heads": 1}}
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] + [True] * 4])
NUMBERS = torch.zeros(LENGTH, LENGTH).masked_fill(torch.ones(LENGTH, LENGTH).triu(1).bool(), -torch.inf)
CALLS = {
    "none": {},
    "padding": {"key_padding_mask": PADDING},
    "both": {"attn_mask": NUMBERS, "key_padding_mask": PADDING.float()},
    "causal": {"is_causal": True},
    "no weights": {"need_weights": False},
}


def make(options: dict[str, object], **more: object) -> MultiheadAttention:
    return MultiheadAttention(EMBED, HEADS, batch_first=True, backend="reference", **options, **more)  # type: ignore[arg-type]


def compiled(options, how):
    torch._dynamo.reset()
    module, x = make(options), torch.randn(BATCH, LENGTH, EMBED)
    call = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(call(x, x, x, **how), module(x, x, x, **how))


def functional_derivatives(options, how):
    module, x = make(options), torch.randn(BATCH, LENGTH, EMBED)
    parameters = dict(module.named_parameters())

    def loss(parameters, x, how=how):
        return torch.func.functional_call(module, parameters, (x, x, x), how)[0].square().sum()

    expected = torch.autograd.grad(loss(parameters, x), list(parameters.values()))
    came = torch.func.grad(loss)(parameters, x)
    torch.testing.assert_close(tuple(came.values()), expected)
    _, tangent = torch.func.jvp(lambda x: loss(parameters, x), (x,), (x,))
    gradient = torch.func.grad(lambda x: loss(parameters, x))(x)
    torch.testing.assert_close(tangent, (gradient * x).sum())
    if not any(isinstance(value, torch.Tensor) for value in how.values()):
        each = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x[:, None])
        torch.testing.assert_close({name: grad.sum(0) for name, grad in each.items()}, came)


def without_numbers(options, how):
    x = torch.randn(BATCH, LENGTH, EMBED)
    expected = [None if t is None else t.shape for t in make(options)(x, x, x, **how)]
    on_meta = {name: value.to("meta") if isinstance(value, torch.Tensor) else value for name, value in how.items()}
    x = x.to("meta")
    assert [None if t is None else t.shape for t in make(options, device="meta")(x, x, x, **on_meta)] == expected
    with FakeTensorMode() as mode:
        fake = {
            name: mode.from_tensor(value) if isinstance(value, torch.Tensor) else value for name, value in how.items()
        }
        x = torch.randn(BATCH, LENGTH, EMBED)
        assert [None if t is None else t.shape for t in make(options)(x, x, x, **fake)] == expected


def exported(options, how, strict=False):
    module, x = make(options), torch.randn(BATCH, LENGTH, EMBED)
    program = torch.export.export(module, (x, x, x), how, strict=strict).module()
    torch.testing.assert_close(program(x, x, x, **how), module(x, x, x, **how))


TRANSFORMATIONS = {
    "compiled": compiled,
    "functional derivatives": functional_derivatives,
    "without numbers": without_numbers,
    "exported": exported,
    "exported strictly": functools.partial(exported, strict=True),
}


@covering(
    options=OPTIONS,
    how=CALLS,
    transformation=TRANSFORMATIONS,
    # To export strictly is to trace as the compiler does, and to write down as others do.
    sample_where=lambda options, how, transformation: transformation != "exported strictly" or how == "both",
)
def test_transformed_it_gives_the_same(options, how, transformation):
    TRANSFORMATIONS[transformation](OPTIONS[options], CALLS[how])


def test_a_layer_is_compiled():
    layer = nn.TransformerEncoderLayer(EMBED, HEADS, 19, batch_first=True).eval()
    layer.self_attn = make({}).eval()
    x = torch.randn(BATCH, LENGTH, EMBED)
    with torch.no_grad():
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")(x, src_key_padding_mask=PADDING)
        torch.testing.assert_close(compiled, layer(x, src_key_padding_mask=PADDING))
