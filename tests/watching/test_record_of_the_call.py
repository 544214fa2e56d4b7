"""A record describes the call that ran: rows without keys, pairs that scores hide, masks in parts or as tensors."""

import itertools
import operator
from functools import reduce

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import flex_attention as flex

import regard
from regard import biases, masks, normalizers, scores
from regard.shapes.grid import Grid
from regard.watching.mask_kind import read_mask, read_tensor
from watching.models import WEIGHTS, Heads, watched

pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
]
ALL = regard.Readings(
    entropy=True, peak=True, top_k=2, received=True, distance=True, pooled=(2, 2), rows=[2], weights=True
)
CAUSAL = torch.ones(7, 7, dtype=torch.bool).tril()
LOWEST = torch.finfo(torch.float32).min


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **options):
        return self.function(*args, **options)


def seen_in(function, *args, read=WEIGHTS, **options):
    model = Call(function)
    with regard.watch(model, read=read, outputs=True) as seen:
        output = model(*args, **options)
    (call,) = seen.calls
    return call, output


def by_flex(*args, **options):
    return flex.flex_attention(*args, **options)


# Rows that see no key


@pytest.fixture
def fast_path():
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    yield torch.backends.mha.set_fastpath_enabled
    torch.backends.mha.set_fastpath_enabled(was_enabled)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("way", ["weights", "fast path", "fast path with weights"])
def test_a_row_that_pytorch_computes_as_nan(way, batch_first, fast_path, tmp_path):
    """``nn.MultiheadAttention`` of torch 2.13 gives NaN with ``need_weights=True`` and on its fast path."""
    if way != "weights" and not batch_first:
        pytest.skip("the fast path has the batch first")
    fast_path(way != "weights")
    model = nn.MultiheadAttention(8, 2, batch_first=batch_first).eval()
    x, padding = torch.randn(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    padding[1] = True
    inputs = x if batch_first else x.transpose(0, 1)
    with torch.no_grad():
        options = {"key_padding_mask": padding, "need_weights": way != "fast path", "average_attn_weights": False}
        output, weights = model(inputs, inputs, inputs, **options)
        with regard.watch(model, read=ALL, outputs=True, norms=True, keep=True) as seen:
            model(inputs, inputs, inputs, **options)
    output = output if batch_first else output.transpose(0, 1)
    assert bool(output[1].isnan().all())
    assert not output[0].isnan().any()
    (call,) = seen.calls
    if weights is not None:
        torch.testing.assert_close(call.weights, weights, equal_nan=True)
    for name in ("weights", "entropy", "peak", "distance", "received", "top_weights", "pooled_mean", "head_output"):
        reading = getattr(call, name)
        assert not reading[0].isnan().any(), name
        assert bool(reading[1].isnan().all()), name
    assert bool((call.lse[1] == -torch.inf).all())
    assert call.mask == "padding"
    assert not call.visible(1).any()
    assert bool(call.visible(0).all())
    torch.testing.assert_close(torch.from_numpy(call.tiles[1].tile((0, 5), (0, 5))), call.weights[1], equal_nan=True)
    regard.View(seen.document(list("abcde"), batch_row=1)).save(tmp_path / "rows.html")


def test_rows_of_the_encoder_layers_fast_path(fast_path):
    fast_path(True)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    mask = torch.zeros(5, 5, dtype=torch.bool)
    mask[2] = True
    with torch.no_grad(), regard.watch(model, read=WEIGHTS) as seen:
        output = model(torch.randn(1, 5, 8), src_mask=mask)
    (call,) = seen.calls
    assert call.source == "TransformerEncoderLayer"
    expected = torch.tensor([False, False, True, False, False])
    assert torch.equal(output[0].isnan().all(-1), expected)
    assert torch.equal(call.weights[0].isnan().all(-1), expected.expand(2, -1))


def test_rows_of_a_softmax_written_by_hand_are_nan_and_see_nothing():
    mask = torch.zeros(7, 7)
    mask[2] = -torch.inf
    model = Heads(lambda q, k, v: ((q @ k.mT + mask).softmax(-1)) @ v)
    with torch.no_grad(), regard.watch(model, read=WEIGHTS) as seen:
        model(torch.randn(1, 7, 10))
    (call,) = seen.calls
    assert bool(call.weights[0, :, 2].isnan().all())
    assert not call.visible()[0, 2].any()


def test_rows_of_other_functions_are_zero():
    """``scaled_dot_product_attention``, ``nn.MultiheadAttention`` without weights and FlexAttention: 0 (torch 2.13)."""
    x = torch.randn(1, 2, 5, 4)
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2] = False
    block_mask = flex.create_block_mask(lambda b, h, q, k: q != 2, None, None, 5, 5, device="cpu")
    for call, output in (
        seen_in(F.scaled_dot_product_attention, x, x, x, attn_mask=mask),
        seen_in(F.scaled_dot_product_attention, x, x, x, attn_mask=torch.zeros(5, 5).masked_fill(~mask, -torch.inf)),
        seen_in(by_flex, x, x, x, block_mask=block_mask),
    ):
        assert bool((output[:, :, 2] == 0).all())
        assert bool((call.weights[:, :, 2] == 0).all())
        torch.testing.assert_close(call.head_output, output)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    hidden = torch.ones(1, 5, dtype=torch.bool)
    output = layer(*[torch.randn(1, 5, 8)] * 3, key_padding_mask=hidden, need_weights=False)[0]
    torch.testing.assert_close(output, layer.out_proj.bias.expand(1, 5, 8))


# Pairs that numbers hide which are added to scores, or a function of the scores

ROW = torch.zeros(7, 7)
ROW[3] = LOWEST
ADDED = {
    "-inf": torch.zeros(7, 7).masked_fill(~CAUSAL, -torch.inf),
    "lowest": torch.zeros(7, 7).masked_fill(~CAUSAL, LOWEST),
    "-1e9": torch.zeros(7, 7).masked_fill(~CAUSAL, -1e9),
}


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize("part", ["tensor", "sum", "of a mask too"])
def test_a_bias_that_hides(name, part):
    x, added = torch.randn(2, 3, 7, 4), ADDED[name]
    mask, kind, shown = None, "causal", CAUSAL
    bias = biases.alibi(3) + added if part == "sum" else added
    if part == "of a mask too":
        mask, kind = masks.window(2, None), "window"
        shown = CAUSAL & torch.ones(7, 7, dtype=torch.bool).triu(-2)
    call, output = seen_in(regard.attend, x, x, x, bias=bias, mask=mask)
    assert (call.mask, call.kind, call.has_bias) == (kind, "causal", part == "sum")
    assert torch.equal(call.visible()[0], shown)
    assert torch.equal(call.weights > 0, shown.expand(2, 3, 7, 7))
    torch.testing.assert_close(call.head_output, output)


def test_a_row_that_a_finite_bias_hides_throughout_has_its_weights():
    """−∞ beside the lowest number in such a row hides all the same, in any function that adds both."""
    x, added = torch.randn(1, 2, 7, 4), ROW.clone()
    added[3, 5:] = -torch.inf
    for function, options in (
        (regard.attend, {"bias": added}),
        (F.scaled_dot_product_attention, {"attn_mask": added}),
        (lambda q, k, v, bias: (q @ k.mT / 2 + bias).softmax(-1) @ v, {"bias": added}),
    ):
        call, _ = seen_in(function, x, x, x, **options)
        assert call.visible()[0, 3].tolist() == [True] * 5 + [False] * 2
        torch.testing.assert_close(call.weights[0, :, 3, :5], torch.full((2, 5), 0.2))
        assert bool(call.visible()[0, [0, 1, 2, 4, 5, 6]].all())


def test_the_lowest_number_hides_nothing_where_weights_are_scores():
    x = torch.randn(1, 1, 7, 4)
    call, _ = seen_in(regard.attend, x, x, x, bias=ADDED["lowest"], normalizer=normalizers.identity)
    assert (call.mask, call.has_bias, bool(call.visible().all())) == ("none", True, True)
    call, _ = seen_in(regard.attend, x, x, x, bias=ADDED["-inf"], normalizer=normalizers.identity)
    assert (call.mask, call.has_bias) == ("causal", False)


def test_functions_of_scores_that_hide():
    def causal(score, batch, head, query, key):
        return torch.where(query >= key, score, -torch.inf)

    def raised(score, batch, head, query, key):
        return torch.where(query >= key, score + 1, -torch.inf)

    x = torch.randn(1, 2, 7, 4)
    for function, has_bias in ((causal, False), (raised, True)):
        for call, output in (
            seen_in(by_flex, x, x, x, score_mod=function),
            seen_in(regard.attend, x, x, x, score=scores.Modified("scaled_dot", function)),
        ):
            assert (call.mask, call.kind, call.has_bias) == ("causal", "causal", has_bias)
            assert torch.equal(call.visible()[0], CAUSAL)
            torch.testing.assert_close(call.head_output, output)


def test_blocks_that_a_block_mask_lists():
    """The compiled kernel computes listed blocks alone; the function of Python evaluates the mask's function (2.13)."""
    numbers, indices = torch.tensor([[[1, 2]]]), torch.tensor([[[[1, 0], [0, 1]]]])
    block_mask = flex.BlockMask.from_kv_blocks(numbers.int(), indices.int(), BLOCK_SIZE=128)
    x = torch.randn(1, 1, 256, 4)
    shown = torch.ones(256, 256, dtype=torch.bool)
    shown[:128, :128] = False

    def compiled(query, key, value, score_mod=None, block_mask=None):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=shown)

    compiled._torchdynamo_orig_callable = flex.flex_attention
    from regard.watching.handlers import watched_flex

    assert bool(seen_in(by_flex, x, x, x, block_mask=block_mask)[0].visible().all())
    call, output = seen_in(watched_flex(compiled), x, x, x, block_mask=block_mask)
    assert torch.equal(call.visible()[0], shown)
    torch.testing.assert_close(call.head_output, output)


# Masks in two arguments, and masks as tensors


@pytest.mark.parametrize("shape", [(7, 7), (2, 1, 1, 7), (2, 1, 7, 7), (2, 3, 7, 7), (1, 7)])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_a_mask_together_with_is_causal(shape, kind):
    """On a CPU both hide, with the starts aligned (torch 2.13)."""
    x, k = torch.randn(2, 3, 5, 4), torch.randn(2, 3, 7, 4)
    shape = (*shape[:-2], 5 if shape[-2] == 7 else 1, 7)
    mask = torch.rand(shape) > 0.3
    mask[..., 0] = True
    given = mask if kind == "bool" else torch.randn(shape).masked_fill(~mask, -torch.inf)
    call, output = seen_in(F.scaled_dot_product_attention, x, k, k, attn_mask=given, is_causal=True)
    shown = (mask & torch.ones(5, 7, dtype=torch.bool).tril()).expand(2, 3, 5, 7)
    for row in range(2):
        assert torch.equal(call.visible(row).expand(3, -1, -1), shown[row])
    torch.testing.assert_close(call.head_output, output)
    assert call.kind == "causal"
    again, _ = seen_in(F.scaled_dot_product_attention, x, k, k, attn_mask=given)
    assert torch.equal(again.visible(1).expand(3, -1, -1), mask.expand(2, 3, 5, 7)[1])


def test_equal_layers_whose_calls_differ_in_is_causal_alone():
    x, mask = torch.randn(1, 2, 7, 4), masks.window(2, 2).dense(Grid.whole(1, 1, 7, 7))
    model = Call(lambda: [F.scaled_dot_product_attention(x, x, x, mask, 0.0, causal) for causal in (True, False) * 2])
    with regard.watch(model) as seen:
        model()
    assert [call.mask for call in seen.calls] == ["window"] * 4
    assert [call.kind for call in seen.calls] == ["causal", "self"] * 2


IDS = torch.tensor([[0] * 6 + [1] * 8 + [2] * 9, [0] * 4 + [1] * 10 + [2] * 9])
PARTS = {
    "causal": masks.causal(),
    "window": masks.window(2, 0),
    "wide window": masks.window(2, 1),
    "documents": masks.documents(IDS),
    "padding": masks.lengths([23, 17]),
    "dilated": masks.dilated(3),
}


def test_a_tensor_has_the_kind_of_the_mask_that_it_equals():
    grid = Grid.whole(2, 1, 23, 23)
    kinds = set()
    for count in range(1, 5):
        for names in itertools.combinations(PARTS, count):
            if "dilated" in names and ("window" in names or "wide window" in names):
                continue  # what is left is a band of single keys
            mask = reduce(operator.and_, (PARTS[name] for name in names))
            dense = mask.dense(grid)
            for tensor in (
                dense,
                torch.zeros(dense.shape).masked_fill(~dense, -torch.inf),
                dense.expand(-1, 3, -1, -1),
            ):
                reading = read_tensor(tensor)
                assert reading.kind == read_mask(mask, grid).kind, names
                whole = Grid.whole(2, tensor.shape[1], 23, 23)
                assert torch.equal(reading.visible.dense(whole).expand(tensor.shape), dense.expand(tensor.shape)), names
            kinds.add(reading.kind)
    assert len(kinds) == 12


@pytest.mark.parametrize("queries", [23, 11])
def test_documents_in_any_order(queries):
    generator = torch.Generator().manual_seed(3)
    for missing in (0, 1):
        query_ids, key_ids = (torch.randint(-missing, 4, (2, size), generator=generator) for size in (queries, 23))
        mask = masks.documents(query_ids, key_ids)
        dense = mask.dense(Grid.whole(2, 1, queries, 23))
        reading = read_tensor(dense)
        assert reading.kind == ("documents+padding" if missing else "documents")
        assert type(reading.mask).__name__ == "Documents"
        assert torch.equal(reading.mask.dense(Grid.whole(2, 1, queries, 23)), dense)


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_block_diagonal_mask_of_a_model(is_causal):
    blocks = torch.block_diag(*[torch.ones(size, size) for size in (3, 5, 4)]).bool()
    x = torch.randn(1, 2, 12, 4)
    for mask in (blocks, torch.zeros(12, 12).masked_fill(~blocks, -torch.inf)):
        call, _ = seen_in(F.scaled_dot_product_attention, x, x, x, attn_mask=mask, is_causal=is_causal)
        assert call.mask == ("causal+documents" if is_causal else "documents")
        assert torch.equal(call.visible()[0], blocks.tril() if is_causal else blocks)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    seen = watched(layer, lambda m: m(*[torch.randn(1, 12, 8)] * 3, attn_mask=~blocks)[0], False, True)
    assert seen.calls[0].mask == "documents"
    call, _ = seen_in(regard.attend, x, x, x, mask=blocks)
    assert call.mask == "documents"


def test_patterns_that_are_no_documents_stay_dense():
    eye = torch.eye(9, dtype=torch.bool)
    patterns = {
        "permutation": eye[torch.tensor([3, 1, 4, 0, 5, 8, 2, 6, 7])],
        "ring": eye | eye.roll(1, 0),
        "overlapping blocks": torch.block_diag(torch.ones(4, 4), torch.ones(5, 5)).bool() | eye.roll(1, 0),
        "prefix": torch.ones(9, 9, dtype=torch.bool).tril() | (torch.arange(9) < 4),
    }
    for name, shown in patterns.items():
        assert read_tensor(shown[None, None]).kind == "dense", name


# Nested tensors


def test_nested_tensors_without_heads_and_with_dropout():
    parts = [torch.randn(length, 4) for length in (3, 5)]
    nested = torch.nested.nested_tensor(parts)
    model = Call(F.scaled_dot_product_attention)
    with regard.watch(model, read=WEIGHTS) as seen:
        model(nested, nested, nested)
    (call,) = seen.calls
    assert call.shape == (2, 1, 5, 5)
    for row, part in enumerate(parts):
        expected = (part @ part.mT / 2).softmax(-1)
        torch.testing.assert_close(call.weights[row, 0, : len(part), : len(part)], expected)
    jagged = torch.nested.nested_tensor([torch.randn(n, 2, 8) for n in (3, 5)], layout=torch.jagged).transpose(1, 2)
    with regard.watch(model) as seen:
        model(jagged, jagged, jagged, dropout_p=0.25)
    assert (seen.calls[0].shape, seen.calls[0].dropout) == ((2, 2, 5, 5), 0.25)


EARLIER = torch.rand(3, 7).softmax(-1)
OF_ROWS = {
    "location_aware": {"score": scores.create("location_aware", 4, 4, 3, channels=2, kernel_size=3).given(EARLIER)},
    "query_temperature": {"normalizer": normalizers.query_temperature(torch.rand(3, 1, 2) + 0.5)},
    "local_gaussian": {"normalizer": normalizers.local_gaussian("softmax", torch.rand(3, 1, 2) * 5, 1.0)},
    "forward": {"normalizer": normalizers.ForwardAlignment(transition=torch.rand(3, 1, 2))},
    "stepwise": {"normalizer": normalizers.Stepwise().given(EARLIER[:, None])},
}


@pytest.mark.parametrize("name", OF_ROWS)
def test_tiles_of_a_batch_row_have_the_numbers_of_that_row(name):
    class Model(nn.Module):
        def forward(self, query, memory):
            return regard.attend(query, memory, memory, **OF_ROWS[name])

    query, memory = torch.randn(3, 1, 2, 4), torch.randn(3, 1, 7, 4)
    model = Model()
    with torch.no_grad(), regard.watch(model, keep=True) as seen:
        model(query, memory)
    expected = regard.attend_with_weights(query, memory, memory, **OF_ROWS[name]).weights.detach()
    for row, source in enumerate(seen.calls[0].tiles):
        torch.testing.assert_close(torch.from_numpy(source.tile((0, 2), (0, 7))), expected[row])
