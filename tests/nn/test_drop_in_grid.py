"""Torch's module and `MultiheadAttention` agree over drawn constructors, layouts, sizes, masks and dtypes."""

from dataclasses import dataclass
from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.nn import MultiheadAttention

BATCH, QUERIES, KEYS, KDIM, VDIM = 3, 5, 11, 13, 17
Kind = Literal["none", "bool", "inf", "float"]


@dataclass(frozen=True)
class Case:
    """One constructor and one call."""

    heads: int
    head_dim: int
    options: dict[str, object]
    layout: Literal["batch_first", "length_first", "unbatched"]
    batch: int
    queries: int
    keys: int
    shared: Literal["all", "key and value", "none"]
    attn_mask: Kind
    attn_mask_of_each_head: bool
    key_padding_mask: Kind
    need_weights: bool
    average: bool
    training: bool
    dtype: torch.dtype
    seed: int

    @property
    def rows(self) -> int:
        return 1 if self.layout == "unbatched" else self.batch


@st.composite
def cases(draw: st.DrawFn) -> Case:
    shared = draw(st.sampled_from(["all", "key and value", "none"]))
    dims = {"kdim": KDIM, "vdim": VDIM} if shared == "none" and draw(st.booleans()) else {}
    flags = {name: draw(st.booleans()) for name in ("bias", "add_bias_kv", "add_zero_attn")}
    queries = draw(st.sampled_from([0, 1, QUERIES]))
    kinds = st.sampled_from(["none", "bool", "inf", "float"])
    return Case(
        heads=draw(st.sampled_from([1, 2, 3])),
        head_dim=draw(st.sampled_from([1, 7])),
        options={**dims, **flags},
        layout=draw(st.sampled_from(["batch_first", "length_first", "unbatched"])),
        batch=draw(st.sampled_from([0, 1, BATCH])),
        queries=queries,
        keys=queries if shared == "all" else draw(st.sampled_from([0, 1, KEYS])),
        shared=shared,
        attn_mask=draw(kinds),
        attn_mask_of_each_head=draw(st.booleans()),
        key_padding_mask=draw(kinds),
        need_weights=draw(st.booleans()),
        average=draw(st.booleans()),
        training=draw(st.booleans()),
        dtype=draw(st.sampled_from([torch.float32, torch.float64])),
        seed=draw(st.integers(0, 99)),
    )


def mask(kind: Kind, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor | None:
    """A mask of one of torch's kinds; every query may see the first key."""
    if kind == "none":
        return None
    hidden = torch.rand(shape) < 0.4
    hidden[..., :1] = False
    if kind == "bool":
        return hidden
    return (
        torch.zeros(shape, dtype=dtype).masked_fill(hidden, -torch.inf)
        if kind == "inf"
        else torch.randn(shape, dtype=dtype)
    )


def prepare(case: Case) -> tuple[nn.MultiheadAttention, MultiheadAttention, list[Tensor], dict[str, object]]:
    torch.manual_seed(case.seed)
    embed = case.heads * case.head_dim
    theirs, ours = (
        cls(embed, case.heads, batch_first=case.layout == "batch_first", dtype=case.dtype, **case.options)  # type: ignore[arg-type]
        for cls in (nn.MultiheadAttention, MultiheadAttention)
    )
    for name, parameter in theirs.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    tensors = []
    for length, features in ((case.queries, embed), (case.keys, ours.kdim), (case.keys, ours.vdim)):
        axes = {"batch_first": (case.batch, length), "length_first": (length, case.batch), "unbatched": (length,)}
        tensors.append(torch.randn(*axes[case.layout], features, dtype=case.dtype, requires_grad=True))
    query, key, value = tensors
    given = {"all": [query] * 3, "key and value": [query, key, key], "none": [query, key, value]}[case.shared]
    heads = (case.rows * case.heads,) if case.attn_mask_of_each_head else ()
    padding = mask(case.key_padding_mask, (case.rows, case.keys), case.dtype)
    how = {
        "attn_mask": mask(case.attn_mask, (*heads, case.queries, case.keys), case.dtype),
        "key_padding_mask": padding[0] if padding is not None and case.layout == "unbatched" else padding,
        "need_weights": case.need_weights,
        "average_attn_weights": case.average,
    }
    return theirs.train(case.training), ours.train(case.training), given, how


@pytest.mark.filterwarnings("ignore:Support for mismatched")
@given(case=cases())
@settings(deadline=None, max_examples=250)
def test_outputs_weights_gradients_and_errors_are_torchs(case):
    theirs, ours, tensors, how = prepare(case)
    came = ours(*tensors, **how)
    axes = {"batch_first": (case.batch, case.queries), "length_first": (case.queries, case.batch)}
    assert came[0].shape == (*axes.get(case.layout, (case.queries,)), ours.embed_dim)
    assert came[0].isfinite().all()
    try:
        expected = theirs(*tensors, **how)
    except RuntimeError:
        # Torch's module cannot reshape where an axis is empty.
        assert 0 in (case.batch, case.queries, case.keys)
        return
    appended = sum(bool(case.options[name]) for name in ("add_bias_kv", "add_zero_attn"))
    assert came[0].dtype == expected[0].dtype == case.dtype
    if case.keys + appended > 0:
        tolerance = {"rtol": 1e-4, "atol": 1e-5} if case.dtype == torch.float32 else {}
        torch.testing.assert_close(came, expected, **tolerance)
        learned = [*dict.fromkeys(tensors), *ours.parameters()], [*dict.fromkeys(tensors), *theirs.parameters()]
        grads = [
            torch.autograd.grad(
                output.pow(2).sum() + (0 if weights is None else weights.pow(3).sum()),
                inputs,
                allow_unused=True,
                materialize_grads=True,
            )
            for (output, weights), inputs in zip((came, expected), learned, strict=True)
        ]
        for got, want in zip(*grads, strict=True):
            # That of the key's bias is 0 but for the roundings of terms as large as the rest, which cancel.
            largest = max(1.0, want.abs().max().item()) if want.numel() else 1.0
            scaled = {name: value * (largest if name == "atol" else 1) for name, value in tolerance.items()}
            torch.testing.assert_close(got, want, **scaled)


@given(case=cases())
@settings(deadline=None, max_examples=60)
def test_state_dicts_go_both_ways(case):
    theirs, ours, _, _ = prepare(case)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for parameter in ours.parameters():
        nn.init.normal_(parameter)
    assert not theirs.load_state_dict(ours.state_dict()).missing_keys
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(tensor, ours.state_dict()[name])


@pytest.mark.filterwarnings("ignore:Support for mismatched")
@given(case=cases(), data=st.data())
@settings(deadline=None, max_examples=120)
def test_the_drop_in_refuses_inputs_that_torch_refuses(case, data):
    theirs, ours, tensors, how = prepare(case)
    changed = data.draw(st.sampled_from(["query", "key", "value", "attn_mask", "key_padding_mask"]))
    if changed in how:
        right = (case.queries if changed == "attn_mask" else case.rows, case.keys)
        how[changed] = torch.zeros(*right[:-1], right[-1] + 1, dtype=torch.bool)
    else:
        index = ("query", "key", "value").index(changed)
        wrong = data.draw(st.sampled_from(["features", "rank", "dtype"]))
        tensor = tensors[index]
        tensors[index] = {
            "features": torch.cat((tensor, tensor), dim=-1),
            "rank": tensor[None],
            "dtype": tensor.half(),
        }[wrong]
    for module in (theirs, ours):
        with pytest.raises((AssertionError, RuntimeError, ValueError, TypeError)):
            module(*tensors, **how)
