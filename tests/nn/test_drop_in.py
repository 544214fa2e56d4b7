"""`MultiheadAttention` is `torch.nn.MultiheadAttention`, wherever that gives numbers."""

import copy
import inspect

import pytest
import torch
from torch import Tensor, nn

from regard.nn import MultiHeadAttention, MultiheadAttention

BATCH, HEADS, QUERIES, KEYS, EMBED = 3, 2, 5, 11, 14

CONSTRUCTORS = {
    "plain": {},
    "no bias": {"bias": False},
    "dims": {"kdim": 13, "vdim": 17},
    "dims, no bias": {"kdim": 13, "vdim": 17, "bias": False},
    "value dim": {"vdim": 17},
    "bias_kv": {"add_bias_kv": True},
    "zero": {"add_zero_attn": True},
    "all": {"add_bias_kv": True, "add_zero_attn": True, "kdim": 13},
}


def masks(batch: int | None) -> dict[str, dict[str, Tensor]]:
    rows = 1 if batch is None else batch
    padding = torch.rand(rows, KEYS) < 0.3
    padding[:, 0] = False
    each = torch.rand(rows * HEADS, QUERIES, KEYS) < 0.3
    each[..., 0] = False
    numbers = torch.randn(QUERIES, KEYS, dtype=torch.float64)
    numbers[1, 3:] = -torch.inf
    own = torch.randn(rows * HEADS, QUERIES, KEYS, dtype=torch.float64)
    pressed = torch.randn(rows, KEYS, dtype=torch.float64)
    if batch is None:
        padding, pressed = padding[0], pressed[0]
    return {
        "none": {},
        "padding": {"key_padding_mask": padding},
        "padding of numbers": {"key_padding_mask": pressed},
        "one mask": {"attn_mask": each[0]},
        "own masks": {"attn_mask": each},
        "one mask of numbers": {"attn_mask": numbers},
        "own masks of numbers": {"attn_mask": own},
        "both": {"attn_mask": each, "key_padding_mask": padding},
        "both of numbers": {"attn_mask": numbers, "key_padding_mask": pressed},
    }


def pair(**options: object) -> tuple[nn.MultiheadAttention, MultiheadAttention]:
    theirs = nn.MultiheadAttention(EMBED, HEADS, dtype=torch.float64, **options)  # type: ignore[arg-type]
    # Biases start at 0, where a forgotten one would not be seen.
    for name, parameter in theirs.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    ours = MultiheadAttention(EMBED, HEADS, dtype=torch.float64, **options)  # type: ignore[arg-type]
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def inputs(module: nn.MultiheadAttention, batch: int | None) -> list[Tensor]:
    made = []
    for length, features in ((QUERIES, EMBED), (KEYS, module.kdim), (KEYS, module.vdim)):
        shape = (length,) if batch is None else (batch, length) if module.batch_first else (length, batch)
        made.append(torch.randn(*shape, features, dtype=torch.float64, requires_grad=True))
    return made


@pytest.mark.parametrize("kind", ["batched", "batch_first", "unbatched"])
@pytest.mark.parametrize("options", CONSTRUCTORS.values(), ids=CONSTRUCTORS)
def test_the_drop_in_gives_torchs_outputs_weights_and_gradients(options, kind):
    torch.manual_seed(5)
    batch = None if kind == "unbatched" else BATCH
    theirs, ours = pair(batch_first=kind == "batch_first", **options)
    for given in masks(batch).values():
        for need_weights, average in ((True, True), (True, False), (False, True)):
            tensors = inputs(theirs, batch)
            how = {"need_weights": need_weights, "average_attn_weights": average, **given}
            results = [module(*tensors, **how) for module in (theirs, ours)]
            (output, weights), (our_output, our_weights) = results
            torch.testing.assert_close(our_output, output)
            assert (our_weights is None) == (weights is None)
            found = [output.square().sum(), our_output.square().sum()]
            if weights is not None:
                torch.testing.assert_close(our_weights, weights)
                found = [loss + w.pow(3).sum() for loss, (_, w) in zip(found, results, strict=True)]
            grads = [
                torch.autograd.grad(loss, [*tensors, *module.parameters()])
                for loss, module in zip(found, (theirs, ours), strict=True)
            ]
            torch.testing.assert_close(grads[1], grads[0])


def test_self_attention_of_one_tensor_is_torchs():
    theirs, ours = pair()
    x = torch.randn(QUERIES, BATCH, EMBED, dtype=torch.float64)
    torch.testing.assert_close(ours(x, x, x), theirs(x, x, x))
    torch.testing.assert_close(ours(x, x.clone(), x), theirs(x, x, x))


def test_a_mask_of_numbers_gets_its_gradient():
    theirs, ours = pair()
    tensors = inputs(theirs, BATCH)
    learned = torch.randn(QUERIES, KEYS, dtype=torch.float64)
    learned[2, :4] = -torch.inf
    learned.requires_grad_()
    grads = [
        torch.autograd.grad(module(*tensors, attn_mask=learned, need_weights=False)[0].square().sum(), learned)
        for module in (theirs, ours)
    ]
    torch.testing.assert_close(grads[1], grads[0])


def test_the_causal_hint_changes_nothing_and_suffices():
    theirs, ours = pair()
    x = torch.randn(QUERIES, BATCH, EMBED, dtype=torch.float64)
    later = nn.Transformer.generate_square_subsequent_mask(QUERIES, dtype=torch.float64)
    for need_weights in (True, False):
        expected = theirs(x, x, x, attn_mask=later, is_causal=True, need_weights=need_weights)
        for how in ({"attn_mask": later, "is_causal": True}, {"attn_mask": later}, {"is_causal": True}):
            torch.testing.assert_close(ours(x, x, x, need_weights=need_weights, **how), expected)


def test_a_wrong_hint_does_no_harm():
    _, ours = pair()
    tensors = inputs(ours, BATCH)
    attn_mask = masks(BATCH)["own masks"]["attn_mask"]
    torch.testing.assert_close(ours(*tensors, attn_mask=attn_mask, is_causal=True), ours(*tensors, attn_mask=attn_mask))


def test_the_hint_without_a_mask_lets_the_last_query_see_everything():
    _, ours = pair(add_bias_kv=True)
    _, weights = ours(*inputs(ours, BATCH), is_causal=True)
    for query in range(QUERIES):
        seen = KEYS - QUERIES + query + 1
        assert (weights[:, query, :seen] > 0).all()
        assert (weights[:, query, seen:KEYS] == 0).all()
    assert (weights[..., KEYS:] > 0).all()


@pytest.mark.parametrize("options", CONSTRUCTORS.values(), ids=CONSTRUCTORS)
def test_a_seed_gives_torchs_parameters_and_state_dicts_go_both_ways(options):
    made = []
    for cls in (nn.MultiheadAttention, MultiheadAttention):
        torch.manual_seed(7)
        made.append((cls(EMBED, HEADS, **options), torch.rand(1)))
    (theirs, after), (ours, our_after) = made
    assert list(theirs.state_dict()) == list(ours.state_dict())
    assert [name for name, _ in theirs.named_parameters()] == [name for name, _ in ours.named_parameters()]
    for expected, came in zip(theirs.state_dict().values(), ours.state_dict().values(), strict=True):
        assert torch.equal(expected, came)
    assert torch.equal(after, our_after), "another number of random numbers was drawn"
    for parameter in ours.parameters():
        nn.init.normal_(parameter)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    ours.load_state_dict(copy.deepcopy(theirs).state_dict(), strict=True)


def test_signatures_of_the_drop_in_begin_with_torchs():
    assert MultiHeadAttention is MultiheadAttention
    assert issubclass(MultiheadAttention, nn.MultiheadAttention)
    for name in ("__init__", "forward"):
        theirs, ours = (
            list(inspect.signature(getattr(cls, name)).parameters.values())
            for cls in (nn.MultiheadAttention, MultiheadAttention)
        )
        assert [(p.name, p.default, p.kind) for p in ours[: len(theirs)]] == [
            (p.name, p.default, p.kind) for p in theirs
        ]
        kinds = {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}
        assert {p.kind for p in ours[len(theirs) :]} <= kinds


def test_the_drop_in_takes_empty_batches_and_lengths():
    ours = MultiheadAttention(EMBED, HEADS, batch_first=True)
    for batch, queries, keys in ((0, QUERIES, KEYS), (BATCH, 0, KEYS), (BATCH, 1, 1), (BATCH, QUERIES, 0)):
        query, key = torch.randn(batch, queries, EMBED), torch.randn(batch, keys, EMBED)
        output, weights = ours(query, key, key)
        assert output.shape == (batch, queries, EMBED)
        assert weights.shape == (batch, queries, keys)
        assert output.isfinite().all()
