"""The clauses of the bundled corpus in English and Spanish: verbs with their helpers, adverbials, and their clauses.

Spanish follows from English alone: subject pronouns are always dropped, object pronouns always stand before the
conjugated verb, adjectives after their noun (but *good* and *great*), and every tense has one rendering.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from regard.data.corpus_files import RandomDraws
from regard.data.text.grammar import lexicon
from regard.data.text.grammar.lexicon import ADJECTIVES, Verb
from regard.data.text.grammar.morphology import EnglishVerb, agree, spanish_verb
from regard.data.text.grammar.phrases import (
    DATIVES,
    PRONOUNS,
    Phrase,
    SourceWord,
    TargetWord,
    noun_phrase,
    pronoun,
    with_personal_a,
)

TENSES = (
    ("present", 5.0), ("past", 4.0), ("future", 2.0), ("progressive", 2.0), ("perfect", 1.5), ("conditional", 0.7),
    ("used", 0.7), ("can", 1.0), ("must", 0.7), ("want", 1.0), ("have", 0.8), ("going", 0.8),
)  # fmt: skip
"""Ways to put a verb, with their weights; each has one rendering, e.g. *comía* for *used to eat*."""

_FORMS_OF_BE = {"1s": "am", "2s": "are", "3s": "is", "1p": "are", "3p": "are"}
_ONE_WORD_TENSES = {
    "present": "present",
    "past": "preterite",
    "used": "imperfect",
    "future": "future",
    "conditional": "conditional",
}
"""English tenses that are one word in Spanish, and its tense."""
_AUXILIARIES = {
    "progressive": "estar", "perfect": "haber", "can": "poder", "must": "deber", "want": "querer", "have": "tener",
    "going": "ir",
}  # fmt: skip
_HOW_OFTEN = (("always", "siempre"), ("never", "nunca"), ("also", "también"), ("often", "frecuentemente"))


@dataclass(eq=False)
class VerbGroup:
    """A verb and what comes with it.

    Attributes:
        helper: English words that a question puts before the subject; may be none.
        rest: the English words after helper and subject.
        before: the Spanish words before the clitics: *no*, *nunca*.
        finite: the Spanish words after the clitics: the conjugated verb, and an infinitive, gerund or participle.
        main: the English verb that carries the meaning, one of ``rest``.
    """

    helper: list[SourceWord]
    rest: list[SourceWord]
    before: list[TargetWord]
    finite: list[TargetWord]
    main: SourceWord


def choose_tense(draws: RandomDraws, verb: Verb, *, question: bool) -> str:
    """Draws one of the `TENSES` that the verb has."""
    while True:
        tense = draws.weighted(TENSES)
        # "They read" would be present and past at once, and Spanish tells them apart.
        ambiguous = tense == "past" and verb.english.base == verb.english.past
        if not (ambiguous or (verb.stative and tense == "progressive") or (question and tense == "used")):
            return tense


def conjugated(
    verb: Verb, tense: str, subject: Phrase, draws: RandomDraws, *, question: bool = False, plain: bool = False
) -> VerbGroup:
    """Returns the verb in one of `TENSES`, agreeing with its subject, perhaps negated and with an adverb unless it is
    ``plain``; ``question`` puts the helper before the subject."""
    negated = not plain and tense != "used" and draws.chance(0.15)
    often = None if plain or negated or question or not draws.chance(0.1) else draws.choice(_HOW_OFTEN)
    group = _helped(verb, tense, subject, supported=question or negated)
    if negated and tense == "can" and not question:
        group.helper[0].text = "cannot"
        group.before.append(TargetWord("no", (group.helper[0],)))
    elif negated:
        no = SourceWord("not")
        group.before.append(TargetWord("no", (no,), tuple(group.helper)))
        group.rest.insert(0, no)
    if often:
        adverb = SourceWord(often[0])
        group.before.append(TargetWord(often[1], (adverb,)))
        group.rest.insert(0, adverb)
    if verb.english.particle:
        particle = SourceWord(verb.english.particle)
        group.rest.append(particle)
        if not verb.preposition:
            word = next(word for word in group.finite if group.main in word.sure)
            word.possible = (*word.possible, particle)
    return group


def _helped(verb: Verb, tense: str, subject: Phrase, *, supported: bool) -> VerbGroup:
    english, spanish, person, dropped = verb.english, verb.spanish, subject.person, subject.dropped
    singular = person == "3s"
    base, to = SourceWord(english.base), SourceWord("to")
    if tense in _ONE_WORD_TENSES:
        if tense == "used":
            helper, rest = [], [SourceWord("used"), to, base]
        elif tense in ("future", "conditional"):
            helper, rest = [SourceWord("will" if tense == "future" else "would")], [base]
        else:
            helper, word = _supported(english, tense == "past", singular, supported)
            rest = [word]
        form = spanish.conjugate(_ONE_WORD_TENSES[tense], person)
        return VerbGroup(helper, rest, [], [TargetWord(form, rest[-1:], (*helper, *rest[:-1], *dropped))], rest[-1])
    auxiliary = spanish_verb(_AUXILIARIES[tense]).conjugate("present", person)
    if tense in ("progressive", "perfect", "can", "must"):
        helping = {"progressive": _FORMS_OF_BE[person], "perfect": "has" if singular else "have"}.get(tense, tense)
        main = SourceWord({"progressive": english.gerund(), "perfect": english.participle}.get(tense, english.base))
        form = {"progressive": spanish.gerund(), "perfect": spanish.past_participle()}.get(tense, spanish.infinitive)
        helper = [SourceWord(helping)]
        return VerbGroup(helper, [main], [], [TargetWord(auxiliary, helper, dropped), TargetWord(form, (main,))], main)
    if tense == "going":
        helper, word = [SourceWord(_FORMS_OF_BE[person])], SourceWord("going")
    else:
        helper, word = _supported(EnglishVerb(tense, "", ""), False, singular, supported)
    finite = [TargetWord(auxiliary, (word,), (*helper, *dropped)), TargetWord(spanish.infinitive, (base,), (to,))]
    if tense != "want":
        finite.insert(1, TargetWord("a" if tense == "going" else "que", (to,)))
    return VerbGroup(helper, [word, to, base], [], finite, base)


def _supported(verb: EnglishVerb, past: bool, singular: bool, supported: bool) -> tuple[list[SourceWord], SourceWord]:
    """Returns a helper and a verb form: the verb's own form without a helper, or *do* and the base."""
    if supported:
        return [SourceWord("did" if past else "does" if singular else "do")], SourceWord(verb.base)
    return [], SourceWord(verb.past if past else verb.third() if singular else verb.base)


# English, Spanish, the tenses that it goes with (None: all), and for each Spanish word the English word that it
# renders (None: none of them alone).
_Links = tuple[int | None, ...]
_LASTING_TENSES = ("present", "can", "must", "want", "have")
_COMING_TENSES = ("future", "going", "can", "must", "want", "have")
_WHEN: tuple[tuple[str, str, tuple[str, ...] | None, _Links], ...] = (
    ("today", "hoy", None, (0,)),
    ("every day", "todos los días", ("present", "used", "can", "must", "have"), (0, None, 1)),
    ("at night", "por la noche", None, (0, None, 1)),
    ("in the morning", "por la mañana", None, (0, 1, 2)),
    ("now", "ahora", ("progressive", *_LASTING_TENSES), (0,)),
    ("yesterday", "ayer", ("past",), (0,)),
    ("last week", "la semana pasada", ("past",), (None, 1, 0)),
    ("last night", "anoche", ("past",), (1,)),
    ("tomorrow", "mañana", _COMING_TENSES, (0,)),
    ("next week", "la próxima semana", _COMING_TENSES, (None, 0, 1)),
)
_WHERE = (
    ("in", "en", ("place",)),
    ("near", "cerca de", ("place", "surface", "opening")),
    ("behind", "detrás de", ("place", "opening", "surface")),
    ("on", "sobre", ("surface",)),
    ("under", "debajo de", ("surface",)),
)


def where(draws: RandomDraws) -> tuple[list[SourceWord], list[TargetWord]]:
    """Draws an adverbial of place, e.g. *in the garden*: *en el jardín*."""
    english, spanish, kinds = draws.choice(_WHERE)
    place = noun_phrase(draws, kinds, plain=draws.chance(0.7))
    preposition = SourceWord(english)
    first, *others = spanish.split()
    target = [TargetWord(first, (preposition,)), *(TargetWord(word, (), (preposition,)) for word in others)]
    return [preposition, *place.source], [*target, *place.target]


def when(draws: RandomDraws, tense: str) -> tuple[list[SourceWord], list[TargetWord]]:
    """Draws an adverbial of time, e.g. *last week*: *la semana pasada*."""
    english, spanish, _, links = draws.choice([row for row in _WHEN if row[2] is None or tense in row[2]])
    source = [SourceWord(word) for word in english.split()]
    target = [
        TargetWord(word, (), tuple(source)) if at is None else TargetWord(word, (source[at],), tuple(source))
        for word, at in zip(spanish.split(), links, strict=True)
    ]
    return source, target


@dataclass(eq=False)
class Clause:
    """A clause in both languages, in the parts that a question reorders.

    Attributes:
        subject: who does it.
        helper: English words that a question puts before the subject; may be none.
        rest: the English words after helper and subject.
        predicate: the Spanish words that a question puts before the subject.
        tail: the Spanish words after them.
        tense: one of the names in `TENSES`.
        accepts_place: whether an adverbial of place can be added.
    """

    subject: Phrase
    helper: list[SourceWord]
    rest: list[SourceWord]
    predicate: list[TargetWord]
    tail: list[TargetWord]
    tense: str
    accepts_place: bool = False

    def statement(self) -> tuple[list[SourceWord], list[TargetWord]]:
        """Puts the subject first."""
        source, target = [*self.subject.source, *self.helper, *self.rest], [*self.subject.target, *self.predicate]
        return source, [*target, *self.tail]

    def question(self) -> tuple[list[SourceWord], list[TargetWord]]:
        """Puts the helper first in English, the predicate first in Spanish."""
        source, target = [*self.helper, *self.subject.source, *self.rest], [*self.predicate, *self.subject.target]
        return source, [*target, *self.tail]


def subject_of(draws: RandomDraws) -> Phrase:
    """Draws a person: a pronoun or a noun phrase."""
    return pronoun(draws) if draws.chance(0.35) else noun_phrase(draws, ["person"])


def _object_pronoun(draws: RandomDraws, subject: Phrase, people: bool, things: bool) -> Phrase:
    """Draws an object pronoun, whose Spanish is its clitic, but no reflexive one: *I see us*, *you see you all*."""
    options = [row for row in PRONOUNS if people and (row[1][0] == "3" or row[1][0] != subject.person[0])]
    if subject.source[0].text == "you":
        options = [row for row in options if row[0] not in ("you", "you all")]
    words = [(row[3], row[1], row[2], row[4]) for row in options]
    if things:
        words += [("it", "3s", "m", "lo"), ("them", "3p", "m", "los")]
    word, person, gender, clitic = draws.choice(words)
    source = [SourceWord(part) for part in word.split()]
    return Phrase(source, [TargetWord(clitic, (source[0],), tuple(source[1:]))], person, gender, people)


def predicate(
    draws: RandomDraws, verbs: Sequence[Verb], question: bool, subject: Phrase | None = None, plain: bool = False
) -> tuple[Verb, Phrase, str, VerbGroup]:
    """Draws one of the verbs, its subject (unless it is given) and its tense, and conjugates it."""
    verb = draws.choice(verbs)
    subject = subject or subject_of(draws)
    tense = choose_tense(draws, verb, question=question)
    return verb, subject, tense, conjugated(verb, tense, subject, draws, question=question, plain=plain)


def transitive(
    draws: RandomDraws, question: bool = False, subject: Phrase | None = None, plain: bool = False
) -> Clause:
    """Draws e.g. *the girl sees the cat / sees it*: *la niña ve el gato / lo ve*."""
    verb, subject, tense, group = predicate(draws, lexicon.TRANSITIVE, question, subject, plain)
    clitics, tail = [], []
    if draws.chance(0.25):
        people = "person" in verb.objects
        seen = _object_pronoun(draws, subject, people, set(verb.objects) != {"person"})
        clitics = seen.target
    else:
        seen = noun_phrase(draws, verb.objects, plain=plain)
        tail = with_personal_a(seen, group.main)
    clause = _clause(subject, group, clitics, seen.source, tail, tense)
    clause.accepts_place = not plain
    return clause


def governing(draws: RandomDraws, *, question: bool = False) -> Clause:
    """Draws e.g. *the girl thinks about the school*: *la niña piensa en la escuela*."""
    verb, subject, tense, group = predicate(draws, lexicon.GOVERNING, question)
    other = noun_phrase(draws, verb.objects)
    particle = group.rest[-1] if verb.english.particle else None
    link = TargetWord(verb.preposition, (particle,)) if particle else TargetWord(verb.preposition, (), (group.main,))
    return _clause(subject, group, [], other.source, [link, *other.target], tense)


def intransitive(
    draws: RandomDraws, question: bool = False, subject: Phrase | None = None, plain: bool = False
) -> Clause:
    """Draws e.g. *the girl sleeps in the garden*: *la niña duerme en el jardín*."""
    verb, subject, tense, group = predicate(draws, lexicon.INTRANSITIVE, question, subject, plain)
    source, tail = where(draws) if not plain and (verb.stative or draws.chance(0.7)) else ([], [])
    return _clause(subject, group, [], source, tail, tense)


def giving(draws: RandomDraws, *, question: bool = False) -> Clause:
    """Draws e.g. *she gives the book to the boy / gives it to him*: *le da el libro al niño / se lo da*."""
    _, subject, tense, group = predicate(draws, lexicon.GIVING, question)
    by_pronoun = draws.chance(0.5)
    receiver = _object_pronoun(draws, subject, True, False) if by_pronoun else noun_phrase(draws, ["person"])
    replaced = draws.chance(0.25)
    if replaced:
        gift = _object_pronoun(draws, subject, False, True)
    else:
        gift = noun_phrase(draws, ["text", "thing", "clothes", "food"], plain=by_pronoun)
    to = SourceWord("to")
    dative = DATIVES[receiver.person]
    if replaced and dative in ("le", "les"):
        dative = "se"
    links = (tuple(receiver.source[:1]), (*receiver.source[1:], to)) if by_pronoun else ((), (to, *receiver.source))
    clitics = [TargetWord(dative, *links), *(gift.target if replaced else [])]
    tail = [] if replaced else list(gift.target)
    if not by_pronoun:
        tail += [TargetWord("a", (to,)), *receiver.target]
    # "gives me the book" as well as "gives the book to me"
    shifted = by_pronoun and not replaced and draws.chance(0.5)
    source = [*receiver.source, *gift.source] if shifted else [*gift.source, to, *receiver.source]
    if shifted:
        clitics[0].possible = tuple(receiver.source[1:])
    return _clause(subject, group, clitics, source, tail, tense)


def liking(draws: RandomDraws, *, question: bool = False) -> Clause:
    """Draws e.g. *the boy likes the books*: *al niño le gustan los libros*."""
    subject = subject_of(draws)
    tense = draws.weighted((("present", 3.0), ("past", 1.0), ("future", 1.0)))
    liked = noun_phrase(draws, ["animal", "food", "text", "thing", "vehicle", "clothes", "place"])
    verb = Verb(EnglishVerb("like", "liked", "liked"), spanish_verb("gustar"))
    group = conjugated(verb, tense, subject, draws, question=question)
    word = group.finite[0]
    tenses = {"present": "present", "past": "preterite", "future": "future"}
    word.text = verb.spanish.conjugate(tenses[tense], liked.person)
    word.possible = tuple(group.helper)
    dative = TargetWord(DATIVES[subject.person], subject.dropped[:1], subject.dropped[1:] or tuple(subject.source))
    experiencer = [TargetWord("a", (), tuple(subject.source)), *subject.target] if subject.target else []
    moved = Phrase(subject.source, experiencer, subject.person, subject.gender, True)
    predicate = [*group.before, dative, *group.finite]
    clause = Clause(moved, group.helper, [*group.rest, *liked.source], predicate, liked.target, tense)
    if question:
        # ¿Le gustan los libros al niño?
        clause.predicate, clause.tail = [*predicate, *liked.target], []
    return clause


def being(draws: RandomDraws, *, question: bool = False) -> Clause:
    """Draws e.g. *the house is very big / is near the park*: *la casa es muy grande / está cerca del parque*."""
    kind = draws.choice(("person", "animal", "food", "text", "thing", "vehicle", "clothes", "place", "opening"))
    subject = subject_of(draws) if kind == "person" else noun_phrase(draws, [kind], plain=True)
    tense = draws.weighted((("present", 3.0), ("past", 2.0), ("future", 1.0)))
    past = "was" if subject.person in ("1s", "3s") else "were"
    helper = [SourceWord({"present": _FORMS_OF_BE[subject.person], "past": past, "future": "will"}[tense])]
    rest = [SourceWord("be")] if tense == "future" else []
    before = []
    if draws.chance(0.15):
        no = SourceWord("not")
        before.append(TargetWord("no", (no,)))
        rest.insert(0, no)
    if kind in ("person", "animal", "thing", "vehicle", "text") and draws.chance(0.35):
        copula = "estar"
        source, tail = where(draws)
    else:
        adjective = draws.choice([row for row in ADJECTIVES if kind in row.kinds and not row.before])
        copula, source, tail = adjective.copula, [], []
        if adjective.gradable and draws.chance(0.3):
            source.append(SourceWord("very"))
            tail.append(TargetWord("muy", (source[0],)))
        source.append(SourceWord(adjective.english))
        tail.append(TargetWord(agree(adjective.spanish, subject.gender, subject.plural), (source[-1],)))
    form = spanish_verb(copula).conjugate({"past": "imperfect"}.get(tense, tense), subject.person)
    word = rest[-1] if tense == "future" else helper[0]
    finite = TargetWord(form, (word,), (*helper, *subject.dropped))
    return Clause(subject, helper, [*rest, *source], [*before, finite], tail, tense)


def _clause(
    subject: Phrase,
    group: VerbGroup,
    clitics: list[TargetWord],
    source: list[SourceWord],
    tail: list[TargetWord],
    tense: str,
) -> Clause:
    predicate = [*group.before, *clitics, *group.finite]
    return Clause(subject, group.helper, [*group.rest, *source], predicate, tail, tense)


CLAUSES: tuple[tuple[Callable[..., Clause], float], ...] = (
    (transitive, 5.0),
    (intransitive, 2.0),
    (governing, 1.5),
    (giving, 1.5),
    (liking, 1.2),
    (being, 3.0),
)
