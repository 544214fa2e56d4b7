import itertools

import pytest

from regard.data.text.alignment import Alignment
from regard.data.text.generated import FEWEST_WORDS, MOST_WORDS, generate, write_corpus
from regard.data.text.grammar import lexicon
from regard.data.text.grammar.morphology import agree, english_plural, spanish_plural, spanish_verb
from regard.data.text.sources import open_pairs
from regard.data.text.words import split_words
from regard.errors import ArgumentError, DataError

PAIRS = list(generate(4001, 11))


def rendered(pair, target_word):
    return {pair.source_words[s] for s, t in pair.sure if t == target_word}


def test_a_seed_is_a_corpus():
    assert list(generate(53, 11)) == PAIRS[:53]
    assert list(generate(53, 12)) != PAIRS[:53]
    assert list(generate(7, 11, start=31)) == PAIRS[31:38]
    assert list(generate(0, 11)) == []
    for arguments in ({"size": -1}, {"size": 1, "start": -1}):
        with pytest.raises(ArgumentError, match="size and start must be at least 0"):
            generate(**arguments, seed=0)


def test_spanish_is_a_function_of_english():
    known = {}
    for pair in itertools.chain(PAIRS, generate(4001, 12)):
        assert known.setdefault(pair.source, pair.target) == pair.target


def test_there_is_variety():
    nouns = [noun.english for kind in lexicon.NOUNS.values() for noun in kind]
    assert len(nouns) == len(set(nouns))
    verbs = {
        (verb.english.base, verb.english.particle)
        for table in (lexicon.TRANSITIVE, lexicon.GOVERNING, lexicon.INTRANSITIVE, lexicon.GIVING)
        for verb in table
    }
    assert len(nouns) + len(lexicon.ADJECTIVES) + len(verbs) >= 250
    assert len({pair.source for pair in PAIRS}) > 0.98 * len(PAIRS)
    words = {word.lower() for pair in PAIRS for word in pair.source_words}
    assert set(nouns) <= words | {english_plural(noun) for noun in nouns}


@pytest.mark.parametrize("word", ["english", "spanish"])
def test_every_english_word_form_has_one_spanish(word):
    adjectives = [getattr(adjective, word) for adjective in lexicon.ADJECTIVES]
    if word == "english":
        assert len(adjectives) == len(set(adjectives))


def test_sentences_are_words_and_marks():
    for pair in PAIRS:
        assert FEWEST_WORDS <= len(pair.source_words) - 1 <= MOST_WORDS
        assert split_words(pair.source) == list(pair.source_words)
        assert split_words(pair.target) == list(pair.target_words)
        assert pair.source[0].isupper()
        assert pair.source[-1] in ".?"
        assert (pair.target[0] == "¿") == (pair.source[-1] == "?")
        assert pair.target.lstrip("¿")[0].isupper()
        assert "  " not in pair.source + pair.target


def test_every_target_word_is_linked_within_range():
    for pair in PAIRS:
        assert pair.sure <= pair.possible
        assert {target for _, target in pair.possible} == set(range(len(pair.target_words)))
        assert all(0 <= source < len(pair.source_words) for source, _ in pair.possible)
        assert sorted(pair.alignment) == sorted(pair.possible)


def test_unlinked_words_are_few_kinds():
    loose = {
        pair.target_words[t].lower()
        for pair in PAIRS
        for t in range(len(pair.target_words))
        if all(target != t for _, target in pair.sure)
    }
    # personal a, doubled datives, the second words of "cerca de" and the like, the article of "el perro del niño"
    assert loose <= {"¿", "a", "al", "le", "les", "se", "de", "en", "el", "la", "los", "las", "por"}


ENGLISH = {form for kind in lexicon.NOUNS.values() for noun in kind for form in (noun.english, noun.english_plural)}


def test_adjectives_cross_their_nouns():
    crossing = 0
    for pair in PAIRS:
        links = sorted(pair.sure)
        crossing += any(t1 > t2 for (s1, t1), (s2, t2) in itertools.combinations(links, 2) if s1 < s2)
    assert crossing > 0.4 * len(PAIRS)
    checked = 0
    for pair in PAIRS:
        for at, (word, following) in enumerate(itertools.pairwise(pair.source_words)):
            if word == "red" and following in ENGLISH:
                checked += 1
                (adjective,) = (t for s, t in pair.sure if s == at)
                (noun,) = (t for s, t in pair.sure if s == at + 1)
                assert adjective == noun + 1
                assert pair.target_words[adjective] in ("rojo", "roja", "rojos", "rojas")
    assert checked > 10


GENDERS = {
    form: noun.gender
    for kind in lexicon.NOUNS.values()
    for noun in kind
    for form in (noun.spanish, noun.spanish_plural)
}
STRESSED = {noun.spanish for kind in lexicon.NOUNS.values() for noun in kind if noun.stressed_a}
ARTICLES = {"la": "f", "las": "f", "los": "m", "una": "f", "un": "m", "el": "m", "al": "m", "del": "m", "muchas": "f"}


def test_articles_agree_with_the_noun_behind_them():
    checked = 0
    for pair in PAIRS:
        for at, (article, noun) in enumerate(itertools.pairwise(word.lower() for word in pair.target_words)):
            # "los cocina" may be "cooks them" as well
            if article in ARTICLES and rendered(pair, at + 1) & ENGLISH and noun in GENDERS:
                checked += 1
                if noun in STRESSED:
                    assert ARTICLES[article] == "m"
                else:
                    assert ARTICLES[article] == GENDERS[noun], pair.target
    assert checked > 2000


def test_verbs_agree_with_the_person_of_a_dropped_subject():
    endings = {"i": "é", "you": "ás", "he": "á", "she": "á", "we": "emos", "they": "án", "you all": "án"}
    checked = 0
    for pair in PAIRS:
        words = list(pair.source_words)
        subject = " ".join(words[: 2 if words[1] == "all" else 1])
        verb = len(subject.split())
        if subject.lower() in endings and words[verb] == "will" and words[verb + 1] not in ("like", "not", "be"):
            main = verb + 1 + (words[verb + 1] in ("always", "never", "also", "often"))
            forms = [pair.target_words[t] for s, t in pair.sure if s == main]
            if words[main] != "like":
                checked += 1
                assert len(forms) == 1
                assert forms[0].endswith(endings[subject.lower()]), pair
    assert checked > 30


def test_object_pronouns_stand_before_the_verb():
    checked = 0
    for pair in PAIRS:
        for s, t in pair.sure:
            if pair.source_words[s] in ("it", "them") and pair.target_words[t].lower() in ("lo", "los"):
                checked += 1
                assert pair.target_words[t + 1].lower() not in ARTICLES
                verbs = [v for source, v in pair.sure if source == s - 1]
                assert not verbs or min(verbs) > t or pair.target_words[t - 1].lower() in ["me", "te", "se", "nos"]
    assert checked > 100


def test_generated_spanish_contracts_articles():
    for pair in PAIRS:
        words = [word.lower() for word in pair.target_words]
        assert ("a", "el") not in itertools.pairwise(words)
        assert ("de", "el") not in itertools.pairwise(words)


def test_dropped_pronouns_are_possible_links_of_the_verb():
    pair = next(pair for pair in PAIRS if pair.source_words[0] == "We" and pair.source_words[1] == "will")
    assert all(source != 0 for source, _ in pair.sure)
    assert any(source == 0 for source, _ in pair.possible)


@pytest.mark.parametrize(
    ("verb", "tense", "forms"),
    [
        ("comer", "present", "como comes come comemos comen"),
        ("dormir", "present", "duermo duermes duerme dormimos duermen"),
        ("dormir", "preterite", "dormí dormiste durmió dormimos durmieron"),
        ("pedir", "preterite", "pedí pediste pidió pedimos pidieron"),
        ("leer", "preterite", "leí leíste leyó leímos leyeron"),
        ("buscar", "preterite", "busqué buscaste buscó buscamos buscaron"),
        ("jugar", "present", "juego juegas juega jugamos juegan"),
        ("traer", "preterite", "traje trajiste trajo trajimos trajeron"),
        ("tener", "future", "tendré tendrás tendrá tendremos tendrán"),
        ("ver", "imperfect", "veía veías veía veíamos veían"),
        ("vivir", "conditional", "viviría vivirías viviría viviríamos vivirían"),
        ("ir", "imperfect", "iba ibas iba íbamos iban"),
        ("estar", "preterite", "estuve estuviste estuvo estuvimos estuvieron"),
    ],
)
def test_generated_verbs_are_conjugated(verb, tense, forms):
    persons = ("1s", "2s", "3s", "1p", "3p")
    assert " ".join(spanish_verb(verb).conjugate(tense, person) for person in persons) == forms


def test_gerunds_and_participles():
    forms = {"dormir": "durmiendo dormido", "leer": "leyendo leído", "abrir": "abriendo abierto", "ver": "viendo visto"}
    for verb, expected in forms.items():
        assert f"{spanish_verb(verb).gerund()} {spanish_verb(verb).past_participle()}" == expected


def test_generated_adjectives_agree():
    assert [agree("francés", *form) for form in (("m", False), ("f", False), ("m", True), ("f", True))] == [
        "francés", "francesa", "franceses", "francesas"
    ]  # fmt: skip
    assert agree("joven", "f", True) == "jóvenes"
    assert agree("alemán", "f", True) == "alemanas"
    assert agree("feliz", "f", True) == "felices"
    assert [spanish_plural(word) for word in ("león", "luz", "café", "autobús", "flor")] == [
        "leones", "luces", "cafés", "autobuses", "flores"
    ]  # fmt: skip


class TestWrittenCorpus:
    SIZES = {"train": 307, "val": 31, "test": 29}  # noqa: RUF012

    def test_a_generated_corpus_is_written_in_parts(self, tmp_path):
        paths = write_corpus(tmp_path / "new" / "corpus", self.SIZES, 5)
        assert list(paths) == list(self.SIZES)
        sides = {}
        for split, path in paths.items():
            lines = path.read_text(encoding="utf-8").splitlines()
            assert lines[0] == "english\tspanish\talignment"
            rows = [line.split("\t") for line in lines[1:]]
            assert len(rows) == self.SIZES[split]
            sides[split] = [row[0] for row in rows]
            for source, target, links in rows:
                alignment = Alignment.parse(links)
                assert {t for _, t in alignment.possible} == set(range(len(split_words(target))))
                assert {s for s, _ in alignment.possible} <= set(range(len(split_words(source))))
        for one, other in itertools.combinations(sides, 2):
            assert not set(sides[one]) & set(sides[other])
        for split in ("val", "test"):
            assert len(set(sides[split])) == len(sides[split])
        assert sorted(path.name for path in (tmp_path / "new" / "corpus").iterdir()) == [
            "test.tsv", "train.tsv", "val.tsv"
        ]  # fmt: skip
        assert len(open_pairs(paths["train"], "english", "spanish")) == self.SIZES["train"]

    def test_same_seed_same_files(self, tmp_path):
        first, second, other = (
            write_corpus(tmp_path / name, self.SIZES, seed)["test"].read_bytes()
            for name, seed in (("a", 5), ("b", 5), ("c", 6))
        )
        assert first == second != other

    def test_a_generated_corpus_names_wrong_sizes_and_folders(self, tmp_path):
        with pytest.raises(ArgumentError, match="size of 'val' must be at least 0; got -1"):
            write_corpus(tmp_path, {"val": -1}, 0)
        blocked = tmp_path / "file"
        blocked.write_text("")
        with pytest.raises(DataError, match="cannot be written"):
            write_corpus(blocked / "corpus", {"val": 1}, 0)
