"""The report of `regard.watching.Faithfulness` as one HTML page: sentences, table, curves, texts and papers."""

import math
from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from regard.palette import HEAD_DASHES, HEAD_HUES, SIGN, color_at
from regard.records.html_document import html_document
from regard.records.shaded_table import label_html
from regard.watching.faithfulness_scores import COLUMNS, MethodScores, TextImportance, decimals_of, mean, shown
from regard.watching.importance import IMPORTANCE_METHODS

PAPERS = {
    "Attention is doubtful as an explanation": (
        "Jain & Wallace 2019, “Attention is not Explanation”",
        "Serrano & Smith 2019, “Is Attention Interpretable?”",
        "Bastings & Filippova 2020, “The elephant in the interpretability room: Why use attention as explanation when "
        "we have saliency methods?”",
    ),
    "It depends on the question, and on what is measured": (
        "Wiegreffe & Pinter 2019, “Attention is not not Explanation”",
        "Kobayashi et al. 2020, “Attention is Not Only a Weight: Analyzing Transformers with Vector Norms”",
        "Bibal et al. 2022, “Is Attention Explanation? An Introduction to the Debate”, a survey of both sides",
    ),
    "How it was measured": (
        "Li et al. 2016, “Understanding Neural Networks through Representation Erasure” (leave-one-out)",
        "DeYoung et al. 2020, “ERASER: A Benchmark to Evaluate Rationalized NLP Models” (comprehensiveness and "
        "sufficiency)",
        "Hooker et al. 2019, “A Benchmark for Interpretability Methods in Deep Neural Networks”: shortened inputs are "
        "unlike those that a model has learned from",
    ),
}

TITLE = "What this model’s attention tells, and what not"

LIMITS = (
    "Leave-one-out is one question, not the truth: two tokens that can replace each other both count as nothing, and "
    "two that only matter together both count in full.",
    "A shortened text is unlike those that the model has learned from; part of what falls is its surprise.",
    "The order of tokens belongs to this model, these texts and this number. Another model, or another number, needs "
    "its own measurement.",
    "A position of a higher layer is no longer one token: it has read others. What weights tell exactly is which "
    "positions a layer mixed, in which proportions.",
    "Chapter 21 of regard’s course, “What attention does not tell”, repeats the experiments of these papers.",
)

STEPS = 8
"""The number of shades of each sign."""

MOST_TOKENS, MOST_POINTS = 120, 400
"""The most tokens of a text and points of a row that are drawn."""

LIGHT_HUES = ("#74caf0", "#fd9b88", "#6fd3ae", "#f29ac4", "#d9c65a", "#bfa3f5", "#d8a687", "#c9ced8")
"""The hues of `HEAD_HUES` for dark paper."""

_VARIABLES = {
    "light": ("#ffffff", "#16181d", "#565d69", "#c3c8d0", "#f4f5f7", "#0060a8", HEAD_HUES),
    "dark": ("#14161a", "#eceef2", "#a9b0bc", "#454b56", "#1d2026", "#74caf0", LIGHT_HUES),
}


def _theme(name: str) -> str:
    *plain, hues = _VARIABLES[name]
    colors = dict(zip(("paper", "ink", "quiet", "line", "soft", "accent"), plain, strict=True))
    colors |= {f"s{number}": hue for number, hue in enumerate(hues)}
    # The strongest shades would need letters of the other colour.
    widest = 0.25 if name == "light" else 0.14
    for step in range(1, STEPS + 1):
        for sign, share in (("p", 0.5 + widest * step / STEPS), ("n", 0.5 - widest * step / STEPS)):
            colors[f"{sign}{step}"] = f"rgb{color_at(SIGN[name], share)}"
    return "".join(f"--{key}:{color};" for key, color in colors.items())


STYLE = (
    f":root{{color-scheme:light dark;{_theme('light')}}}"
    f"@media(prefers-color-scheme:dark){{:root{{{_theme('dark')}}}}}"
    "*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}"
    "main{max-width:64rem;margin:0 auto;padding:24px 16px 48px}h1{font-size:24px;line-height:1.25;margin:0 0 16px}"
    "h2{font-size:20px;line-height:1.3;margin:32px 0 8px}h3{font-size:16px;margin:24px 0 4px}"
    "p,li{max-width:46rem;margin:8px 0}ul{padding-left:20px}.quiet{color:var(--quiet);font-size:13px}"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}"
    "th,td{padding:4px 8px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}"
    "th{font-weight:600;color:var(--quiet);vertical-align:bottom}th:first-child,td:first-child{text-align:left}"
    "tbody th,td{vertical-align:middle}"
    "tbody th{color:var(--ink);position:sticky;left:0;background:var(--paper)}tr.first th{color:var(--accent)}"
    "tr.apart th,tr.apart td{background:var(--soft)}.charts{display:grid;gap:24px;"
    "grid-template-columns:repeat(auto-fit,minmax(min(100%,380px),1fr))}figure{margin:0}svg{display:block;width:100%}"
    "figcaption{font-size:13px;color:var(--quiet);margin-top:4px}text{font:13px system-ui,sans-serif;fill:var(--ink)}"
    "text.quiet{fill:var(--quiet)}.grid{stroke:var(--line)}.dot{fill:var(--accent);fill-opacity:.35}.mean{stroke:var(--ink)}"
    "td svg{width:200px}.words{line-height:2}.words span{padding:2px 3px;border-radius:3px;overflow-wrap:anywhere}"
    ".outcome{font-size:20px;line-height:1.4}"
    ".words b{display:inline-block;min-width:11rem;font-weight:600;font-size:13px}"
    "@media(max-width:640px){.words b{display:block}}"
    ".special{color:var(--quiet)}"
    + "".join(f".{sign}{step}{{background:var(--{sign}{step})}}" for sign in "pn" for step in range(1, STEPS + 1))
)


def page(
    subject: str,
    sentences: Sequence[str],
    methods: Sequence[MethodScores],
    texts: Sequence[TextImportance],
    fractions: Sequence[float],
) -> str:
    """Returns the report, in which all texts are escaped.

    Args:
        subject: the line below the title.
        sentences: the first one is the outcome.
        methods: the last two are leave-one-out and a random order.
        texts, fractions: as `regard.watching.Faithfulness` has them.
    """
    first, *rest = sentences
    lines = f"<p class='outcome'>{escape(first)}</p>{''.join(f'<p>{escape(line)}</p>' for line in rest)}"
    digits, whole = decimals_of(texts), float(np.mean([text.number for text in texts]))
    deletion, insertion = (
        _curves(methods, kind, fractions, whole, digits, caption)
        for kind, caption in (
            ("deletion", "Share of tokens deleted, the most important first; steeper is better."),
            ("insertion", "Share of tokens kept, the most important first; an earlier rise is better."),
        )
    )
    chosen = "".join(_text(methods, *each) for each in _chosen_texts(methods[0], texts))
    body = (
        f"<main><h1>{TITLE}</h1><p class='quiet'>{escape(subject)}</p>{lines}"
        f"<h2>Agreement with leave-one-out</h2>{_table(methods, digits)}"
        f"<h2>Deletion and insertion</h2><div class='charts'>{deletion}{insertion}</div>"
        f"<h2>Texts</h2><p>Those in which the order of {escape(methods[0].title)} agrees most with leave-one-out, at "
        "the median, and least. Blue raises the number, or is important where a method has no sign; red lowers it. "
        f"Each line has its own scale.</p>{chosen}"
        f"<h2>What this cannot tell</h2>{_list(LIMITS)}<h2>Papers of both sides</h2>{_papers(methods[:-2])}</main>"
    )
    return html_document(f"{TITLE}: {subject}", STYLE, body)


def _table(methods: Sequence[MethodScores], digits: int) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in (*COLUMNS[:3], "τ of each text, −1 to 1", *COLUMNS[3:]))
    rows = []
    for number, method in enumerate(methods):
        title, *texts = method.cells(digits)
        cells = [f"<td>{escape(text)}</td>" for text in texts]
        cells.insert(2, f"<td>{_strip(method)}</td>")
        kind = "first" if not number else "apart" if method in methods[-2:] else ""
        rows.append(f"<tr class='{kind}'><th>{escape(title)}</th>{''.join(cells)}</tr>")
    return (
        f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        "<p class='quiet'>τ and ρ: 1 is the order of leave-one-out, 0 chance, −1 the reverse; means over texts, and "
        "the standard deviation of τ. Above chance: the share of texts in which τ is larger than that of 95% of "
        "random orders. Same first: the share of texts whose most important token is that of leave-one-out. "
        "Comprehensive: what the number loses without the most important tokens, the mean over the curve below; "
        "larger is better. Sufficient: what it loses if these alone are kept; smaller is better. In these two, methods "
        "with a sign put tokens first that raise the number.</p>"
    )


def _strip(method: MethodScores) -> str:
    """Returns a dot for the τ of each text, and a line at their mean."""
    taus = method.kendall[np.isfinite(method.kendall)]
    if not len(taus):
        return "–"
    chosen = taus[np.linspace(0, len(taus) - 1, min(len(taus), MOST_POINTS)).astype(int)]
    dots = "".join(
        f"<circle class='dot' cx='{_x(tau):.1f}' cy='{8 + 8 * (number * 0.618 % 1):.1f}' r='2.5'/>"
        for number, tau in enumerate(chosen)
    )
    middle = _x(mean(taus))
    return (
        f"<svg viewBox='0 0 200 24' role='img' aria-label='{len(taus)} texts, mean {shown(mean(taus))}'>"
        "<path class='grid' d='M4 12H196M100 3V21M4 8V16M196 8V16'/>"
        f"{dots}<path class='mean' stroke-width='2' d='M{middle:.1f} 2V22'/></svg>"
    )


def _x(tau: float) -> float:
    return 100 + 96 * tau


def _curves(
    methods: Sequence[MethodScores], kind: str, fractions: Sequence[float], whole: float, digits: int, caption: str
) -> str:
    """Returns the mean curve of each method as a picture with the methods' names at the ends of their lines."""
    lines = {}
    for method in methods:
        means = [mean(column) for column in getattr(method, kind).T]
        steps = [(0.0, whole), *zip(fractions, means, strict=True)]
        lines[method] = steps if kind == "deletion" else [*steps[1:], (1.0, whole)]
    numbers = [number for steps in lines.values() for _, number in steps]
    ticks = _ticks(min(numbers), max(numbers))
    low, high = ticks[0], ticks[-1]

    def point(step: tuple[float, float]) -> tuple[float, float]:
        return 44 + 250 * step[0], 16 + 248 * (high - step[1]) / (high - low)

    axis = "".join(
        f"<path class='grid' d='M44 {y:.1f}H294'/><text class='quiet' x='38' y='{y + 4:.1f}' text-anchor='end'>"
        f"{shown(number, digits)}</text>"
        for number in ticks
        for y in [point((0, number))[1]]
    ) + "".join(
        f"<text class='quiet' x='{44 + 250 * share:.0f}' y='284' text-anchor='middle'>{share:.0%}</text>"
        for share in (0.0, 0.5, 1.0)
    )
    drawn = "".join(
        f"<path d='M{' L'.join(f'{x:.1f} {y:.1f}' for x, y in map(point, steps))}' fill='none' {_line(number, method)}>"
        f"<title>{escape(method.title)}</title></path>"
        for number, (method, steps) in enumerate(lines.items())
    )
    areas = {method: float(np.mean([number for _, number in steps])) for method, steps in lines.items()}
    order = sorted(lines, key=lambda method: -areas[method])
    names = "".join(
        f"<path d='M304 {y}H326' fill='none' {_line(methods.index(method), method)}/>"
        f"<text x='332' y='{y + 4}'>{escape(method.title)}</text>"
        for y, method in zip(range(28, 28 + 24 * len(order), 24), order, strict=True)
    )
    height = max(296, 28 + 24 * len(order))
    return (
        f"<figure><svg viewBox='0 0 470 {height}' role='img' aria-label='{escape(caption)}'>{axis}{drawn}{names}</svg>"
        f"<figcaption>{escape(caption)} The names are in the order of the means of their lines.</figcaption></figure>"
    )


def _ticks(low: float, high: float) -> list[float]:
    """Returns up to seven round numbers in even steps, from one that is at most ``low`` to one at least ``high``."""
    size = max(high - low, 0.1 * abs(high), 1e-9)
    unit = 10.0 ** math.floor(math.log10(size))
    step = unit * next(factor for factor in (0.2, 0.5, 1.0, 2.0) if size <= 5 * factor * unit)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _line(number: int, method: MethodScores) -> str:
    if method.name == "random":
        return "stroke='var(--quiet)' stroke-width='1.5' stroke-dasharray='2 3'"
    if method.name == "leave_one_out":
        return "stroke='var(--ink)' stroke-width='2.5'"
    dash = " ".join(map(str, HEAD_DASHES[number % len(HEAD_DASHES)]))
    return f"stroke='var(--s{number % len(HEAD_HUES)})' stroke-width='2' stroke-dasharray='{dash or 'none'}'"


def _chosen_texts(method: MethodScores, texts: Sequence[TextImportance]) -> Iterator[tuple[TextImportance, float]]:
    """Yields up to three texts, with their τ: that of largest, median and least τ."""
    taus = method.kendall
    order = [int(index) for index in np.argsort(-taus, kind="stable") if np.isfinite(taus[index])]
    # A text of few tokens has an order by chance.
    order = [index for index in order if sum(texts[index].counted) >= 5] or order
    for index in dict.fromkeys(order[position] for position in (0, len(order) // 2, -1)) if order else ():
        yield texts[index], float(taus[index])


def _text(methods: Sequence[MethodScores], text: TextImportance, tau: float) -> str:
    lines = []
    for method in (methods[-2], *methods[:-2]):
        importance = np.zeros(len(text.tokens))
        importance[np.array(text.counted)] = text.importance[method.name]
        largest = float(np.abs(importance).max()) or 1.0
        words = " ".join(
            f"<span class='{_shade(number / largest) if counted else 'special'}' title='{number:.3g}'>"
            f"{label_html(token)}</span>"
            for token, counted, number in [*zip(text.tokens, text.counted, importance, strict=True)][:MOST_TOKENS]
        )
        rest = len(text.tokens) - MOST_TOKENS
        more = f" … {rest} more" if rest > 0 else ""
        lines.append(f"<div class='words'><b>{escape(method.title)}</b> {words}{more}</div>")
    return f"<h3>τ = {shown(tau)}, where the number is {text.number:.3g}</h3>{''.join(lines)}"


def _shade(share: float) -> str:
    step = round(STEPS * abs(share))
    return f"{'p' if share > 0 else 'n'}{step}" if step else ""


def _papers(methods: Sequence[MethodScores]) -> str:
    used = [IMPORTANCE_METHODS[method.name] for method in methods]
    sources = PAPERS | {"The methods": tuple(f"{method.title}: {method.source}" for method in used)}
    return "".join(f"<h3>{escape(name)}</h3>{_list(lines)}" for name, lines in sources.items())


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"
