"""Changed calls: against plain float64 calculations, for each way in which a model attends."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

import regard
from regard import Change, intervene
from regard.errors import ArgumentError
from watching.models import CAUSAL, HAND_WRITTEN, LOWEST, Heads, by_hand

flex = pytest.importorskip("torch.nn.attention.flex_attention")

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def by_flex(query, key, value):
    mask = flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, 7, 7, device="cpu")
    return flex.flex_attention(query, key, value, block_mask=mask)


def sparsest(scores):
    return regard.normalizers.sparsemax(scores)


SOURCES = {
    # name: (function of heads, scale, visible pairs, normalizer)
    "sdpa": (HAND_WRITTEN["sdpa"][0], 5**-0.5, None, torch.softmax),
    "sdpa-causal": (HAND_WRITTEN["sdpa-causal"][0], 5**-0.5, CAUSAL, torch.softmax),
    "sdpa-lowest": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=LOWEST.to(q.dtype)),
        5**-0.5,
        CAUSAL,
        torch.softmax,
    ),
    "sdpa-captured": (HAND_WRITTEN["sdpa-captured"][0], 0.7, None, torch.softmax),
    "softmax": (lambda q, k, v: by_hand(q, k, v, mask=LOWEST.to(q.dtype), p=0.0), 0.3, CAUSAL, torch.softmax),
    "softmax-einsum": (HAND_WRITTEN["softmax-einsum"][0], 1.0, None, torch.softmax),
    "softmax-bmm": (HAND_WRITTEN["softmax-bmm"][0], 1.0, None, torch.softmax),
    "flex": (by_flex, 5**-0.5, CAUSAL, torch.softmax),
    "regard": (partial(regard.attend, mask=regard.masks.causal()), 5**-0.5, CAUSAL, torch.softmax),
    "regard-observe": (
        lambda q, k, v: regard.observe(q, k, v, read=regard.Readings(peak=True)).output,
        5**-0.5,
        None,
        torch.softmax,
    ),
    "regard-sparsemax": (
        lambda q, k, v: regard.attend_with_weights(q, k, v, normalizer="sparsemax").output,
        5**-0.5,
        None,
        lambda scores, axis: sparsest(scores),
    ),
}
"""The ways to attend, and the numbers of the plain calculation."""

TENSOR = torch.linspace(-1, 2, 3 * 2 * 7).view(3, 1, 7, 2)
"""For two chosen keys of one head."""

CHANGES = {
    "a number": lambda what: Change(what, 0.25, head=1, **positions(what)),
    "a tensor": lambda what: Change(what, tensor_of(what), head=[1], **positions(what)),
    "a function": lambda what: Change(what, lambda x: 2 * x.flip(-1) + 0.5, head=(1,), **positions(what)),
}


def positions(what):
    """Two queries and three keys, where there are such axes."""
    names = {"query": ("queries",), "output": ("queries",), "key": ("keys",), "values": ("keys",)}
    chosen = {"queries": [5, 2], "keys": slice(0, 3)}
    return {name: chosen[name] for name in names.get(what, ("queries", "keys"))}


def tensor_of(what):
    sizes = {"query": (2, 5), "output": (2, 5), "key": (3, 5), "values": (3, 5)}.get(what, (2, 3))
    return torch.linspace(-0.5, 0.75, 3 * sizes[0] * sizes[1]).view(3, 1, *sizes)


def put(tensor, what, to):
    """The change of `CHANGES` in a plain tensor, in place."""
    rows = [0, 1, 2] if what in ("key", "values") else [5, 2]
    columns = [0, 1, 2] if what in ("scores", "weights") else list(range(tensor.shape[-1]))
    for batch in range(tensor.shape[0]):
        part = torch.stack([torch.stack([tensor[batch, 1, row, column] for column in columns]) for row in rows])
        new = to(batch, part)
        for i, row in enumerate(rows):
            for j, column in enumerate(columns):
                tensor[batch, 1, row, column] = new[i, j]


def plainly(model, x, scale, visible, normalize, what, to):
    """The output of `Heads` with a changed tensor, by the equation."""
    query, key, value = (part.detach().clone() for part in model.heads(x))
    if what == "query":
        put(query, what, to)
    if what == "key":
        put(key, what, to)
    scores = query @ key.mT * scale
    if what == "scores":
        put(scores, what, to)
    if visible is not None:
        scores[:, :, ~visible] = -torch.inf
    weights = normalize(scores, -1)
    if what == "weights":
        put(weights, what, to)
    if what == "values":
        put(value, what, to)
    heads = weights @ value
    if what == "output":
        put(heads, what, to)
    return model.out_proj(heads.transpose(1, 2).flatten(-2))


@pytest.mark.parametrize("what", ["query", "key", "scores", "weights", "values", "output"])
@pytest.mark.parametrize("name", SOURCES)
def test_a_changed_head_is_that_of_the_equation(name, what):
    attend, scale, visible, normalize = SOURCES[name]
    model, x = Heads(attend).double(), torch.randn(3, 7, 10, dtype=torch.float64)
    if what in ("query", "key") and name.startswith("softmax"):
        with pytest.raises(ArgumentError, match="written by hand"), intervene(model, CHANGES["a number"](what)):
            model(x)
        return
    expected = {
        "a number": lambda batch, part: torch.full_like(part, 0.25),
        "a tensor": lambda batch, part: tensor_of(what)[batch, 0],
        "a function": lambda batch, part: 2 * part.flip(-1) + 0.5,
    }
    if what == "scores" and visible is not None:
        # The function sees −∞ at hidden pairs.
        expected["a function"] = lambda batch, part: 2 * part.masked_fill(~visible[[5, 2]][:, :3], -torch.inf).flip(-1)
    with torch.no_grad():
        plain = model(x)
        for kind, change in CHANGES.items():
            if kind == "a function" and what == "scores" and visible is not None:
                change = lambda what: Change(what, lambda s: 2 * s.flip(-1), head=1, **positions(what))  # noqa: E731
            with intervene(model, change(what)) as changed:
                output = model(x)
            wanted = plainly(model, x, scale, visible, normalize, what, expected[kind])
            torch.testing.assert_close(output, wanted, msg=lambda text, kind=kind: f"{kind}: {text}")
            assert not torch.allclose(output, plain)
            assert [call.changes for call in changed.calls] == [changed.changes]
        assert torch.equal(model(x), plain)
