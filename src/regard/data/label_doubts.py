"""What to say of labels before a training: those that may be one label, and those of very few examples."""

import unicodedata
from collections import defaultdict
from collections.abc import Mapping

from regard.counted import counted

FEWEST = 5
"""Examples of a label with fewer of them neither teach it nor measure it."""

_MOST_NAMED = 6


def folded_label(name: str) -> str:
    """A label without case, white space, invisible characters and compatibility forms of Unicode."""
    composed = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return "".join(one for one in composed if not one.isspace() and unicodedata.category(one) != "Cf")


def spellings(counts: Mapping[str, int]) -> list[list[str]]:
    """The labels that are equal when they are folded, the most frequent one of each group first."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in sorted(counts, key=lambda name: (-counts[name], name)):
        groups[folded_label(name)].append(name)
    return list(groups.values())


def label_doubts(counts: Mapping[str, int], unit: str, advice: str) -> list[str]:
    """Sentences about labels that may be a mistake.

    Args:
        counts: label → how many examples have it.
        unit: what has a label: ``"text"``.
        advice: what makes one label of those that differ only in how they are written.
    """
    said, several = [], [group for group in spellings(counts) if len(group) > 1]
    if several:
        number = len(counts) - sum(len(group) - 1 for group in several)
        named = _listed([" and ".join(f"{name!r} ({counts[name]:,})" for name in group) for group in several])
        said.append(
            f"{len(counts):,} labels are {number:,} but for case, spaces and Unicode forms: {named}; they are trained "
            f"as different ones: {advice}"
        )
    few = sorted((name for name in counts if counts[name] < FEWEST), key=lambda name: (counts[name], name))
    if few:
        named = _listed([f"{name!r} ({counts[name]:,})" for name in few])
        have = "has" if len(few) == 1 else "have"
        said.append(
            f"{len(few):,} of {counted(len(counts), 'label')} {have} fewer than {FEWEST} {unit}s, too few to learn and "
            f"to measure: {named}; leave them out, add {unit}s, or give them one label"
        )
    return said


def _listed(parts: list[str]) -> str:
    more = [f"and {len(parts) - _MOST_NAMED:,} more"] * (len(parts) > _MOST_NAMED)
    return ", ".join([*parts[:_MOST_NAMED], *more])
