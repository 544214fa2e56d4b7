"""Data: where it comes from, how it becomes numbers, and in which order it is seen.

Each module is imported when it is first used (`regard.names.lazy_names`).
"""

from typing import TYPE_CHECKING

from regard.names.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.data import batches, cache, class_folders, corpus_files, images, labels, ragged, records, speech, text

__all__ = [
    "batches",
    "cache",
    "class_folders",
    "corpus_files",
    "images",
    "labels",
    "ragged",
    "records",
    "speech",
    "text",
]

if not TYPE_CHECKING:  # so that type checkers report names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
