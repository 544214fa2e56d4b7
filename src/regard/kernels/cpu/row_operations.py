"""Operations of the functions of a row of scores (`bodies.row_functions`): their values and derivatives, as text."""

import math
from typing import NamedTuple


class Formula(NamedTuple):
    """How an operation is computed.

    Attributes:
        value: the expression; ``{0}`` is the first argument, and so on.
        gradients: for each argument the gradient of a loss, for the gradient ``{g}`` of the result ``{r}``; an empty
            text for none.
    """

    value: str
    gradients: tuple[str, ...] = ()


_ONE, _ONE_HALF, _ZERO, _INVERSE_LN2 = "real(1)", "real(0.5)", "real(0)", f"real({1.0 / math.log(2.0)!r})"


def _bounded(sign: str) -> Formula:
    is_beyond = f"{{0}} {sign} {{1}}"
    gradients = f"({_ZERO} if {is_beyond} else {{g}})", f"({{g}} if {is_beyond} else {_ZERO})"
    return Formula(f"({{1}} if {is_beyond} else {{0}})", gradients)


def _extreme(sign: str) -> Formula:
    """Returns the larger or the smaller of two numbers, NaN if one of them is; equal ones share the gradient."""
    gradients = (
        f"({{g}} if {a} {sign} {b} else ({_ONE_HALF} * {{g}} if {a} == {b} else {_ZERO}))"
        for a, b in (("{0}", "{1}"), ("{1}", "{0}"))
    )
    return Formula(f"({{0}} if ({{0}} {sign} {{1}}) | ({{0}} != {{0}}) else {{1}})", tuple(gradients))


_SIGN = f"({_ONE} if {{0}} > {_ZERO} else (-{_ONE} if {{0}} < {_ZERO} else {{0}}))"

REAL: dict[str, Formula] = {
    "add": Formula("{0} + {1}", ("{g}", "{g}")),
    "sub": Formula("{0} - {1}", ("{g}", "-{g}")),
    "mul": Formula("{0} * {1}", ("{g} * {1}", "{g} * {0}")),
    "div": Formula("{0} / {1}", ("{g} / {1}", "-{g} * {r} / {1}")),
    "reciprocal": Formula(f"{_ONE} / {{0}}", ("-{g} * {r} / {0}",)),
    "neg": Formula("-{0}", ("-{g}",)),
    "abs": Formula("abs({0})", (f"{{g}} * {_SIGN}",)),
    "sign": Formula(_SIGN),
    "exp": Formula("exponential({0})", ("{g} * {r}",)),
    "exp2": Formula("power(real(2), {0})", ("{g} * {r} * logarithm(real(2))",)),
    "log": Formula("logarithm({0})", ("{g} / {0}",)),
    "log2": Formula(f"logarithm({{0}}) * {_INVERSE_LN2}", (f"{{g}} * {_INVERSE_LN2} / {{0}}",)),
    "tanh": Formula("tanh_of_half({0} + {0})", (f"{{g}} * ({_ONE} - {{r}} * {{r}})",)),
    "sigmoid": Formula("sigmoid({0})", (f"{{g}} * {{r}} * ({_ONE} - {{r}})",)),
    "silu": Formula(
        "{0} * sigmoid({0})",
        (f"{{g}} * sigmoid({{0}}) + {{g}} * {{0}} * sigmoid({{0}}) * ({_ONE} - sigmoid({{0}}))",),
    ),
    "sqrt": Formula("np.sqrt({0})", (f"{_ONE_HALF} * {{g}} / {{r}}",)),
    "rsqrt": Formula(f"{_ONE} / np.sqrt({{0}})", (f"-{_ONE_HALF} * {{g}} * {{r}} / np.sqrt({{0}}) / np.sqrt({{0}})",)),
    "sin": Formula("np.sin({0})", ("{g} * np.cos({0})",)),
    "cos": Formula("np.cos({0})", ("-{g} * np.sin({0})",)),
    "floor": Formula("floor({0})"),
    "trunc": Formula("truncated({0})"),
    "round": Formula("nearest({0})"),
    "pow": Formula(
        "power({0}, {1})",
        (
            f"{{g}} * {{1}} * power({{0}}, {{1}} - {_ONE})",
            f"({{g}} * {{r}} * logarithm({{0}}) if {{0}} > {_ZERO} else {_ZERO})",
        ),
    ),
    "maximum": _extreme(">"),
    "minimum": _extreme("<"),
    "clamp_min": _bounded("<"),
    "clamp_max": _bounded(">"),
    "relu": Formula(f"({_ZERO} if {{0}} < {_ZERO} else {{0}})", (f"({{g}} if {{0}} > {_ZERO} else {_ZERO})",)),
    "where": Formula("({1} if {0} else {2})", ("", f"({{g}} if {{0}} else {_ZERO})", f"({_ZERO} if {{0}} else {{g}})")),
    "real": Formula("real({0})", ("{g}",)),
    "single": Formula("real(np.float32({0}))", ("{g}",)),
    "constant": Formula("real({0})"),
}  # fmt: skip
"""Operations on real numbers."""

_BITWISE = {name: Formula(f"{{0}} {sign} {{1}}") for name, sign in (("and", "&"), ("or", "|"), ("xor", "^"))}

INTEGER: dict[str, Formula] = {
    **{name: REAL[name] for name in ("add", "sub", "mul", "neg", "abs", "clamp_min", "clamp_max", "where")},
    **{f"bitwise_{name}": formula for name, formula in _BITWISE.items()},
    "bitwise_not": Formula("~{0}"),
    "maximum": Formula("max({0}, {1})"),
    "minimum": Formula("min({0}, {1})"),
    "floor_divide": Formula("{0} // {1}"),
    "remainder": Formula("{0} % {1}"),
    "right_shift": Formula("{0} >> {1}"),
    "relu": Formula("max({0}, 0)"),
    **dict.fromkeys(("floor", "trunc", "round", "integer", "constant"), Formula("{0}")),
}
"""Operations on integers."""

BOOLEAN: dict[str, Formula] = {
    **{
        name: Formula(f"{{0}} {sign} {{1}}")
        for name, sign in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="), ("eq", "=="), ("ne", "!="))
    },
    **{f"{prefix}_{name}": formula for prefix in ("bitwise", "logical") for name, formula in _BITWISE.items()},
    **dict.fromkeys(("mul", "minimum"), _BITWISE["and"]),
    **dict.fromkeys(("add", "maximum"), _BITWISE["or"]),
    **dict.fromkeys(("bitwise_not", "logical_not"), Formula("not {0}")),
    **dict.fromkeys(("boolean", "constant"), Formula("{0} != 0")),
    "where": REAL["where"],
}
"""Operations whose results are booleans."""

OPERATIONS = {"real": REAL, "integer": INTEGER, "boolean": BOOLEAN}
"""Operations by the type of their results; the names are those of ATen's operators where it has them."""
