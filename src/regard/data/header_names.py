"""What the first line of a delimited table is: the names of its columns, or a row of a table without them."""

import re
from collections.abc import Sequence

from regard.data.records import quoted_names

_MOST_WORDS, _MOST_CHARACTERS = 5, 60  # of the name of a column

_SENTENCE = re.compile(r"[.!?…。！？।؟]$|^[¿¡\"'“«„]|, ")
_FILE = re.compile(r"\.(wav|flac|ogg|mp3|aiff?|au|npy|png|jpe?g|gif|bmp|tiff?|webp|txt)$", re.IGNORECASE)
_PART = re.compile(r"[ _.\-]+|(?<=[a-z])(?=[A-Z])|(?<=\D)(?=\d)")

_LANGUAGES = (
    "aa ab af ak am an ar as ay az ba be bg bh bi bn bo br bs ca ce co cs cv cy da de dv dz ee el en eo es et eu "
    "fa fi fj fo fr fy ga gd gl gn gu gv ha he hi hr ht hu hy ia id ie ig is it iu ja jv ka kk kl km kn ko ks ku "
    "kw ky la lb lg ln lo lt lv mg mi mk ml mn mr ms mt my nb ne nl nn no nv ny oc om or os pa pl ps pt qu rm ro "
    "ru rw sa sc sd se sg sh si sk sl sm sn so sq sr st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ug uk ur "
    "uz ve vi vo wo xh yi yo zh zu eng spa fra fre deu ger ita por rus zho chi jpn kor ara hin nld dut swe dan "
    "nor fin pol ces cze tur ell gre heb ukr vie tha ind ron rum hun bul hrv cmn cat lat epo english spanish "
    "french german italian portuguese russian chinese japanese korean arabic hindi dutch swedish danish norwegian "
    "finnish polish czech turkish greek hebrew ukrainian vietnamese thai indonesian romanian hungarian bulgarian "
    "catalan latin us gb cn mx hans hant latn cyrl"
)

_USUAL = (
    "source target src tgt trg text texts sentence sentences label labels class classes category article articles "
    "summary summaries document documents title headline abstract highlights body content review comment question "
    "answer query response prompt completion instruction input inputs output outputs translation reference "
    "original audio sound file files path paths name filename image images picture caption captions mask masks "
    "transcript transcription transcriptions transcribed features feature scene id ids idx index key row number "
    "score rating sentiment intent topic tag tags emotion target premise hypothesis alignment deciding objects "
    "segments split utterance phrase word words token tokens lang language col column field x y from to human "
    "machine raw clean"
)

_KNOWN = frozenset(f"{_LANGUAGES} {_USUAL}".split())


def header_doubts(header: Sequence[str]) -> tuple[str, str]:
    """Says whether a first line may be a row.

    Args:
        header: its cells; those without text are no names.

    Returns:
        what it is and what to do, if it is a row; and what to say where its names are taken without a question, if that
        cannot be told. Both are empty if it has the names of columns.
    """
    cells = [cell for cell in header if cell]
    if any(map(_is_value, cells)) and not _are_numbers_of_columns(cells):
        return (
            f"line 1, {quoted_names(cells)}, seems to be a row, and must be the names of the columns: put them there "
            "(or name the columns, if these are their names)"
        ), ""
    if all(map(_is_name, cells)):
        return "", ""
    return "", (
        f"line 1, {quoted_names(cells)}, is read as the names of the columns; if it is a row, put the names before it"
    )


def _is_value(cell: str) -> bool:
    """Whether a cell is no name of a column: a sentence, a number, the name of a file, a long text."""
    is_number = re.fullmatch(r"[+-]?\d+([.,]\d+)?", cell) is not None
    is_long = len(cell) > _MOST_CHARACTERS or len(cell.split()) > _MOST_WORDS
    return is_number or is_long or bool(_SENTENCE.search(cell) or _FILE.search(cell))


def _are_numbers_of_columns(cells: Sequence[str]) -> bool:
    """Whether cells are 0, 1, 2, ..., by which pandas names columns without names."""
    return list(cells) == [str(number) for number in range(len(cells))]


def _is_name(cell: str) -> bool:
    """Whether a cell is surely the name of a column: made of usual words, letters and numbers."""
    parts = [part.lower() for part in _PART.split(cell) if part]
    return bool(parts) and all(part in _KNOWN or part.isdigit() or len(part) == 1 for part in parts)
