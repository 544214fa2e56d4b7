"""Whatever a hook, wrapper, override or parametrization sees and does in PyTorch's stacks, it sees and does in ours."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch import nn as torch_nn
from torch.nn.modules import module as torch_modules
from torch.nn.utils import parametrizations, spectral_norm

from regard import masks, nn
from regard.errors import ArgumentError

B, S, T, D, H, F = 3, 7, 5, 12, 2, 17
SOURCE_LENGTHS, TARGET_LENGTHS = torch.tensor([7, 3, 1]), torch.tensor([2, 5, 4])
KINDS = {
    "default": {},
    "pre-norm": {"norm_first": True},
    "grouped": {"kv_heads": 1},
    "additive": {"score": "additive"},
    "entmax15": {"normalizer": "entmax15"},
    "rotary": {"position": "rotary"},
    "checkpointing": {"activation_checkpointing": True},
}
LAYER_NAMES = [f"{stack}.layers.{layer}" for stack in ("encoder", "decoder") for layer in (0, 1)]
ATTENTION_NAMES = [
    *(f"{name}.self_attn" for name in LAYER_NAMES),
    *(f"{name}.multihead_attn" for name in LAYER_NAMES if name.startswith("decoder")),
]

SOME_NAMES = ["encoder.layers.0", "decoder.layers.1", *(ATTENTION_NAMES[place] for place in (0, 3, 4))]


def make(dtype=torch.float32, **options):
    torch.manual_seed(5)
    return nn.Transformer.create(2, 2, nn.LayerConfig(D, H, F, **{"dropout": 0.0, **options})).to(dtype)


def inputs(dtype=torch.float32):
    torch.manual_seed(6)
    return torch.randn(B, S, D, dtype=dtype), torch.randn(B, T, D, dtype=dtype)


def valid(lengths, length):
    return torch.arange(length) < lengths[:, None]


def output_of(model, padded=True):
    source, target = (tensor.requires_grad_() for tensor in inputs(next(model.parameters()).dtype))
    torch.manual_seed(7)
    lengths = {"src_lengths": SOURCE_LENGTHS, "tgt_lengths": TARGET_LENGTHS} if padded else {}
    return model(source, target, tgt_mask="causal", **lengths)


def observe(model, kind):
    """Put a hook that only looks on every registered submodule; the names of those that it saw."""
    seen = []
    for name, part in model.named_modules():
        if name:
            getattr(part, f"register_{kind}")(lambda *_, name=name: seen.append(name))
    return seen


HOOKS = ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook")
NEVER_CALLED = (
    ".layers",  # a list
    ".score",  # lowered to a primitive of a kernel
    ".normalizer",  # likewise
    ".waves",  # a table, which is read
)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("padded", [False, True])
def test_a_hook_on_every_part_fires(options, padded):
    """It changes no bit, also in a training; a padded batch then runs padded, the same up to rounding."""
    model = make(**{"dropout": 0.0 if padded else 0.3, **options})
    expected = output_of(model, padded)

    def check(output):
        assert torch.equal(output, expected) or (padded and torch.allclose(output, expected, atol=1e-5))

    for kind in HOOKS:
        observed = copy.deepcopy(model)
        seen = observe(observed, kind)
        output = output_of(observed, padded)
        output.sum().backward()
        check(output)
        missing = {name for name, _ in model.named_modules() if name} - set(seen)
        assert not {name for name in missing if not name.endswith(NEVER_CALLED)}, kind
    for register in ("forward_hook", "forward_pre_hook"):
        calls: list[type] = []
        hook = lambda module, *_, calls=calls: calls.append(type(module))  # noqa: E731
        handle = getattr(torch_modules, f"register_module_{register}")(hook)
        try:
            check(output_of(model, padded))
        finally:
            handle.remove()
        assert calls.count(nn.MultiheadAttention) >= len(ATTENTION_NAMES)
        assert {nn.TransformerEncoderLayer, nn.TransformerDecoderLayer} <= set(calls)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [False, True])
def test_hooks_get_what_they_get_in_pytorchs_stacks(norm_first):
    theirs = torch_nn.Transformer(D, H, 2, 2, F, 0.0, batch_first=True, norm_first=norm_first).double()
    ours = make(torch.float64, norm_first=norm_first)
    ours.load_state_dict(theirs.state_dict())
    source, target = inputs(torch.float64)
    names = [*LAYER_NAMES, *ATTENTION_NAMES, "encoder.norm", "decoder.norm", "encoder", "decoder"]

    def look(model, run):
        found = {}
        for name in names:

            def hook(_, args, output, name=name):
                found[name] = [*args, output[0] if isinstance(output, tuple) else output]

            def backward(_, grad_input, grad_output, name=name):
                found[name] += [*grad_input, grad_output[0]]

            model.get_submodule(name).register_forward_hook(hook)
            model.get_submodule(name).register_full_backward_hook(backward)
        output = run()
        (output * target.detach() * valid(TARGET_LENGTHS, T)[..., None]).sum().backward()
        return found

    causal = torch_nn.Transformer.generate_square_subsequent_mask(T, dtype=torch.float64)
    source_padding, target_padding = ~valid(SOURCE_LENGTHS, S), ~valid(TARGET_LENGTHS, T)
    expected = look(
        theirs,
        lambda: theirs(
            source.clone().requires_grad_(), target.clone().requires_grad_(), tgt_mask=causal,
            src_key_padding_mask=source_padding.double() * -1e9,
            memory_key_padding_mask=source_padding.double() * -1e9,
            tgt_key_padding_mask=target_padding.double() * -1e9,
        ),
    )  # fmt: skip
    found = look(
        ours,
        lambda: ours(
            source.clone().requires_grad_(), target.clone().requires_grad_(), tgt_mask="causal",
            src_lengths=SOURCE_LENGTHS, tgt_lengths=TARGET_LENGTHS,
        ),
    )  # fmt: skip
    for name in names:
        assert len(found[name]) == len(expected[name]), name
        for came, wanted in zip(found[name], expected[name], strict=True):
            assert came.shape == wanted.shape, name
            present = ~(source_padding if came.shape[1] == S else target_padding)
            torch.testing.assert_close(came[present], wanted[present], msg=lambda text, name=name: f"{name}: {text}")


def test_threads_may_call_a_stack_with_a_hook():
    encoder = make().encoder.eval()
    source, _ = inputs()
    sizes = (7, 3, 2, 5)

    def output(size):
        return encoder(source[:, :size], lengths=SOURCE_LENGTHS.clamp(max=size))

    expected = [output(size) for size in sizes]
    encoder.norm.register_forward_hook(lambda *_: None)

    def differing(number):
        return sum(not torch.allclose(output(sizes[number]), expected[number], atol=1e-5) for _ in range(50))

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(differing, range(4))) == 0
    assert "forward" not in vars(encoder.norm)


@pytest.mark.parametrize("kind", ["forward_hook", "forward_pre_hook"])
def test_a_hook_may_call_and_copy_its_module(kind):
    encoder = make().encoder.eval()
    source, _ = inputs()
    expected, other, calls, copies = encoder(source, lengths=SOURCE_LENGTHS), torch.randn(2, D), [], []
    of_other = encoder.norm(other)

    def hook(module, *_):
        if not calls:
            calls.append(0)
            calls.append(module(other))
            copies.append(copy.deepcopy(module))

    getattr(encoder.norm, f"register_{kind}")(hook)
    torch.testing.assert_close(encoder(source, lengths=SOURCE_LENGTHS), expected)
    assert torch.equal(calls[1], of_other)
    assert torch.equal(copies[0](other), of_other)
    encoder.norm = copies[0]
    torch.testing.assert_close(encoder(source, lengths=SOURCE_LENGTHS), expected)


def test_a_stack_with_a_hook_compiles_whole():
    encoder = make().encoder.eval()
    source, _ = inputs()
    expected, seen = encoder(source, lengths=SOURCE_LENGTHS), []
    encoder.norm.register_forward_hook(lambda *_: seen.append(0))
    compiled = torch.compile(encoder, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(source, lengths=SOURCE_LENGTHS), expected)
    assert seen


@pytest.mark.parametrize("name", [*SOME_NAMES, "encoder.norm", "decoder", "encoder.layers.0.linear1"])
def test_results_of_hooks_are_used(name):
    model = make()
    expected = output_of(model)

    def changed(_, __, output):
        return (output[0].cos(), output[1]) if isinstance(output, tuple) else output.cos()

    def changed_inputs(_, args):
        return tuple(arg.cos() for arg in args)

    for register, hook in (("register_forward_hook", changed), ("register_forward_pre_hook", changed_inputs)):
        hooked = copy.deepcopy(model)
        getattr(hooked.get_submodule(name), register)(hook)
        assert not torch.allclose(output_of(hooked), expected)
    # Changed in place, by a hook that returns nothing.
    hooked = copy.deepcopy(model)
    hooked.get_submodule(name).register_forward_pre_hook(lambda _, args: args[0].data.cos_() is None or None)
    assert not torch.allclose(output_of(hooked), expected)


def test_a_pre_hook_asks_for_weights():
    model = make().eval()
    weights = {}
    for name in ATTENTION_NAMES:
        attention = model.get_submodule(name)
        attention.register_forward_pre_hook(
            lambda _, args, kwargs: (args, {**kwargs, "need_weights": True, "average_attn_weights": False}),
            with_kwargs=True,
        )
        attention.register_forward_hook(lambda _, __, output, name=name: weights.update({name: output[1]}))
    torch.testing.assert_close(output_of(model), output_of(make().eval()))
    for name in ATTENTION_NAMES:
        assert weights[name].shape == (B, H, *((S, S) if "encoder" in name else (T, S if "multi" in name else T)))
        torch.testing.assert_close(weights[name].sum(-1)[:, :, 0], torch.ones(B, H))


class Wrapper(torch_nn.Module):
    """As a checkpoint wrapper or a module of a distribution strategy stands around a part."""

    def __init__(self, inner: torch_nn.Module, factor: float = 1.0):
        super().__init__()
        self.inner, self.factor = inner, factor

    def forward(self, *args: object, **kwargs: object) -> object:
        output = self.inner(*args, **kwargs)
        if self.factor == 1.0:
            return output
        return (self.factor * output[0].cos(), output[1]) if isinstance(output, tuple) else output.cos() * self.factor


def replace(model, name, wrap):
    owner, _, attribute = name.rpartition(".")
    part = model.get_submodule(name)
    if attribute.isdigit():
        model.get_submodule(owner)[int(attribute)] = wrap(part)
    else:
        setattr(model.get_submodule(owner), attribute, wrap(part))
    return model


def patched(part):
    original = part.forward
    part.forward = lambda *args, **kwargs: original(*args, **kwargs)
    return part


def subclassed(part):
    class Overridden(type(part)):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs)

    part.__class__ = Overridden
    return part


def swapped(part):
    part.__class__ = type("Sharded", (type(part),), {})
    return part


REPLACEMENTS = {
    "wrapper": Wrapper,
    "nested wrapper": lambda part: Wrapper(Wrapper(part)),
    "instance": patched,
    "subclass": subclassed,
    "class": swapped,
}


def decoded(model):
    """Decoding with caches, and the weights of the last layer."""
    _, target = inputs(next(model.parameters()).dtype)
    memory = model.decoder.remember(model.encoder(inputs()[0].to(target), lengths=SOURCE_LENGTHS), SOURCE_LENGTHS)
    caches, parts = [nn.KeyValueCache()] * 2, []
    chosen = torch.tensor([0, 0, 2])
    target = target[chosen]
    memory = [part.select(torch.tensor([1, 0, 2])).select(torch.tensor([1, 1, 2])) for part in memory]
    for part in target.split([1, 2, 1, 1], dim=1):
        rows, caches, weights = model.decoder.step(part, memory, caches, weights_of=1)
        parts.append((rows.view(B, -1, D), weights))
    return torch.cat([rows for rows, _ in parts], 1), torch.cat([weights for _, weights in parts], 2)


def continued(model):
    """A causal encoder with caches."""
    source, _ = inputs(next(model.parameters()).dtype)
    caches, parts = [nn.KeyValueCache()] * 2, []
    for part in source.split([3, 1, 2, 1], dim=1):
        found, caches = model.encoder.step(part, caches)
        parts.append(found)
    return torch.cat(parts, 1)


@pytest.mark.parametrize("name", SOME_NAMES)
@pytest.mark.parametrize("kind", REPLACEMENTS)
def test_a_part_may_be_replaced(name, kind):
    model = make(torch.float64).eval()
    replaced = replace(copy.deepcopy(model), name, REPLACEMENTS[kind])
    with torch.no_grad():
        torch.testing.assert_close(output_of(replaced), output_of(model))
        torch.testing.assert_close(decoded(replaced), decoded(model))
        torch.testing.assert_close(continued(replaced), continued(model))
    doubled = replace(copy.deepcopy(model), name, lambda part: Wrapper(part, 2.0))
    assert not torch.allclose(output_of(doubled), output_of(model))


@pytest.mark.parametrize("name", SOME_NAMES[2:])
@pytest.mark.parametrize("batch_first", [False, True])
def test_pytorchs_attention_may_stand_in_a_layer(name, batch_first):
    model = make(torch.float64).eval()

    def theirs(part):
        other = torch_nn.MultiheadAttention(D, H, batch_first=batch_first, dtype=torch.float64)
        other.load_state_dict(part.state_dict())
        return other.eval()

    replaced = replace(copy.deepcopy(model), name, theirs)
    with torch.no_grad():
        torch.testing.assert_close(output_of(replaced), output_of(model))
        torch.testing.assert_close(decoded(replaced), decoded(model))
        torch.testing.assert_close(continued(replaced), continued(model))


def test_a_replaced_attention_sees_what_the_users_mask_shows():
    """Lengths are a mask of the user's as any other: only those of the padding are PyTorch's ``key_padding_mask``."""
    stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, H, F, dropout=0.0, batch_first=True), 1).eval()
    source, _ = inputs()
    shorter = masks.lengths((SOURCE_LENGTHS - 1).clamp_min(1))
    expected = stack(source, lengths=SOURCE_LENGTHS, mask=shorter)
    other = torch_nn.MultiheadAttention(D, H, batch_first=True).eval()
    other.load_state_dict(stack.layers[0].self_attn.state_dict())
    stack.layers[0].self_attn = other
    torch.testing.assert_close(stack(source, lengths=SOURCE_LENGTHS, mask=shorter), expected)


def test_an_attention_keeps_its_layout():
    layer = nn.TransformerEncoderLayer(D, H, F, dropout=0.0)
    stack = nn.TransformerEncoder.from_layers([layer]).eval()
    source = inputs()[0].transpose(0, 1)
    expected, shapes = stack(source, lengths=SOURCE_LENGTHS), []
    layer.self_attn.register_forward_hook(lambda _, args, output: shapes.extend([args[0].shape, output[0].shape]))
    torch.testing.assert_close(stack(source, lengths=SOURCE_LENGTHS), expected)
    assert shapes == [(S, B, D)] * 2
    layer.self_attn = Wrapper(layer.self_attn)
    torch.testing.assert_close(stack(source, lengths=SOURCE_LENGTHS), expected)


def test_decoding_with_hooks_is_decoding_without():
    model = make().eval()
    expected = *decoded(model), continued(model)
    seen = observe(model, "forward_hook")
    found = *decoded(model), continued(model)
    torch.testing.assert_close(found, expected)
    # Once for the whole source, and for each of four steps of the causal encoder; the decoder has four steps.
    for name in [*LAYER_NAMES, *ATTENTION_NAMES]:
        assert seen.count(name) == (5 if name.startswith("encoder") else 4), name


def test_an_overridden_stack_has_no_step():
    model = make()
    patched(model.decoder)
    memory = model.decoder.remember(inputs()[0])
    with pytest.raises(ArgumentError, match=r"step continues TransformerDecoder\.forward with caches"):
        model.decoder.step(inputs()[1], memory, [nn.KeyValueCache()] * 2)


@pytest.mark.parametrize("constrain", [parametrizations.spectral_norm, parametrizations.weight_norm, spectral_norm])
@pytest.mark.parametrize("part", ["encoder.layers.0.self_attn", "decoder.layers.1.multihead_attn"])
@pytest.mark.parametrize("name", ["in_proj_weight", "out_proj.weight"])
def test_a_constrained_weight_trains(constrain, part, name):
    model = make(torch.float64)
    owner, _, attribute = f"{part}.{name}".rpartition(".")
    constrain(model.get_submodule(owner), attribute)
    constrained = {key: value for key, value in model.named_parameters() if "original" in key or "_orig" in key}
    assert constrained
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(3):
        optimizer.zero_grad()
        before = output_of(model)
        before.square().sum().backward()
        optimizer.step()
    for key, parameter in constrained.items():
        assert parameter.grad.abs().sum() > 0, key
    if constrain is not parametrizations.weight_norm:
        for _ in range(30):
            output_of(model)
        largest = torch.linalg.matrix_norm(getattr(model.get_submodule(owner), attribute), 2)
        torch.testing.assert_close(largest, torch.ones_like(largest), rtol=0.05, atol=0)


class LowRank(torch_nn.Module):
    """A linear layer with a learned difference of low rank."""

    def __init__(self, base: torch_nn.Module, features: int, outputs: int):
        super().__init__()
        self.base = base
        self.down, self.up = torch_nn.Linear(features, 2, bias=False), torch_nn.Linear(2, outputs, bias=False)

    def forward(self, query: Tensor, *args: object, **kwargs: object) -> object:
        added = self.up(self.down(query))
        found = self.base(query, *args, **kwargs)
        return (found[0] + added, found[1]) if isinstance(found, tuple) else found + added


@pytest.mark.parametrize("name", ["self_attn", "multihead_attn", "linear1", "linear2", "self_attn.out_proj"])
def test_an_adapter_of_low_rank_trains(name):
    model = make().requires_grad_(False)
    sizes = {"linear1": (D, F), "linear2": (F, D)}.get(name, (D, D))
    replace(model, f"decoder.layers.0.{name}", lambda part: LowRank(part, *sizes))
    output_of(model).square().sum().backward()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert len(trained) == 2
    assert all(parameter.grad.abs().sum() > 0 for parameter in trained)


@pytest.mark.parametrize("name", ["encoder.layers.0", "decoder.layers.1", "encoder.layers.1.self_attn"])
def test_a_compiled_part_runs_compiled(name):
    model = make().eval()
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    source, target = inputs()
    expected = model(source, target)
    model.get_submodule(name).compile(backend=backend)
    torch.testing.assert_close(model(source, target), expected)
    assert graphs


def test_a_part_of_a_layer_with_dropout_of_another_kind():
    for change in (patched, subclassed, lambda part: torch_nn.Dropout(part.p).eval()):
        model = make(dropout=0.3).eval()
        expected = output_of(model)
        model.encoder.layers[0].dropout = change(model.encoder.layers[0].dropout)
        torch.testing.assert_close(output_of(model), expected)
