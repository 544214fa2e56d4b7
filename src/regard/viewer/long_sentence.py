"""What a head does with a long text, in words: the payload carries them to the viewer, and pictures write them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from regard.pictures.fonts import visible_token
from regard.pictures.numbers import percent
from regard.records import AttentionRecord, Axis, TokenAxis
from regard.viewer.patterns import NEAR
from regard.viewer.words import say

EVEN_TIMES = 5
"""Below this multiple of the equal share a head is said to spread its attention evenly."""

LEAST_WEIGHT = 0.05
"""The least weight of a far pair that is named."""

MOST_SHARE, LEAST_REACHES = 0.5, 8
"""From this share on it is most; of how many such distances a text is made at least where near is not all."""

MOST_REACHED = 0.9
"""The part of the queries from which on their number is not said of a diagonal."""


def long_sentence(
    record: AttentionRecord, findings: dict[str, Any], head: int | None, language: str
) -> tuple[str, str]:
    """Returns that a head spreads its attention evenly, else what most of it is; and its stripes or strongest far pair.

    Args:
        findings: as `record_findings` returns it.
        head: None: all of the record.
    """
    text, shares = _head(record, findings, head, language)
    return in_units(record, text, language), in_units(record, shares, language)


def in_units(record: AttentionRecord, text: str, language: str) -> str:
    """Returns what is said of tokens, of characters where all tokens are single ones."""
    for axis in (record.queries, record.keys):
        if not isinstance(axis, TokenAxis) or any(len(token) != 1 for token in axis.tokens):
            return text
    token, character = say("long_token", language), say("long_character", language)
    return text.replace(token, character).replace(token.capitalize(), character.capitalize())


def named_distances(record: AttentionRecord, findings: dict[str, Any], head: int | None) -> list[int]:
    """Returns the far distances that are named of a head, where 0 is its own place; None: of the mean of all."""
    shift = len(record.keys) - len(record.queries) if record.kind == "causal" else 0
    stripes = findings["stripes"][-1 if head is None else head] if findings["stripes"] else []
    windows = _windows([one for one in findings["diagonals"] if one["head"] == head])
    single = [one["offset"] - shift for one in windows if "from" not in one and abs(one["offset"]) > 1]
    return [*stripes, *(one for one in single if one not in stripes)]


def distance_text(offset: int, language: str) -> str:
    """Returns a distance and its direction."""
    return say("long_back" if offset < 0 else "long_ahead", language, distance=f"{abs(offset):,}")


def _distances(offsets: list[int], language: str) -> str:
    """Returns the fixed far distances at which a head looks; "" without any."""
    if not offsets:
        return ""
    back = all(one < 0 for one in offsets)
    texts = [f"{-one:,}" if back else distance_text(one, language) for one in offsets]
    comma, last = ("、", "和") if language == "zh" else (", ", " and ")
    listed = last.join(filter(None, [comma.join(texts[:-1]), texts[-1]]))
    return say("long_says_fixed_back" if back else "long_says_fixed", language, distances=listed)


def _head(record: AttentionRecord, findings: dict[str, Any], head: int | None, language: str) -> tuple[str, str]:
    if record.signed:
        return say("grid_signed", language), ""
    keys, heads = len(record.keys), range(record.heads) if head is None else [head]
    peaks = [findings["peaks"][number] for number in heads]
    pairs = [pair for one in peaks for pair in one["pairs"]]
    far = [pair for pair in pairs if pair["weight"] >= LEAST_WEIGHT and pair["times"] > EVEN_TIMES]
    best = max(far, key=lambda pair: pair["weight"], default=None)
    bound = max(one["times"] for one in peaks)
    if bound < EVEN_TIMES:
        name, times = "long_says_all_even" if head is None else "long_says_even", math.ceil(10 * bound) / 10
        return say(name, language, times=f"{times:.1f}".removesuffix(".0"), count=record.heads), ""
    windows = _windows([one for one in findings["diagonals"] if one["head"] in heads])
    sinks = [one for one in findings["sinks"] if one["head"] in heads]
    regular = max([*windows, *_stripes(windows), *sinks], key=lambda one: one["share"], default=None)
    near = np.mean([findings["near"][number] for number in heads], axis=0).tolist() if findings["near"] else ()
    reaches = [(count, share) for count, share in zip(NEAR, near, strict=False) if LEAST_REACHES * count <= keys]
    mostly = next((one for one in reaches if one[1] >= MOST_SHARE), None)
    if regular and mostly and regular["share"] < MOST_SHARE:
        regular = None
    stripes = _distances(findings["stripes"][-1 if head is None else head], language) if findings["stripes"] else ""
    shares = "" if regular and ("distances" in regular or abs(regular.get("offset", 0)) > 1) else stripes
    if not shares and best and record.kind != "cross":
        shift = keys - len(record.queries) if record.kind == "causal" else 0
        distance, pair = abs(best["query"] + shift - best["key"]), _pair(record, best, "long_pair_line", language)
        shares = say("long_says_far", language, pair=pair, distance=f"{distance:,}")
    if regular:
        text = _finding(record, regular, language)
        if head is None:
            which = say("headNumber", language, head=record.numbers_of_heads[regular["head"]])
            text = say("long_says_of", language, head=which, text=text)
        return text, shares
    if not reaches:
        return (_pair(record, best, "long_says_pair", language) if best else say("long_nothing", language)), ""
    count, share = mostly or reaches[-1]
    name = "long_says_near_before" if record.kind == "causal" else "long_says_near_around"
    text = say(name if mostly else "long_says_spread", language, share=percent(share, language), count=f"{count:,}")
    if head is None and record.heads > 1:
        text = say("meanOfHeadsSays", language, count=record.heads, text=text)
    return text, shares


def _pair(record: AttentionRecord, pair: dict[str, Any], name: str, language: str) -> str:
    query, key = pair["query"], pair["key"]
    names = {"query": _quoted(record.queries, query), "key": _quoted(record.keys, key)}
    return say(name, language, **names, row=f"{query:,}", column=f"{key:,}", weight=percent(pair["weight"], language))


def _quoted(axis: Axis, position: int) -> str:
    return f"“\u2068{visible_token(axis.labels[position], 24)}\u2069”"


def _stripes(windows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the far distances of each head that has several, together."""
    stripes = []
    for head in dict.fromkeys(one["head"] for one in windows):
        far = [one for one in windows if one["head"] == head and "from" not in one and abs(one["offset"]) > 1]
        if len(far) > 1:
            share = sum(one["share"] * one["queries"] / one["all"] for one in far)
            stripes.append({"head": head, "distances": sorted(abs(one["offset"]) for one in far), "share": share})
    return stripes


def _windows(diagonals: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the diagonals; those of a head that follow each other are one, whose share is the mean of all queries."""
    windows: list[dict[str, Any]] = []
    for one in sorted(diagonals, key=lambda one: (one["head"], one["offset"])):
        last = windows[-1] if windows else None
        if last and (last["head"], last["offset"]) == (one["head"], one["offset"] - 1):
            if "from" not in last:
                last |= {"from": last["offset"], "share": last["share"] * last["queries"] / last["all"]}
            share = last["share"] + one["share"] * one["queries"] / one["all"]
            last |= {"offset": one["offset"], "share": share, "queries": last["all"]}
        else:
            windows.append(dict(one))
    return windows


def _finding(record: AttentionRecord, one: dict[str, Any], language: str) -> str:
    """Returns a distance, a window, several distances, or a key at which many look."""
    share = percent(one["share"], language)
    if "distances" in one:
        distances = ", ".join(f"{distance:,}" for distance in one["distances"])
        return say("long_says_stripes", language, share=share, distances=distances)
    if "key" in one:
        key = _quoted(record.keys, one["key"])
        return say("long_says_sink", language, key=key, number=f"{one['key']:,}", share=share)
    offset = one["offset"]
    if "from" in one:
        name = {0: "long_says_window_own", -1: "long_says_window"}.get(offset, "long_says_window_other")
        ends = {"from": f"{abs(one['from']):,}", "to": f"{abs(offset):,}"}
        return say(name, language, share=share, count=f"{offset - one['from'] + (offset != 0):,}", **ends)
    named = {0: "long_says_own", -1: "long_says_previous", 1: "long_says_next"}
    name = named.get(offset, "long_says_back" if offset < 0 else "long_says_ahead")
    text = say(name, language, share=share, distance=f"{abs(offset):,}")
    if one["queries"] >= MOST_REACHED * one["all"]:
        return text
    return say("long_says_some", language, text=text, queries=f"{one['queries']:,}", all=f"{one['all']:,}")
