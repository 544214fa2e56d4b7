"""The masks that regard makes for Hugging Face models are those of ``sdpa``, and keep their structure."""

import copy
import importlib
import operator
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
from regard.shapes.grid import Grid
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


def _near(batch, head, query, key):
    """As the audio encoder of Gemma 4 describes its windows."""
    distance = query - key
    return ((distance >= 0) & (distance < 4)) | ((distance < 0) & (-distance < 2))


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
        "mapped": library.and_masks(library.bidirectional_mask_function, _near),
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
    assert torch.equal(got.allowed(), want)


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
    assert torch.equal(mask(**sizes).allowed(), library.sdpa_mask(**sizes, allow_is_causal_skip=False))


def test_functions_of_a_user_are_called_for_each_pair():
    ids = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 2])

    def same(batch, head, query, key):
        return ids[query] == ids[key]

    function = library.or_masks(library.causal_mask_function, same)
    sizes = {"batch_size": BATCH, "q_length": LENGTH, "kv_length": LENGTH, "mask_function": function, "use_vmap": True}
    assert torch.equal(mask(**sizes).allowed(), library.sdpa_mask(**sizes, allow_is_causal_skip=False))


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
def test_a_single_query_gets_what_its_row_hides(padded):
    padding = torch.ones(BATCH, LENGTH, dtype=torch.bool) if padded else None
    if padded:
        padding[0, :2] = False
    sizes = {"batch_size": BATCH, "q_length": 1, "kv_length": LENGTH, "attention_mask": padding}
    made = mask(**sizes, q_offset=LENGTH - 1)
    assert (made.mask is None) != padded
    assert torch.equal(made, library.eager_mask(**sizes, q_offset=LENGTH - 1))
    # The offset of a static cache is a tensor, whose number is not read.
    static = mask(**sizes, q_offset=torch.tensor(LENGTH - 1))
    assert type(static) is torch.Tensor
    assert torch.equal(static, made)


def test_slices_keep_the_structure():
    made = mask(batch_size=BATCH, q_length=LENGTH, kv_length=LENGTH, mask_function=functions()["chunks"])
    want = made.dense()
    for part, expected in (
        (made[:, :, 2:7, :9], want[:, :, 2:7, :9]),
        (made[1:][:, :, -1:], want[1:, :, -1:]),
        (made[:, :, :, :], want),
        (made[..., : LENGTH + 3], want),
        (made.detach(), want),
    ):
        assert isinstance(part, StructuredMask)
        assert part is not made
        assert part.is_whole == (part.shape == made.shape)
        assert torch.equal(part.dense(), expected)
    assert "window" in repr(mask(batch_size=1, q_length=5, kv_length=5, mask_function=functions()["window"])[:, :, :3])


MORE = torch.linspace(-1, 1, BATCH * LENGTH * 2).reshape(BATCH, 1, LENGTH, 2)
SCORES = torch.linspace(-3, 3, LENGTH * LENGTH).reshape(LENGTH, LENGTH)
OPERATIONS = {
    "cat": lambda m: torch.cat([m, MORE.to(m.dtype)], dim=-1),
    "pad": lambda m: torch.nn.functional.pad(m, (0, 2), value=0.0),
    "pad with the lowest": lambda m: torch.nn.functional.pad(m, (1, 0, 2, 0), value=torch.finfo(m.dtype).min),
    "to a dtype": lambda m: m.to(torch.float64),
    "to bool": lambda m: m.bool(),
    "to a dtype of its own": lambda m: m.to(m.dtype),
    "every second row": lambda m: m[:, :, ::2],
    "a row": lambda m: m[1, 0, 3],
    "an index": lambda m: m[torch.tensor([2, 0])],
    "a new axis": lambda m: m[:, None],
    "add": lambda m: SCORES + m,
    "add a part": lambda m: SCORES[:, :5] + m[..., :5],
    "multiply": lambda m: m * 0.5,
    "equal to 0": lambda m: m == 0,
    "not equal to 0": lambda m: SCORES.masked_fill(m != 0, -7.0),
    "below 0": lambda m: m < 0,
    "negative of what is equal": lambda m: ~(m == 0),
    "masked_fill": lambda m: m.masked_fill(SCORES > 1, torch.finfo(m.dtype).min),
    "where": lambda m: torch.where(m > -1, SCORES, m),
    "softmax": lambda m: (SCORES + m).softmax(-1),
    "minimum": lambda m: m.amin(-1),
    "gather": lambda m: m.gather(-1, torch.arange(4).expand(BATCH, 1, LENGTH, 4)),
    "expand": lambda m: m.expand(-1, 5, -1, -1),
    "reshape": lambda m: m.reshape(BATCH, LENGTH, LENGTH),
    "transpose": lambda m: m.transpose(2, 3),
    "written into another": lambda m: torch.zeros(BATCH, 1, LENGTH, LENGTH, dtype=m.dtype).add_(m),
    "copy": lambda m: m.clone(),
    "deep copy": lambda m: copy.deepcopy(m),
    "NumPy": lambda m: torch.from_numpy(m.float().numpy() if m.dtype == torch.bfloat16 else m.numpy()),
    "lists": lambda m: torch.tensor(m.tolist()),
}  # fmt: skip


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_operations_on_a_mask_give_the_result_of_eager(dtype, grad):
    """DeepSeek-V4 of transformers 5.24 joins its mask with numbers, Gemma 4 cuts it and compares it with 0."""
    padding = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    padding[1, :3], padding[2, 8:] = False, False
    sizes = {"batch_size": BATCH, "q_length": LENGTH, "kv_length": LENGTH, "attention_mask": padding, "dtype": dtype}
    offenders = []
    for name, operation in OPERATIONS.items():
        for part, per_pair in (("causal", False), ("chunks", False), ("mapped", True)):
            made = sizes | {"mask_function": functions()[part], "use_vmap": per_pair}
            with torch.set_grad_enabled(grad):
                got, want = operation(mask(**made)), operation(library.eager_mask(**made))
            if got.dtype != want.dtype or not torch.equal(got, want):
                offenders.append(name)
    assert offenders == []


WRITES = {
    "+=": lambda m: operator.iadd(m, 1.0),
    "a row": lambda m: operator.setitem(m, (slice(None), slice(None), 1), 0.0),
    "a row of a slice": lambda m: operator.setitem(m[:, :, 2:], (slice(None), slice(None), 1), -1.0),
    "a part": lambda m: m[..., :3].fill_(0.0),
    "a part of a view": lambda m: m.squeeze(1)[:, 4].mul_(0.5),
    "a slice that was read before": lambda m: (m[..., 2:] * 1.0, m[..., 2:].zero_()),
    "where it is hidden": lambda m: m.masked_fill_(m < 0, -torch.inf),
    "copy_": lambda m: m.copy_(MORE[..., :1]),
    "out=": lambda m: torch.add(SCORES.expand(m.shape), 1.0, out=m),
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("name", WRITES)
def test_a_mask_that_a_model_writes_into_has_what_was_written(name, mode):
    sizes = {"batch_size": BATCH, "q_length": LENGTH, "kv_length": LENGTH, "mask_function": functions()["chunks"]}
    with mode():
        got, want = mask(**sizes), library.eager_mask(**sizes)
        part = got[:, :, 1:]
        WRITES[name](got)
        WRITES[name](want)
        assert torch.equal(got, want)
        assert torch.equal(part, want[:, :, 1:])
        assert torch.equal(copy.deepcopy(got), want)
        query = torch.randn(BATCH, 2, LENGTH, 8, dtype=torch.float64)
        scores = query @ query.mT * 8**-0.5 + want
        expected = (scores.softmax(-1) @ query).nan_to_num().transpose(1, 2)
        attended, _ = Implementation().attention(torch.nn.Module().eval(), query, query, query, got)
        assert torch.allclose(attended, expected)


def test_a_mask_that_is_only_looked_at_keeps_its_structure():
    made = mask(batch_size=BATCH, q_length=LENGTH, kv_length=LENGTH)
    assert torch.equal(made[:, 0].sum(-1), made.dense().sum(-1)[:, 0])
    assert not made.was_written
    assert isinstance(made.mask, masks.Band)


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
