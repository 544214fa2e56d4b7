"""An `Explanation` → the record of one of its heads."""

from __future__ import annotations

import torch

from regard.errors import ArgumentError, KindError
from regard.explanations import Explanation
from regard.records import StepsRecord

MATRICES = ("query", "key", "value", "scores", "weights", "output")
OPTIONAL = ("scaled", "capped", "biased", "masked")


def steps_record(
    explanation: Explanation,
    *,
    batch: int = 0,
    head: int = 0,
    name: str | None = None,
    normalizer: str | None = None,
) -> StepsRecord:
    """The worked calculation of one head, with the steps that it has.

    Args:
        explanation: what `regard.explain` gave.
        batch: which batch row, from 0.
        head: which query head, from 0.
        name: for the reader; None: the head's number.
        normalizer: what turned the scores into weights; None: ``"softmax"`` where the weights are those of a softmax,
            else ``"normalizer"``.

    Raises:
        KindError: not an `Explanation`.
        ArgumentError: there is no such batch row or head.
    """
    if not isinstance(explanation, Explanation):
        raise KindError(f"explanation must be a regard.Explanation; it is of type {type(explanation).__name__}")
    if (batch, head) not in explanation.slices:
        raise ArgumentError(f"batch and head must be one of {len(explanation.slices)} pairs; they are {batch}, {head}")
    names = [step for step in explanation.step_names if step in MATRICES + OPTIONAL]
    tensors = {step: explanation.matrix(step, batch, head).double() for step in names}
    products = tensors["query"] @ tensors["key"].T if _one_dim(tensors) else None
    dot = products is not None and torch.allclose(products, tensors["scores"], rtol=1e-4, atol=1e-5, equal_nan=True)
    last = next(tensors[step] for step in reversed(names) if step not in ("weights", "output", "value", "key", "query"))
    softmax = torch.allclose(last.softmax(-1).nan_to_num(0), tensors["weights"].nan_to_num(0), rtol=1e-4, atol=1e-6)
    return StepsRecord(
        name or f"head {head}",
        {step: tensor.cpu().numpy() for step, tensor in tensors.items()},
        tuple(explanation.row_labels("query")),
        tuple(explanation.row_labels("key")),
        score="dot" if dot else "score",
        normalizer=normalizer or ("softmax" if softmax else "normalizer"),
        head=head,
    )


def _one_dim(tensors: dict[str, torch.Tensor]) -> bool:
    return tensors["query"].shape[-1] == tensors["key"].shape[-1]
