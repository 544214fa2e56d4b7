"""A conjugated verb with its helpers, its negation and its adverb of frequency, in both languages at once."""

from dataclasses import dataclass

from regard.data.text.grammar.lexicon import Verb
from regard.data.text.grammar.morphology import EnglishVerb
from regard.data.text.grammar.phrases import Phrase, RandomDraws, Source, Target
from regard.data.text.grammar.spanish_verbs import spanish_verb

TENSES = (
    ("present", 5.0),
    ("past", 4.0),
    ("future", 2.0),
    ("progressive", 2.0),
    ("perfect", 1.5),
    ("conditional", 0.7),
    ("used", 0.7),
    ("can", 1.0),
    ("must", 0.7),
    ("want", 1.0),
    ("have", 0.8),
    ("going", 0.8),
)
"""Ways to put a verb, with their weights; each has one rendering, e.g. *comía* for *used to eat*."""

_BE = {"1s": "am", "3s": "is"}
_SIMPLE = {"present": "present", "past": "preterite"}
_INFINITIVES = {"can": "poder", "must": "deber", "want": "querer", "have": "tener", "going": "ir"}
_HOW_OFTEN = (("always", "siempre"), ("never", "nunca"), ("also", "también"), ("often", "frecuentemente"))


@dataclass(eq=False, slots=True)
class VerbGroup:
    """A verb and what comes with it.

    Attributes:
        helper: English words that a question puts before the subject; may be none.
        rest: the English words after helper and subject.
        before: the Spanish words before the clitics: *no*, *nunca*.
        finite: the Spanish words after the clitics: the conjugated verb, and an infinitive, gerund or participle.
        main: the English verb that carries the meaning, one of ``rest``.
    """

    helper: list[Source]
    rest: list[Source]
    before: list[Target]
    finite: list[Target]
    main: Source


def be(person: str) -> str:
    """The present of *to be*."""
    return _BE.get(person, "are")


def choose_tense(draws: RandomDraws, verb: Verb, *, asked: bool) -> str:
    """One of `TENSES` that the verb has."""
    while True:
        tense = draws.weighted(TENSES)
        # "They read" would be present and past at once, and Spanish tells them apart.
        ambiguous = tense == "past" and verb.english.base == verb.english.past
        if not (ambiguous or (verb.stative and tense == "progressive") or (asked and tense == "used")):
            return tense


def conjugated(
    verb: Verb, tense: str, subject: Phrase, draws: RandomDraws, *, asked: bool = False, plain: bool = False
) -> VerbGroup:
    """The verb in one of `TENSES`, agreeing with its subject.

    Args:
        verb: which verb.
        tense: one of the names in `TENSES`.
        subject: who does it.
        draws: chooses whether it is negated and how often it happens.
        asked: whether it stands in a question that puts the helper before the subject.
        plain: whether to leave out negation and adverb.
    """
    negated = not plain and tense != "used" and draws.chance(0.15)
    often = None if plain or negated or asked or not draws.chance(0.1) else draws.choice(_HOW_OFTEN)
    group = _helped(verb, tense, subject, supported=asked or negated)
    if negated and tense == "can" and not asked:
        group.helper[0].text = "cannot"
        group.before.append(Target("no", (group.helper[0],)))
    elif negated:
        no = Source("not")
        group.before.append(Target("no", (no,), tuple(group.helper)))
        group.rest.insert(0, no)
    if often:
        adverb = Source(often[0])
        group.before.append(Target(often[1], (adverb,)))
        group.rest.insert(0, adverb)
    if verb.english.particle:
        particle = Source(verb.english.particle)
        group.rest.append(particle)
        if not verb.preposition:
            word = next(word for word in group.finite if group.main in word.sure)
            word.possible = (*word.possible, particle)
    return group


def _helped(verb: Verb, tense: str, subject: Phrase, *, supported: bool) -> VerbGroup:
    english, spanish, person, dropped = verb.english, verb.spanish, subject.person, subject.dropped
    singular = person == "3s"
    base = Source(english.base)
    if tense in ("future", "conditional"):
        helper = [Source("will" if tense == "future" else "would")]
        return VerbGroup(
            helper, [base], [], [Target(spanish.conjugate(tense, person), (base,), (*helper, *dropped))], base
        )
    if tense in ("progressive", "perfect"):
        progressive = tense == "progressive"
        helper = [Source(be(person) if progressive else "has" if singular else "have")]
        main = Source(english.gerund() if progressive else english.participle)
        auxiliary = spanish_verb("estar" if progressive else "haber").conjugate("present", person)
        form = spanish.gerund() if progressive else spanish.past_participle()
        return VerbGroup(helper, [main], [], [Target(auxiliary, tuple(helper), dropped), Target(form, (main,))], main)
    if tense == "used":
        used = [Source("used"), Source("to")]
        form = spanish.conjugate("imperfect", person)
        return VerbGroup([], [*used, base], [], [Target(form, (base,), (*used, *dropped))], base)
    if tense in _SIMPLE:
        helper, main = _supported(english, tense == "past", singular, supported)
        form = spanish.conjugate(_SIMPLE[tense], person)
        return VerbGroup(helper, [main], [], [Target(form, (main,), (*helper, *dropped))], main)
    modal = spanish_verb(_INFINITIVES[tense]).conjugate("present", person)
    if tense in ("can", "must"):
        helper = [Source(tense)]
        return VerbGroup(
            helper, [base], [], [Target(modal, tuple(helper), dropped), Target(spanish.infinitive, (base,))], base
        )
    to = Source("to")
    if tense == "going":
        helper, word = [Source(be(person))], Source("going")
    else:
        helper, word = _supported(EnglishVerb(tense, "", ""), False, singular, supported)
    finite = [Target(modal, (word,), (*helper, *dropped)), Target(spanish.infinitive, (base,), (to,))]
    if tense != "want":
        finite.insert(1, Target("a" if tense == "going" else "que", (to,)))
    return VerbGroup(helper, [word, to, base], [], finite, base)


def _supported(verb: EnglishVerb, past: bool, singular: bool, supported: bool) -> tuple[list[Source], Source]:
    # A verb form of its own, or "do" with the base.
    if supported:
        return [Source("did" if past else "does" if singular else "do")], Source(verb.base)
    return [], Source(verb.past if past else verb.third() if singular else verb.base)
