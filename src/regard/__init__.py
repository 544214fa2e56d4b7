"""Every attention mechanism: exact, fast, trainable and visible.

A query is scored against keys; a normalizer turns the scores that the mask allows into weights; the weights mix the
values::

    import regard

    output = regard.attend(query, key, value, mask=regard.masks.causal())
    observed = regard.observe(query, key, value, read=regard.Readings(entropy=True, top_k=8))
    print(regard.explain(query, key, value))
    print(regard.plan(query, key, value))

Each name is imported when it is first used (PEP 562), so that ``import regard`` alone costs nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard import biases, masks, nn, normalizers, positions, scores
    from regard.attention import Attended, Observed, Plan, Readings, attend, attend_with_weights, observe, plan
    from regard.explanations import Explanation, explain
    from regard.tasks.registry import load
    from regard.watching import watch

__version__ = "0.1.0"

__all__ = [
    "attend",
    "attend_with_weights",
    "observe",
    "explain",
    "plan",
    "load",
    "watch",
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

_MODULES = {
    **dict.fromkeys(
        ("attend", "attend_with_weights", "observe", "plan", "Readings", "Observed", "Attended", "Plan"), "attention"
    ),
    **dict.fromkeys(("explain", "Explanation"), "explanations"),
    "load": "tasks.registry",
    "watch": "watching",
}
"""Public name → the module that it is imported from. All other names are those of modules: ``regard.errors``."""

if not TYPE_CHECKING:  # so that type checkers report names that do not exist

    def __getattr__(name: str) -> object:
        from importlib import import_module
        from importlib.util import find_spec

        if name in _MODULES:
            found = getattr(import_module(f"regard.{_MODULES[name]}"), name)
        elif not name.startswith("_") and find_spec(f"regard.{name}") is not None:
            found = import_module(f"regard.{name}")
        else:
            raise AttributeError(f"module 'regard' has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
