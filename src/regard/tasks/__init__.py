"""Tasks: one file for each, against the interface of `regard.training.task`; `registry` finds them by name."""

from typing import TYPE_CHECKING

from regard.names.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.tasks import (
        caption,
        classify,
        images,
        inputs,
        language,
        options,
        outputs,
        registry,
        segment,
        sounds,
        summarize,
        task,
        trained_run,
        transcribe,
        translate,
    )

__all__ = [
    "caption",
    "classify",
    "images",
    "inputs",
    "language",
    "options",
    "outputs",
    "registry",
    "segment",
    "sounds",
    "summarize",
    "task",
    "trained_run",
    "transcribe",
    "translate",
]

if not TYPE_CHECKING:  # so that type checkers report names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
