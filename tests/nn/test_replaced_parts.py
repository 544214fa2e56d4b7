"""Code that reads and replaces the parts of torch's module works on `MultiheadAttention`."""

import copy
import io
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune

from regard.errors import ArgumentError
from regard.nn import MultiheadAttention

BATCH, HEADS, QUERIES, KEYS, EMBED, RANK = 3, 2, 5, 11, 14, 4
ATTRIBUTES = [
    "embed_dim",
    "kdim",
    "vdim",
    "_qkv_same_embed_dim",
    "num_heads",
    "dropout",
    "batch_first",
    "head_dim",
    "in_proj_weight",
    "q_proj_weight",
    "k_proj_weight",
    "v_proj_weight",
    "in_proj_bias",
    "bias_k",
    "bias_v",
    "add_zero_attn",
]
CONSTRUCTORS = {
    "plain": {},
    "no bias": {"bias": False},
    "dims": {"kdim": 13, "vdim": 17},
    "appended": {"add_bias_kv": True, "add_zero_attn": True},
}


def pair(**options: object) -> tuple[nn.MultiheadAttention, MultiheadAttention]:
    theirs, ours = (
        cls(EMBED, HEADS, batch_first=True, dtype=torch.float64, **options)  # type: ignore[arg-type]
        for cls in (nn.MultiheadAttention, MultiheadAttention)
    )
    for name, parameter in theirs.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def inputs(module: nn.MultiheadAttention) -> list[Tensor]:
    axes = ((QUERIES, EMBED), (KEYS, module.kdim), (KEYS, module.vdim))
    return [torch.randn(BATCH, length, features, dtype=torch.float64) for length, features in axes]


def same(theirs: nn.Module, ours: nn.Module) -> None:
    """Both give the same output, weights and gradients of what they learn."""
    tensors = inputs(theirs)  # type: ignore[arg-type]
    results = [module(*tensors) for module in (theirs, ours)]
    torch.testing.assert_close(results[1], results[0])
    losses = [output.pow(2).sum() + weights.pow(3).sum() for output, weights in results]
    grads = [
        torch.autograd.grad(loss, [p for p in module.parameters() if p.requires_grad])
        for module, loss in zip((theirs, ours), losses, strict=True)
    ]
    torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize("options", CONSTRUCTORS.values(), ids=CONSTRUCTORS)
def test_attributes_of_the_drop_in_are_torchs(options):
    theirs, ours = pair(**options)
    for name in ATTRIBUTES:
        expected, came = getattr(theirs, name), getattr(ours, name)
        assert type(came) is type(expected), name
        assert torch.equal(came, expected) if isinstance(came, Tensor) else came == expected, name
    assert type(ours.out_proj) is type(theirs.out_proj)


@pytest.mark.parametrize("options", CONSTRUCTORS.values(), ids=CONSTRUCTORS)
def test_the_functional_form_takes_its_parameters(options):
    theirs, ours = pair(**options)
    query, key, value = (tensor.transpose(0, 1) for tensor in inputs(ours))
    expected, came = (
        F.multi_head_attention_forward(
            query,
            key,
            value,
            module.embed_dim,
            module.num_heads,
            module.in_proj_weight,
            module.in_proj_bias,
            module.bias_k,
            module.bias_v,
            module.add_zero_attn,
            module.dropout,
            module.out_proj.weight,
            module.out_proj.bias,
            use_separate_proj_weight=not module._qkv_same_embed_dim,
            q_proj_weight=module.q_proj_weight,
            k_proj_weight=module.k_proj_weight,
            v_proj_weight=module.v_proj_weight,
        )
        for module in (theirs, ours)
    )
    torch.testing.assert_close(came, expected)
    tensors = [tensor.transpose(0, 1) for tensor in (query, key, value)]
    torch.testing.assert_close(ours(*tensors)[0].transpose(0, 1), came[0])


@pytest.mark.parametrize("name", ["static_k", "static_v"])
def test_static_keys_are_no_argument_of_the_module(name):
    for module in pair():
        with pytest.raises(TypeError, match=name):
            module(*inputs(module), **{name: torch.randn(BATCH * HEADS, KEYS, EMBED // HEADS)})


def test_need_weights_may_be_given_by_position():
    theirs, ours = pair()
    tensors = inputs(ours)
    for given in ((None, False), (None, True, None, False), (None, True, None, True, False)):
        torch.testing.assert_close(ours(*tensors, *given), theirs(*tensors, *given))


def saved_and_loaded(module: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def from_state(module: nn.Module) -> nn.Module:
    made = type(module).__new__(type(module))
    made.__setstate__(copy.deepcopy(module.__dict__))
    return made


@pytest.mark.parametrize("options", CONSTRUCTORS.values(), ids=CONSTRUCTORS)
@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, saved_and_loaded, from_state, lambda module: pickle.loads(pickle.dumps(module))],
)
def test_copies_are_the_module(options, copied):
    theirs, ours = pair(**options)
    made = copied(ours)
    assert type(made) is MultiheadAttention
    same(theirs, made)
    if copied is not copy.copy:
        nn.init.zeros_(made.out_proj.weight)
        same(theirs, ours)


@pytest.mark.parametrize("options", CONSTRUCTORS.values(), ids=CONSTRUCTORS)
def test_reset_parameters_draws_what_torch_draws(options):
    modules = pair(**options)
    for module in modules:
        torch.manual_seed(11)
        module._reset_parameters()
    for expected, came in zip(*(module.state_dict().values() for module in modules), strict=True):
        assert torch.equal(came, expected)


@pytest.mark.parametrize("options", CONSTRUCTORS.values(), ids=CONSTRUCTORS)
def test_parameters_are_replaced(options):
    theirs, ours = pair(**options)
    for name, parameter in theirs.named_parameters():
        owner, _, attribute = name.rpartition(".")
        replaced = torch.randn_like(parameter)
        for module in (theirs, ours):
            setattr(module.get_submodule(owner), attribute, nn.Parameter(replaced.clone()))
    same(theirs, ours)
    given = {name: torch.randn_like(parameter) for name, parameter in theirs.named_parameters()}
    tensors = inputs(theirs)
    expected, came = (torch.func.functional_call(module, given, tuple(tensors)) for module in (theirs, ours))
    torch.testing.assert_close(came, expected)


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


@pytest.mark.parametrize("options", CONSTRUCTORS.values(), ids=CONSTRUCTORS)
def test_projections_are_parametrized_and_pruned(options):
    theirs, ours = pair(**options)
    name = "in_proj_weight" if ours._qkv_same_embed_dim else "k_proj_weight"
    for module in (theirs, ours):
        parametrize.register_parametrization(module, name, Doubled())
        parametrizations.weight_norm(module.out_proj)
    same(theirs, ours)
    theirs, ours = pair(**options)
    for module in (theirs, ours):
        prune.l1_unstructured(module, name, amount=0.4)
    assert (getattr(ours, name) == 0).any()
    same(theirs, ours)
    for module in (theirs, ours):
        prune.remove(module, name)
    same(theirs, ours)


class Adapter(nn.Module):
    """A projection with a learned difference of low rank, as adapters wrap it."""

    def __init__(self, base: nn.Linear):
        super().__init__()
        self.base = base
        self.down = nn.Linear(EMBED, RANK, bias=False, dtype=torch.float64)
        self.up = nn.Linear(RANK, EMBED, bias=False, dtype=torch.float64)

    def forward(self, input: Tensor) -> Tensor:
        return self.base(input) + self.up(self.down(input))


def test_out_proj_may_be_another_module():
    theirs, ours = pair()
    ours.out_proj = Adapter(ours.out_proj)  # type: ignore[assignment]
    merged = ours.out_proj.base.weight + ours.out_proj.up.weight @ ours.out_proj.down.weight
    theirs.out_proj.weight = nn.Parameter(merged.detach())
    tensors = inputs(ours)
    came = ours(*tensors)
    torch.testing.assert_close(came, theirs(*tensors))
    came[0].sum().backward()
    assert all(parameter.grad is not None for parameter in ours.out_proj.parameters())


def test_packed_projections_are_taken_apart():
    theirs, ours = pair()
    for module in (theirs, ours):
        separate = module.in_proj_weight.detach().clone().chunk(3)
        for name, weight in zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), separate, strict=True):
            setattr(module, name, nn.Parameter(weight))
        # What is left of the packed weight is not read any more.
        nn.init.zeros_(module.in_proj_weight)
        module.in_proj_weight.requires_grad_(False)
        module._qkv_same_embed_dim = False
    same(theirs, ours)
    ours.k_proj_weight = None
    with pytest.raises(ArgumentError, match="k_proj_weight is None although _qkv_same_embed_dim is False"):
        ours(*inputs(ours))


@pytest.mark.parametrize("name", ["bias_k", "bias_v"])
def test_appended_key_and_value_come_together(name):
    theirs, ours = pair(add_bias_kv=True)
    setattr(theirs, name, None)
    setattr(ours, name, None)
    with pytest.raises(AssertionError):
        theirs(*inputs(theirs))
    with pytest.raises(ArgumentError, match="bias_k and bias_v"):
        ours(*inputs(ours))
