"""Phrases in both languages; each Spanish word has links to the English words that it translates."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from regard.data.corpus_files import RandomDraws
from regard.data.text.alignment import Link
from regard.data.text.grammar.lexicon import ADJECTIVES, NAMES, NOUNS, Adjective, Noun
from regard.data.text.grammar.morphology import agree


@dataclass(eq=False)
class SourceWord:
    """An English word; two objects are never equal."""

    text: str


@dataclass(eq=False)
class TargetWord:
    """A Spanish word, and its sure and possible links to English words."""

    text: str
    sure: Sequence[SourceWord] = ()
    possible: Sequence[SourceWord] = ()


@dataclass(eq=False)
class Phrase:
    """A noun phrase or pronoun.

    Attributes:
        source: its English words.
        target: its Spanish words; none for a subject pronoun, which is dropped.
        person: one of `morphology.PERSONS`, for the Spanish verb; *you* has a plural verb in English.
        gender: ``"m"`` or ``"f"``.
        human: whether a direct object takes the personal *a*.
    """

    source: list[SourceWord]
    target: list[TargetWord]
    person: str
    gender: str
    human: bool

    @property
    def plural(self) -> bool:
        """Whether adjectives are plural."""
        return self.person.endswith("p")

    @property
    def dropped(self) -> tuple[SourceWord, ...]:
        """The words of a pronoun that Spanish leaves out."""
        return () if self.target else tuple(self.source)


PRONOUNS = (
    ("I", "1s", "m", "me", "me"),
    ("you", "2s", "m", "you", "te"),
    ("he", "3s", "m", "him", "lo"),
    ("she", "3s", "f", "her", "la"),
    ("we", "1p", "m", "us", "nos"),
    ("they", "3p", "m", "them", "los"),
    ("you all", "3p", "m", "you all", "los"),
)
"""Subject, person, gender, object and its clitic."""

DATIVES = {"1s": "me", "2s": "te", "3s": "le", "1p": "nos", "3p": "les"}

# English, Spanish as (masculine, feminine) singular and plural; "" where the number is impossible
_DETERMINERS = {
    "the": ("el", "la", "los", "las"),
    "a": ("un", "una", "", ""),
    "this": ("este", "esta", "", ""),
    "that": ("ese", "esa", "", ""),
    "these": ("", "", "estos", "estas"),
    "those": ("", "", "esos", "esas"),
    "my": ("mi", "mi", "mis", "mis"),
    "your": ("tu", "tu", "tus", "tus"),
    "his": ("su", "su", "sus", "sus"),
    "her": ("su", "su", "sus", "sus"),
    "our": ("nuestro", "nuestra", "nuestros", "nuestras"),
    "every": ("cada", "cada", "", ""),
    "some": ("", "", "unos", "unas"),
    "two": ("", "", "dos", "dos"),
    "three": ("", "", "tres", "tres"),
    "many": ("", "", "muchos", "muchas"),
}
_WEIGHTS = {"the": 9.0, "a": 4.0, "my": 2.0, "every": 0.5}
_INDEFINITE_WORDS = {"a", "some", "two", "three", "many"}
_POSSESSIVE_WORDS = {"my", "your", "his", "her", "our"}

_ADJECTIVES_OF_KIND = {kind: tuple(adjective for adjective in ADJECTIVES if kind in adjective.kinds) for kind in NOUNS}


def _determiners(plural: bool, mass: bool, indefinite: bool, public: bool) -> list[tuple[str, float]]:
    return [
        (word, _WEIGHTS.get(word, 1.0))
        for word, forms in _DETERMINERS.items()
        if forms[2 * plural]
        and (word in _INDEFINITE_WORDS or not indefinite)
        and not (mass and word in ("a", "every"))
        and not (public and word in _POSSESSIVE_WORDS)
    ]


_CHOICES = {
    case: _determiners(*case) for case in itertools.product((False, True), repeat=4) if not (case[1] and case[2])
}


def pronoun(draws: RandomDraws) -> Phrase:
    """Draws a subject pronoun; its Spanish is dropped."""
    word, person, gender, _, _ = draws.choice(PRONOUNS)
    return Phrase([SourceWord(part) for part in word.split()], [], person, gender, True)


def name(draws: RandomDraws) -> Phrase:
    """Draws a person's name, the same in both languages."""
    word, gender = draws.choice(NAMES)
    source = SourceWord(word)
    return Phrase([source], [TargetWord(word, (source,))], "3s", gender, True)


def noun_phrase(
    draws: RandomDraws, kinds: Sequence[str], *, indefinite: bool = False, plain: bool = False, names: float = 0.35
) -> Phrase:
    """Draws a noun of these kinds with its determiner, and unless it is ``plain`` perhaps adjectives or an owner.
    ``indefinite``: the determiner must be one that *there is* takes; ``names`` says how often a person has a name
    instead."""
    kind = draws.choice(kinds)
    if kind == "person" and not indefinite and draws.chance(names):
        return name(draws)
    nouns = NOUNS[kind]
    noun = draws.choice(nouns)
    while indefinite and noun.mass:
        noun = draws.choice(nouns)
    public = kind in ("place", "surface")
    plural = not noun.mass and draws.chance(0.1 if public else 0.3)
    owned = not (plain or indefinite or public) and draws.chance(0.08)
    adjectives = [] if plain or owned or not draws.chance(0.35) else [draws.choice(_ADJECTIVES_OF_KIND[kind])]
    very = bool(adjectives) and adjectives[0].gradable and draws.chance(0.15)
    if owned:
        return _owned(draws, noun, plural)
    determiner = draws.weighted(_CHOICES[plural, noun.mass, indefinite, public])
    return _described(determiner, noun, plural, adjectives, very)


def _described(determiner: str, noun: Noun, plural: bool, adjectives: list[Adjective], very: bool) -> Phrase:
    article = SourceWord(determiner)
    head = SourceWord(noun.english_plural if plural else noun.english)
    source, before, after = [article], [], []
    for adjective in adjectives:
        if very:
            source.append(SourceWord("very"))
            after.append(TargetWord("muy", (source[-1],)))
        word = SourceWord(adjective.english)
        source.append(word)
        form = agree(adjective.spanish, noun.gender, plural)
        if adjective.before:
            short = not plural and (noun.gender == "m" or adjective.before == "gran")
            before.append(TargetWord(adjective.before if short else form, (word,)))
        else:
            after.append(TargetWord(form, (word,)))
    forms = _DETERMINERS[determiner]
    form = forms[2 * plural + (noun.gender == "f")]
    # The feminine singular before a stressed a: el agua, un águila, but la gran águila.
    if noun.stressed_a and not plural and not before and determiner in ("the", "a"):
        form = forms[0]
    body = TargetWord(noun.spanish_plural if plural else noun.spanish, (head,))
    target = [TargetWord(form, (article,), (head,)), *before, body, *after]
    return Phrase([*source, head], target, "3p" if plural else "3s", noun.gender, noun.kind == "person")


def _owned(draws: RandomDraws, noun: Noun, plural: bool) -> Phrase:
    """Draws an owner for a noun: *the boy's dog*: *el perro del niño*."""
    owner = noun_phrase(draws, ["person"], plain=True)
    if owner.plural:
        owner = name(draws)
    whose = owner.source[-1]
    whose.text += "'s"
    head = SourceWord(noun.english_plural if plural else noun.english)
    forms = _DETERMINERS["the"]
    article = forms[0] if noun.stressed_a and not plural else forms[2 * plural + (noun.gender == "f")]
    target = [
        TargetWord(article, (), (head, whose, *owner.source[:-1])),
        TargetWord(noun.spanish_plural if plural else noun.spanish, (head,)),
        TargetWord("de", (), (whose,)),
        *owner.target,
    ]
    return Phrase([*owner.source, head], target, "3p" if plural else "3s", noun.gender, noun.kind == "person")


def with_personal_a(phrase: Phrase, verb: SourceWord) -> list[TargetWord]:
    """Returns the Spanish of a direct object: a person has *a* before it."""
    if not phrase.human:
        return phrase.target
    return [TargetWord("a", (), (verb, *phrase.source)), *phrase.target]


def finished(
    source: Iterable[SourceWord], target: Iterable[TargetWord], *, question: bool
) -> tuple[list[str], list[str], frozenset[Link], frozenset[Link]]:
    """Returns a sentence contracted, punctuated and capitalized: English words, Spanish words, sure links and possible
    links (every sure one is among them)."""
    english = [*source, SourceWord("?" if question else ".")]
    spanish = _contracted([*target, TargetWord(english[-1].text, (english[-1],))])
    if question:
        spanish.insert(0, TargetWord("¿", (), (english[-1], english[0])))
    words = [word.text for word in english]
    for at, word in enumerate(words[:-1]):
        if word == "a" and words[at + 1][0] in "aeiou":
            words[at] = "an"
    words[0] = words[0][0].upper() + words[0][1:]
    rendered = [word.text for word in spanish]
    first = int(question)
    rendered[first] = rendered[first][0].upper() + rendered[first][1:]
    position = {word: at for at, word in enumerate(english)}
    sure = {(position[word], at) for at, target in enumerate(spanish) for word in target.sure}
    possible = {(position[word], at) for at, target in enumerate(spanish) for word in target.possible}
    return words, rendered, frozenset(sure), frozenset(sure | possible)


def _contracted(words: list[TargetWord]) -> list[TargetWord]:
    """Contracts Spanish words: *a* + *el* is *al*, *de* + *el* is *del*; *y* is *e* before the sound of *i*."""
    result: list[TargetWord] = []
    for word in words:
        last = result[-1] if result else None
        if last is not None and word.text == "el" and last.text in ("a", "de"):
            sure = last.sure or word.sure
            possible = (*last.sure, *last.possible, *word.sure, *word.possible)
            result[-1] = TargetWord(last.text + "l", sure, possible)
            continue
        if last is not None and last.text == "y" and word.text.lower().startswith(("i", "hi")):
            last.text = "e"
        result.append(word)
    return result


def joined(words: Sequence[str]) -> str:
    """Returns words as text: a space before each, but not before ``.`` and ``?`` nor after ``¿``."""
    text = ""
    for word in words:
        text += word if not text or word in ".?" or text.endswith("¿") else f" {word}"
    return text
