"""What a tokenizer's file says: a ``tokenizer.json`` of Hugging Face, or the format of version 0.1."""

from typing import Any, Final, NamedTuple

KINDS: Final = ("bpe", "word", "char")

MARK = "▁"
"""Stands for the space before a piece."""
SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
"""The first pieces of every vocabulary."""
PATTERNS = {
    # A run of letters with their combining marks, a digit, or any other character, each with the space before it.
    "bpe": r"▁?[\p{L}\p{M}]+|▁?\p{N}|▁?[^\p{L}\p{M}\p{N}▁]|▁",
    "word": r"▁?[\p{L}\p{M}\p{N}_]+|▁?[^\p{L}\p{M}\p{N}_▁]|▁",
    "char": ".",
}
"""Kind of tokenizer → the regular expression that splits a text, before pieces are looked up."""

_FORMAT = 1


class Parts(NamedTuple):
    """What a tokenizer is made of."""

    kind: str
    lowercase: bool
    pieces: list[str]
    merges: list[tuple[str, str]]


def parts_of(content: Any) -> Parts:
    """The parts of a tokenizer from the content of its file.

    Raises:
        ValueError: no tokenizer of regard can have written this.
    """
    if not isinstance(content, dict):
        raise ValueError("no JSON object")
    kind, lowercase, pieces, merges = _of_first_version(content) if "regard" in content else _of_standard(content)
    if kind not in KINDS or not isinstance(lowercase, bool):
        raise ValueError("the kind or the case is unknown")
    if not isinstance(pieces, list) or not all(isinstance(piece, str) and piece for piece in pieces):
        raise ValueError("the pieces are not a list of texts")
    known = set(pieces)
    if tuple(pieces[: len(SPECIAL)]) != SPECIAL or len(known) != len(pieces):
        raise ValueError("the special pieces are not in their places, or a piece stands twice")
    if not isinstance(merges, list) or (merges and kind != "bpe"):
        raise ValueError("the merges do not fit the kind")
    for pair in merges:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(side, str) for side in pair)):
            raise ValueError("a merge is not a pair of pieces")
        if not known.issuperset((*pair, "".join(pair))):
            raise ValueError("a merge names a piece that is not there")
    return Parts(kind, lowercase, pieces, [(left, right) for left, right in merges])


def _of_first_version(content: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    if content["regard"] != {"what": "tokenizer", "format": _FORMAT}:
        raise ValueError(f"no header of a tokenizer of format {_FORMAT}")
    return content.get("kind"), content.get("lowercase"), content.get("pieces"), content.get("merges")


def _of_standard(content: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
    model = _mapping(content.get("model"))
    vocabulary = _mapping(model.get("vocab"))
    ids = sorted(vocabulary.values(), key=str)
    if sorted(map(str, range(len(ids)))) != [str(id) for id in ids]:
        raise ValueError("the ids of the vocabulary are not the numbers from 0")
    splits = [_mapping(part) for part in _mapping(content.get("pre_tokenizer")).get("pretokenizers") or ()]
    patterns = [_mapping(part.get("pattern")).get("Regex") for part in splits if part.get("type") == "Split"]
    kind = next((kind for kind, pattern in PATTERNS.items() if patterns == [pattern]), None)
    if model.get("type") != ("BPE" if kind == "bpe" else "WordLevel") or model.get("unk_token") != SPECIAL[-1]:
        raise ValueError("the model or the pre-tokenizer is of another kind")
    steps = [_mapping(part).get("type") for part in _mapping(content.get("normalizer")).get("normalizers") or ()]
    if [step for step in steps if step != "Lowercase"] != ["NFC", "Replace", "Strip"]:
        raise ValueError("the normalizer is of another kind")
    return kind, "Lowercase" in steps, sorted(vocabulary, key=vocabulary.__getitem__), model.get("merges", [])


def _mapping(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ValueError("a part is missing")
    return content
