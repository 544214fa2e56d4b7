"""Trained models for other programs: ``torch.export`` programs, ONNX models, and folders of Hugging Face transformers.

`regard.tasks.trained_run.TableTrained.export` is the entry. Each name is imported when it is first used
(`regard.names.lazy_names`).
"""

from typing import TYPE_CHECKING

from regard.names.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.exports.export import Exported
    from regard.exports.formats import FORMATS
    from regard.tracing.portable import portable_operations

__all__ = ["FORMATS", "Exported", "portable_operations"]

if not TYPE_CHECKING:  # so that type checkers report names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
