"""The axes of a call: with 3 axes it is the call with 4 and one head, bit for bit, and errors name both spellings."""

import re

import pytest
import torch

import regard
from backends import EVERY, accepts, measure
from cases import D, H, K, Q, V
from regard import biases, masks, normalizers, positions, scores
from regard.errors import ShapeError
from regard.shapes.layout import without_added_axes

BATCH = 3
BIAS = torch.randn(BATCH, Q, K, generator=torch.Generator().manual_seed(1))
ALLOWED = torch.rand(BATCH, Q, K, generator=torch.Generator().manual_seed(2)) > 0.3

# Each part by batch, as a call with 3 axes takes it, and by batch and heads.
PARTS = {
    "plain": ({}, {}),
    "mask": ({"mask": ALLOWED}, {"mask": ALLOWED[:, None]}),
    "keep": ({"mask": masks.keep(ALLOWED)}, {"mask": masks.keep(ALLOWED[:, None])}),
    "combined": (
        {"mask": masks.causal() & (masks.ignore(ALLOWED) | masks.prefix(2))},
        {"mask": masks.causal() & (masks.ignore(ALLOWED[:, None]) | masks.prefix(2))},
    ),
    "padding": ({"mask": ALLOWED[:, :1]}, {"mask": ALLOWED[:, None, :1]}),
    "same for all": ({"mask": ALLOWED[0]}, {"mask": ALLOWED[0]}),
    "four axes": ({"mask": ALLOWED[:, None]}, {"mask": ALLOWED[:, None]}),
    "lengths": ({"mask": masks.lengths([K, 3, 0])}, {"mask": masks.lengths([K, 3, 0])}),
    "bias": ({"bias": BIAS}, {"bias": BIAS[:, None]}),
    "sum of biases": ({"bias": positions.alibi(1) + BIAS}, {"bias": positions.alibi(1) + BIAS[:, None]}),
    "score and normalizer": (
        {"score": scores.SoftCap("cosine", 0.5), "normalizer": normalizers.Softmax(0.7), "mask": ALLOWED},
        {"score": scores.SoftCap("cosine", 0.5), "normalizer": normalizers.Softmax(0.7), "mask": ALLOWED[:, None]},
    ),
    "sparsemax": ({"normalizer": "sparsemax", "mask": ALLOWED}, {"normalizer": "sparsemax", "mask": ALLOWED[:, None]}),
}


def inputs(*leading):
    generator = torch.Generator().manual_seed(3)
    sizes = (Q, D), (K, D), (K, V)
    return [torch.randn(*leading, *size, generator=generator) for size in sizes]


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.parametrize("part", [name for name, (arguments, _) in PARTS.items() if "mask" in arguments])
def test_masks_of_readings_have_the_axes_of_the_call(part, backend):
    """Masks of three axes in a call of three, of two in one of two."""
    by_batch, by_heads = (masks.as_mask(arguments["mask"]) for arguments in PARTS[part])
    tensors = inputs(BATCH)
    with_heads = [tensor[:, None] for tensor in tensors]
    three, four = (
        regard.observe(*given, read=regard.Readings(shares=[mask, masks.causal()], weights=True), backend=backend)
        for given, mask in ((tensors, by_batch), (with_heads, by_heads))
    )
    assert torch.equal(three.shares, four.shares[:, 0])
    pairs = by_heads.allows(regard.plan(*with_heads).candidates.problem.grid)
    sums = torch.where(pairs, four.weights, 0.0).sum(-1)
    torch.testing.assert_close(four.shares[..., 0], sums, rtol=1e-6, atol=1e-6)
    row = by_heads if part == "lengths" else masks.keep(ALLOWED[0])
    if part != "lengths":
        two = regard.observe(*[tensor[0] for tensor in tensors], read=regard.Readings(shares=[row]), backend=backend)
        one = regard.observe(
            *[tensor[:1, None] for tensor in tensors], read=regard.Readings(shares=[row]), backend=backend
        )
        assert torch.equal(two.shares, one.shares[0, 0])


def test_a_mask_of_readings_that_does_not_fit_says_which_axes_it_has():
    read = regard.Readings(shares=[masks.keep(ALLOWED[:, :-1])])
    with pytest.raises(ShapeError, match=re.escape(f"[{BATCH}, {Q - 1}, {K}]")):
        regard.observe(*inputs(BATCH), read=read)


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.parametrize("part", PARTS)
def test_three_axes_are_a_batch_with_one_head(part, backend):
    by_batch, by_heads = PARTS[part]
    tensors = inputs(BATCH)
    if not accepts(backend, tensors, **by_batch):
        pytest.skip("the backend declines")
    with_heads = [tensor[:, None] for tensor in tensors]
    three, four = measure(backend, tensors, **by_batch), measure(backend, with_heads, **by_heads)
    for name, result in four.items():
        expected = without_added_axes(result, 3)
        assert torch.equal(three[name].nan_to_num(), expected.nan_to_num()), name
    if backend in ("reference", "auto"):
        three = regard.attend_with_weights(*tensors, backend=backend, **by_batch)
        four = regard.attend_with_weights(*with_heads, backend=backend, **by_heads)
        assert torch.equal(three.weights, four.weights[:, 0])
        steps, expected = regard.explain(*tensors, **by_batch), regard.explain(*with_heads, **by_heads)
        for name in steps.step_names:
            assert torch.equal(getattr(steps, name), getattr(expected, name)[:, 0]), name
            for row in range(BATCH):
                assert torch.equal(steps.matrix(name, row), expected.matrix(name, row)), name
        assert steps.slices == expected.slices == [(row, 0) for row in range(BATCH)]


@pytest.mark.parametrize("part", ["mask", "bias"])
def test_three_axes_under_a_compiler(part):
    by_batch, by_heads = PARTS[part]
    tensors = inputs(BATCH)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def call(query, key, value):
        return regard.attend(query, key, value, **by_batch)

    expected = regard.attend(*(tensor[:, None] for tensor in tensors), **by_heads)[:, 0]
    assert torch.equal(call(*tensors), expected)


def test_gradients_reach_a_bias_by_batch():
    bias = BIAS.clone().requires_grad_()
    regard.attend(*inputs(BATCH), bias=bias).square().sum().backward()
    by_heads = BIAS[:, None].clone().requires_grad_()
    regard.attend(*inputs(BATCH, 1), bias=by_heads).square().sum().backward()
    assert torch.equal(bias.grad, by_heads.grad[:, 0])


# What is made for H heads or for the pairs of H heads, in a call whose first axis has H entries.
BY_HEADS = {
    "alibi": {"bias": positions.alibi(H)},
    "relative bias": {"bias": positions.RelativeBias(H)},
    "sum": {"bias": biases.SummedBias([positions.alibi(H), torch.zeros(Q, K)])},
    "general": {"score": scores.create("general", D, D, heads=H)},
    "additive": {"score": scores.create("additive", D, D, heads=H)},
    "temperature": {"normalizer": normalizers.Softmax(torch.ones(H))},
    "sink": {"normalizer": normalizers.softmax_with_sink(torch.ones(H))},
    "alpha": {"normalizer": normalizers.entmax(torch.full((H,), 1.5))},
    "lengths": {"mask": masks.lengths([K])},
}


@pytest.mark.parametrize("part", BY_HEADS)
@pytest.mark.parametrize("verb", [regard.attend, regard.observe, regard.explain, regard.plan])
def test_parts_by_heads_raise_with_both_spellings(part, verb):
    tensors = inputs(H)
    spelling = rf"read as \[batch {H}, queries {Q}, dim {D}\] with one head.*write query\[None\], key\[None\]"
    with pytest.raises(ShapeError, match=spelling):
        verb(*tensors, **BY_HEADS[part])
    verb(*(tensor[None] for tensor in tensors), **BY_HEADS[part])


def test_a_mistake_that_heads_do_not_explain_names_no_heads():
    with pytest.raises(ShapeError) as raised:
        regard.attend(*inputs(H), bias=torch.zeros(Q + 1, K))
    assert "heads" not in str(raised.value)


BATCHED = torch.ones(BATCH, K, dtype=torch.bool)

# Shapes of query, key and value, arguments, and what the message says.
MISTAKES = {
    "heads in 3 axes": ((8, Q, D), (2, K, D), (2, K, V), {}, r"batch 8.*\[heads, length, dim\].*query\[None"),
    "length first": ((Q, 2, D), (K, 2, D), (K, 2, V), {}, r"\[length, batch, dim\], write query.transpose\(0, 1\)"),
    "length before heads": (
        (2, Q, 3, D), (2, K, 3, D), (2, K, 3, V), {}, r"\[batch, length, heads, dim\], write query.transpose\(1, 2\)",
    ),
    "swapped": ((2, 3, K, D), (2, 3, Q, D), (2, 3, K, V), {}, "are query and key swapped"),
    "swapped, 3 axes": ((2, K, D), (2, Q, D), (2, K, V), {}, "are query and key swapped"),
    "swapped, 2 axes": ((K, D), (Q, D), (K, V), {}, r"value must have key's keys, \[5\]; it has \[7\]; query has them"),
    "padding": (
        (BATCH, 2, Q, D), (BATCH, 2, K, D), (BATCH, 2, K, V), {"mask": BATCHED},
        r"axis 0 is read as queries: if it is \[batch, keys\], write mask\[:, None, None, :\], or masks.lengths",
    ),
    "padding, 3 axes": (
        (BATCH, Q, D), (BATCH, K, D), (BATCH, K, V), {"mask": BATCHED}, r"\[batch, keys\], write mask\[:, None, :\]",
    ),
    "padding as a bias": (
        (BATCH, Q, D), (BATCH, K, D), (BATCH, K, V), {"bias": BATCHED.float()}, r"write bias\[:, None, :\]$",
    ),
    "ignored padding": (
        (BATCH, Q, D), (BATCH, K, D), (BATCH, K, V), {"mask": masks.ignore(~BATCHED)}, r"write tensor\[:, None, :\]",
    ),
    "pairs by batch": (
        (BATCH, 2, Q, D), (BATCH, 2, K, D), (BATCH, 2, K, V), {"mask": ALLOWED},
        r"\[batch, heads, queries, keys\] = .*axis 0 is read as heads.*\[batch, queries, keys\], write mask\[:, None\]",
    ),
    "pairs by heads": (
        (2, Q, D), (2, K, D), (2, K, V), {"mask": ALLOWED},
        r"\[batch, queries, keys\] = \[2, 5, 7\].*read as batch: query has one head; for several, write query\[None\]",
    ),
    "a batch of masks without a batch": (
        (Q, D), (K, D), (K, V), {"mask": ALLOWED}, r"must broadcast to \[queries, keys\] = \[5, 7\]; it has shape \[3,",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_errors_say_how_axes_are_read_and_what_to_write(mistake):
    *shapes, arguments, message = MISTAKES[mistake]
    with pytest.raises(ShapeError, match=message):
        regard.attend(*(torch.zeros(shape) for shape in shapes), **arguments)


def test_a_plan_says_how_axes_are_read():
    query, key, value = torch.zeros(2, 8, 10, 64), torch.zeros(2, 2, 12, 64), torch.zeros(2, 2, 12, 16)
    plan = regard.plan(query, key, value)
    assert str(plan).splitlines()[0] == "batch 2 · heads 8 (kv 2) · queries 10 · keys 12 · dim 64 · value dim 16"
    assert regard.plan(query[:, 0], key[:, 0], key[:, 0]).sizes == "batch 2 · heads 1 · queries 10 · keys 12 · dim 64"
    assert regard.plan(query[0, 0], key[0, 0], key[0, 0]).sizes == "batch 1 · heads 1 · queries 10 · keys 12 · dim 64"


SQUARE = torch.ones(4, 4, dtype=torch.bool).tril()

# Shape of query, key and value, arguments, and the remark.
LIKELY = {
    "length before heads": ((2, 50, 4, 8), {}, r"axis 1 of query, 50, is read as heads.*query.transpose\(1, 2\)"),
    "padding": ((4, 2, 4, 8), {"mask": SQUARE}, r"\[queries, keys\]; for \[batch, keys\] write mask\[:, None, None, :"),
    "padding, 3 axes": ((4, 4, 8), {"mask": SQUARE}, r"for \[batch, keys\] write mask\[:, None, :\]"),
    "pairs": ((2, 2, 4, 8), {"bias": torch.zeros(2, 4, 4)}, r"\[heads, queries, keys\]; .* write bias\[:, None\]"),
}


@pytest.mark.parametrize("case", LIKELY)
def test_a_plan_says_where_another_layout_is_likely(case):
    shape, arguments, remark = LIKELY[case]
    plan = regard.plan(*[torch.zeros(shape)] * 3, **arguments)
    assert re.search(remark, plan.remarks[0])
    assert plan.remarks[0] in str(plan).splitlines()


@pytest.mark.parametrize(
    ("query", "key", "fits"),
    [
        ((4, 16, 8), (2, 16, 8), ["length, batch", "heads, length"]),
        ((5, 16, 8), (2, 16, 8), ["length, batch"]),
        ((4, 16, 8), (2, 15, 8), ["heads, length"]),
        ((5, 16, 8), (2, 15, 8), []),
    ],
)
def test_an_error_names_every_spelling_that_fits(query, key, fits):
    with pytest.raises(ShapeError) as error:
        regard.attend(torch.zeros(query), torch.zeros(key), torch.zeros(key))
    assert re.findall(r"if its axes are \[(\w+, \w+), dim\], write", str(error.value)) == fits
    ways = {"length, batch": lambda tensor: tensor.transpose(0, 1), "heads, length": lambda tensor: tensor[None]}
    for name in fits:
        regard.attend(*(ways[name](torch.zeros(shape)) for shape in (query, key, key)))


class OwnMask(masks.Mask):
    """A user's mask of a tensor ``[batch, queries, keys]``."""

    def __init__(self, tensor, by_heads):
        self.tensor, self.by_heads = tensor, by_heads

    def allows(self, grid):
        rows, queries, keys = (slice(s.start, s.stop) for s in (grid.batch_span, grid.query_span, grid.key_span))
        allowed = self.tensor[rows, queries, keys]
        return allowed[:, None] if self.by_heads else allowed


class OwnBias(biases.Bias):
    """The same as a bias."""

    def __init__(self, tensor, by_heads):
        super().__init__()
        self.tensor, self.by_heads = tensor, by_heads

    def forward(self, query, grid):
        return OwnMask.allows.__wrapped__(self, grid)


@pytest.mark.parametrize("backend", EVERY)
@pytest.mark.parametrize("leading", [(BATCH,), (BATCH, 2)], ids=["three axes", "four axes"])
@pytest.mark.parametrize("part", ["mask", "bias", "combined mask", "combined bias"])
def test_results_of_user_parts_must_have_heads(part, leading, backend):
    """A result ``[batch, queries, keys]`` is no matrix for each head, so it is an error and not one row for all."""
    own, tensor = (OwnMask, ALLOWED) if "mask" in part else (OwnBias, BIAS)
    tensors = inputs(*leading)

    def arguments(part_of_user):
        if part == "combined mask":
            return {"mask": ~(masks.prefix(1) | part_of_user)}
        return {part.split()[-1]: part_of_user + torch.zeros(Q, K) if part == "combined bias" else part_of_user}

    right = arguments(own(tensor, by_heads=True))
    if not accepts(backend, tensors, **right):
        pytest.skip("the backend declines")
    dense = tensor[:, None]
    expected = (
        {"mask": ~(masks.prefix(1) | masks.keep(dense))} if part == "combined mask" else {part.split()[-1]: dense}
    )
    result = regard.attend(*tensors, backend=backend, **right)
    torch.testing.assert_close(result, regard.attend(*tensors, backend="reference", **expected))
    with pytest.raises(ShapeError, match=rf"{own.__name__}.*\[3, {Q}, {K}\].*result\[:, None\]"):
        regard.attend(*tensors, backend=backend, **arguments(own(tensor, by_heads=False)))
