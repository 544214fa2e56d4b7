"""Word and character error rates, by jiwer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import ArgumentError, MissingPartError


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """How far transcriptions are from what was said: edits over the length of the references."""

    wer: float
    """(substitutions + deletions + insertions) / words of the references; 0 is the best, above 1 is possible."""
    cer: float
    """The same of characters, spaces included."""
    substitutions: int
    """Words."""
    deletions: int
    insertions: int
    words: int
    """Words of the references."""


def error_rates(found: Sequence[str], references: Sequence[str]) -> ErrorRates:
    """Word and character error rate of transcriptions.

    Words are what stands between white space. The fewest edits of each text are added up before they are divided, as
    the field does.

    Args:
        found: one text for each sound.
        references: one text for each sound, in the same order.

    Raises:
        ArgumentError: they are not equally many, or a reference has no word.
        MissingPartError: jiwer is not installed.
    """
    if len(found) != len(references):
        raise ArgumentError(f"there are {len(found)} transcriptions and {len(references)} references")
    for number, text in enumerate(references):
        if not text.strip():
            raise ArgumentError(f"references[{number}] has no word; leave it out")
    if not references:
        return ErrorRates(0.0, 0.0, 0, 0, 0, 0)
    library = _jiwer()
    words = library.process_words(list(references), list(found))
    characters = library.process_characters([" ".join(text.split()) for text in references],
                                            [" ".join(text.split()) for text in found])  # fmt: skip
    return ErrorRates(
        wer=float(words.wer),
        cer=float(characters.cer),
        substitutions=words.substitutions,
        deletions=words.deletions,
        insertions=words.insertions,
        words=sum(len(text.split()) for text in references),
    )


def _jiwer() -> Any:
    try:
        import jiwer
    except ImportError as error:
        raise MissingPartError("jiwer", "speech") from error
    return jiwer
