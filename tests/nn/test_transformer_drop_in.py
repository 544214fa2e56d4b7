"""The layers and stacks of a Transformer are those of `torch.nn`: constructors, calls, masks, parameters, values."""

import copy
import inspect

import pytest
import torch
from torch import nn as torch_nn

from module_cases import BLOCKS
from regard import biases, masks, nn, positions
from regard.errors import ArgumentError, KindError, RegardError, ShapeError

B, S, T, D, H, F = 3, 6, 5, 8, 2, 13
CLASSES = (
    "Transformer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
)
LATER = torch.ones(T, T).triu(1).bool()
PADDING = torch.tensor([[False] * 6, [False] * 3 + [True] * 3, [False, True] * 3])


def pair(name, **options):
    """PyTorch's module and ours with the same weights, of biases that are not 0."""
    options = {"dropout": 0.0, "dtype": torch.float64, **options}
    torch.manual_seed(3)
    if name == "Transformer":
        sizes = (D, H, 2, 2, F)
        modules = [getattr(library, name)(*sizes, **options) for library in (torch_nn, nn)]
    elif name.endswith("Layer"):
        modules = [getattr(library, name)(D, H, F, **options) for library in (torch_nn, nn)]
    else:
        modules = [
            getattr(library, name)(
                getattr(library, f"{name}Layer")(D, H, F, **options), 2, torch_nn.LayerNorm(D, dtype=torch.float64)
            )
            for library in (torch_nn, nn)
        ]
    with torch.no_grad():
        for parameter in modules[0].parameters():
            parameter.add_(torch.randn_like(parameter) / 5)
    modules[1].load_state_dict(modules[0].state_dict())
    return [module.eval() for module in modules]


def inputs(name, batch_first=True):
    shapes = [(B, S, D)] if "Encoder" in name else [(B, T, D), (B, S, D)]
    if name == "Transformer":
        shapes.reverse()
    tensors = [torch.randn(*shape, dtype=torch.float64) for shape in shapes]
    return tensors if batch_first else [tensor.transpose(0, 1) for tensor in tensors]


def calls(name):
    """Masks of each kind under PyTorch's names."""
    each, own = torch.rand(B * H, S, S) < 0.3, torch.randn(B * H, S, S, dtype=torch.float64)
    each[..., 0] = False
    numbers = PADDING.double().masked_fill(PADDING, -torch.inf)
    if "Encoder" in name:
        return {
            "none": {},
            "bool": {"src_mask": each[0]},
            "each": {"src_mask": each},
            "numbers": {"src_mask": own},
            "padding": {"src_key_padding_mask": PADDING},
            "both": {"src_mask": each, "src_key_padding_mask": PADDING},
            "both numbers": {"src_mask": own[0], "src_key_padding_mask": numbers},
        }
    found = {
        "none": {},
        "causal": {"tgt_mask": LATER, "tgt_is_causal": True},
        "memory": {"memory_mask": each[:, :T], "memory_key_padding_mask": PADDING},
        "numbers": {"tgt_mask": own[:, :T, :T], "memory_mask": own[0, :T], "memory_key_padding_mask": numbers},
        "target": {"tgt_key_padding_mask": PADDING[:, :T], "tgt_mask": LATER},
    }
    if name == "Transformer":
        found["source"] = {"src_mask": each, "src_key_padding_mask": PADDING, "tgt_mask": LATER}
    return found


@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:Support for mismatched")
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("name", CLASSES)
def test_outputs_are_pytorchs_under_every_mask(name, norm_first, batch_first):
    theirs, ours = pair(name, norm_first=norm_first, batch_first=batch_first)
    for how in calls(name).values():
        given, options = inputs(name, batch_first), dict(how)
        own = dict(how)
        if name == "TransformerEncoder" and "src_mask" in options:
            options["mask"] = options.pop("src_mask")
        expected = theirs(*given, **options)
        torch.testing.assert_close(ours(*given, **own), expected)
        observed = copy.deepcopy(ours)
        for part in observed.modules():
            part.register_forward_hook(lambda *_: None)
        assert torch.equal(observed(*given, **own), ours(*given, **own))


@pytest.mark.parametrize("name", CLASSES)
def test_signatures_begin_with_pytorchs(name):
    for method in ("__init__", "forward"):
        theirs, ours = (
            list(inspect.signature(getattr(getattr(library, name), method)).parameters.values())
            for library in (torch_nn, nn)
        )
        renamed = {"mask": "src_mask"} if (name, method) == ("TransformerEncoder", "forward") else {}
        assert [(p.name, p.default, p.kind) for p in ours[: len(theirs)]] == [
            (renamed.get(p.name, p.name), p.default, p.kind) for p in theirs
        ]
        kinds = {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}
        assert {p.kind for p in ours[len(theirs) :]} <= kinds


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["Transformer", "TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_a_seed_gives_pytorchs_parameters_in_their_order(name, bias):
    made = []
    for library in (torch_nn, nn):
        torch.manual_seed(7)
        made.append(getattr(library, name)(D, H, bias=bias))
        made.append(torch.rand(1))
    theirs, after, ours, our_after = made
    assert [key for key, _ in ours.named_parameters()] == [key for key, _ in theirs.named_parameters()]
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for expected, came in zip(theirs.state_dict().values(), ours.state_dict().values(), strict=True):
        assert torch.equal(expected, came)
    assert torch.equal(after, our_after)


@pytest.mark.parametrize("name", ["TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_training_continues_from_pytorchs_optimizer(name):
    theirs, ours = pair(name, batch_first=True)
    optimizers = [torch.optim.AdamW(module.parameters(), lr=0.1) for module in (theirs, ours)]

    def step(module, optimizer, given):
        optimizer.zero_grad()
        module(*given).pow(3).sum().backward()
        optimizer.step()

    step(theirs, optimizers[0], inputs(name))
    ours.load_state_dict(theirs.state_dict())
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    given = inputs(name)
    for module, optimizer in zip((theirs, ours), optimizers, strict=True):
        step(module, optimizer, given)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())


class Swish(torch_nn.Module):
    def forward(self, input):
        return input * input.sigmoid()


@pytest.mark.parametrize("activation", ["relu", "gelu", torch.tanh, torch_nn.ELU(), Swish()])
def test_activations_by_name_function_and_module(activation):
    theirs, ours = pair("TransformerEncoderLayer", batch_first=True, activation=activation)
    (given,) = inputs("TransformerEncoderLayer")
    torch.testing.assert_close(ours(given), theirs(given))
    assert ours.activation is theirs.activation


def test_copies_of_the_layer_are_its_own():
    layer = nn.TransformerDecoderLayer(D, H, F, score="additive", position="t5")
    stack = nn.TransformerDecoder(layer, 2)
    parts = [id(part) for one in (layer, *stack.layers) for part in (*one.modules(), *one.parameters())]
    assert len(set(parts)) == len(parts)
    for one in stack.layers:
        torch.testing.assert_close(one.state_dict(), layer.state_dict())


def test_options_of_pytorchs_parameters():
    module = nn.Transformer(
        D, H, 1, 1, F, bias=False, dtype=torch.bfloat16, device="meta", score="general", position="t5", norm="rms"
    )
    assert {parameter.dtype for parameter in module.parameters()} == {torch.bfloat16}
    assert {parameter.device.type for parameter in module.parameters()} == {"meta"}
    assert not [key for key, _ in module.named_parameters() if key.endswith("bias")]
    assert isinstance(module.encoder.norm, torch_nn.RMSNorm)
    assert isinstance(module.decoder.layers[0].norm3, torch_nn.RMSNorm)


@pytest.mark.parametrize("name", CLASSES)
def test_a_sequence_of_nothing_but_padding_has_no_nan(name):
    _, ours = pair(name, batch_first=True)
    given, padding = inputs(name), PADDING.clone()
    padding[1] = True
    how = {} if "Decoder" in name else {"src_key_padding_mask": padding}
    how |= {} if "Encoder" in name else {"memory_key_padding_mask": padding, "tgt_key_padding_mask": padding[:, :T]}
    given = [tensor.requires_grad_() for tensor in given]
    output = ours(*given, **how)
    assert output.isfinite().all()
    output.sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in (*given, *ours.parameters()))


@pytest.mark.parametrize("position", [None, "rotary", "alibi", "t5", "shaw", positions.Rotary(D // H), biases.alibi(H)])
def test_padding_of_lengths_and_of_masks_agree(position):
    torch.manual_seed(2)
    ours = nn.Transformer(D, H, 1, 2, F, 0.0, batch_first=True, dtype=torch.float64, position=position, kv_heads=1)
    source, target = inputs("Transformer")
    lengths = torch.tensor([6, 2, 4])
    padding = torch.arange(S) >= lengths[:, None]
    expected = ours(source, target, None, LATER, None, padding, None, padding)
    torch.testing.assert_close(ours(source, target, tgt_mask="causal", src_lengths=lengths), expected)
    torch.testing.assert_close(
        ours.decoder(target, ours.encoder(source, lengths=lengths), mask=~LATER, memory_mask=masks.lengths(lengths)),
        expected,
    )
    alone = ours(source[1, :2], target[1], tgt_is_causal=True)
    torch.testing.assert_close(alone, expected[1])


def test_each_convention_says_what_it_means():
    (given,) = inputs("TransformerEncoderLayer")
    later = torch.ones(S, S).triu(1).bool()
    layer, stack = (pair(name, batch_first=True)[1] for name in ("TransformerEncoderLayer", "TransformerEncoder"))
    for module in (layer, stack):
        expected = module(given, later)
        numbers = later.double().masked_fill(later, -torch.inf)
        for how in (
            {"src_mask": later}, {"src_mask": numbers}, {"src_mask": masks.causal()}, {"src_mask": "causal"},
            {"mask": masks.causal()}, {"mask": "causal"}, {"is_causal": True},
            {"src_mask": masks.window(3, 0), "mask": masks.causal() & masks.window(3, 3)},
        ):  # fmt: skip
            wanted = module(given, mask=masks.window(3, 0)) if len(how) == 2 else expected
            torch.testing.assert_close(module(given, **how), wanted)
    torch.testing.assert_close(layer(given, mask=~later), layer(given, src_mask=later))
    torch.testing.assert_close(stack(given, mask=numbers), stack(given, src_mask=later))
    with pytest.raises(KindError, match=r"write src_mask=mask if True hides, or mask=masks\.keep\(mask\)"):
        stack(given, mask=~later)
    with pytest.raises(KindError, match="belong in bias="):
        layer(given, mask=numbers)
    with pytest.raises(ArgumentError, match="both tensors"):
        stack(given, src_mask=later, mask=numbers)
    with pytest.raises(KindError, match="in lengths="):
        layer(given, src_key_padding_mask=masks.lengths([1, 2, 3]))
    with pytest.raises(KindError, match="src_mask must hold bools"):
        layer(given, torch.tensor([1, 2, 3]))
    with pytest.raises(ShapeError, match=r"src must be \[batch, length, 8\]"):
        layer(given[..., 1:])
    with pytest.raises(ShapeError, match="memory must have tgt's batch, 3"):
        pair("TransformerDecoder", batch_first=True)[1](given, given[:2])


@pytest.mark.parametrize("name", ["TransformerEncoderLayer", "TransformerEncoder"])
def test_biases_are_added_and_get_their_gradient(name):
    _, ours = pair(name, batch_first=True)
    (given,) = inputs(name)
    added = torch.randn(H, S, S, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(ours(given, bias=added), ours(given, added.repeat(B, 1, 1)))
    gradients = [
        torch.autograd.grad(output.pow(3).sum(), added)
        for output in (ours(given, bias=added), ours(given, added.repeat(B, 1, 1)))
    ]
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(ours(given, bias="alibi"), ours(given, bias=biases.alibi(H)))
    other = torch_nn.MultiheadAttention(D, H, batch_first=True, dtype=torch.float64).eval()
    replaced = copy.deepcopy(ours)
    layer = replaced.layers[1] if name == "TransformerEncoder" else replaced
    other.load_state_dict(layer.self_attn.state_dict())
    layer.self_attn = other
    for how in ({"bias": added}, {"bias": "alibi", "mask": "causal"}, {"src_key_padding_mask": PADDING, "bias": added}):
        torch.testing.assert_close(replaced(given, **how), ours(given, **how))


NAMED = {
    "MultiheadAttention": (
        lambda **options: nn.MultiheadAttention(D, H, batch_first=True, **options),
        lambda module, x, **how: module(x, x, x, **how)[0],
    ),
    "TransformerEncoderLayer": (
        lambda **options: nn.TransformerEncoderLayer(D, H, F, batch_first=True, **options),
        lambda module, x, **how: module(x, **how),
    ),
    "TransformerEncoder": (
        lambda **options: nn.TransformerEncoder(nn.TransformerEncoderLayer(D, H, F, batch_first=True, **options), 2),
        lambda module, x, **how: module(x, **how),
    ),
    "TransformerDecoderLayer": (
        lambda **options: nn.TransformerDecoderLayer(D, H, F, batch_first=True, **options),
        lambda module, x, **how: module(x, x, **how),
    ),
    "Transformer": (
        lambda **options: nn.Transformer(D, H, 1, 1, F, batch_first=True, **options),
        lambda module, x, mask="causal", bias=None: module(x, x, src_mask=mask, tgt_mask=mask),
    ),
}


@pytest.mark.parametrize("name", NAMED)
def test_names_stand_for_positions_masks_and_biases(name):
    make, call = NAMED[name]
    x = torch.randn(B, S, D)
    for position in ("rotary", "alibi", "t5", "shaw"):
        assert call(make(position=position).eval(), x).shape == x.shape
    plain = make().eval()
    assert torch.equal(call(plain, x, mask="causal"), call(plain, x, mask=masks.causal()))
    assert torch.equal(call(plain, x, bias="alibi"), call(plain, x, bias=biases.alibi(H)))
    for wrong in (lambda: make(position="rotatory"), lambda: call(plain, x, mask="casual")):
        with pytest.raises(RegardError, match="did you mean"):
            wrong()


def test_the_decoder_of_single_steps_takes_a_bias_by_name():
    module = nn.Attention()
    query, keys = torch.randn(B, 4, D), torch.randn(B, S, D)
    expected = module(query, keys, mask=masks.causal(), bias=biases.alibi(1))
    assert torch.equal(module(query, keys, mask="causal", bias="alibi").output, expected.output)


@pytest.mark.parametrize("name", [*NAMED, "TransformerDecoder"])
def test_the_text_of_a_module_shows_its_sizes(name):
    layer = nn.TransformerDecoderLayer(D, H, F)
    made = nn.TransformerDecoder(layer, 2) if name == "TransformerDecoder" else NAMED[name][0]()
    text = repr(made)
    assert f"d_model={D}, nhead={H}" in text or f"embed_dim={D}, num_heads={H}" in text
    assert f"dim_feedforward={F}" in text or name == "MultiheadAttention"
    assert "num_layers=" in text or name.endswith("Layer") or name == "MultiheadAttention"


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_feature_maps_have_one_convention(name):
    kind = getattr(nn, name)
    first = next(iter(inspect.signature(kind).parameters))
    assert first == ("num_features" if name == "BatchNorm2d" else "channels")  # PyTorch's name of its class
    block = kind(16)
    features = torch.randn(2, 16, 5, 6)
    assert block(features).shape == features.shape
    assert "16" in block.extra_repr()
