"""Sounds: reading, features, tables of utterances, batches, and the generated corpus that knows its alignment.

Each module is imported when it is first used (`regard.names.lazy_names`).
"""

from typing import TYPE_CHECKING

from regard.names.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.data.speech import batches, log_mel, sounds, utterances, voices

__all__ = ["batches", "log_mel", "sounds", "utterances", "voices"]

if not TYPE_CHECKING:  # so that type checkers report names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
