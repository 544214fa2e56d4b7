"""regard as an attention implementation: every family gives what ``eager`` gives, or is refused by its name.

A sample runs always, and ``pytest --full`` runs all families.
"""

import re

import pytest
import torch

pytest.importorskip("transformers")

from regard import Change, intervene
from regard.errors import ArgumentError, UnseenError
from regard.watching import register_transformers
from shrunken_transformers import UnbuiltError, families, outcome, outputs, subject

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


@pytest.mark.filterwarnings("ignore")
def test_every_family_keeps_its_bits_until_something_changes(family):
    """Heads whose weights are 0 have the output 0, by another path through the code; or the change is refused."""
    try:
        made = subject(family)
    except UnbuiltError as reason:
        pytest.skip(str(reason)[:300])
    for implementation in ("sdpa", "eager"):
        try:
            model = made.model(implementation)
        except ValueError:  # it has no such implementation
            continue

        @torch.no_grad()
        def run(change, model=model):
            torch.manual_seed(0)
            with intervene(model, change):
                return outputs(model(**made.inputs))

        torch.manual_seed(0)
        with torch.no_grad():
            plain = outputs(model(**made.inputs))
            torch.manual_seed(0)
            with pytest.raises(UnseenError), intervene(model, Change("output", 0.0, layer=1000)):
                unchanged = outputs(model(**made.inputs))
        assert_same_bits(unchanged, plain)
        try:
            assert_same_bits(run(Change("output", lambda heads: heads)), plain)
        except UnseenError:  # nothing in it attends
            continue
        without_outputs = run(Change("output", 0.0))
        assert any(not torch.equal(*pair) for pair in zip(without_outputs, plain, strict=True))
        try:
            without_weights = run(Change("weights", 0.0))
        except ArgumentError as refusal:
            if "cannot be changed" not in str(refusal):
                raise
        else:
            assert_same_bits(without_weights, without_outputs)
            assert_same_bits(run(Change("weights", torch.zeros_like)), without_outputs)


def assert_same_bits(tensors, expected):
    torch.testing.assert_close(tensors, expected, rtol=0.0, atol=0.0, equal_nan=True)
