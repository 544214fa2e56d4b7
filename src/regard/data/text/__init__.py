"""Text: where it comes from, how it becomes numbers, and in which order it is seen.

Each module is imported when it is first used (`regard.names.lazy_names`).
"""

from typing import TYPE_CHECKING

from regard.names.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.data.text import (
        alignment,
        articles,
        batches,
        extended_vocabulary,
        generated,
        piece_tokenizer,
        reviews,
        running_text,
        sources,
        tokenizers,
        word_vectors,
        words,
    )

__all__ = [
    "alignment",
    "articles",
    "batches",
    "extended_vocabulary",
    "generated",
    "piece_tokenizer",
    "reviews",
    "running_text",
    "sources",
    "tokenizers",
    "word_vectors",
    "words",
]

if not TYPE_CHECKING:  # so that type checkers report names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
