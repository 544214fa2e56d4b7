"""`MultiheadAttention` inside torch's Transformer layers: always called, in training and in evaluation."""

import copy
import io
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from covering import covering
from regard import normalizers, positions
from regard.errors import ArgumentError, KindError, ShapeError
from regard.nn import MultiheadAttention

BATCH, HEADS, QUERIES, KEYS, EMBED, HIDDEN = 3, 2, 5, 11, 14, 19
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] + [True] * 4])


@pytest.fixture(autouse=True)
def _nested_tensors_without_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors")
        yield


@pytest.fixture
def without_fused_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch's kernels that take a layer's parameters and skip its attention module raise."""

    def raising(*_: object) -> None:
        raise AssertionError("the attention module was bypassed")

    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", raising)
    monkeypatch.setattr(torch, "_native_multi_head_attention", raising)


def layer(norm_first: bool = False) -> tuple[nn.TransformerEncoderLayer, nn.TransformerEncoderLayer]:
    theirs = nn.TransformerEncoderLayer(
        EMBED, HEADS, HIDDEN, batch_first=True, norm_first=norm_first, dropout=0.0, dtype=torch.float64
    )
    return theirs, put_in(copy.deepcopy(theirs))


def put_in(module: nn.TransformerEncoderLayer) -> nn.TransformerEncoderLayer:
    theirs = module.self_attn
    ours = MultiheadAttention(EMBED, HEADS, batch_first=True, dtype=torch.float64)
    ours.load_state_dict(theirs.state_dict())
    ours.train(module.training)
    module.self_attn = ours
    return module


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_the_drop_in_replaces_attention_in_torchs_encoder_layer(norm_first, training, grad):
    theirs, ours = (module.train(training) for module in layer(norm_first))
    x = torch.randn(BATCH, QUERIES, EMBED, dtype=torch.float64)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] + [True] * 4])
    later = torch.ones(QUERIES, QUERIES, dtype=torch.bool).triu(1)
    with torch.set_grad_enabled(grad):
        for how in ({}, {"src_key_padding_mask": padding}, {"src_mask": later, "is_causal": True}):
            torch.testing.assert_close(ours(x, **how), theirs(x, **how))


def test_a_transformer_layer_in_evaluation_does_not_go_around_it():
    # torch's own kernel for evaluation gives NaN for a sequence of nothing but padding.
    theirs, ours = (module.eval() for module in layer())
    x = torch.randn(BATCH, QUERIES, EMBED, dtype=torch.float64)
    padding = torch.zeros(BATCH, QUERIES, dtype=torch.bool)
    padding[1] = True
    with torch.no_grad():
        assert theirs(x, src_key_padding_mask=padding)[1].isnan().any()
        output = ours(x, src_key_padding_mask=padding)
    assert output.isfinite().all()
    calls = []
    ours.self_attn.out_proj.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        ours(x)
    assert calls


def test_the_drop_in_replaces_attention_in_an_encoder_that_nests_padded_input():
    theirs = nn.TransformerEncoder(layer()[0], 2).eval()
    ours = copy.deepcopy(theirs)
    for module in ours.layers:
        put_in(module)
    x = torch.randn(BATCH, QUERIES, EMBED, dtype=torch.float64)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [True] * 5])
    with torch.no_grad():
        torch.testing.assert_close(ours(x, src_key_padding_mask=padding), theirs(x, src_key_padding_mask=padding))


def own(**options: object) -> MultiheadAttention:
    return MultiheadAttention(EMBED, HEADS, batch_first=True, dtype=torch.float64, **options)  # type: ignore[arg-type]


def encoder_layer(attention: nn.MultiheadAttention | None = None) -> nn.TransformerEncoderLayer:
    made = nn.TransformerEncoderLayer(EMBED, HEADS, HIDDEN, dropout=0.0, batch_first=True, dtype=torch.float64)
    if attention is not None:
        made.self_attn = attention
    return made


@pytest.mark.parametrize(
    "dims", [{}, {"kdim": 13}, {"vdim": 17}, {"kdim": EMBED, "vdim": EMBED}, {"kdim": 13, "vdim": 17}]
)
def test_the_drop_in_has_the_projections_of_torchs_module(dims):
    theirs, ours = (cls(EMBED, HEADS, **dims) for cls in (nn.MultiheadAttention, MultiheadAttention))
    assert ours._qkv_same_embed_dim is theirs._qkv_same_embed_dim
    assert (ours.in_proj_weight is not None) == ours._qkv_same_embed_dim
    assert (ours.q_proj_weight is None) == ours._qkv_same_embed_dim


def test_grouped_heads_have_separate_projections():
    grouped = own(kv_heads=1)
    assert not grouped._qkv_same_embed_dim
    assert grouped.in_proj_weight is None


def saved_and_loaded(module: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {"itself": lambda module: module, "copy": copy.deepcopy, "file": saved_and_loaded}
OPTIONS = {
    "plain": {},
    "cosine": {"score": "cosine"},
    "sparsemax": {"normalizer": "sparsemax"},
    "entmax": {"normalizer": normalizers.entmax(1.5)},
    "alibi": {"position": positions.alibi(HEADS)},
    "grouped": {"kv_heads": 1},
}


@pytest.mark.usefixtures("without_fused_kernels")
@covering(options=OPTIONS, copied=COPIES, inference=[torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_evaluation_gives_what_training_gives(options, copied, inference):
    x = torch.randn(BATCH, QUERIES, EMBED, dtype=torch.float64)
    later = torch.ones(QUERIES, QUERIES, dtype=torch.bool).triu(1)
    made = COPIES[copied](encoder_layer(own(**OPTIONS[options])))
    layers = nn.TransformerEncoder(made, 2, enable_nested_tensor=made.self_attn._qkv_same_embed_dim)
    for module, keywords in (
        (made, {}),
        (made, {"src_key_padding_mask": PADDING}),
        (made, {"src_mask": later}),
        (made, {"src_mask": later, "src_key_padding_mask": PADDING}),
        (layers, {}),
        (layers, {"mask": later, "is_causal": True}),
        (layers, {"src_key_padding_mask": PADDING}),
    ):
        expected = module.train()(x, **keywords)
        with inference():
            came = module.eval()(x, **keywords)
        # A nested input has no padding, and its output is 0 there.
        seen = ~PADDING if "src_key_padding_mask" in keywords else torch.ones_like(PADDING)
        torch.testing.assert_close(came[seen], expected[seen])


@pytest.mark.usefixtures("without_fused_kernels")
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("enable_nested_tensor", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_of_frozen_layers_calls_every_module(frozen, enable_nested_tensor, activation):
    made = nn.TransformerEncoderLayer(
        EMBED, HEADS, HIDDEN, dropout=0.0, activation=activation, batch_first=True, dtype=torch.float64
    )
    theirs = nn.TransformerEncoder(made, 3, enable_nested_tensor=enable_nested_tensor).eval()
    ours = copy.deepcopy(theirs)
    for module in ours.layers:
        put_in(module)
    for encoder in (theirs, ours):
        encoder.requires_grad_(not frozen)
    calls: list[int] = []
    for index, module in enumerate(ours.layers):
        module.self_attn.register_forward_hook(lambda *_, index=index: calls.append(index))
    x = torch.randn(BATCH, QUERIES, EMBED, dtype=torch.float64)
    came = ours(x, src_key_padding_mask=PADDING)
    assert calls == [0, 1, 2]
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        expected = theirs(x, src_key_padding_mask=PADDING)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    torch.testing.assert_close(came[~PADDING], expected[~PADDING])


@pytest.mark.usefixtures("without_fused_kernels")
def test_a_removed_hook_is_an_error_and_not_a_detour():
    made = encoder_layer(own(score="cosine")).eval()
    made.self_attn._forward_pre_hooks.clear()
    with torch.no_grad(), pytest.raises(ArgumentError, match="forward pre-hook"):
        made(torch.randn(BATCH, QUERIES, EMBED, dtype=torch.float64))


def test_masks_are_merged_as_torch_merges_them():
    theirs, ours = nn.MultiheadAttention(EMBED, HEADS), MultiheadAttention(EMBED, HEADS)
    query = torch.randn(BATCH, QUERIES, EMBED)
    whole, padding = torch.randn(QUERIES, QUERIES), torch.randn(BATCH, QUERIES)
    for given in ((None, None), (whole, None), (None, padding), (whole, padding)):
        (expected, kind), (came, own_kind) = (module.merge_masks(*given, query) for module in (theirs, ours))
        assert kind == own_kind
        assert (came is None and expected is None) or torch.equal(came, expected)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_the_drop_in_replaces_attention_in_torchs_decoder(batch_first, training, norm_first):
    theirs = nn.TransformerDecoder(
        nn.TransformerDecoderLayer(
            EMBED, HEADS, HIDDEN, dropout=0.0, batch_first=batch_first, norm_first=norm_first, dtype=torch.float64
        ),
        2,
    ).train(training)
    ours = copy.deepcopy(theirs)
    for module in ours.layers:
        for name in ("self_attn", "multihead_attn"):
            attention = MultiheadAttention(EMBED, HEADS, batch_first=batch_first, dtype=torch.float64)
            attention.load_state_dict(getattr(module, name).state_dict())
            setattr(module, name, attention.train(training))
    target, memory = (torch.randn(BATCH, length, EMBED, dtype=torch.float64) for length in (QUERIES, KEYS))
    if not batch_first:
        target, memory = target.transpose(0, 1), memory.transpose(0, 1)
    later = nn.Transformer.generate_square_subsequent_mask(QUERIES, dtype=torch.float64)
    padding = torch.rand(BATCH, KEYS) < 0.3
    padding[:, 0] = False
    for how in ({}, {"tgt_mask": later, "tgt_is_causal": True, "memory_key_padding_mask": padding}):
        with torch.set_grad_enabled(training):
            torch.testing.assert_close(ours(target, memory, **how), theirs(target, memory, **how))


def nested(sizes: tuple[int, ...], layout: torch.layout, features: int = EMBED) -> tuple[Tensor, list[Tensor]]:
    rows = [torch.randn(size, features, dtype=torch.float64, requires_grad=True) for size in sizes]
    return torch.nested.as_nested_tensor(rows, layout=layout), rows


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("sizes", [(3, 5, 1), (2,), (4, 0, 7)])
def test_nested_sequences_are_sequences_alone(layout, sizes):
    module = own(score="cosine")
    tensor, rows = nested(sizes, layout)
    output, weights = module(tensor, tensor, tensor, average_attn_weights=False)
    assert output.is_nested
    assert output.layout == layout
    assert weights.shape == (len(sizes), HEADS, max(sizes), max(sizes))
    expected = [module(row, row, row)[0] for row in rows]
    for came, wanted in zip(output.unbind(), expected, strict=True):
        torch.testing.assert_close(came, wanted)
    grads = torch.autograd.grad(sum(came.pow(3).sum() for came in output.unbind()), rows)
    wanted = torch.autograd.grad(sum(row.pow(3).sum() for row in expected), rows)
    torch.testing.assert_close(grads, wanted)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_other_nested_input_is_refused(layout):
    module = own()
    tensor, _ = nested((3, 5, 1), layout)
    other, _ = nested((3, 5, 1), layout)
    padding = torch.zeros(3, 5, dtype=torch.bool)
    dense = torch.randn(3, 5, EMBED, dtype=torch.float64)
    for given in ((tensor, other, other), (dense, tensor, tensor), (tensor, dense, dense)):
        with pytest.raises(KindError, match="query is key is value"):
            module(*given)
    for how in ({"key_padding_mask": padding}, {"attn_mask": torch.zeros(5, 5)}):
        with pytest.raises(KindError, match="key_padding_mask and attn_mask"):
            module(tensor, tensor, tensor, **how)
    with pytest.raises(KindError, match="batch_first=True"):
        MultiheadAttention(EMBED, HEADS, dtype=torch.float64)(tensor, tensor, tensor)
    narrow, _ = nested((3, 5, 1), layout, features=EMBED - 1)
    with pytest.raises(ShapeError, match=r"nested query must be \[length, 14\]; sequence 0 has shape \[3, 13\]"):
        module(narrow, narrow, narrow)
    with pytest.raises(KindError, match="key_padding_mask must not be a nested tensor"):
        module(dense, dense, dense, key_padding_mask=torch.nested.as_nested_tensor(list(dense[..., 0])))


def test_ragged_features_are_not_padded():
    rows = [torch.randn(3, EMBED, dtype=torch.float64), torch.randn(5, EMBED - 1, dtype=torch.float64)]
    tensor = torch.nested.as_nested_tensor(rows)
    with pytest.raises(ShapeError, match=r"sequence 1 has shape \[5, 13\]"):
        own()(tensor, tensor, tensor)
