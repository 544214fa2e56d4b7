"""One head of a calculation as plain matrices and names, for `regard.records.StepsRecord`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.explanations.explanation import Explanation
from regard.records.document import STEP_ORDER

Matrices = dict[str, NDArray[np.float64]]


def head_matrices(explanation: Explanation, batch: int, head: int) -> Matrices:
    """Returns the steps of one batch row and head, both from 0, with inputs and projections, if any."""

    def matrix(name: str) -> NDArray[np.float64]:
        return explanation.matrix(name, batch, head).cpu().double().numpy()

    names = explanation.step_names
    matrices = {name: matrix(name) for name in names if name in STEP_ORDER}
    for name in ("query", "key", "value"):
        source = "input" if explanation.one_input else f"{name}_input"
        # A score with a projection of its own projects once more.
        if f"W_{name}" in names and source in names and name not in explanation.projected:
            features = matrices[name].shape[1]
            weight = matrix(f"W_{name}")
            first = features * (head if weight.shape[1] > features else 0)
            matrices |= {f"{name}_input": matrix(source), f"w_{name}": weight[:, first : first + features]}
    return matrices


def head_arguments(explanation: Explanation, batch: int, head: int, matrices: Matrices) -> dict[str, Any]:
    """Returns the other arguments of the record: how the scores are computed, scaled and normalized.

    The score is ``"dot"`` if its numbers are the inner products of queries and keys.
    """
    assert explanation.settings is not None, "explanations of a problem have settings"
    arguments = explanation.settings.of_head(batch, head)
    query, key, scores = matrices["query"], matrices["key"], matrices["scores"]
    if query.shape[1] == key.shape[1] and np.allclose(query @ key.T, scores, rtol=1e-4, atol=1e-5, equal_nan=True):
        arguments["score"] = "dot"
    return arguments
