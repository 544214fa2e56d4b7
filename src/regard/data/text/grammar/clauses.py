"""The clauses of the bundled corpus: in English and Spanish.

Spanish follows from English alone: subject pronouns are always dropped, object pronouns always stand before the
conjugated verb, adjectives after their noun (but *good* and *great*), and every tense has one rendering.
"""

from collections.abc import Callable
from dataclasses import dataclass

from regard.data.text.grammar import lexicon
from regard.data.text.grammar.adverbials import where
from regard.data.text.grammar.lexicon import ADJECTIVES, Verb
from regard.data.text.grammar.morphology import EnglishVerb, agree
from regard.data.text.grammar.phrases import (
    DATIVES,
    PRONOUNS,
    Phrase,
    RandomDraws,
    Source,
    Target,
    noun_phrase,
    pronoun,
    with_personal_a,
)
from regard.data.text.grammar.spanish_verbs import spanish_verb
from regard.data.text.grammar.verb_groups import VerbGroup, be, choose_tense, conjugated


@dataclass(eq=False, slots=True)
class Clause:
    """A clause in both languages, in the parts that a question reorders.

    Attributes:
        subject: who does it.
        helper: English words that a question puts before the subject; may be none.
        rest: the English words after helper and subject.
        predicate: the Spanish words that a question puts before the subject.
        tail: the Spanish words after them.
        tense: one of the names in `regard.data.text.grammar.verb_groups.TENSES`.
        accepts_place: whether an adverbial of place can be added.
    """

    subject: Phrase
    helper: list[Source]
    rest: list[Source]
    predicate: list[Target]
    tail: list[Target]
    tense: str
    accepts_place: bool = False

    def statement(self) -> tuple[list[Source], list[Target]]:
        """Subject first."""
        return (
            [*self.subject.source, *self.helper, *self.rest],
            [*self.subject.target, *self.predicate, *self.tail],
        )

    def question(self) -> tuple[list[Source], list[Target]]:
        """Helper first in English, predicate first in Spanish."""
        return (
            [*self.helper, *self.subject.source, *self.rest],
            [*self.predicate, *self.subject.target, *self.tail],
        )


def subject_of(draws: RandomDraws) -> Phrase:
    """Somebody: a pronoun or a noun phrase."""
    return pronoun(draws) if draws.chance(0.35) else noun_phrase(draws, ["person"])


def _object_pronoun(draws: RandomDraws, subject: Phrase, people: bool, things: bool) -> Phrase:
    # Its Spanish is its clitic. Reflexive objects are left out: "I see us", "you see you all".
    options = [row for row in PRONOUNS if people and (row[1][0] == "3" or row[1][0] != subject.person[0])]
    if subject.source[0].text == "you":
        options = [row for row in options if row[0] not in ("you", "you all")]
    words = [(row[3], row[1], row[2], row[4]) for row in options]
    if things:
        words += [("it", "3s", "m", "lo"), ("them", "3p", "m", "los")]
    word, person, gender, clitic = draws.choice(words)
    source = [Source(part) for part in word.split()]
    return Phrase(source, [Target(clitic, (source[0],), tuple(source[1:]))], person, gender, people)


def transitive(
    draws: RandomDraws, *, asked: bool = False, subject: Phrase | None = None, plain: bool = False
) -> Clause:
    """The girl sees the cat / sees it: la niña ve el gato / lo ve."""
    verb = draws.choice(lexicon.TRANSITIVE)
    subject = subject or subject_of(draws)
    tense = choose_tense(draws, verb, asked=asked)
    group = conjugated(verb, tense, subject, draws, asked=asked, plain=plain)
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


def governing(draws: RandomDraws, *, asked: bool = False) -> Clause:
    """The girl thinks about the school: la niña piensa en la escuela."""
    verb = draws.choice(lexicon.GOVERNING)
    subject = subject_of(draws)
    tense = choose_tense(draws, verb, asked=asked)
    group = conjugated(verb, tense, subject, draws, asked=asked)
    other = noun_phrase(draws, verb.objects)
    particle = group.rest[-1] if verb.english.particle else None
    link = Target(verb.preposition, (particle,)) if particle else Target(verb.preposition, (), (group.main,))
    return _clause(subject, group, [], other.source, [link, *other.target], tense)


def intransitive(
    draws: RandomDraws, *, asked: bool = False, subject: Phrase | None = None, plain: bool = False
) -> Clause:
    """The girl sleeps in the garden: la niña duerme en el jardín."""
    verb = draws.choice(lexicon.INTRANSITIVE)
    subject = subject or subject_of(draws)
    tense = choose_tense(draws, verb, asked=asked)
    group = conjugated(verb, tense, subject, draws, asked=asked, plain=plain)
    source, tail = where(draws) if not plain and (verb.stative or draws.chance(0.7)) else ([], [])
    return _clause(subject, group, [], source, tail, tense)


def giving(draws: RandomDraws, *, asked: bool = False) -> Clause:
    """She gives the book to the boy / gives it to him: le da el libro al niño / se lo da."""
    verb = draws.choice(lexicon.GIVING)
    subject = subject_of(draws)
    tense = choose_tense(draws, verb, asked=asked)
    group = conjugated(verb, tense, subject, draws, asked=asked)
    by_pronoun = draws.chance(0.5)
    receiver = _object_pronoun(draws, subject, True, False) if by_pronoun else noun_phrase(draws, ["person"])
    replaced = draws.chance(0.25)
    if replaced:
        gift = _object_pronoun(draws, subject, False, True)
    else:
        gift = noun_phrase(draws, ["text", "thing", "clothes", "food"], plain=by_pronoun)
    to = Source("to")
    dative = DATIVES[receiver.person]
    if replaced and dative in ("le", "les"):
        dative = "se"
    links = (tuple(receiver.source[:1]), (*receiver.source[1:], to)) if by_pronoun else ((), (to, *receiver.source))
    clitics = [Target(dative, *links), *(gift.target if replaced else [])]
    tail = [] if replaced else list(gift.target)
    if not by_pronoun:
        tail += [Target("a", (to,)), *receiver.target]
    # "gives me the book" beside "gives the book to me"
    shifted = by_pronoun and not replaced and draws.chance(0.5)
    source = [*receiver.source, *gift.source] if shifted else [*gift.source, to, *receiver.source]
    if shifted:
        clitics[0].possible = tuple(receiver.source[1:])
    return _clause(subject, group, clitics, source, tail, tense)


def liking(draws: RandomDraws, *, asked: bool = False) -> Clause:
    """The boy likes the books: al niño le gustan los libros."""
    subject = subject_of(draws)
    tense = draws.weighted((("present", 3.0), ("past", 1.0), ("future", 1.0)))
    liked = noun_phrase(draws, ["animal", "food", "text", "thing", "vehicle", "clothes", "place"])
    verb = Verb(EnglishVerb("like", "liked", "liked"), spanish_verb("gustar"))
    group = conjugated(verb, tense, subject, draws, asked=asked)
    word = group.finite[0]
    tenses = {"present": "present", "past": "preterite", "future": "future"}
    word.text = verb.spanish.conjugate(tenses[tense], liked.person)
    word.possible = tuple(group.helper)
    dative = Target(DATIVES[subject.person], subject.dropped[:1], subject.dropped[1:] or tuple(subject.source))
    experiencer = [Target("a", (), tuple(subject.source)), *subject.target] if subject.target else []
    moved = Phrase(subject.source, experiencer, subject.person, subject.gender, True)
    predicate = [*group.before, dative, *group.finite]
    clause = Clause(moved, group.helper, [*group.rest, *liked.source], predicate, liked.target, tense)
    if asked:
        # ¿Le gustan los libros al niño?
        clause.predicate, clause.tail = [*predicate, *liked.target], []
    return clause


def being(draws: RandomDraws, *, asked: bool = False) -> Clause:
    """The house is very big / is near the park: la casa es muy grande / está cerca del parque."""
    kind = draws.choice(("person", "animal", "food", "text", "thing", "vehicle", "clothes", "place", "opening"))
    subject = subject_of(draws) if kind == "person" else noun_phrase(draws, [kind], plain=True)
    tense = draws.weighted((("present", 3.0), ("past", 2.0), ("future", 1.0)))
    past = "was" if subject.person in ("1s", "3s") else "were"
    helper = [Source({"present": be(subject.person), "past": past, "future": "will"}[tense])]
    rest = [Source("be")] if tense == "future" else []
    before = []
    if draws.chance(0.15):
        no = Source("not")
        before.append(Target("no", (no,)))
        rest.insert(0, no)
    if kind in ("person", "animal", "thing", "vehicle", "text") and draws.chance(0.35):
        copula = "estar"
        source, tail = where(draws)
    else:
        adjective = draws.choice([row for row in ADJECTIVES if kind in row.kinds and not row.before])
        copula, source, tail = adjective.copula, [], []
        if adjective.gradable and draws.chance(0.3):
            source.append(Source("very"))
            tail.append(Target("muy", (source[0],)))
        source.append(Source(adjective.english))
        tail.append(Target(agree(adjective.spanish, subject.gender, subject.plural), (source[-1],)))
    form = spanish_verb(copula).conjugate({"past": "imperfect"}.get(tense, tense), subject.person)
    word = rest[-1] if tense == "future" else helper[0]
    finite = Target(form, (word,), (*helper, *subject.dropped))
    return Clause(subject, helper, [*rest, *source], [*before, finite], tail, tense)


def _clause(
    subject: Phrase, group: VerbGroup, clitics: list[Target], source: list[Source], tail: list[Target], tense: str
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
