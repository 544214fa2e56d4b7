"""The masks that regard makes for Hugging Face models are those of ``sdpa``, and keep their structure."""

import importlib
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("transformers")

from transformers import masking_utils as library

from regard import masks
from regard.errors import ArgumentError
from regard.shapes import Grid
from regard.watching import register_transformers
from regard.watching.hugging_face import Implementation
from regard.watching.hugging_face_masks import StructuredMask

mask = Implementation().mask

BATCH, LENGTH = 3, 11


def packed_sequences(function, position, ids):
    """A mask function for sequences that stand one after the other in a row; versions compose it in either order."""
    return library.and_masks(
        library.packed_sequence_mask_function(ids), library.remap_positions_for_packed_sequence(function, position)
    )


def functions():
    """Mask functions as models make them, with the number of batch rows that they know."""
    left = torch.tensor([0, 2, 5])
    packed = torch.tensor([[0] * 4 + [1] * 7, [0] * 11, [0] * 3 + [1] * 3 + [2] * 5])
    position = torch.tensor([[*range(4), *range(7)], [*range(11)], [*range(3), *range(3), *range(5)]])
    odd = torch.tensor([[*range(0, 8, 2), *range(7)], [*range(11)], [*range(3), *range(3), *range(5)]])
    blocks = torch.tensor([[-1] * 2 + [0] * 3 + [-1] * 2 + [1] * 4, [-1] * 11, [0] * 11])
    window = library.sliding_window_causal_mask_function(4)
    both_sides = library.sliding_window_bidirectional_mask_function(2)
    chunks = library.chunked_causal_mask_function(4, left)
    own = lambda batch, head, query, key: (query + key + batch) % 3 != 0  # noqa: E731
    return {
        "causal": library.causal_mask_function,
        "bidirectional": library.bidirectional_mask_function,
        "window": window,
        "window on both sides": both_sides,
        "chunks": chunks,
        "blocks": library.or_masks(library.causal_mask_function, library.blockwise_overlay(blocks)),
        "packed": packed_sequences(library.causal_mask_function, position, packed),
        "packed windows": packed_sequences(window, position, packed),
        "packed chunks": packed_sequences(chunks, position, packed),
        "packed odd": packed_sequences(window, odd, packed),
        "packed blocks": library.and_masks(
            library.or_masks(
                library.remap_positions_for_packed_sequence(library.causal_mask_function, position),
                library.blockwise_overlay(blocks),
            ),
            library.packed_sequence_mask_function(packed),
        ),
        "padding": library.and_masks(window, library.padding_mask_function(torch.rand(BATCH, 40) > 0.3)),
        "moved": library.add_offsets_to_mask_function(window, 3, 1),
        "own": library.and_masks(library.causal_mask_function, own),
        "all or own": library.or_masks(library.bidirectional_mask_function, own),
    }


NEED_EQUAL_LENGTHS = ("blocks", "packed", "packed windows", "packed chunks", "packed odd", "packed blocks")


@pytest.mark.parametrize("name", functions())
@pytest.mark.parametrize("padded", [None, "left", "right", "both", "none"])
def test_mask_is_that_of_the_library(name, padded):
    padding = None if padded is None else torch.ones(BATCH, LENGTH, dtype=torch.bool)
    if padded in ("left", "both"):
        padding[1, :3], padding[2, :] = False, False
    if padded in ("right", "both"):
        padding[0, 5:], padding[1, 9:] = False, False
    sizes = {"batch_size": BATCH, "q_length": LENGTH, "kv_length": LENGTH, "mask_function": functions()[name]}
    want = library.sdpa_mask(**sizes, attention_mask=padding, allow_is_causal_skip=False)
    got = mask(**sizes, attention_mask=padding)
    assert isinstance(got, StructuredMask)
    assert got.shape == want.shape
    assert torch.equal(got.dense(), want)


@given(st.data())
def test_mask_of_a_cache_is_that_of_the_library(data):
    name = data.draw(st.sampled_from([name for name in functions() if name not in NEED_EQUAL_LENGTHS]))
    queries, keys = data.draw(st.integers(2, 7)), data.draw(st.integers(1, 13))
    first_query, first_key = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 5))
    padding = data.draw(st.none() | st.integers(1, keys + first_key).map(lambda n: torch.rand(BATCH, n) > 0.4))
    sizes = {
        "batch_size": BATCH, "q_length": queries, "kv_length": keys, "q_offset": first_query, "kv_offset": first_key,
        "mask_function": functions()[name], "attention_mask": padding,
    }  # fmt: skip
    assert torch.equal(mask(**sizes).dense(), library.sdpa_mask(**sizes, allow_is_causal_skip=False))


def test_functions_of_a_user_are_called_for_each_pair():
    ids = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2])

    def same(batch, head, query, key):
        return ids[query] == ids[key]

    function = library.or_masks(library.causal_mask_function, same)
    sizes = {"batch_size": BATCH, "q_length": LENGTH, "kv_length": LENGTH, "mask_function": function, "use_vmap": True}
    assert torch.equal(mask(**sizes).dense(), library.sdpa_mask(**sizes, allow_is_causal_skip=False))


STRUCTURES = {
    "causal": masks.Band, "window": masks.And, "window on both sides": masks.Band, "chunks": masks.And,
    "packed": masks.And, "packed windows": masks.And, "padding": masks.And, "moved": masks.And,
}  # fmt: skip


@pytest.mark.parametrize("name", STRUCTURES)
def test_structure_is_kept(name):
    made = mask(batch_size=BATCH, q_length=LENGTH, kv_length=LENGTH, mask_function=functions()[name])
    assert isinstance(made.mask, STRUCTURES[name])
    parts = made.mask.parts if isinstance(made.mask, masks.And) else (made.mask,)
    assert all(isinstance(part, masks.Band | masks.Documents | masks.Keep) for part in parts)
    assert made.mask.spans(Grid.whole(BATCH, 1, LENGTH, LENGTH, torch.device("cpu"))) is not None or name == "padding"


def test_memory_of_a_long_mask_is_linear():
    padding = torch.ones(2, 10**6, dtype=torch.bool)
    padding[1, :1000] = False
    function = library.sliding_window_causal_mask_function(100)
    made = mask(batch_size=2, q_length=10**6, kv_length=10**6, mask_function=function, attention_mask=padding)
    assert made.shape == (2, 1, 10**6, 10**6)  # a terabyte if it were dense
    assert "window" in repr(made)


@pytest.mark.parametrize("padded", [False, True])
def test_a_single_query_gets_a_plain_tensor(padded):
    padding = torch.ones(BATCH, LENGTH, dtype=torch.bool) if padded else None
    if padded:
        padding[0, :2] = False
    made = mask(batch_size=BATCH, q_length=1, kv_length=LENGTH, q_offset=LENGTH - 1, attention_mask=padding)
    assert (made is None) if not padded else type(made) is torch.Tensor and torch.equal(made[:, 0, 0], padding)


def test_slices_keep_the_structure_and_operations_make_it_dense():
    made = mask(batch_size=BATCH, q_length=LENGTH, kv_length=LENGTH, mask_function=functions()["chunks"])
    want = made.dense()
    part = made[:, :, 2:7, :9]
    assert isinstance(part, StructuredMask)
    assert not part.is_whole
    assert torch.equal(part.dense(), want[:, :, 2:7, :9])
    assert torch.equal(made[1:][:, :, -1:].dense(), want[1:, :, -1:])
    assert torch.equal(made[:, :, ::2] & True, want[:, :, ::2])
    assert torch.equal(~made, ~want)
    assert torch.equal(made | want, want)
    assert bool(made.any())
    assert torch.equal(torch.where(made, 1.0, 2.0), torch.where(want, 1.0, 2.0))
    assert torch.equal(made.to(torch.float64), want.double())
    assert torch.equal(made.expand(-1, 5, -1, -1)[:, 3], want[:, 0])
    assert made.detach() is made
    assert made.dtype == torch.bool
    assert made.device == torch.device("cpu")


def test_families_that_ask_no_implementation_are_named():
    from transformers import BloomConfig, BloomModel

    config = BloomConfig(vocab_size=13, hidden_size=8, n_layer=1, n_head=2)
    model = BloomModel._from_config(config, attn_implementation=register_transformers())
    with pytest.raises(ArgumentError, match=r"Bloom computes its attention by itself.*attn_implementation='eager'"):
        model(torch.tensor([[1, 2, 3]]))
    mask(batch_size=1, q_length=3, kv_length=3, config=SimpleNamespace())


SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
IMAGES = {**SMALL, "image_size": 8, "patch_size": 4}
OWN_CLASSES = {
    "Falcon": ("FalconModel", {"vocab_size": 13, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}),
    "GPTNeo": (
        "GPTNeoModel",
        {"vocab_size": 13, "hidden_size": 8, "num_layers": 1, "num_heads": 2, "attention_types": [[["global"], 1]]},
    ),
    "Git": ("GitModel", {**SMALL, "vocab_size": 13, "vision_config": IMAGES}),
}


@pytest.mark.parametrize("family", OWN_CLASSES)
def test_families_with_attention_classes_of_their_own_say_so(family):
    import transformers

    kind, options = OWN_CLASSES[family]
    config = getattr(transformers, f"{family}Config")(**options)
    create = getattr(transformers, kind)._from_config
    with pytest.raises(
        ArgumentError, match=rf"^{family} has its own attention classes .* attn_implementation=.*'eager'"
    ):
        create(config, attn_implementation=register_transformers())
    with pytest.raises(ArgumentError, match=family):
        create(config, attn_implementation=register_transformers("other", backend="tiled"))
    create(config, attn_implementation="eager")


def test_every_table_of_attention_classes_has_an_entry_that_says_so():
    """All families of the installed transformers, by their sources."""
    from transformers import PreTrainedModel

    name, tables = register_transformers(), 0
    for path in sorted((Path(library.__file__).parent / "models").glob("*/modeling_*.py")):
        for table in re.findall(r"^(\w+) = \{\n +[\"']eager[\"']: \w*Attention", path.read_text(), re.MULTILINE):
            module = importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
            kinds = [kind for kind in vars(module).values() if isinstance(kind, type)]
            model = next(
                kind for kind in kinds if issubclass(kind, PreTrainedModel) and kind.__module__ == module.__name__
            )
            assert model.get_correct_attn_implementation(object.__new__(model), name, True) == name
            with pytest.raises(ArgumentError, match="Some has its own attention classes"):
                vars(module)[table][name](type("SomeConfig", (), {})())
            tables += 1
    assert tables >= 8
