"""Models of sounds: encoders, transcribers, and a classifier.

Each module is imported when it is first used (`regard.names.lazy_names`).
"""

from typing import TYPE_CHECKING

from regard.names.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.models.speech import configs, ctc, encoders, focus, sound_classifier, transcriber

__all__ = ["configs", "ctc", "encoders", "focus", "sound_classifier", "transcriber"]

if not TYPE_CHECKING:  # so that type checkers report names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
