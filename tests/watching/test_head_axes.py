"""Which axes count heads, where a model passes more axes than batch, heads, length and features."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard.errors import ArgumentError
from regard.watching import UnseenAttentionWarning, ablate
from watching.models import WEIGHTS

BATCH, HEADS, WINDOWS, TOKENS, DIM = 2, 3, 5, 7, 4


def by_sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def by_hand(q, k, v):
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v


class Windows(nn.Module):
    """Attention within windows, with the heads before or after the windows (NesT and Hiera of timm: before)."""

    def __init__(self, attend, first, heads=HEADS, windows=WINDOWS, *, says=True, copies=False):
        super().__init__()
        if says:
            self.num_heads = heads
        self.attend, self.first, self.sizes, self.copies = attend, first, (heads, windows), copies
        self.qkv, self.proj = nn.Linear(heads * DIM, 3 * heads * DIM), nn.Linear(heads * DIM, heads * DIM)

    def split(self, x):
        """Queries, keys and values ``[batch, windows, heads, tokens, dim]``."""
        heads, windows = self.sizes
        qkv = self.qkv(x).reshape(len(x), windows, TOKENS, 3, heads, DIM).permute(3, 0, 1, 4, 2, 5)
        return [part.contiguous() if self.copies else part for part in qkv.unbind(0)]

    def forward(self, x):
        heads = self.split(x)
        if self.first == "heads":
            heads = [part.transpose(1, 2).contiguous() if self.copies else part.transpose(1, 2) for part in heads]
        out = self.attend(*heads)
        out = out.transpose(1, 2) if self.first == "heads" else out
        return self.proj(out.transpose(2, 3).flatten(-2))


def inputs(heads=HEADS, windows=WINDOWS):
    return torch.randn(BATCH, windows, TOKENS, heads * DIM)


def exact(model, x):
    """The weights ``[batch · windows, heads, tokens, tokens]``."""
    q, k, _ = (part.flatten(0, 1) for part in model.split(x))
    return (q.double() @ k.double().mT * DIM**-0.5).softmax(-1)


@pytest.mark.parametrize("attend", [by_sdpa, by_hand])
@pytest.mark.parametrize("first", ["heads", "windows"])
@pytest.mark.parametrize(
    "options",
    [
        {},  # the module says it
        {"copies": True},
        {"heads": 1},
        {"heads": 1, "copies": True},
        {"heads": 5},  # as many windows: the memory shows it
        {"says": False},
    ],
)
def test_windows_are_rows_of_the_batch(attend, first, options):
    model = Windows(attend, first, **options)
    x = inputs(options.get("heads", HEADS))
    expected = model(x)
    with regard.watch(model, read=WEIGHTS, outputs=True) as seen:
        assert torch.equal(model(x), expected)
    (call,) = seen.calls
    heads = options.get("heads", HEADS)
    assert call.shape == (BATCH * WINDOWS, heads, TOKENS, TOKENS)
    torch.testing.assert_close(call.weights.double(), exact(model, x), rtol=1e-5, atol=1e-6)
    v = model.split(x)[2].flatten(0, 1)
    torch.testing.assert_close(call.head_output, call.weights @ v, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attend", [by_sdpa, by_hand])
@pytest.mark.parametrize("first", ["heads", "windows"])
def test_a_head_is_switched_off_in_all_windows(attend, first):
    model, x = Windows(attend, first), inputs()
    model.proj = nn.Identity()
    expected = model(x).unflatten(-1, (HEADS, DIM)).clone()
    expected[..., 1, :] = 0
    with ablate(model, 0, 1):
        assert torch.equal(model(x), expected.flatten(-2))
    with pytest.raises(ArgumentError, match="head must be below 3"), ablate(model, 0, HEADS):
        model(x)


@pytest.mark.parametrize("attend", [by_sdpa, by_hand])
def test_heads_that_cannot_be_told_apart_are_named(attend):
    """As many windows as heads, copied in the order of the axes: nothing tells them apart."""
    model, x = Windows(attend, "heads", heads=5, copies=True), inputs(5)
    model = nn.ModuleDict({"attn": model, "other": nn.MultiheadAttention(4, 2)})
    model.forward = lambda: (model["attn"](x), model["other"](*[torch.randn(3, 4)] * 3))
    with (
        pytest.warns(UnseenAttentionWarning, match=r"\[2, 5, 5\] before the length counts its 5 heads"),
        regard.watch(model) as seen,
    ):
        model()
    assert [call.name for call in seen.calls] == ["other"]
    with pytest.raises(ArgumentError, match="cannot be told"), ablate(model, 0, 0):
        model()


class Call(nn.Module):
    def forward(self, *args, **options):
        return F.scaled_dot_product_attention(*args, **options)


def watched_call(*args, heads=None, **options):
    model = Call()
    if heads is not None:
        model.num_heads = heads
    expected = model(*args, **options)
    with regard.watch(model, read=WEIGHTS, outputs=True) as seen:
        assert torch.equal(model(*args, **options), expected)
    (call,) = seen.calls
    return call, expected


def test_groups_of_heads_in_two_axes():
    """Keys that broadcast over the heads of a group are the heads of a module that says how many it has."""
    q, k = torch.randn(2, 3, 2, 5, 4), torch.randn(2, 3, 1, 7, 4)
    for query in (q, q.permute(0, 3, 1, 2, 4).contiguous().permute(0, 2, 3, 1, 4)):
        call, output = watched_call(query, k, k, heads=6)
        assert call.shape == (2, 6, 5, 7)
        torch.testing.assert_close(call.head_output, output.flatten(1, 2))


@pytest.mark.parametrize(("keys", "values"), [(2, 2), (2, 3), (3, 2), (1, 6), (6, 1)])
@pytest.mark.parametrize("leading", [(), (3,), (3, 2)])
def test_query_heads_share_keys_and_values_in_groups_of_their_own(leading, keys, values):
    """``enable_gqa=True`` takes three axes, which are heads, and other groups for keys than for values (torch 2.13)."""
    q, k, v = (torch.randn(*leading, heads, length, 4) for heads, length in ((6, 5), (keys, 7), (values, 7)))
    call, output = watched_call(q, k, v, enable_gqa=True)
    batch = torch.Size(leading).numel()
    assert call.shape == (batch, 6, 5, 7)
    assert call.kv_heads == max(keys, values, 6 if {keys, values} == {2, 3} else 0)
    repeated = k.repeat_interleave(6 // keys, -3)
    expected = (q @ repeated.mT / 2).softmax(-1)
    torch.testing.assert_close(call.weights, expected.reshape(call.shape), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(call.head_output, output.reshape(batch, 6, 5, 4), rtol=1e-5, atol=1e-6)


def test_tensors_of_different_ranks_are_completed_in_front():
    q, k, v = torch.randn(2, 3, 5, 4), torch.randn(3, 7, 4), torch.randn(7, 4)
    for first, second, third in ((q, k, v), (v[:5], q, k[:, :5]), (k, v, q[..., :1, :].expand(-1, -1, 7, -1))):
        call, output = watched_call(first, second, third)
        assert call.shape[:2] == (2, 3)
        torch.testing.assert_close(call.head_output, output)


def test_batch_rows_and_heads_in_one_axis():
    q, k = torch.randn(6, 5, 4), torch.randn(6, 7, 4)
    call, output = watched_call(q, k, k, heads=3)
    assert call.shape == (2, 3, 5, 7)
    torch.testing.assert_close(call.head_output, output.unflatten(0, (2, 3)))
    assert watched_call(q, k, k)[0].shape == (6, 1, 5, 7)


def test_windows_of_one_head_in_four_axes():
    q = torch.randn(2, 5, 7, 4)
    assert watched_call(q, q, q, heads=1)[0].shape == (10, 1, 7, 7)
    assert watched_call(q, q, q, heads=5)[0].shape == (2, 5, 7, 7)


@pytest.mark.parametrize("shape", [(5, 7), (1, 3, 1, 5, 7), (2, 3, 4, 5, 7), (4, 5, 7), (3, 1, 1, 7), (2, 1, 1, 1, 7)])
def test_masks_of_more_axes(shape):
    q, k = torch.randn(2, 3, 4, 5, 6), torch.randn(2, 3, 4, 7, 6)
    mask = torch.rand(shape) > 0.4
    mask[..., 0] = True
    for heads, axis in ((3, 1), (4, 2)):
        call, output = watched_call(q, k, k, heads=heads, attn_mask=mask)
        expected = (q @ k.mT * 6**-0.5).masked_fill(~mask, -torch.inf).softmax(-1).movedim(axis, 2)
        torch.testing.assert_close(call.weights, expected.reshape(call.shape), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(call.head_output, output.movedim(axis, 2).reshape(-1, heads, 5, 6))
        visible = mask.expand(2, 3, 4, 5, 7).movedim(axis, 2).reshape(call.shape)
        for row in range(call.batch):
            assert torch.equal(call.visible(row).expand(heads, -1, -1), visible[row])


def test_models_of_timm():
    """timm 1.0.31: NesT and Hiera pass ``[batch, heads, windows, tokens, dim]``; both ways of computing it agree."""
    pytest.importorskip("timm", reason="timm is not installed")
    from timm.layers import set_fused_attn, use_fused_attn
    from timm.models.hiera import Hiera
    from timm.models.nest import Nest

    was_fused = bool(use_fused_attn())
    options = {"img_size": 64, "num_levels": 3, "embed_dims": (8, 16, 32), "num_heads": (2, 4, 8), "depths": (1, 1, 1)}
    image = torch.randn(1, 3, 64, 64)
    try:
        for make in (lambda: Nest(**options), lambda: Hiera(img_size=(64, 64), embed_dim=8, stages=(1, 1, 1, 1))):
            calls = []
            for is_fused in (True, False):
                set_fused_attn(is_fused)
                torch.manual_seed(0)
                model = make().eval()
                with torch.no_grad(), regard.watch(model, read=WEIGHTS) as seen:
                    model(image)
                calls.append(seen.calls)
            for fused, by_softmax in zip(*calls, strict=True):
                module = model.get_submodule(fused.name)
                assert fused.heads == getattr(module, "num_heads", None) or fused.heads == module.heads
                torch.testing.assert_close(fused.weights, by_softmax.weights, rtol=1e-4, atol=1e-5)
            with torch.no_grad(), pytest.raises(ArgumentError, match="head must be below"), ablate(model, 0, 5):
                model(image)
    finally:
        set_fused_attn(was_fused)
