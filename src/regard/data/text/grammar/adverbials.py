"""Where and when something happens, in both languages at once."""

from regard.data.text.grammar.phrases import RandomDraws, Source, Target, noun_phrase

# English, Spanish, the tenses that it goes with (None: all), and for each Spanish word the English word that it
# renders (None: none of them alone).
_Links = tuple[int | None, ...]
_LASTING = ("present", "can", "must", "want", "have")
_COMING = ("future", "going", "can", "must", "want", "have")
_WHEN: tuple[tuple[str, str, tuple[str, ...] | None, _Links], ...] = (
    ("today", "hoy", None, (0,)),
    ("every day", "todos los días", ("present", "used", "can", "must", "have"), (0, None, 1)),
    ("at night", "por la noche", None, (0, None, 1)),
    ("in the morning", "por la mañana", None, (0, 1, 2)),
    ("now", "ahora", ("progressive", *_LASTING), (0,)),
    ("yesterday", "ayer", ("past",), (0,)),
    ("last week", "la semana pasada", ("past",), (None, 1, 0)),
    ("last night", "anoche", ("past",), (1,)),
    ("tomorrow", "mañana", _COMING, (0,)),
    ("next week", "la próxima semana", _COMING, (None, 0, 1)),
)
_WHERE = (
    ("in", "en", ("place",)),
    ("near", "cerca de", ("place", "surface", "opening")),
    ("behind", "detrás de", ("place", "opening", "surface")),
    ("on", "sobre", ("surface",)),
    ("under", "debajo de", ("surface",)),
)


def where(draws: RandomDraws) -> tuple[list[Source], list[Target]]:
    """E.g. *in the garden*: *en el jardín*."""
    english, spanish, kinds = draws.choice(_WHERE)
    place = noun_phrase(draws, kinds, plain=draws.chance(0.7))
    preposition = Source(english)
    first, *others = spanish.split()
    target = [Target(first, (preposition,)), *(Target(word, (), (preposition,)) for word in others)]
    return [preposition, *place.source], [*target, *place.target]


def when(draws: RandomDraws, tense: str) -> tuple[list[Source], list[Target]]:
    """E.g. *last week*: *la semana pasada*."""
    english, spanish, _, links = draws.choice([row for row in _WHEN if row[2] is None or tense in row[2]])
    source = [Source(word) for word in english.split()]
    target = [
        Target(word, (), tuple(source)) if at is None else Target(word, (source[at],), tuple(source))
        for word, at in zip(spanish.split(), links, strict=True)
    ]
    return source, target
