"""What to say of labels before a training: those that may be one label, and those of very few examples."""

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from regard.names.counted import counted

FEWEST_EXAMPLES = 5
"""A label with fewer examples can neither be learned nor measured."""

_MOST_NAMED_LABELS = 6


def folded_label(name: str) -> str:
    """Returns a label without case, white space, invisible characters and compatibility forms of Unicode."""
    return _without_spaces(_without_forms(unicodedata.normalize("NFKC", name).casefold()))


def spellings(counts: Mapping[str, int]) -> list[list[str]]:
    """Groups the labels that are equal when folded, the most frequent one of each group first."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        groups[folded_label(name)].append(name)
    return list(groups.values())


def differences(groups: Iterable[Sequence[str]]) -> str:
    """Says in what the labels of each group differ: ``"case and spaces"``."""
    folds: dict[str, Callable[[str], str]] = {
        "case": lambda name: _without_spaces(_without_forms(name)),
        "spaces": lambda name: _without_forms(_without_forms(name).casefold()),
        "Unicode forms": lambda name: _without_spaces(name.casefold()),
    }
    groups = list(groups)
    kinds = [kind for kind, form in folds.items() if any(len(set(map(form, group))) > 1 for group in groups)]
    return " and ".join([", ".join(kinds[:-1]), kinds[-1]] if len(kinds) > 1 else kinds or ["Unicode forms"])


def merged_labels(counts: Mapping[str, int], chosen: Callable[[str], str]) -> str:
    """Says which spelling, by ``chosen``, stands for which labels; "" if every label is written in one way."""
    groups = [[name for name in group if name != chosen(name)] for group in spellings(counts)]
    return _listed([f"{chosen(group[0])!r} for {_with_counts(group, counts)}" for group in groups if group])


def _with_counts(names: Sequence[str], counts: Mapping[str, int]) -> str:
    """Returns the labels, each with how many examples have it."""
    return " and ".join(f"{name!r} ({counts[name]:,})" for name in names)


def _without_forms(text: str) -> str:
    return "".join(one for one in unicodedata.normalize("NFKC", text) if unicodedata.category(one) != "Cf")


def _without_spaces(text: str) -> str:
    return "".join(one for one in text if not one.isspace())


def label_doubts(counts: Mapping[str, int], unit: str, advice: str) -> list[str]:
    """Returns sentences about labels that may be a mistake, from the number of examples of each, and what an example
    is, such as ``"text"``. ``advice`` says what makes one label of those that differ only in how they are written."""
    said, several = [], [group for group in spellings(counts) if len(group) > 1]
    if several:
        number = len(counts) - sum(len(group) - 1 for group in several)
        named = _listed([_with_counts(group, counts) for group in several])
        said.append(
            f"{len(counts):,} labels are {number:,} but for {differences(several)}: {named}; they are trained as "
            f"different ones: {advice}"
        )
    few = sorted((name for name in counts if counts[name] < FEWEST_EXAMPLES), key=lambda name: (counts[name], name))
    if few:
        named = _listed([_with_counts([name], counts) for name in few])
        have = "has" if len(few) == 1 else "have"
        said.append(
            f"{len(few):,} of {counted(len(counts), 'label')} {have} fewer than {FEWEST_EXAMPLES} {unit}s, too few to "
            f"learn and to measure: {named}; leave them out, add {unit}s, or give them one label"
        )
    return said


def _listed(parts: list[str]) -> str:
    more = [f"and {len(parts) - _MOST_NAMED_LABELS:,} more"] * (len(parts) > _MOST_NAMED_LABELS)
    return ", ".join([*parts[:_MOST_NAMED_LABELS], *more])
