"""Equations of docstrings, which `help` shows as they stand: their words, signs and lines become TeX in the site.

A line of ``.. math::`` is an equation; TeX may stand in it, and stays.
"""

import re

from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.directives.patches import MathDirective

SIGNS = {
    "·": r"\cdot ",
    "∘": r"\circ ",
    "⊙": r"\odot ",
    "₁": "_1",
    "₂": "_2",
    "⁻¹": "^{-1}",
    "×": r"\times ",
    "⊗": r"\otimes ",
    "∗": "*",
    "−": "-",
    "<=": r"\le ",
    ">=": r"\ge ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "½": r"\tfrac{1}{2} ",
    "§": r"\S ",
    "⌊": r"\lfloor ",
    "⌋": r"\rfloor ",
    "π": r"\pi ",
    "⇔": r"\iff ",
    "→": r"\to ",
    "←": r"\gets ",
    "Σ": r"\sum ",
    "Π": r"\prod ",
    "ᵀ": r"^\top ",
    "²": "^2",
    "…": r"\ldots ",
    "..": r"\ldots ",
    "∈": r"\in ",
    "θ": r"\theta ",
    "φ": r"\varphi ",
    "α": r"\alpha ",
    "β": r"\beta ",
    "Γ": r"\Gamma ",
    "ε": r"\varepsilon ",
    "κ": r"\kappa ",
    "λ": r"\lambda ",
    "σ": r"\sigma ",
    " mod ": r" \bmod ",
}
FUNCTIONS = "exp log tanh sin cos min max argmax softmax"
WORD = r"[A-Za-z]{2,}\d*(?:_[A-Za-z]{2,}\d*)*"
TOKEN = re.compile(
    r"(?P<tex>\\(?:mathrm|text|textstyle|operatorname|begin|end)\{[^}]*\}|\\[A-Za-z]+|\\.|_\{[a-z]+\})"
    rf"|(?P<spaces> {{3,}})|(?P<words>{WORD}(?: {WORD})*)"
    rf"|√\((?P<under>[^()]*)\)|√(?P<root>\w+)|(?P<tilde>\w)\u0303|(?P<hat>\w)\u0302|\^\((?P<power>[^()]*(?:\([^()]*\)[^()]*)*)\)"
    r"|(?P<sign> mod |" + "|".join(re.escape(sign) for sign in SIGNS if sign != " mod ") + ")"
)
RELATION = re.compile(r" (=|⇔|→|←) ")


class PlainEquations(MathDirective):
    """``.. math::`` whose lines are equations, and whose words are words."""

    def run(self):
        lines = [" ".join(line.strip() for line in argument.splitlines()) for argument in self.arguments]
        lines += [line for line in self.content if line.strip()]
        self.arguments, self.content = [_tex_of_lines([line.strip() for line in lines])], StringList()
        return super().run()


def _tex_of_lines(lines: list[str]) -> str:
    """A block in TeX, a row for each line; one with ``&`` is rows of TeX already, which end where they say."""
    if any("&" in line for line in lines):
        return " ".join(tex(line) for line in lines)
    rows = [_tex(line) for line in lines]
    # Sphinx aligns rows at their `&`.
    return " \\\\ ".join(rows) if len(rows) > 1 else "".join(rows).replace("&", "", 1)


def _tex(line: str) -> str:
    """An equation in TeX, with ``&`` before its first relation."""
    before, relation, after = RELATION.split(line, 1) if RELATION.search(line) else (line, "", "")
    return f"{tex(before)} &{tex(relation)} {tex(after)}" if relation else tex(line)


def tex(text: str) -> str:
    """Part of an equation in TeX."""

    def replaced(found: re.Match[str]) -> str:
        kind, part = found.lastgroup, found.group()
        if kind == "spaces":
            return r"\qquad "
        if kind == "words":
            return _words(text, found)
        if kind in ("under", "root"):
            return rf"\sqrt{{{tex(found[kind])}}}"
        if kind in ("tilde", "hat"):
            return rf"\{kind}{{{tex(found[kind])}}}"
        if kind == "power":
            return rf"^{{{tex(found[kind])}}}"
        return SIGNS[part] if kind == "sign" else part

    return TOKEN.sub(replaced, text)


def _words(text: str, found: re.Match[str]) -> str:
    """Words in upright letters; a space stays where a letter is beside it."""
    words = found.group()
    before, after = text[: found.start()], text[found.end() :]
    if words in FUNCTIONS.split() and not before.endswith("_"):
        return rf"\operatorname{{{words}}}"
    left = " " if re.search(r"[\w')\]}…] {1,2}$", before) and not re.match(r"[\[(_^]", after) else ""
    right = " " if re.match(r" {1,2}[\w(\[…]", after) else ""
    return rf"{{\text{{{left}{words}{right}}}}}"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("math", PlainEquations, override=True)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
