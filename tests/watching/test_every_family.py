"""regard as an attention implementation: every family gives what ``eager`` gives, or is refused by its name.

A sample runs always, and ``pytest --full`` runs all families.
"""

import re

import pytest

pytest.importorskip("transformers")

from regard.watching import register_transformers
from shrunken_transformers import families, outcome

register_transformers()

SAMPLE = {
    # Its layers join the mask with numbers in the mask's dtype.
    "deepseek_v4": "equal",
    # Its last layers share keys and get a whole slice of the mask.
    "gemma4_text": "equal",
    # It pads its mask with the lowest number of its dtype, and compares it with 0.
    "gemma4_audio": "own",
    # Its layers have `is_causal = True`, and get None for no mask.
    "bridgetower": "equal",
    "gpt_oss": "equal",
    "bamba": "equal",
    "t5": "equal",
    "qwen2_vl": "equal",
    # An indexer chooses keys for each query.
    "axk2": "equal",
    "bloom": "refused",
    "data2vec-vision": "refused",
}
"""Families whose masks meet different operations, and what comes of them."""


def pytest_generate_tests(metafunc):
    if "family" in metafunc.fixturenames:
        metafunc.parametrize("family", families() if metafunc.config.getoption("full") else sorted(SAMPLE))


def test_every_family_of_transformers_is_watched(family):
    """A whole pass, padding on both sides, a prefill and cached steps, and a decoder that is not causal."""
    found = outcome(family)
    if found.kind == "unbuilt":
        assert family not in SAMPLE
        pytest.skip(found.why[:300])
    assert found.kind in ("equal", "own", "refused"), found
    assert found.kind == SAMPLE.get(family, found.kind), found
    if found.kind == "refused":
        refusals = [mode for mode in found.modes.values() if isinstance(mode, str) and not mode.startswith("eager: ")]
        assert all(re.match(r"\w+.*attn_implementation='|\w+: the attention .* use 'eager'", mode) for mode in refusals)
