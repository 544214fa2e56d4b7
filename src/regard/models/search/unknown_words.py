"""Replaces unknown target words by the source words with the largest attention weights."""

from collections.abc import Sequence

from torch import Tensor

from regard.errors import ArgumentError


def replace_unknown(
    tokens: Sequence[str], weights: Tensor | None, source_words: Sequence[str], unknown: str = "<unk>"
) -> list[str]:
    """Replaces each unknown target word by the source word with its largest weight (Luong et al. 2015, §4.1).

    Args:
        tokens: target words.
        weights: ``[len(tokens), len(source_words)]``; None (a model without attention): no word is replaced.
        source_words: source words, one for each key.
        unknown: the text of an unknown word.

    Returns:
        The target words, without unknown ones as far as there are weights and source words.

    Raises:
        ArgumentError: ``weights`` has another shape.

    Example:
        >>> import torch
        >>> from regard import models
        >>> weights = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
        >>> models.replace_unknown(["the", "<unk>"], weights, ["der", "Dom"])
        ['the', 'Dom']
    """
    if weights is None or not source_words:
        return list(tokens)
    if tuple(weights.shape) != (len(tokens), len(source_words)):
        raise ArgumentError(
            f"weights must have a row for each of {len(tokens)} tokens and a column for each of {len(source_words)} "
            f"source words; they have shape {list(weights.shape)}"
        )
    if not tokens:
        return []
    best = weights.argmax(-1).tolist()
    return [str(source_words[key]) if token == unknown else token for token, key in zip(tokens, best, strict=True)]
