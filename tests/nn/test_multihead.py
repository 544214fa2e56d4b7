"""What `MultiheadAttention` promises beyond torch's module."""

import math

import pytest
import torch
from torch import Tensor, nn

from regard import masks, normalizers, positions, scores
from regard.errors import ArgumentError, BackendError, KindError, ShapeError
from regard.nn import MultiheadAttention

BATCH, HEADS, QUERIES, KEYS, DIM = 3, 2, 5, 11, 6
EMBED = HEADS * DIM


def make(heads: int = HEADS, **options: object) -> MultiheadAttention:
    module = MultiheadAttention(heads * DIM, heads, batch_first=True, dtype=torch.float64, **options)  # type: ignore[arg-type]
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return module


def inputs(embed: int = EMBED) -> tuple[Tensor, Tensor, Tensor]:
    query = torch.randn(BATCH, QUERIES, embed, dtype=torch.float64, requires_grad=True)
    key, value = (torch.randn(BATCH, KEYS, embed, dtype=torch.float64, requires_grad=True) for _ in range(2))
    return query, key, value


def heads_of(module: MultiheadAttention, *tensors: Tensor) -> list[Tensor]:
    """The projected heads, ``[batch, heads, length, dim]``, each key and value head repeated for its group."""
    widths = [module.embed_dim, module.kv_heads * DIM, module.kv_heads * DIM]
    if module.in_proj_weight is not None:
        weights = module.in_proj_weight.split(widths)
    else:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    heads = []
    for tensor, weight, bias in zip(tensors, weights, module.in_proj_bias.split(widths), strict=True):
        projected = tensor @ weight.T + bias
        apart = projected.view(*projected.shape[:2], -1, DIM).transpose(1, 2)
        heads.append(apart.repeat_interleave(module.num_heads // apart.shape[1], dim=1))
    return heads


def finish(module: MultiheadAttention, weights: Tensor, value: Tensor) -> Tensor:
    return module.out_proj((weights @ value).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_query_that_sees_nothing_gets_the_bias_and_no_gradient(need_weights):
    module = make()
    query, key, value = inputs()
    ignored = torch.zeros(QUERIES, KEYS, dtype=torch.bool)
    ignored[2] = True
    padding = torch.zeros(BATCH, KEYS, dtype=torch.bool)
    padding[1] = True
    as_numbers = torch.zeros(QUERIES, KEYS, dtype=torch.float64).masked_fill(ignored, -torch.inf)
    for attn_mask in (ignored, as_numbers):
        output, weights = module(query, key, value, padding, need_weights, attn_mask)
        bias = module.out_proj.bias
        assert torch.equal(output[1], bias.expand(QUERIES, -1))
        assert torch.equal(output[:, 2], bias.expand(BATCH, -1))
        loss = output.square().sum()
        if weights is not None:
            assert (weights[1] == 0).all()
            assert (weights[:, 2] == 0).all()
            torch.testing.assert_close(weights[0, 0].sum(), torch.tensor(1.0, dtype=torch.float64))
            loss = loss + weights.square().sum()
        grads = torch.autograd.grad(loss, [query, key, value, *module.parameters()])
        assert all(grad.isfinite().all() for grad in grads)
        assert (grads[0][:, 2] == 0).all()
        assert all((grad[1] == 0).all() for grad in grads[:3])


def test_multihead_attention_reports_the_weights_before_dropout():
    module, plain = make(dropout=0.4), make()
    plain.load_state_dict(module.state_dict())
    tensors = inputs()
    expected = plain(*tensors)
    torch.testing.assert_close(module.eval()(*tensors), expected)
    output, weights = module.train()(*tensors)
    assert not torch.allclose(output, expected[0])
    torch.testing.assert_close(weights, expected[1])
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, QUERIES, dtype=torch.float64))


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
@pytest.mark.parametrize("normalizer", ["softmax", normalizers.entmax(1.5), normalizers.hard("gumbel")])
def test_asking_multihead_attention_for_weights_changes_no_bit(dropout, backend, normalizer):
    module = make(dropout=dropout, backend=backend, normalizer=normalizer)
    tensors = inputs()
    outputs, states = [], []
    for need_weights in (True, False):
        torch.manual_seed(11)
        outputs.append(module(*tensors, need_weights=need_weights)[0])
        states.append(torch.get_rng_state())
    assert torch.equal(*outputs)
    assert torch.equal(*states)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_multihead_attention_returns_the_drawn_weights(backend):
    module = make(normalizer=normalizers.hard("gumbel"), backend=backend)
    tensors = inputs()
    output, weights = module(*tensors, average_attn_weights=False)
    # The specification, which auto takes for so few pairs, draws with a gradient; a second pass has none.
    assert weights.requires_grad == (backend in ("reference", "auto"))
    *_, value = heads_of(module, *tensors)
    torch.testing.assert_close(output, finish(module, weights, value))


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("appended", [False, True])
def test_grouped_heads_are_repeated_heads(kv_heads, appended):
    torch.manual_seed(2)
    module = make(6, kv_heads=kv_heads, add_bias_kv=appended, add_zero_attn=appended)
    tensors = inputs(6 * DIM)
    query, key, value = heads_of(module, *tensors)
    if appended:
        for learned in (module.bias_k, module.bias_v):
            assert learned.shape == (1, 1, kv_heads * DIM)
        key, value = (
            torch.cat(
                [
                    heads,
                    learned.view(1, kv_heads, 1, DIM).repeat_interleave(6 // kv_heads, 1).expand(BATCH, -1, -1, -1),
                    torch.zeros(BATCH, 6, 1, DIM, dtype=torch.float64),
                ],
                dim=2,
            )
            for heads, learned in ((key, module.bias_k), (value, module.bias_v))
        )
    expected = torch.softmax(query @ key.mT / math.sqrt(DIM), -1)
    output, weights = module(*tensors, average_attn_weights=False)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(output, finish(module, expected, value))
    assert module.k_proj_weight is None if kv_heads == 6 else module.k_proj_weight.shape == (kv_heads * DIM, 6 * DIM)


def test_rotary_turns_queries_and_keys_with_their_ends_aligned():
    rotary = positions.Rotary(DIM)
    module = make(position=rotary)
    tensors = inputs()
    query, key, value = heads_of(module, *tensors)
    query, key = rotary(query, offset=KEYS - QUERIES), rotary(key)
    expected = torch.softmax(query @ key.mT / math.sqrt(DIM), -1)
    output, weights = module(*tensors, average_attn_weights=False)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(output, finish(module, expected, value))
    x = tensors[1]
    whole = module(x, x, x, is_causal=True)[0]
    torch.testing.assert_close(module(x[:, -2:], x, x, is_causal=True)[0], whole[:, -2:])


@pytest.mark.parametrize("appended", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
def test_biases_and_masks_add_up_and_appended_keys_have_neither(appended, need_weights):
    torch.manual_seed(3)
    position = positions.RelativeBias(HEADS, 8, 16)
    position.weight.data.normal_()
    module = make(position=position, add_zero_attn=appended)
    tensors = inputs()
    query, key, value = heads_of(module, *tensors)
    extra = torch.randn(HEADS, QUERIES, KEYS, dtype=torch.float64)
    numbers = torch.randn(QUERIES, KEYS, dtype=torch.float64)
    padding = torch.rand(BATCH, KEYS) < 0.4
    table = position.weight[position.bucket(torch.arange(KEYS) - torch.arange(QUERIES)[:, None] - (KEYS - QUERIES))]
    biased = query @ key.mT / math.sqrt(DIM) + table.movedim(-1, 0) + extra + numbers
    earlier = torch.ones(QUERIES, KEYS, dtype=torch.bool).tril(KEYS - QUERIES)
    biased = biased.masked_fill(padding[:, None, None] | ~earlier, -torch.inf)
    if appended:
        biased = nn.functional.pad(biased, (0, 1))
        value = nn.functional.pad(value, (0, 0, 0, 1))
    expected = torch.softmax(biased, -1).nan_to_num(0.0)
    output, weights = module(
        *tensors, padding, need_weights, numbers, average_attn_weights=False, mask=masks.causal(), bias=extra
    )
    torch.testing.assert_close(output, finish(module, expected, value))
    if need_weights:
        torch.testing.assert_close(weights, expected)
    output.sum().backward()
    assert position.weight.grad is not None


def test_a_mask_tensor_means_may_attend():
    module = make()
    tensors = inputs()
    seen = torch.rand(BATCH, 1, QUERIES, KEYS) < 0.6
    expected = module(*tensors, attn_mask=~seen.repeat_interleave(HEADS, 1).flatten(0, 1))
    torch.testing.assert_close(module(*tensors, mask=seen), expected)
    torch.testing.assert_close(module(*tensors, mask=masks.keep(seen)), expected)


def test_any_score_and_normalizer():
    additive = scores.create("additive", DIM, DIM, 7).double()
    module = make(score=additive, normalizer="sparsemax")
    assert {name for name, _ in module.named_parameters()} >= {"score.weight"}
    tensors = inputs()
    query, key, value = heads_of(module, *tensors)
    expected = normalizers.sparsemax(additive(query, key))
    output, weights = module(*tensors, average_attn_weights=False)
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(output, finish(module, expected, value))
    (output.sum() + weights.square().sum()).backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


@pytest.mark.parametrize("options", [{}, {"kv_heads": 1, "score": "cosine", "normalizer": normalizers.entmax(1.4)}])
def test_gradients_of_multihead_attention_are_exact(options):
    module = MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64, add_bias_kv=True, **options)
    tensors = [torch.randn(2, length, 4, dtype=torch.float64, requires_grad=True) for length in (3, 5, 5)]
    padding = torch.tensor([[False, True, False, False, True], [False] * 5])
    assert torch.autograd.gradcheck(lambda *given: module(*given, padding), tensors)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_multihead_attention_runs_in_half_precision_and_under_autocast(dtype):
    module = MultiheadAttention(EMBED, HEADS, batch_first=True, add_bias_kv=True)
    query, key = torch.randn(BATCH, QUERIES, EMBED), torch.randn(BATCH, KEYS, EMBED)
    expected, expected_weights = module(query, key, key)
    with torch.autocast("cpu", dtype):
        output, weights = module(query, key, key)
        without, _ = module(query, key, key, need_weights=False)
    assert output.dtype == weights.dtype == dtype
    assert torch.equal(output, without)
    torch.testing.assert_close(output.float(), expected, atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(weights.float(), expected_weights, atol=1e-2, rtol=1e-2)
    output.float().sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.dtype == torch.float32 for parameter in module.parameters()
    )
    half = module.to(dtype)
    output, weights = half(query.to(dtype), key.to(dtype), key.to(dtype))
    assert output.dtype == weights.dtype == dtype
    torch.testing.assert_close(output.float(), expected, atol=2e-2, rtol=2e-2)


def test_multihead_attention_runs_a_named_backend_or_raises():
    tensors = inputs()
    with pytest.raises(BackendError, match="softmax"):
        make(normalizer="sparsemax", backend="sdpa")(*tensors)


def test_nested_input_is_padded_input():
    module = make()
    rows = [torch.randn(length, EMBED, dtype=torch.float64) for length in (3, 5, 1)]
    nested = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    output, _ = module(nested, nested, nested)
    for row, came in zip(rows, output.unbind(), strict=True):
        torch.testing.assert_close(came, module(row, row, row)[0])
    with pytest.raises(KindError, match="self-attention only"):
        module(nested, nested, nested, torch.zeros(3, 5, dtype=torch.bool))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_heads": 5}, ArgumentError, "num_heads must divide embed_dim.* 12 .* 5"),
        ({"num_heads": 0}, ArgumentError, "num_heads"),
        ({"kv_heads": 4}, ArgumentError, "kv_heads must divide num_heads, 2; it is 4"),
        ({"dropout": 1.0}, ArgumentError, "dropout"),
        ({"position": 3}, KindError, "position must be a name"),
        ({"position": "rotatory"}, ArgumentError, "did you mean 'rotary'"),
        ({"score": "scaled-dot"}, ArgumentError, "scaled_dot"),
    ],
)
def test_multihead_attention_refuses_wrong_options(options, error, message):
    with pytest.raises(error, match=message):
        MultiheadAttention(**{"embed_dim": EMBED, "num_heads": HEADS, **options})


QUERY, KEY = torch.zeros(BATCH, QUERIES, EMBED), torch.zeros(BATCH, KEYS, EMBED)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"query": QUERY[None]}, ShapeError, r"query must be \[batch, length, features\].*\[1, 3, 5, 12\]"),
        ({"key": KEY[0]}, ShapeError, r"key must be .* 3; it has shape \[11, 12\]"),
        ({"query": QUERY[..., :7]}, ShapeError, "query must have 12 features"),
        ({"value": KEY[:, :7]}, ShapeError, r"value must have key's batch and length, \[3, 11\]; it has \[3, 7\]"),
        ({"query": QUERY[:2]}, ShapeError, "key must have query's batch, 2; it has 3"),
        ({"query": QUERY.double()}, KindError, "query must have the parameters' dtype, torch.float32"),
        ({"query": QUERY.long()}, KindError, "query"),
        ({"key_padding_mask": KEY[:, :7, 0] > 0}, ShapeError, r"key_padding_mask .*\[3, 11\]; it has shape \[3, 7\]"),
        ({"key_padding_mask": KEY[..., 0].long()}, KindError, "key_padding_mask must hold bools"),
        ({"attn_mask": torch.zeros(BATCH, QUERIES, KEYS)}, ShapeError, r"attn_mask .*\[6, 5, 11\]; .*\[3, 5, 11\]"),
        ({"attn_mask": [[True]]}, KindError, "attn_mask must be a tensor; it is a list"),
        ({"mask": torch.zeros(QUERIES, KEYS)}, KindError, "mask"),
        ({"bias": torch.zeros(7, KEYS)}, ShapeError, "bias"),
    ],
)
def test_multihead_attention_refuses_wrong_inputs(changes, error, message):
    module = MultiheadAttention(EMBED, HEADS, batch_first=True)
    with pytest.raises(error, match=message):
        module(**{"query": QUERY, "key": KEY, "value": KEY, **changes})
