"""`regard.flex_attention`, against FlexAttention's definition in float64 and PyTorch's own eager form."""

import pytest
import torch
from torch.nn.attention import flex_attention as flex

import regard
from regard.errors import KindError, ShapeError

B, H, KV, Q, K, D = 2, 4, 2, 40, 56, 8
BLOCK = (8, 16)

pytestmark = pytest.mark.filterwarnings("ignore")

GENERATOR = torch.Generator().manual_seed(11)
TABLE = torch.randn(H, Q + K, generator=GENERATOR)
CHAINED = torch.randn(H, K, generator=GENERATOR)


def draw(heads=H, queries=Q, keys=K, requires_grad=False):
    shapes = (B, heads, queries, D), (B, KV, keys, D), (B, KV, keys, 5)
    return [torch.randn(*shape, generator=GENERATOR).requires_grad_(requires_grad) for shape in shapes]


def _score_mod(score, batch, head, query, key):
    return score + TABLE[head, query - key + K] + CHAINED[head][key] * 0.5


def _mask_mod(batch, head, query, key):
    return (query + 9 >= key) & (query != 3)


def exact(query, key, value, bias, allowed, scale=D**-0.5):
    """Returns the output and the log-sum-exp in float64."""
    query, key, value = (tensor.double() for tensor in (query, key, value))
    group = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(group, 1) for tensor in (key, value))
    score = torch.where(allowed, query @ key.mT * scale + bias, -torch.inf)
    is_empty = ~allowed.expand(score.shape).any(-1, keepdim=True)
    weights = score.masked_fill(is_empty, 0.0).softmax(-1).masked_fill(is_empty, 0.0)
    return weights @ value, score.masked_fill(is_empty, 0.0).logsumexp(-1).masked_fill(is_empty[..., 0], -torch.inf)


def _bias():
    query, key = torch.arange(Q)[:, None], torch.arange(K)
    return (TABLE[:, query - key + K] + 0.5 * CHAINED[:, None]).double()


def _allowed():
    query, key = torch.arange(Q)[:, None], torch.arange(K)
    return _mask_mod(0, 0, query, key)


def _assert_close(found, expected):
    torch.testing.assert_close(found.double(), expected, rtol=2e-5, atol=2e-5)


def test_calls_of_flex_attention_give_its_result_and_gradients():
    inputs = draw(requires_grad=True)
    blocks = flex.create_block_mask(_mask_mod, None, None, Q, K, device="cpu", BLOCK_SIZE=BLOCK)
    output, lse = regard.flex_attention(*inputs, _score_mod, blocks, scale=0.5, enable_gqa=True, return_lse=True)
    expected, expected_lse = exact(*inputs, _bias(), _allowed(), scale=0.5)
    _assert_close(output, expected)
    _assert_close(lse, expected_lse)
    finite = torch.isfinite(lse)
    losses = (output.sum() + lse[finite].square().sum(), expected.sum() + expected_lse[finite].square().sum())
    for found, wanted in zip(*(torch.autograd.grad(loss, inputs) for loss in losses), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4, check_dtype=False)
    plain = [tensor.detach() for tensor in inputs]
    theirs = flex.flex_attention(*plain, _score_mod, blocks, scale=0.5, enable_gqa=True, return_lse=True)
    ours = regard.flex_attention(*plain, _score_mod, blocks, scale=0.5, enable_gqa=True, return_lse=True)
    for found, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, wanted, rtol=2e-5, atol=2e-5)


def test_blocks_that_are_not_listed_are_hidden():
    inputs, rows, columns = draw(), -(-Q // BLOCK[0]), -(-K // BLOCK[1])
    partial = torch.rand(1, H, rows, columns, generator=GENERATOR) < 0.4
    full = (torch.rand(1, H, rows, columns, generator=GENERATOR) < 0.3) & ~partial
    numbers = []
    for chosen in (partial, full):
        numbers += [chosen.sum(-1).int(), chosen.int().argsort(dim=-1, descending=True, stable=True).int()]
    row, column = torch.arange(Q) // BLOCK[0], torch.arange(K) // BLOCK[1]
    spread = [blocks[:, :, row][..., column] for blocks in (partial, full)]
    for mask_mod, inner in ((_mask_mod, _allowed()), (None, torch.tensor(True))):
        blocks = flex.BlockMask.from_kv_blocks(*numbers, BLOCK_SIZE=BLOCK, mask_mod=mask_mod, seq_lengths=(Q, K))
        output, lse = regard.flex_attention(*inputs, block_mask=blocks, enable_gqa=True, return_lse=True)
        expected = exact(*inputs, 0.0, (spread[0] & inner) | spread[1])
        _assert_close(output, expected[0])
        _assert_close(lse, expected[1])


def test_masks_of_masks_become_runs_of_keys():
    ids = torch.arange(Q) // 17
    causal = lambda batch, head, query, key: query >= key  # noqa: E731
    packed = flex.and_masks(causal, lambda batch, head, query, key: ids[query] == ids[key])
    inputs = draw(keys=Q)
    blocks = flex.create_block_mask(packed, None, None, Q, Q, device="cpu", BLOCK_SIZE=BLOCK)
    output = regard.flex_attention(*inputs, block_mask=blocks, enable_gqa=True)
    expected = regard.attend(*inputs, mask=regard.masks.causal() & regard.masks.documents(ids))
    torch.testing.assert_close(output, expected)


def test_functions_of_single_pairs_run_where_no_kernel_does():
    inputs = [tensor.double().requires_grad_() for tensor in draw(queries=5, keys=7)]
    table = torch.randn(H, 20, dtype=torch.float64)

    def score_mod(score, batch, head, query, key):
        return torch.special.erf(score) + table[head][query - key + 7]

    def call(*tensors):
        return regard.flex_attention(*tensors, score_mod, enable_gqa=True)

    bias = table[:, torch.arange(5)[:, None] - torch.arange(7) + 7]
    query, key, value = inputs
    score = torch.special.erf(query @ key.repeat_interleave(2, 1).mT * D**-0.5) + bias
    torch.testing.assert_close(call(*inputs), score.softmax(-1) @ value.repeat_interleave(2, 1))
    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)


def test_invalid_calls_of_flex_attention_are_refused():
    query, key, value = draw()
    with pytest.raises(ShapeError, match="enable_gqa=True"):
        regard.flex_attention(query, key, value)
    with pytest.raises(KindError, match="BlockMask"):
        regard.flex_attention(query, key, value, block_mask=regard.masks.causal(), enable_gqa=True)
    blocks = flex.create_block_mask(_mask_mod, None, None, Q, 2 * K, device="cpu", BLOCK_SIZE=BLOCK)
    with pytest.raises(ShapeError, match="block_mask is for"):
        regard.flex_attention(query, key, value, block_mask=blocks, enable_gqa=True)
    with pytest.raises(ShapeError, match="query must be a tensor"):
        regard.flex_attention(query[0], key, value)
    short = flex.create_block_mask(_mask_mod, None, None, Q - 1, K, device="cpu")
    with pytest.raises(ShapeError, match="block_mask is for"):
        regard.flex_attention(query, key, value, block_mask=short, enable_gqa=True)
    for function, message in (
        (lambda *pair: 1.0, "must return a tensor; it returned"),
        (lambda score, batch, head, query: score, "score_mod must take 5 tensors"),
        (lambda score, batch, head, query, key: score if query > key else -score, "torch.where"),
        (3, "score_mod must be a function"),
    ):
        with pytest.raises(KindError, match=message):
            regard.flex_attention(query, key, value, function, enable_gqa=True)
    with pytest.raises(KindError, match="has no argument 'kernel_options'"):
        regard.flex_attention(query, key, value, enable_gqa=True, kernel_options={})
