"""Each argument of each public constructor, given what it cannot use: one error of regard, or an object that works."""

import inspect
import math
import sys

import pytest
import torch

import regard
from regard import biases, masks, nn, normalizers, positions, scores
from regard.errors import ArgumentError, KindError, RegardError


def has_accelerator():
    """Whether a number names a device: there is an accelerator, or another test made the emulated one."""
    return torch.accelerator.is_available() or "emulated_device" in sys.modules


WRONG = {
    "None": None,
    "string": "x",
    "empty string": "",
    "true": True,
    "negative": -1,
    "zero": 0,
    "float": 2.5,
    "nan": math.nan,
    "inf": math.inf,
    "list": [1],
    "module": torch.nn.Linear(3, 3),
    "class": torch.nn.Linear,
    "tensor": torch.randn(2, 3, 5),
    "integers": torch.tensor([1, 2]),
    "object": object(),
    "three": 3,
}
AT_CALL = {"tensor", "integers", "list", "three"}
"""What may be right for another call: that call says what does not fit."""

x = torch.randn(2, 5, 6)
q = torch.randn(2, 2, 5, 6)


def att():
    return nn.MultiheadAttention(6, 2, batch_first=True)


f = torch.randn(2, 4, 5, 6)


def call_layer(m):
    return m(x)


def call_f(m):
    return m(f)


def score(s):
    return regard.attend(q, q, q, score=s)


def norm(n):
    return regard.attend(q, q, q, normalizer=n)


def mask(m):
    return regard.attend(q, q, q, mask=m)


def bias(b):
    return regard.attend(q, q, q, bias=b)


def encoder_layer():
    return nn.LayerConfig(dim=6, heads=2, feedforward=5).encoder_layer()


def decoder_layer():
    return nn.LayerConfig(dim=6, heads=2, feedforward=5).decoder_layer()


def dec(m):
    return m(x, x)


def of_model(m):
    input = torch.randn(2, 5, m.d_model)
    return m(input) if isinstance(m, nn.TransformerEncoderLayer) else m(input, input)


LAYER = {
    "d_model": 6,
    "nhead": 2,
    "dim_feedforward": 5,
    "dropout": 0.1,
    "activation": "relu",
    "layer_norm_eps": 1e-5,
    "batch_first": True,
    "norm_first": False,
    "bias": True,
    "device": None,
    "dtype": None,
    "score": "scaled_dot",
    "normalizer": "softmax",
    "position": None,
    "bidirectional": None,
    "kv_heads": None,
    "norm": "layer",
    "backend": "auto",
    "feedforward_chunk": 0,
    "activation_checkpointing": False,
}
"""The arguments of a layer."""

CASES = {
    "nn.MultiheadAttention": (
        nn.MultiheadAttention,
        {
            "embed_dim": 6,
            "num_heads": 2,
            "dropout": 0.1,
            "bias": True,
            "add_bias_kv": False,
            "add_zero_attn": False,
            "kdim": None,
            "vdim": None,
            "batch_first": True,
            "device": None,
            "dtype": None,
            "score": "scaled_dot",
            "normalizer": "softmax",
            "kv_heads": None,
            "position": None,
            "backend": "auto",
        },
        lambda m: m(torch.randn(2, 5, m.embed_dim), torch.randn(2, 5, m.kdim), torch.randn(2, 5, m.vdim)),
    ),
    "nn.Attention": (
        nn.Attention,
        {"score": "scaled_dot", "normalizer": "softmax", "dropout": 0.1, "backend": "auto"},
        lambda m: m(x[:, 0], x),
    ),
    "nn.AttentionPooling": (
        nn.AttentionPooling,
        {
            "dim": 6,
            "heads": 2,
            "score": "additive",
            "score_dim": None,
            "normalizer": "softmax",
            "dropout": 0.1,
            "backend": "auto",
        },
        call_layer,
    ),
    "nn.TransformerEncoderLayer": (nn.TransformerEncoderLayer, LAYER, of_model),
    "nn.TransformerDecoderLayer": (nn.TransformerDecoderLayer, LAYER, of_model),
    "nn.TransformerEncoder": (
        nn.TransformerEncoder,
        {
            "encoder_layer": encoder_layer(),
            "num_layers": 1,
            "norm": None,
            "enable_nested_tensor": True,
            "mask_check": True,
        },
        call_layer,
    ),
    "nn.TransformerDecoder": (
        nn.TransformerDecoder,
        {"decoder_layer": decoder_layer(), "num_layers": 1, "norm": None},
        dec,
    ),
    "nn.TransformerEncoder.from_layers": (
        nn.TransformerEncoder.from_layers,
        {"layers": [encoder_layer()], "norm": None},
        call_layer,
    ),
    "nn.TransformerDecoder.from_layers": (
        nn.TransformerDecoder.from_layers,
        {"layers": [decoder_layer()], "norm": None},
        dec,
    ),
    "nn.TransformerEncoder.create": (
        nn.TransformerEncoder.create,
        {"num_layers": 1, "config": nn.LayerConfig(dim=6, heads=2, feedforward=5), "bidirectional": True, "norm": True},
        call_layer,
    ),
    "nn.TransformerDecoder.create": (
        nn.TransformerDecoder.create,
        {"num_layers": 1, "config": nn.LayerConfig(dim=6, heads=2, feedforward=5), "norm": True},
        dec,
    ),
    "nn.Transformer.create": (
        nn.Transformer.create,
        {"num_encoder_layers": 1, "num_decoder_layers": 1, "config": nn.LayerConfig(dim=6, heads=2, feedforward=5)},
        dec,
    ),
    "nn.Transformer": (
        nn.Transformer,
        {"num_encoder_layers": 1, "num_decoder_layers": 1, "custom_encoder": None, "custom_decoder": None, **LAYER},
        of_model,
    ),
    "nn.LayerConfig": (
        nn.LayerConfig,
        {
            "dim": 6,
            "heads": 2,
            "feedforward": 5,
            "dropout": 0.1,
            "activation": "relu",
            "norm_first": False,
            "kv_heads": None,
            "score": "scaled_dot",
            "normalizer": "softmax",
            "position": "none",
            "backend": "auto",
            "feedforward_chunk": 0,
            "activation_checkpointing": False,
            "norm": "layer",
            "layer_norm_eps": 1e-5,
            "bias": True,
            "batch_first": True,
        },
        lambda c: (c.encoder_layer()(torch.randn(2, 5, c.dim)), c.decoder_layer()),
    ),
    "nn.SqueezeExcitation": (
        nn.SqueezeExcitation,
        {"channels": 4, "reduction": 2, "hidden": None, "bias": False},
        call_f,
    ),
    "nn.CBAM": (nn.CBAM, None, call_f),
    "nn.ChannelGate": (nn.ChannelGate, None, call_f),
    "nn.SpatialGate": (nn.SpatialGate, None, call_f),
    "nn.ECA": (nn.ECA, None, call_f),
    "nn.CoordinateAttention": (nn.CoordinateAttention, None, call_f),
    "nn.GlobalContext": (nn.GlobalContext, None, call_f),
    "nn.SelectiveKernel": (nn.SelectiveKernel, None, call_f),
    "nn.SplitAttention": (nn.SplitAttention, None, call_f),
    "nn.XCA": (nn.XCA, None, call_f),
    "nn.MSCAM": (nn.MSCAM, None, call_f),
    "nn.AFF": (nn.AFF, None, lambda m: m(f, f)),
    "nn.IAFF": (nn.IAFF, None, lambda m: m(f, f)),
    "nn.NonLocal": (nn.NonLocal, None, call_f),
    "nn.PositionAttention": (nn.PositionAttention, None, call_f),
    "nn.ChannelAttention": (nn.ChannelAttention, None, call_f),
    "nn.DualAttention": (nn.DualAttention, None, call_f),
    "nn.BatchNorm2d": (nn.BatchNorm2d, {"num_features": 4}, lambda m: m(torch.randn(2, m.num_features, 5, 6))),
    "nn.Packing": (nn.Packing, {"lengths": torch.tensor([5, 3]), "length": 5}, lambda p: p.pad(p.pack(x))),
    "scores.ScaledDot": (scores.ScaledDot, {"scale": None}, score),
    "scores.Cosine": (scores.Cosine, {"temperature": 1.0}, score),
    "scores.Cosine.create": (scores.Cosine.create, {"heads": None}, score),
    "scores.Distance": (scores.Distance, {"squared": True}, score),
    "scores.General": (scores.General, {"weight": torch.randn(6, 6)}, score),
    "scores.General.create": (scores.General.create, {"query_dim": 6, "key_dim": 6, "heads": None}, score),
    "scores.Additive": (
        scores.Additive,
        {"weight": torch.randn(6), "query_projection": None, "key_projection": None},
        score,
    ),
    "scores.Additive.create": (scores.Additive.create, {"query_dim": 6, "key_dim": 6, "dim": 4, "heads": None}, score),
    "scores.Additive.concat": (scores.Additive.concat, {"query_dim": 6, "key_dim": 6, "dim": 4, "heads": None}, score),
    "scores.MLP": (scores.MLP, {"network": torch.nn.Linear(12, 1)}, score),
    "scores.MLP.create": (scores.MLP.create, {"query_dim": 6, "key_dim": 6, "hidden": (4,)}, score),
    "scores.Location": (scores.Location, {"weight": torch.randn(5, 6)}, score),
    "scores.Location.create": (scores.Location.create, {"query_dim": 6, "max_keys": 5}, score),
    "scores.LocationAware.create": (
        scores.LocationAware.create,
        {"query_dim": 6, "key_dim": 6, "dim": 4, "heads": None, "channels": 2, "kernel_size": 3},
        lambda s: score(s.given(torch.rand(2, 5))),
    ),
    "scores.SoftCap": (scores.SoftCap, {"score": "dot", "cap": 2.0}, score),
    "scores.Modified": (scores.Modified, {"score": "dot", "fn": lambda s, *w: s}, score),
    "scores.Custom": (scores.Custom, {"function": lambda q, k: q @ k.mT, "width": 1}, score),
    "scores.create": (
        scores.create,
        {"name": "additive", "query_dim": 6, "key_dim": 6, "dim": None, "heads": None},
        score,
    ),
    "normalizers.Softmax": (normalizers.Softmax, {"temperature": 1.0}, norm),
    "normalizers.softmax_with_sink": (normalizers.softmax_with_sink, {"sink": 0.0}, norm),
    "normalizers.entmax": (normalizers.entmax, {"alpha": 1.5}, norm),
    "normalizers.hard": (normalizers.hard, {"mode": "argmax", "temperature": 1.0, "generator": None}, norm),
    "normalizers.Sigmoid": (normalizers.Sigmoid, {"bias": 0.0}, norm),
    "normalizers.local_gaussian": (
        normalizers.local_gaussian,
        {"normalizer": "softmax", "center": torch.zeros(5), "sigma": 1.0},
        norm,
    ),
    "normalizers.Custom": (normalizers.Custom, {"function": lambda s: torch.softmax(s, -1)}, norm),
    "masks.causal": (masks.causal, {"align": "end", "offset": None}, mask),
    "masks.window": (masks.window, {"before": None, "after": None, "align": "end", "offset": None}, mask),
    "masks.lengths": (masks.lengths, {"keys": [5, 3], "queries": None}, mask),
    "masks.documents": (masks.documents, {"query_ids": torch.zeros(5, dtype=torch.long), "key_ids": None}, mask),
    "masks.prefix": (masks.prefix, {"n": 2}, mask),
    "masks.dilated": (masks.dilated, {"step": 2}, mask),
    "masks.neighborhood": (masks.neighborhood, {"size": 3, "shape": None, "dilation": 1}, mask),
    "masks.shifted_windows": (masks.shifted_windows, {"window": 3, "shift": 1, "shape": (1, 5)}, mask),
    "masks.blocks": (masks.blocks, {"visible": torch.ones(5, 2, dtype=torch.bool), "size": 3, "query_size": 1}, mask),
    "masks.where": (masks.where, {"fn": lambda b, h, i, j: i >= j}, mask),
    "masks.keep": (masks.keep, {"tensor": torch.ones(5, 5, dtype=torch.bool)}, mask),
    "masks.ignore": (masks.ignore, {"tensor": torch.ones(5, 5, dtype=torch.bool)}, mask),
    "biases.alibi": (biases.alibi, {"heads": 2}, bias),
    "biases.RelativeBias": (
        biases.RelativeBias,
        {"heads": 2, "buckets": 8, "max_distance": 16, "bidirectional": True},
        bias,
    ),
    "biases.RelativePosition": (
        biases.RelativePosition,
        {"dim": 6, "max_distance": 4, "heads": None, "scale": None},
        bias,
    ),
    "biases.TensorBias": (biases.TensorBias, {"tensor": torch.randn(5, 5)}, bias),
    "positions.Sinusoidal": (positions.Sinusoidal, {"dim": 6}, lambda p: p(torch.randn(2, 5, p.dim))),
    "positions.Learned": (positions.Learned, {"max_length": 7, "dim": 6}, lambda p: p(torch.randn(2, 5, p.dim))),
    "positions.Rotary": (
        positions.Rotary,
        {"dim": 6, "base": 100.0, "interleaved": False},
        lambda p: p(torch.randn(2, 2, 5, p.dim)),
    ),
    "regard.Readings": (
        regard.Readings,
        {
            "entropy": True,
            "peak": False,
            "top_k": 2,
            "received": True,
            "distance": False,
            "pooled": None,
            "rows": None,
            "tile": None,
            "weights": False,
        },
        lambda r: regard.observe(q, q, q, read=r),
    ),
}


LATER = {("masks.lengths", "negative"), ("masks.prefix", "negative")}
"""Limits that depend on the problem are checked with it."""

OF_USER = {"normalizer", "network", "activation", "norm", "custom_encoder", "custom_decoder"}
"""A module that is given as a function is called as it is."""


@pytest.mark.parametrize("name", CASES)
def test_a_constructor_accepts_nothing_that_it_cannot_use(name):
    make, valid, use = CASES[name]
    if valid is None:
        parameters = inspect.signature(make).parameters
        named = {name: p for name, p in parameters.items() if p.kind is not p.VAR_KEYWORD}
        valid = {name: 4 if p.default is p.empty else p.default for name, p in named.items()}
    use(make(**valid))
    for argument in valid:
        for kind, wrong in WRONG.items():
            is_name = name == "nn.LayerConfig" and argument != "normalizer"
            of_user = (argument in OF_USER and not is_name) or name == "normalizers.Custom"
            if of_user and kind == "module":
                continue
            if argument == "config" and wrong is None:  # the defaults, of another dim
                continue
            if argument == "device" and isinstance(wrong, int) and has_accelerator():
                continue
            what = f"{name}({argument}={wrong!r})"
            try:
                made = make(**{**valid, argument: wrong})
            except RegardError:
                continue
            except Exception as error:
                raise AssertionError(f"{what} raised {error!r}") from error
            try:
                use(made)
            except RegardError as error:
                if not (kind in AT_CALL or (name, kind) in LATER or name == "regard.Readings"):
                    raise AssertionError(f"{what} was accepted, and its call refused it: {error}") from error
            except Exception as error:
                raise AssertionError(f"{what} was accepted, and its call raised {error!r}") from error


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: nn.TransformerEncoder(att(), 6), "encoder_layer must be a .*MultiheadAttention.*EncoderLayer.d_model"),
        (
            lambda: nn.TransformerDecoder(encoder_layer(), 6),
            "decoder_layer must be a regard.nn.TransformerDecoderLayer",
        ),
        (
            lambda: nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(6, 2), 1),
            "encoder_layer must be a regard.*torch",
        ),
        (
            lambda: nn.TransformerEncoder.from_layers([encoder_layer(), decoder_layer()]),
            r"layers\[1\] must be a regard.nn.TransformerEncoderLayer",
        ),
        (lambda: nn.TransformerEncoder.create(6, 512), "config must be a LayerConfig"),
        (lambda: nn.TransformerEncoderLayer(6, 2, activation=torch.nn.ReLU), "activation must be a function .* class"),
        (lambda: nn.Transformer(custom_encoder="bert"), "custom_encoder must be a torch.nn.Module"),
    ],
)
def test_a_part_of_another_kind_is_named(make, line):
    with pytest.raises(KindError, match=line):
        make()


def test_parts_that_do_not_fit_each_other_are_refused():
    wide = nn.LayerConfig(dim=8, heads=2, feedforward=5)
    for make in (
        lambda: nn.TransformerEncoder.from_layers([encoder_layer(), wide.encoder_layer()]),
        lambda: nn.TransformerDecoderLayer(8, 3),
        lambda: nn.TransformerEncoderLayer(6, 2, position="rotary"),
        lambda: nn.Transformer(custom_encoder=nn.TransformerEncoder(encoder_layer(), 1)),
        lambda: nn.Transformer(6, 2, custom_encoder=nn.TransformerEncoder(encoder_layer(), 1)),
        lambda: nn.LayerConfig(dim=8, heads=4, kv_heads=3),
        lambda: nn.LayerConfig(score="location"),
        lambda: nn.TransformerEncoder.from_layers([]),
        lambda: nn.MultiheadAttention(6, 2, device="nowhere"),
        lambda: nn.Attention(backend="nobody"),
    ):
        with pytest.raises(ArgumentError):
            make()


def test_a_layer_list_may_be_a_module_list():
    assert nn.TransformerEncoder.from_layers(torch.nn.ModuleList([encoder_layer()]))(x).shape == x.shape


MISSING_DEVICE = {
    "a CUDA build without a driver": RuntimeError("Found no NVIDIA driver on your system."),
    "a build without CUDA": AssertionError("Torch not compiled with CUDA enabled"),
    "a device of a package that is missing": ModuleNotFoundError("No module named 'torch.hpu'"),
}
"""What PyTorch 2.11 to 2.14 raise for a device that is not there, by the build."""


@pytest.mark.parametrize("build", MISSING_DEVICE)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "device" in (case[1] or {})])
def test_a_device_that_is_not_there_is_refused_in_one_line(name, build, monkeypatch):
    make, valid, _ = CASES[name]
    new_tensor = torch.empty

    def empty(*sizes, device=None, **others):
        if device is not None and torch.device(device).type != "cpu":
            raise MISSING_DEVICE[build]
        return new_tensor(*sizes, device=device, **others)

    monkeypatch.setattr(torch, "empty", empty)
    for device in ("cuda", "cuda:1", "xpu", torch.device("cuda", 0)):
        with pytest.raises(ArgumentError, match=f"^device '{device}' cannot be used here: .*{MISSING_DEVICE[build]}"):
            make(**{**valid, "device": device})
