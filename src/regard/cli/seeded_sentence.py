"""Creates random embeddings and weights for a sentence from a seed."""

import torch
from torch import Tensor

from regard.errors import ArgumentError
from regard.shapes.checks import whole_number

MOST_NUMBERS = 20_000_000
"""Largest number of elements of one random matrix."""

MOST_HEADS = 1000
"""Largest number of heads, since each has its own tables."""


def seeded_sentence(words: list[str], dim: int, head_dim: int, heads: int, seed: int) -> dict[str, Tensor]:
    """Returns inputs and weights for a sentence, by the options of the same tensors.

    Embeddings are standard normal, and equal words have equal embeddings; weights have variance 1 / rows. All values
    are rounded to two decimals, so that the user can calculate with them.

    Args:
        heads: number of heads; with several, there is also ``--w-output``, which projects them back to ``dim``.

    Returns:
        float64: ``--input [words, dim]``, ``--w-query``, ``--w-key``, ``--w-value [dim, heads · head_dim]``,
        ``--w-output [heads · head_dim, dim]``.
    """
    for name, size in (("--dim", dim), ("--head-dim", head_dim), ("--heads", heads)):
        whole_number(name, size, low=1)
    for text, count in (
        (f"--dim {dim} × --head-dim {head_dim} × --heads {heads}", dim * head_dim * heads),
        (f"{len(words)} words × --dim {dim}", len(words) * dim),
    ):
        if count > MOST_NUMBERS:
            raise ArgumentError(
                f"{text} are more than the {MOST_NUMBERS:,} random numbers of a matrix; make them smaller"
            )
    whole_number("--heads", heads, high=MOST_HEADS)
    generator = torch.Generator().manual_seed(seed % 2**63)

    def draw(rows: int, columns: int, deviation: float) -> Tensor:
        numbers = torch.randn(rows, columns, generator=generator, dtype=torch.float64) * deviation
        # Adding 0 turns −0 into 0.
        return (numbers * 100).round() / 100 + 0.0

    vocabulary = list(dict.fromkeys(words))
    embeddings = draw(len(vocabulary), dim, 1.0)
    width = heads * head_dim
    tensors = {"--input": embeddings[[vocabulary.index(word) for word in words]]}
    tensors |= {name: draw(dim, width, dim**-0.5) for name in ("--w-query", "--w-key", "--w-value")}
    if heads > 1:
        tensors["--w-output"] = draw(width, dim, width**-0.5)
    return tensors
