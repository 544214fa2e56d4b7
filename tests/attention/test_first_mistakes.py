"""First mistakes, each answered with the line that is right."""

import re

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import regard
from cases import B, D, K, Q, problem
from regard import masks, nn
from regard.errors import ArgumentError, KindError, RegardError, ShapeError, UnknownNameError

QUERY, KEY, VALUE = problem(torch.float32)
ONES = torch.ones(Q, K, dtype=torch.long)


def attend(**changes):
    return lambda: regard.attend(**{"query": QUERY, "key": KEY, "value": VALUE} | changes)


def drop_in(batch_first=False, **arguments):
    module = nn.MultiheadAttention(8, 2, batch_first=batch_first)
    return lambda: module(torch.randn(3, 5, 8), torch.randn(3, 7, 8), torch.randn(3, 7, 8), **arguments)


# What is called, the class of the error, and the line that is right.
MISTAKES = {
    "a mask that is not called": (attend(mask=masks.causal), KindError, r"call it, as in masks\.causal\(\)"),
    "a mask of 0 and 1": (attend(mask=ONES), KindError, r"tensor\.bool\(\) if 1 means 'may attend'"),
    "a kept mask of 0 and 1": (lambda: masks.keep(ONES), KindError, r"tensor\.bool\(\) if 1 means 'may attend'"),
    "a mask of 0 and −∞": (attend(mask=torch.zeros(Q, K)), KindError, r"belong in bias="),
    "a mask of NumPy": (attend(mask=np.ones((Q, K), bool)), KindError, r"mask=torch\.tensor\(mask, dtype=torch\.bool"),
    "lists": (attend(query=QUERY.tolist()), KindError, r"write torch\.tensor\(query, dtype=torch\.float32\)"),
    "an array": (attend(value=VALUE.numpy()), KindError, r"write torch\.tensor\(value, dtype=torch\.float32\)"),
    "integers": (attend(key=KEY.long()), KindError, r"write key\.float\(\)"),
    "a score of matrices": (attend(score=lambda q, k: q @ k.t()), ShapeError, r"key\.mT in place of key\.T"),
    "a score of matrices that broadcasts": (
        attend(score=lambda q, k: (q[:, None] - k[None]).square().sum(-1)), ShapeError, r"torch\.vmap\(torch\.vmap\(fn",
    ),
    "a softmax over another axis": (
        attend(normalizer=torch.nn.Softmax(dim=1)), ArgumentError, r"lambda scores: torch\.softmax\(scores, dim=-1\)",
    ),
    "query and key swapped": (attend(query=KEY, key=QUERY), ShapeError, r"order is \(query, key, value\)"),
    "the batch first": (drop_in(), ShapeError, r"create the module with batch_first=True"),
    "the length first": (
        lambda: nn.MultiheadAttention(8, 2, batch_first=True)(*(torch.randn(n, 3, 8) for n in (5, 7, 7))),
        ShapeError, r"create the module with batch_first=False",
    ),
    "padding of the batch first": (
        lambda: nn.MultiheadAttention(8, 2)(*[torch.randn(3, 5, 8)] * 3, key_padding_mask=torch.zeros(3, 5).bool()),
        ShapeError, r"create the module with batch_first=True",
    ),
    "padding of 0 and 1": (
        drop_in(batch_first=True, key_padding_mask=torch.ones(3, 7).long()),
        KindError, r"key_padding_mask == 0 if 1 means 'may attend'",
    ),
    "a backend that there is not": (lambda: nn.LayerConfig(backend="nope"), UnknownNameError, r"known: .*tiled"),
    "a module's backend that there is not": (
        lambda: nn.MultiheadAttention(8, 2, backend="nope"), UnknownNameError, r"known: .*tiled",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_first_mistake_is_answered_with_the_line_that_is_right(mistake):
    call, error, line = MISTAKES[mistake]
    with pytest.raises(RegardError) as raised:
        call()
    assert isinstance(raised.value, error)
    assert re.search(line, str(raised.value))


# Lines of the messages above, and what they must equal.
@pytest.mark.parametrize("softmax", [F.softmax, torch.softmax])
def test_the_softmax_of_torch_is_the_softmax(softmax):
    assert torch.equal(
        regard.attend(QUERY, KEY, VALUE, normalizer=softmax), regard.attend(QUERY, KEY, VALUE, backend="reference")
    )


@pytest.mark.parametrize("backend", ["reference", "tiled"])
def test_a_score_of_matrices_is_mapped_as_the_message_says(backend):
    def dots(query, key):
        return query @ key.t()

    output = regard.attend(QUERY, KEY, VALUE, score=torch.vmap(torch.vmap(dots)), backend=backend)
    torch.testing.assert_close(output, regard.attend(QUERY, KEY, VALUE, score="dot"))


def test_the_conventions_in_the_docstring_agree():
    for line in ("True: ignore", "True: may attend", "mask=masks.ignore(attn_mask)"):
        assert line in (nn.MultiheadAttention.__doc__ or "")
    hidden = torch.ones(Q, Q).triu(1).bool()
    module = nn.MultiheadAttention(D - 1, 2, batch_first=True)
    words = torch.randn(B, Q, D - 1)
    first, *others = (
        module(words, words, words, **arguments)[0]
        for arguments in (
            {"attn_mask": hidden}, {"mask": masks.ignore(hidden)}, {"mask": ~hidden}, {"is_causal": True},
        )
    )  # fmt: skip
    for other in others:
        torch.testing.assert_close(other, first)
