"""Word forms of the bundled corpus: plurals, Spanish agreement, and the verbs of both languages."""

from dataclasses import dataclass, field
from functools import cache

TENSES = ("present", "preterite", "imperfect", "future", "conditional")
PERSONS = ("1s", "2s", "3s", "1p", "3p")
"""Persons of a verb; the plural "you" of Latin America takes the form of "they"."""

_STEM_ENDINGS = {
    "present": {"ar": "o as a amos an", "er": "o es e emos en", "ir": "o es e imos en"},
    "preterite": {"ar": "é aste ó amos aron", "er": "í iste ió imos ieron", "ir": "í iste ió imos ieron"},
    "imperfect": {"ar": "aba abas aba ábamos aban", "er": "ía ías ía íamos ían", "ir": "ía ías ía íamos ían"},
}
_INFINITIVE_ENDINGS = {"future": "é ás á emos án", "conditional": "ía ías ía íamos ían"}
_WITHOUT_ACCENT = str.maketrans("áéíóú", "aeiou")
_BEFORE_E = {"car": ("c", "qu"), "gar": ("g", "gu"), "zar": ("z", "c")}


@dataclass(frozen=True)
class SpanishVerb:
    """A Spanish verb and what is irregular in it.

    Attributes:
        infinitive: e.g. ``"dormir"``.
        change: the vowels that a stressed stem exchanges, e.g. ``"o>ue"``; ``""`` for none.
        first: the form of "I" in the present, e.g. ``"hago"``; ``""`` for the regular one.
        strong: the stem of a preterite stressed on the stem, e.g. ``"tuv"``; ``""`` for the regular one.
        future: the stem of future and conditional, e.g. ``"tendr"``; ``""`` for the infinitive.
        participle: e.g. ``"roto"``; ``""`` for the regular one.
        forms: whole tenses that follow no rule.
    """

    infinitive: str
    change: str = ""
    first: str = ""
    strong: str = ""
    future: str = ""
    participle: str = ""
    forms: dict[str, str] = field(default_factory=dict, hash=False)

    def conjugate(self, tense: str, person: str) -> str:
        """Returns the form of one of `TENSES` and one of `PERSONS`."""
        at = PERSONS.index(person)
        if tense in self.forms:
            return self.forms[tense].split()[at]
        if tense in _INFINITIVE_ENDINGS:
            return (self.future or self.infinitive) + _INFINITIVE_ENDINGS[tense].split()[at]
        stem, kind = self.infinitive[:-2], self.infinitive[-2:]
        if tense == "preterite":
            return self._preterite(stem, kind, at)
        if tense == "present":
            if at == 0 and self.first:
                return self.first
            if person != "1p":
                stem = self._changed(stem)
        return stem + _STEM_ENDINGS[tense][kind].split()[at]

    def _preterite(self, stem: str, kind: str, at: int) -> str:
        if self.strong:
            last = "eron" if self.strong.endswith("j") else "ieron"
            third = "hizo" if self.strong == "hic" else self.strong + "o"
            return [self.strong + "e", self.strong + "iste", third, self.strong + "imos", self.strong + last][at]
        if kind == "ar":
            if at == 0 and self.infinitive[-3:] in _BEFORE_E:
                old, new = _BEFORE_E[self.infinitive[-3:]]
                stem = stem.removesuffix(old) + new
        elif stem[-1] in "aeo":  # leer: leíste, leyó
            return [stem + "í", stem + "íste", stem + "yó", stem + "ímos", stem + "yeron"][at]
        elif kind == "ir" and at in (2, 4):
            stem = self._weakened(stem)
        return stem + _STEM_ENDINGS["preterite"][kind].split()[at]

    def gerund(self) -> str:
        """Returns e.g. ``"durmiendo"``."""
        stem, kind = self.infinitive[:-2], self.infinitive[-2:]
        if kind == "ar":
            return stem + "ando"
        if stem[-1] in "aeo":
            return stem + "yendo"
        return (self._weakened(stem) if kind == "ir" else stem) + "iendo"

    def past_participle(self) -> str:
        """Returns e.g. ``"dormido"``."""
        stem, kind = self.infinitive[:-2], self.infinitive[-2:]
        regular = stem + ("ado" if kind == "ar" else "ído" if stem[-1] in "aeo" else "ido")
        return self.participle or regular

    def _changed(self, stem: str) -> str:
        if not self.change:
            return stem
        old, new = self.change.split(">")
        before, _, after = stem.rpartition(old)
        return before + new + after

    def _weakened(self, stem: str) -> str:
        """Gives the stem of a verb in *-ir* the weak vowel of its change, as where it has no stress: *durmió*."""
        if not self.change:
            return stem
        old = self.change[0]
        before, _, after = stem.rpartition(old)
        return before + {"o": "u", "e": "i"}[old] + after


# Infinitive, irregular fields of `SpanishVerb`, and after each semicolon the forms of a tense that follows no rule.
_IRREGULAR_VERBS = """
ser; present soy eres es somos son; preterite fui fuiste fue fuimos fueron; imperfect era eras era éramos eran
estar strong=estuv; present estoy estás está estamos están
haber strong=hub future=habr; present he has ha hemos han
ir; present voy vas va vamos van; preterite fui fuiste fue fuimos fueron; imperfect iba ibas iba íbamos iban
tener change=e>ie first=tengo strong=tuv future=tendr
poder change=o>ue strong=pud future=podr
querer change=e>ie strong=quis future=querr
ver first=veo participle=visto; preterite vi viste vio vimos vieron; imperfect veía veías veía veíamos veían
dar first=doy; preterite di diste dio dimos dieron
traer first=traigo strong=traj
salir first=salgo future=saldr
decir change=e>i first=digo strong=dij future=dir participle=dicho
saber first=sé strong=sup future=sabr
conocer first=conozco
ofrecer first=ofrezco
proteger first=protejo
escribir participle=escrito
abrir participle=abierto
romper participle=roto
dormir change=o>ue
pedir change=e>i
jugar change=u>ue
cerrar change=e>ie
perder change=e>ie
entender change=e>ie
pensar change=e>ie
encontrar change=o>ue
recordar change=o>ue
soñar change=o>ue
mostrar change=o>ue
"""


@cache
def spanish_verb(infinitive: str) -> SpanishVerb:
    """Returns the verb, with its irregular forms."""
    for line in _IRREGULAR_VERBS.strip().splitlines():
        head, *tenses = line.split(";")
        name, *fields = head.split()
        if name == infinitive:
            forms = {tense: words for tense, _, words in (part.strip().partition(" ") for part in tenses)}
            return SpanishVerb(
                name, **{key: value for key, _, value in (field.partition("=") for field in fields)}, forms=forms
            )
    return SpanishVerb(infinitive)


@dataclass(frozen=True)
class EnglishVerb:
    """An English verb: base, past and participle, e.g. ``go went gone``; *for* is the particle of *look for*."""

    base: str
    past: str
    participle: str
    particle: str = ""

    def third(self) -> str:
        """Returns e.g. ``"goes"``."""
        irregular = {"have": "has", "do": "does", "go": "goes"}
        return irregular.get(self.base) or english_plural(self.base)

    def gerund(self) -> str:
        """Returns e.g. ``"swimming"``."""
        base = self.base
        if base.endswith("e") and not base.endswith("ee"):
            return base[:-1] + "ing"
        if base in ("run", "swim", "forget"):
            return base + base[-1] + "ing"
        return base + "ing"


@cache
def english_plural(word: str) -> str:
    """Returns the regular plural, which is also the third person of a regular verb."""
    if word.endswith(("s", "x", "ch", "sh", "z")) or word in ("tomato", "potato"):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


@cache
def spanish_plural(word: str) -> str:
    """Returns the regular plural of a noun or adjective."""
    if word.endswith("z"):
        return word[:-1] + "ces"
    if word[-1] in "aeiouáéó":
        return word + "s"
    # A final syllable that was marked as stressed is the last but one now, and needs no mark: león, leones.
    if word[-2] in "áéíóú" and word[-1] in "ns":
        word = word[:-2] + word[-2].translate(_WITHOUT_ACCENT) + word[-1]
    return word + "es"


@cache
def agree(adjective: str, gender: str, plural: bool) -> str:
    """Puts a Spanish adjective in masculine singular into the gender (``"m"`` or ``"f"``) and number of its noun."""
    word = adjective
    if gender == "f":
        if word.endswith("o"):
            word = word[:-1] + "a"
        elif word.endswith(("és", "án", "ín")):
            word = word[:-2] + word[-2].translate(_WITHOUT_ACCENT) + word[-1] + "a"
        elif word == "español":
            word = "española"
    if not plural:
        return word
    return "jóvenes" if word == "joven" else spanish_plural(word)
