"""Embeddings and weights for a sentence that nobody trained: random, but the same for a seed."""

import torch
from torch import Tensor

from regard.shapes import whole_number


def seeded_sentence(words: list[str], dim: int, head_dim: int, heads: int, seed: int) -> dict[str, Tensor]:
    """What a sentence attends with, by the names of the options that could give it.

    Embeddings are standard normal, a word that comes again has the same one; weights have variance 1 / rows. All are
    rounded to two decimals, so that one can calculate with what is shown.

    Args:
        words: of the sentence.
        dim: features of an embedding.
        head_dim: features of a head's query, key and value.
        heads: how many; more than one get ``--w-output`` as well, which projects them back to ``dim``.
        seed: an integer.

    Returns:
        float64: ``--input [words, dim]``, ``--w-query``, ``--w-key``, ``--w-value [dim, heads · head_dim]``,
        ``--w-output [heads · head_dim, dim]``.

    Raises:
        ArgumentError: a size below 1.
    """
    for name, size in (("--dim", dim), ("--head-dim", head_dim), ("--heads", heads)):
        whole_number(name, size, low=1)
    generator = torch.Generator().manual_seed(seed % 2**63)

    def draw(rows: int, columns: int, deviation: float) -> Tensor:
        numbers = torch.randn(rows, columns, generator=generator, dtype=torch.float64) * deviation
        # Adding 0 turns −0 into 0.
        return (numbers * 100).round() / 100 + 0.0

    different = list(dict.fromkeys(words))
    embeddings = draw(len(different), dim, 1.0)
    width = heads * head_dim
    tensors = {"--input": embeddings[[different.index(word) for word in words]]}
    tensors |= {name: draw(dim, width, dim**-0.5) for name in ("--w-query", "--w-key", "--w-value")}
    if heads > 1:
        tensors["--w-output"] = draw(width, dim, width**-0.5)
    return tensors
