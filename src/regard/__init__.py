"""Every attention mechanism: exact, fast, trainable and visible.

A query is scored against keys; a normalizer turns the scores that the mask allows into weights; the weights mix the
values::

    import regard

    output = regard.attend(query, key, value, mask=regard.masks.causal())
    observed = regard.observe(query, key, value, read=regard.Readings(entropy=True, top_k=8))
    print(regard.explain(query, key, value))
    print(regard.plan(query, key, value))

Each name is imported when it is first used (`regard.names.lazy_names`), so that ``import regard`` alone costs nothing.
"""

from typing import TYPE_CHECKING

from regard.names.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard import (
        attention,
        biases,
        configuration,
        data,
        errors,
        explanations,
        exports,
        masks,
        models,
        nn,
        normalizers,
        pictures,
        positions,
        records,
        scores,
        tasks,
        training,
        viewer,
        watching,
    )
    from regard.attention import (
        Attended,
        Observed,
        Plan,
        Readings,
        attend,
        attend_with_weights,
        flex_attention,
        observe,
        plan,
    )
    from regard.explanations import Explanation, explain
    from regard.tasks.signatures import load, train
    from regard.viewer.view import View
    from regard.watching import Change, explain_weight, intervene, patch, survey, watch

__version__ = "0.2.0"

__all__ = [
    "attend",
    "attend_with_weights",
    "flex_attention",
    "observe",
    "explain",
    "plan",
    "train",
    "load",
    "watch",
    "survey",
    "intervene",
    "Change",
    "patch",
    "explain_weight",
    "View",
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
    "attention",
    "configuration",
    "data",
    "errors",
    "explanations",
    "exports",
    "models",
    "pictures",
    "records",
    "tasks",
    "training",
    "viewer",
    "watching",
]

if not TYPE_CHECKING:  # so that type checkers report names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
