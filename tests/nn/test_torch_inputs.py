"""Torch's masks in `MultiheadAttention`: of any dtype, with their extreme values, under autocast and without."""

from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import Tensor, nn

from covering import covering
from regard.errors import KindError
from regard.nn import MultiheadAttention

BATCH, HEADS, QUERIES, KEYS, EMBED = 3, 2, 5, 11, 14
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def pair(dtype: torch.dtype = torch.float64) -> tuple[nn.MultiheadAttention, MultiheadAttention]:
    theirs, ours = (
        cls(EMBED, HEADS, batch_first=True, dtype=dtype) for cls in (nn.MultiheadAttention, MultiheadAttention)
    )
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    query, key = torch.randn(BATCH, QUERIES, EMBED, dtype=dtype), torch.randn(BATCH, KEYS, EMBED, dtype=dtype)
    return query, key, key


def float_masks(dtype: torch.dtype, hidden: float) -> dict[str, Tensor]:
    """Numbers that every dtype holds exactly, and ``hidden`` for some pairs; the first key is visible to all."""
    whole = torch.randint(-8, 8, (QUERIES, KEYS)).to(dtype) / 4
    padding = torch.randint(-8, 8, (BATCH, KEYS)).to(dtype) / 4
    whole[1, 3:], padding[2, 1:4] = hidden, hidden
    return {"attn_mask": whole, "key_padding_mask": padding}


def autocast(dtype: torch.dtype | None) -> AbstractContextManager[object]:
    return nullcontext() if dtype is None else torch.autocast("cpu", dtype)


@covering(
    dtype=DTYPES,
    mask_dtype=DTYPES,
    cast=[None, torch.bfloat16, torch.float16],
    names=[("attn_mask",), ("key_padding_mask",), ("attn_mask", "key_padding_mask")],
)
def test_a_float_mask_of_any_dtype_is_added_to_the_scores(dtype, cast, mask_dtype, names):
    torch.manual_seed(3)
    _, ours = pair(dtype)
    tensors = inputs(dtype)
    exact, _ = pair()
    exact.load_state_dict(ours.state_dict())
    given = {name: mask for name, mask in float_masks(mask_dtype, -torch.inf).items() if name in names}
    expected, expected_weights = exact(
        *(tensor.double() for tensor in tensors), **{name: mask.double() for name, mask in given.items()}
    )
    with autocast(cast):
        output, weights = ours(*tensors, **given)
        without, _ = ours(*tensors, **given, need_weights=False)
    # Autocast leaves float64 alone.
    computed = dtype if cast is None or dtype == torch.float64 else cast
    assert output.dtype == weights.dtype == computed
    assert torch.equal(output, without)
    half = dtype.itemsize == 2 or computed.itemsize == 2
    torch.testing.assert_close(output.double(), expected, rtol=4e-2 if half else 1e-5, atol=4e-2 if half else 1e-5)
    torch.testing.assert_close(weights.double(), expected_weights, rtol=0, atol=2e-2 if half else 1e-6)
    assert torch.equal(weights == 0, expected_weights == 0)


@covering(
    dtype=DTYPES,
    mask_dtype=[*DTYPES, torch.bool],
    cast=[None, torch.bfloat16],
    name=["attn_mask", "key_padding_mask"],
    need_weights=[False, True],
)
def test_masks_that_torch_accepts_give_its_result(name, dtype, cast, mask_dtype, need_weights):
    torch.manual_seed(4)
    theirs, ours = pair(dtype)
    tensors = inputs(dtype)
    mask = float_masks(torch.float64, -torch.inf)[name]
    given = {name: mask == -torch.inf if mask_dtype == torch.bool else mask.to(mask_dtype)}
    # PyTorch's kernel reads a float32 mask of float64 inputs as if it held float64.
    readable = {name: mask} if (dtype, mask_dtype) == (torch.float64, torch.float32) else given
    with autocast(cast):
        try:
            expected = theirs(*tensors, need_weights=need_weights, **readable)
        except RuntimeError:
            expected = None
        came = ours(*tensors, need_weights=need_weights, **given)
    if expected is None:
        assert came[0].isfinite().all()
        return
    for wanted, got in zip(expected, came, strict=True):
        assert (wanted is None) == (got is None)
        if wanted is not None:
            assert got.dtype == wanted.dtype
            torch.testing.assert_close(got, wanted, **({"rtol": 4e-2, "atol": 4e-2} if wanted.itemsize == 2 else {}))


@pytest.mark.parametrize("hidden", ["inf", "least"])
@pytest.mark.parametrize("name", ["attn_mask", "key_padding_mask"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_least_number_hides_a_key_as_minus_infinity_does(dtype, name, hidden):
    theirs, ours = pair(dtype)
    tensors = inputs(dtype)
    number = -torch.inf if hidden == "inf" else torch.finfo(dtype).min
    given = {name: float_masks(dtype, number)[name]}
    tensors = tuple(tensor.requires_grad_() for tensor in tensors)
    results = [module(*tensors, **given) for module in (theirs, ours)]
    torch.testing.assert_close(results[1], results[0])
    grads = [
        torch.autograd.grad(output.pow(2).sum() + weights.pow(3).sum(), [*tensors, *module.parameters()])
        for module, (output, weights) in zip((theirs, ours), results, strict=True)
    ]
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("need_weights", [False, True])
def test_two_least_numbers_add_up_to_a_hidden_key(need_weights):
    _, ours = pair(torch.float32)
    tensors = inputs(torch.float32)
    least = torch.finfo(torch.float32).min
    whole, padding = torch.zeros(QUERIES, KEYS), torch.zeros(BATCH, KEYS)
    whole[2], padding[1] = least, least
    output, weights = ours(*tensors, padding, need_weights, whole)
    # Row 2 of batch row 1 has −inf everywhere; every other row sees keys, though all alike.
    assert torch.equal(output[1, 2], ours.out_proj.bias)
    assert output.isfinite().all()
    if weights is not None:
        assert (weights[1, 2] == 0).all()
        torch.testing.assert_close(
            weights.sum(-1), torch.ones(BATCH, QUERIES).index_put((torch.tensor(1), torch.tensor(2)), torch.tensor(0.0))
        )


@pytest.mark.parametrize("name", ["attn_mask", "key_padding_mask"])
def test_a_visible_nan_of_a_mask_is_seen(name):
    theirs, ours = pair()
    tensors = inputs()
    mask = float_masks(torch.float64, -torch.inf)[name]
    mask[0, 0] = torch.nan
    expected, output = (module(*tensors, **{name: mask})[0] for module in (theirs, ours))
    assert output.isnan().any()
    torch.testing.assert_close(output, expected, equal_nan=True)


@pytest.mark.parametrize("mask_dtype", DTYPES)
def test_a_mask_of_another_dtype_gets_its_gradient(mask_dtype):
    _, ours = pair()
    tensors = inputs()
    masks = {name: mask.requires_grad_() for name, mask in float_masks(mask_dtype, -torch.inf).items()}
    exact = {name: mask.detach().double().requires_grad_() for name, mask in masks.items()}
    grads, expected = (
        torch.autograd.grad(ours(*tensors, **given)[0].pow(2).sum(), list(given.values())) for given in (masks, exact)
    )
    for grad, wanted in zip(grads, expected, strict=True):
        assert grad.dtype == mask_dtype
        torch.testing.assert_close(grad, wanted.to(mask_dtype))


X = torch.zeros(BATCH, QUERIES, EMBED)
PADDING = torch.zeros(BATCH, QUERIES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query": X.to_sparse()}, "query must be a dense tensor; it has the layout torch.sparse_coo"),
        ({"value": X.to(torch.complex64)}, "value must hold floating-point numbers"),
        (
            {"key": X.to(torch.float8_e4m3fn)},
            "key must hold float16, bfloat16, float32 or float64; it holds torch.float8",
        ),
        ({"key": X.to("meta")}, "key must be on the parameters' device, cpu; it is on meta"),
        ({"query": X.half().to("meta")}, "query must be on the parameters' device, cpu; it is on meta"),
        ({"key_padding_mask": PADDING.to_sparse()}, "key_padding_mask must be a strided tensor"),
        ({"key_padding_mask": PADDING.to("meta")}, "key_padding_mask must be on query's device, cpu; it is on meta"),
        ({"attn_mask": PADDING.to("meta")}, "attn_mask must be on query's device, cpu; it is on meta"),
        ({"attn_mask": PADDING.int()}, "attn_mask must hold bools"),
        ({"attn_mask": PADDING.to(torch.complex64)}, "attn_mask must hold bools"),
    ],
)
def test_other_tensors_are_refused_by_name(changes, message):
    ours = MultiheadAttention(EMBED, HEADS, batch_first=True)
    with pytest.raises(KindError, match=message):
        ours(**{"query": X, "key": X, "value": X, **changes})
