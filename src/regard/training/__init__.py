"""Training a model, its run folder, and how good it has become."""

from typing import TYPE_CHECKING

from regard.names.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.training import config, hub, learning_rate_finder, run, run_folder, schedule, task

__all__ = ["config", "hub", "learning_rate_finder", "run", "run_folder", "schedule", "task"]

if not TYPE_CHECKING:  # so that type checkers report names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
