"""Every attention mechanism: exact, fast, trainable and visible.

A query is scored against keys; a normalizer turns the scores that the mask allows into weights; the weights mix the
values::

    import regard

    output = regard.attend(query, key, value, mask=regard.masks.causal())
    observed = regard.observe(query, key, value, read=regard.Readings(entropy=True, top_k=8))
    print(regard.explain(query, key, value))
    print(regard.plan(query, key, value))
"""

from regard import biases, masks, nn, normalizers, positions, scores
from regard.attention import Attended, Observed, Plan, Readings, attend, attend_with_weights, observe, plan
from regard.explanations import Explanation, explain
from regard.tasks.registry import load

__version__ = "0.1.0"

__all__ = [
    "attend",
    "attend_with_weights",
    "observe",
    "explain",
    "plan",
    "load",
    "Readings",
    "Observed",
    "Attended",
    "Explanation",
    "Plan",
    "scores",
    "normalizers",
    "masks",
    "biases",
    "positions",
    "nn",
]
