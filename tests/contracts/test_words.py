"""One word for one thing: retired words do not come back into identifiers, comments or docstrings."""

import ast
import functools
import io
import re
import sys
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "regard"

ROOMS = tuple(sorted(path.name for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()))
"""All rooms are held to these words."""

TENSORS = "query|key|value|bias|weight|features|annotations?|scores?|hidden|input|output|total|nll|parameters?"

IDENTIFIERS = {
    r"(?:.*_)?door": "validation",
    r"teams?": "threads",
    r"Held": "CachedMemory",
    r"RowInteger": "BatchInteger",
    r"open_problem": "validate",
    rf"by_(?:{TENSORS})": "grad_*",
    rf"(?:{TENSORS})_gradient": "grad_*",
    rf"d(?:{TENSORS})": "grad_*",
    r"[Cc]onductor": "callback",
    r"(?:.*_)?walk": "search",
    r"[Ii]nterruption": "signal handler",
    r"(?:.*_)?[Cc]ontenders?|rivals?": "implementation",
    r"[Vv]erdicts?": "outcome",
    r"[Rr]ace|[Pp]ace": "time_interleaved, timing budget",
    r"[Dd]ice": "random draws",
    r"wished": "stop_requested",
}
"""Pattern of a whole identifier: the name to use instead."""

WORDS = {
    r"at the door|the door": "validation",
    r"teams? of threads|OpenMP team|one team": "threads, thread pool",
    r"dealt out|leaves? behind|left behind|at hand|hands? over|handed out|gives? its word": "say what happens",
    r"conducts?|conductor": "callback",
    r"contenders?|rivals?": "implementation",
    r"where (?:it|they|he|each token|the model) look(?:s|ed)": "attention weights",
    r"whoever|whosoever|nobody|anybody|everybody": "name the subject",
    r"grants?|wished": "say what happens",
    r"mend(?:s|ed)?": "correct",
    r"of our own|of one's own": "say whose",
}
"""Pattern in a comment or a docstring: what to write instead."""

ANY_WORD = rf"\b(?:{'|'.join(WORDS)})\b".replace(" ", r"\s+")
"""Pattern of a comment or a docstring with any of them."""


PLAIN_ROOMS = (
    "attention", "biases", "explanations", "exports", "kernels", "masks", "normalizers", "page", "pictures",
    "positions", "records", "scores", "tasks", "viewer", "watching",
)  # fmt: skip
"""Rooms in which a name says the noun that it stands for."""

GIVEN = r"(\.|def )given\("
"""The method of `LocationAware`, whose calls say the noun: ``score.given(weights)``."""

IMPLIED = r"found|place|given|kept|asked|told|beside|met|taken|wanted|nothing|strangers"
"""Pattern of names that leave the noun out."""


def files():
    for room in ROOMS:
        path = SOURCE / room
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))


@functools.cache
def tokens(text):
    """The names and the comments of a file's text, each with its line."""
    names, comments = [], []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            names.append((sys.intern(token.string), token.start[0]))
        elif token.type == tokenize.COMMENT:
            comments.append((token.string, token.start[0]))
    return names, comments


@functools.cache
def prose(text):
    """Each comment and each docstring (also those below an assignment), with its line."""
    _, comments = tokens(text)
    docstrings = [
        (node.value.value, node.lineno)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return comments + docstrings


@functools.cache
def successors(name):
    """What to use instead of an identifier, as a list; empty for most."""
    return [instead for pattern, instead in IDENTIFIERS.items() if re.fullmatch(pattern, name)]


def retired_identifiers(text):
    return [f"line {line}: {name!r}; use: {instead}" for name, line in tokens(text)[0] for instead in successors(name)]


def retired_words(text):
    return [
        f"line {line}: {found[0]!r}; use: {instead}"
        for words, line in prose(text)
        if re.search(ANY_WORD, words, re.IGNORECASE)
        for pattern, instead in WORDS.items()
        if (found := re.search(rf"\b(?:{pattern})\b", " ".join(words.split()), re.IGNORECASE))
    ]


def offences(file):
    """What is wrong with the words of a file and with its name, each as a line of a message."""
    text, name = file.read_text(encoding="utf-8"), file.relative_to(SOURCE)
    for offence in retired_identifiers(text) + retired_words(text):
        yield f"{name}, {offence}"
    for instead in successors(file.stem):
        yield f"{name}: the file's name; use: {instead}"


def test_retired_words_stay_away():
    found = [offence for file in files() for offence in offences(file)]
    assert not found, "\n".join(found)


def test_docstrings_begin_with_a_subject_or_a_verb():
    """None begins with "Of", as in "Of the payload; ...": the noun or the verb is said."""
    offenders = [
        f"{file.relative_to(SOURCE)}, line {line}: {words.strip()[:60]}"
        for file in files()
        for words, line in prose(file.read_text(encoding="utf-8"))
        if re.match(r"\W*Of\b", words) and not words.startswith("#")
    ]
    assert not offenders, "\n".join(offenders)


def test_names_say_the_noun():
    for room in PLAIN_ROOMS:
        for file in sorted((SOURCE / room).rglob("*.py")):
            text = re.sub(GIVEN, r"\1given_weights(", file.read_text(encoding="utf-8"))
            names = {name for name, _ in tokens(text)[0] if re.fullmatch(IMPLIED, name)}
            assert not names, f"{file.relative_to(SOURCE)}: {sorted(names)}; say what they are"


def test_the_rooms_exist():
    for room in ROOMS:
        assert (SOURCE / room).exists(), f"no room {room}"


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("by_query = 1", "grad_*"),
        ("def backward(ctx, key_gradient): pass", "grad_*"),
        ("class Held: pass", "CachedMemory"),
        ("import regard.attention.door", "validation"),
        ("# Sizes are checked at the door.", "validation"),
        ('x = 1\n"""A team of threads."""', "threads, thread pool"),
    ],
)
def test_a_retired_word_is_found_and_its_successor_named(text, instead):
    found = retired_identifiers(text) + retired_words(text)
    assert [line for line in found if line.endswith(f"use: {instead}")]


@pytest.mark.parametrize("text", ["by_rows = 1", "grad_query = 1", "# The backdoor criterion."])
def test_other_words_are_free(text):
    assert not retired_identifiers(text) + retired_words(text)
