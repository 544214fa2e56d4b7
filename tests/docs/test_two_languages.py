"""The Chinese pages: each has its English twin, the same code, headings and numbers, and the terms of the glossary."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

import pytest

from book import DOCS, cells, fences, pages, sections

ENGLISH, CHINESE = pages("en"), pages("zh")
GLOSSARY = tomllib.loads((DOCS / "glossary.toml").read_text("utf-8"))["terms"]
ENGLISH_WORDS = """
0 zero · 1 one first once a an single · 2 two second twice both half pair · 3 three third · 4 four fourth quarter ·
5 five fifth · 6 six sixth · 7 seven seventh · 8 eight eighth · 9 nine ninth · 10 ten tenth · 11 eleven · 12 twelve ·
20 twenty · 100 hundred · 1000 thousand · 1 january · 2 february · 3 march · 4 april · 5 may · 6 june · 7 july ·
8 august · 9 september · 10 october · 11 november · 12 december
"""
SPELLED = {word: line.split()[0] for line in ENGLISH_WORDS.split("·") for word in line.split()[1:]}
"""Word → the numeral that Chinese may have in its place."""
DIGITS = {sign: value % 10 for value, sign in enumerate("零一二三四五六七八九")} | {"两": 2, "半": 2}
SCALES = {"十": 10, "百": 100, "千": 1000, "万": 10**4, "亿": 10**8}
CHINESE_NUMBER = f"[{''.join([*DIGITS, *SCALES])}]+"
ENGLISH_SCALES = {"thousand": 1000, "million": 10**6, "billion": 10**9}


@pytest.mark.parametrize("page", CHINESE)
def test_a_page_has_an_english_twin_with_the_same_cells_and_headings(page):
    assert page in ENGLISH, f"docs/zh/{page}.md has no docs/en/{page}.md"
    assert cells(CHINESE[page]) == cells(ENGLISH[page])
    assert shell_lines(page, CHINESE[page]) == shell_lines(page, ENGLISH[page])
    levels = [[section.level for section in sections(text)] for text in (ENGLISH[page], CHINESE[page])]
    assert levels[0] == levels[1], f"headings of {page}: {levels}"


@pytest.mark.parametrize("page", CHINESE)
def test_the_numbers_are_the_same(page):
    """Of each section: a numeral of one language is a numeral, or a word, of the other one, as often."""
    for english, chinese in zip(sections(ENGLISH[page]), sections(CHINESE[page]), strict=True):
        missing = differing_numbers(english.title + "\n" + english.prose, chinese.title + "\n" + chinese.prose)
        assert not missing, f"{page}, {english.title}: {missing}"


@pytest.mark.parametrize("page", CHINESE)
def test_english_output_is_introduced_in_chinese(page):
    """A cell prints what it prints for everybody: the text in front says it in Chinese, or the heading of an answer."""
    unsaid, text, first = [], "", True
    for cell in notebook(CHINESE[page]).cells if "{code-cell}" in CHINESE[page] else ():
        if cell.cell_type != "code":
            text = cell.source
            continue
        is_answer = "hide-cell" in cell.metadata.get("tags", ())
        said = cell.metadata.get("mystnb", {}).get("code_prompt_hide", "") if is_answer else text
        has_own, has_sentences = prints_english(cell.source)
        # The sentences of a plan or of a worked calculation are said once on a page.
        if has_own or (has_sentences and first and not is_answer):
            mark = "答案：.*[\u4e00-\u9fff]" if is_answer else "输出为英文"
            unsaid += [] if re.search(mark, said) else [cell.source]
        first = first and (is_answer or not has_sentences)
        text = ""
    assert unsaid == []


def notebook(text: str):
    from myst_nb.core.read import read_myst_markdown_notebook

    return read_myst_markdown_notebook(text)


def prints_english(code: str) -> tuple[bool, bool]:
    """Whether code prints words of its own, four or more, and whether it prints sentences of regard."""
    statements = [one for one in ast.parse(code).body if not isinstance(one, ast.FunctionDef | ast.ClassDef)]
    calls = [node for one in statements for node in ast.walk(one) if isinstance(node, ast.Call)]
    printed = [one for call in calls if ast.unparse(call.func) == "print" for one in call.args]
    texts = [
        "".join(part.value for part in getattr(one, "values", [one]) if isinstance(part, ast.Constant))
        for one in printed
        if isinstance(one, ast.JoinedStr) or isinstance(getattr(one, "value", None), str)
    ]
    has_own = any(len(re.findall(r"[A-Za-z]{2,}", text)) >= 4 for text in texts)
    own = r"(regard\.)?plan\(|\w+\.arithmetic\(|(steps|error|plan)$|fill\(str\(error|plan\.\w+"
    has_sentences = any(re.match(own, ast.unparse(one)) for one in printed)
    return has_own, has_sentences or any(ast.unparse(call.func).endswith(".print") for call in calls)


def test_the_law_of_outputs_sees_what_is_printed():
    assert prints_english("print('the mean of an image is background')") == (True, False)
    assert prints_english("print(f'{x} of the words must go')") == (True, False)
    assert prints_english("print(regard.plan(x, x, x))\nprint('a')") == (False, True)
    assert prints_english("steps.print('weights')") == prints_english("print(steps.arithmetic(0))") == (False, True)
    assert prints_english("def show():\n    steps.print()\nprint(x.shape)") == (False, False)


def shell_lines(page: str, text: str) -> list[str]:
    """The lines of the blocks that are no output, without comments."""
    blocks = [fence.text for fence in fences(page, text) if fence.language not in ("text", "")]
    return [
        line for block in blocks for line in re.sub(r"(^|\s+)#.*", "", block, flags=re.M).splitlines() if line.strip()
    ]


def differing_numbers(english: str, chinese: str) -> dict[str, tuple[int, int]]:
    """Numeral → how often it stands in English and in Chinese, for those that differ."""
    first = Counter(numerals(english, ENGLISH_SCALES))
    second = Counter(numerals(chinese, SCALES))
    spelled = Counter(SPELLED[word] for word in re.findall(r"[a-z]+", english.lower()) if word in SPELLED)
    signs = Counter(
        str(value) for word in re.findall("[零一二三四五六七八九两半十百千万亿]+", chinese) for value in readings(word)
    )
    return {
        numeral: (first[numeral], second[numeral])
        for numeral in first | second
        if not first[numeral] - signs[numeral] <= second[numeral] <= first[numeral] + spelled[numeral]
    }


def numerals(text: str, scales: dict[str, int]) -> Iterator[str]:
    """The numerals of a text, without the addresses of links: 1,000 and 0.1 万 are 1000."""
    text = re.sub(r"\]\([^)]*\)|<https?:[^>]*>|https?:\S+|\{[\w:.-]+\}`[^`]*`", "]", text)
    text = re.sub(r"(?<=\d)[,\u202f](?=\d{3}(?!\d))", "", text)
    for number, scale in re.findall(rf"(\d+(?:\.\d+)?)(?: ?({'|'.join(scales)}))?", text):
        yield f"{(Decimal(number) * scales[scale]).normalize():f}" if scale else number


def readings(word: str) -> set[int]:
    """The numbers that Chinese signs in a row stand for: as one number, and each sign by itself."""
    total = part = digit = 0
    for sign in word:
        if sign in DIGITS:
            digit = DIGITS[sign]
        elif SCALES[sign] < 10**4:
            part, digit = part + max(digit, 1) * SCALES[sign], 0
        else:
            total, part, digit = total + max(part + digit, 1) * SCALES[sign], 0, 0
    return {total + part + digit, *(DIGITS[sign] for sign in word if sign in DIGITS)}


def test_the_law_of_numbers_sees_a_difference():
    assert differing_numbers("2 of 1,000", "1000 个中的 2 个") == {}
    assert differing_numbers("2.68 million of 20,000", "两万个中的 268 万") == {}
    assert differing_numbers("12 heads and 36", "十二个头和三十六") == {}
    assert differing_numbers("two keys and 3.5", "2 个键和 3.5") == {}
    assert differing_numbers("a weight of 0.88", "权重 0.89") == {"0.88": (1, 0), "0.89": (0, 1)}
    assert differing_numbers("7 and 7", "7") == {"7": (2, 1)}


@pytest.mark.parametrize("page", CHINESE)
def test_the_terms_are_those_of_the_glossary(page):
    prose = "\n".join(f"{section.title}\n{section.prose}" for section in sections(CHINESE[page]))
    wrong = {word: term["chinese"] for term in GLOSSARY for word in term["wrong"] if word in prose}
    assert not wrong, f"docs/zh/{page}.md: write {wrong}"


def test_the_glossary_contradicts_itself_nowhere():
    chinese = [term["chinese"] for term in GLOSSARY]
    assert len({term["english"] for term in GLOSSARY}) == len(GLOSSARY)
    for term in GLOSSARY:
        assert term["wrong"], term
        assert not [word for word in term["wrong"] if any(word in right for right in chinese)], term
