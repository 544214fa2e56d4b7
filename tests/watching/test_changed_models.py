"""Changed calls in whole models: caches, memory, precision, fused kernels, what is returned, and what is refused."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import regard
from regard import Change, intervene
from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError, UnseenError
from watching.models import HAND_WRITTEN, Heads, by_einsum

flex = pytest.importorskip("torch.nn.attention.flex_attention")

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


DECODERS = {"gpt2": "sdpa", "llama": "sdpa", "mistral": "sdpa", "diffllama": "eager", "t5": "eager", "bart": "sdpa"}
CACHES = {"dynamic": {}, "static": {"cache_implementation": "static"}, "pieces": {"prefill_chunk_size": 4}}


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("name", DECODERS)
def test_generation_with_a_cache_is_that_without(name, cache):
    """Positions go on in a cache that grows, has a fixed size, keeps a window (mistral), or is filled in pieces."""
    pytest.importorskip("transformers")
    from tiny_transformers import FAMILIES, make

    has_source = FAMILIES[name].inputs == "pairs"
    if has_source and cache == "pieces":
        pytest.skip("the prompt of a translation has one token")
    model = make(name, DECODERS[name]).eval()
    ids = torch.tensor([[5, 17, 9, 5, 17, 9, 33, 5, 17], [0, 0, 0, 21, 8, 44, 21, 8, 44]])
    options = {"attention_mask": (ids > 0).long(), "max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False}
    options |= {"return_dict_in_generate": True, "output_scores": True, "pad_token_id": 0}
    first = 0 if has_source else 7
    changes = (
        Change("weights", 0.5, head=1, keys=[first, first + 3], kind="self"),
        Change(
            "scores",
            lambda scores: scores - 2,
            head=0,
            queries=slice(first + 1, first + 4),
            keys=slice(first, None),
            kind="self",
        ),
        Change("values", 1.0, head=0, keys=[first + 1, first + 3], kind="self"),
        Change("output", 0.5, head=1, queries=[first + 1, first + 4], kind="cross" if has_source else "self"),
    )
    with torch.no_grad():
        plain = model.generate(ids, **options, **CACHES[cache])
        for change in (*[(each,) for each in changes], changes):
            with intervene(model, *change):
                cached = model.generate(ids, **options, **CACHES[cache])
            with intervene(model, *change):
                whole = model.generate(ids, **options, use_cache=False)
            torch.testing.assert_close(torch.stack(cached.scores), torch.stack(whole.scores))
            assert not torch.allclose(torch.stack(cached.scores), torch.stack(plain.scores))


def test_a_watched_generation_stands_in_for_another():
    """All outputs of heads, call by call, give the logits of the other prompt, whose last token is the same."""
    pytest.importorskip("transformers")
    from tiny_transformers import make

    model = make("llama", "sdpa").eval()
    ids, others = torch.tensor([[5, 17, 9, 5, 17, 9]]), torch.tensor([[7, 3, 9, 5, 1, 9]])
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    options |= {"return_dict_in_generate": True, "output_scores": True}
    with torch.no_grad():
        with regard.watch(model, keep=True, outputs=True) as seen:
            expected = torch.stack(model.generate(others, **options).scores)
        plain = torch.stack(model.generate(ids, **options).scores)
        with intervene(model, Change("output", seen)) as changed:
            patched = torch.stack(model.generate(ids, **options).scores)
        with intervene(model, Change("scores", seen)):
            by_scores = torch.stack(model.generate(ids, **options).scores)
        with intervene(model, Change("weights", seen)):
            by_weights = torch.stack(model.generate(ids, **options).scores)
    torch.testing.assert_close(patched, expected)
    assert not torch.allclose(plain, expected)
    torch.testing.assert_close(by_scores, by_weights)
    assert [call.forward for call in changed.calls] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


class Shared(nn.Module):
    """Three layers that are one module."""

    def __init__(self):
        super().__init__()
        self.block = Heads(HAND_WRITTEN["sdpa"][0])

    def forward(self, x):
        for _ in range(3):
            x = x + self.block(x)
        return x


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_causal_attention_is_that_of_the_decoder_alone(name):
    pytest.importorskip("transformers")
    from tiny_transformers import make

    model, ids = make(name, DECODERS[name]).eval(), torch.tensor([[5, 17, 9], [5, 44, 21]])
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    options |= {"return_dict_in_generate": True, "output_scores": True, "pad_token_id": 0}
    scores, changed = {}, []
    with torch.no_grad():
        for part, kind in ((model, "causal"), (model.get_decoder(), "self"), (model, "self")):
            for use_cache in (True, False):
                with intervene(part, Change("output", 0.0, layer=1, kind=kind)) as context:
                    found = model.generate(ids, **options, use_cache=use_cache)
                scores[part is model, kind, use_cache] = torch.stack(found.scores)
                changed.append({call.name for call in context.calls})
    expected = scores.pop((False, "self", False))
    assert not torch.allclose(scores.pop((True, "self", False)), expected)
    assert not torch.allclose(scores.pop((True, "self", True)), expected)
    for other in scores.values():
        torch.testing.assert_close(other, expected)
    assert [len(names) for names in changed] == [1, 1, 1, 1, 2, 2]


def test_layers_that_share_a_module_are_told_apart():
    model, x = Shared(), torch.randn(3, 7, 10)
    change = Change("weights", 0.5, head=1, keys=2)
    with torch.no_grad():
        first = x + model.block(x)
        with intervene(model.block, change):
            second = first + model.block(first)
        expected = second + model.block(second)
        with intervene(model, Change("weights", 0.5, layer=1, head=1, keys=2)) as changed:
            output = model(x)
    assert torch.equal(output, expected)
    assert [(call.name, call.layer) for call in changed.calls] == [("block", 1)]


def test_regard_decoders_change_while_they_generate():
    """A model of regard with its own cache, token by token, against whole passes."""
    config = regard.models.LanguageModelConfig(50, context=16, hidden=12, layers=2, heads=2)
    model = regard.models.LanguageModel(config).double().eval()
    ids = torch.randint(50, (2, 9))
    changes = (
        Change("weights", 0.5, layer=1, head=1, keys=[0, 5]),
        Change("output", 1.0, layer=0, head=0, queries=[2, 7]),
    )
    with torch.no_grad():
        with intervene(model, *changes):
            whole = model(ids)
        caches = model.start()
        with intervene(model, *changes) as changed:
            for start, stop in ((0, 4), (4, 5), (5, 9)):
                predicted, caches = model.step(ids[:, start:stop], caches)
    torch.testing.assert_close(predicted, whole[:, -1].log_softmax(-1).float())
    assert [call.layer for call in changed.calls] == [0, 1, 1, 0, 1]


def test_memory_stays_linear_for_all_but_functions():
    """No tensor of a head's pairs is kept for the backward pass, and none of all heads is made."""
    model, x = Heads(HAND_WRITTEN["sdpa-causal"][0]), torch.randn(1, 3000, 10)
    with regard.watch(model, keep=True, heads=0) as seen, torch.no_grad():
        model(torch.randn(1, 3000, 10))
    sizes = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            sizes.extend(each.untyped_storage().nbytes() for each in (result,) if isinstance(each, torch.Tensor))
            return result

    saved = []
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: saved.append(tensor.numel()) or tensor, lambda each: each
    )
    for change in (
        Change("scores", seen, head=1),
        Change("weights", 0.5, head=1, keys=4),
        Change("weights", seen, head=1),
    ):
        with intervene(model, change), hooks, Sizes():
            model(x).sum()
    assert max(saved) <= 3000 * 30
    assert max(sizes) < 3000 * 3000 * 4 / 2
    with intervene(model, Change("weights", lambda weights: weights / 2, head=1)), Sizes():
        model(x)
    assert max(sizes) >= 3000 * 3000 * 4


def test_half_precision_is_computed_in_single_and_rounded():
    model, x = Heads(HAND_WRITTEN["sdpa"][0]).bfloat16(), torch.randn(3, 7, 10).bfloat16()
    query, key, value = (part.float() for part in model.heads(x))
    weights = (query @ key.mT * 5**-0.5).softmax(-1)
    weights[:, 1, :, 2] = 0.3
    heads = []
    model.out_proj.register_forward_pre_hook(lambda module, inputs: heads.append(inputs[0].unflatten(-1, (2, 5))))
    with torch.no_grad(), intervene(model, Change("weights", 0.3, head=1, keys=2)):
        model(x)
    assert torch.equal(heads[0][:, :, 1], (weights @ value).bfloat16()[:, 1])


@pytest.mark.parametrize("name", ["sdpa-dropout", "softmax", "regard"])
def test_dropout_applies_to_changed_weights(name):
    """A kept weight is 1 / (1 − p) of what was set, and the mean over many draws is the output without dropout."""
    rate = {"sdpa-dropout": 0.4, "softmax": 0.25, "regard": 0.3}[name]
    model, x = Heads(HAND_WRITTEN[name][0]), torch.randn(400, 7, 10)
    model.out_proj = nn.Identity()
    with torch.no_grad(), intervene(model, Change("weights", 0.5, head=1), Change("values", 1.0, head=1)):
        head = model(x).unflatten(-1, (2, 5))[:, :, 1, 0]
    number = head * (1 - rate) / 0.5
    torch.testing.assert_close(number, number.round(), atol=1e-4, rtol=0)
    sees = torch.arange(1, 8) if name != "sdpa-dropout" else torch.full((7,), 7)
    torch.testing.assert_close(number.mean(0), sees * (1 - rate), atol=0.25, rtol=0)
    assert bool((number < sees).any())


def test_grouped_heads_and_every_part_of_a_layer_are_changed():
    """Query heads that share keys have values of their own; rows without keys, biases and mixed heads of regard."""
    query, key, value = (torch.randn(2, heads, 5, 3, dtype=torch.float64) for heads in (4, 2, 2))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    mask[2] = False
    bias = torch.randn(4, 5, 5, dtype=torch.float64)

    class Grouped(nn.Module):
        def forward(self, normalizer):
            kept = regard.masks.keep(mask)
            return regard.attend_with_weights(query, key, value, mask=kept, bias=bias, normalizer=normalizer)

    model, sinks = Grouped(), torch.randn(4, dtype=torch.float64)
    scores = (query @ key.repeat_interleave(2, 1).mT * 3**-0.5 + bias).masked_fill(~mask, -torch.inf)
    scores[:, 1, :, 0] = torch.where(mask[:, 0], 1.0, -torch.inf).double()
    values = value.repeat_interleave(2, 1)
    values[:, 1, 3] = 7.0
    for normalizer in ("softmax", regard.normalizers.softmax_with_sink(sinks)):
        total = scores.exp().sum(-1, keepdim=True) + (0 if normalizer == "softmax" else sinks.exp()[:, None, None])
        weights = (scores.exp() / total).nan_to_num(0.0)
        weights[:, 3, 4] = 0.25
        with intervene(
            model,
            Change("scores", 1.0, head=1, keys=0),
            Change("weights", 0.25, head=3, queries=4),
            Change("values", 7.0, head=1, keys=3),
        ):
            attended = model(normalizer)
        torch.testing.assert_close(attended.weights, weights)
        torch.testing.assert_close(attended.output, weights @ values)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("norm", [None, nn.LayerNorm(16)])
def test_padding_stays_as_nested_tensors_leave_it(norm):
    """An encoder in evaluation has nothing at its padding, of which its layers would compute outputs elsewhere."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, norm=norm and nn.Sequential(norm, nn.Linear(16, 16))).eval()
    x, padding = torch.randn(2, 5, 16), torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]).bool()
    for training in (False, True):
        with torch.set_grad_enabled(training):
            expected, whole = encoder(x, src_key_padding_mask=padding), encoder(x)
            with intervene(encoder, Change("weights", lambda weights: weights, layer=1, head=1)):
                torch.testing.assert_close(encoder(x, src_key_padding_mask=padding), expected)
                torch.testing.assert_close(encoder(x), whole)


@pytest.mark.parametrize("what", ["scores", "weights", "values", "output"])
@pytest.mark.parametrize("name", ["sdpa", "softmax-einsum"])
def test_functions_may_work_in_place(name, what):
    model, x = Heads(HAND_WRITTEN[name][0]), torch.randn(3, 7, 10)
    results = []
    for function in (lambda elements: elements.mul_(0.5), lambda elements: elements * 0.5):
        model.zero_grad()
        with intervene(model, Change(what, function)):
            output = model(x)
        output.square().sum().backward()
        results.append([output, *[parameter.grad for parameter in model.parameters()]])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_weights_that_a_model_returns_are_the_changed_ones():
    transformers = pytest.importorskip("transformers")
    from tiny_transformers import make

    assert transformers
    model, ids = make("gpt2", "eager").eval(), torch.tensor([[5, 17, 9, 5, 17]])
    with torch.no_grad():
        plain = model(ids, output_attentions=True).attentions
        with intervene(model, Change("weights", 0.5, layer=1, head=1, keys=2)):
            changed = model(ids, output_attentions=True).attentions
    expected = plain[1].clone()
    expected[:, 1, 2:, 2] = 0.5
    assert torch.equal(changed[0], plain[0])
    torch.testing.assert_close(changed[1], expected)


def test_other_layers_keep_their_fused_kernels(monkeypatch):
    """Only a layer of PyTorch that a change names leaves the kernel for a whole layer."""
    layer = nn.TransformerEncoderLayer(12, 2, 14, batch_first=True)
    model, x = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval(), torch.randn(3, 5, 12)
    slow = []
    monkeypatch.setattr(
        nn.TransformerEncoderLayer, "_sa_block", lambda self, *args, **kwargs: slow.append(self) or args[0]
    )
    with torch.no_grad():
        plain = model(x)
        for change in (Change("weights", 0.0, layer=7), Change("weights", 0.0, kind="cross")):
            with pytest.raises(UnseenError), intervene(model, change):
                again = model(x)
            assert torch.equal(again, plain)
        assert not slow
        with pytest.raises(UnseenError), intervene(model, Change("weights", 0.0, layer=2, keys=0)):
            model(x)
    assert slow == [model.layers[2]]


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_every_family_keeps_its_bits_and_changes(implementation):
    """Setting what is there changes no bit of an output; setting another number changes the result."""
    pytest.importorskip("transformers")
    from tiny_transformers import FAMILIES, inputs, make, output

    tried = []
    for name in FAMILIES:
        try:
            model = make(name, implementation).eval()
        except ValueError:  # it has no such implementation
            continue
        with torch.no_grad():
            arguments = inputs(name, dtype=torch.float32)
            plain = output(model, arguments)
            with intervene(model, Change("output", lambda heads: heads.clone(), head=0)) as same:
                assert torch.equal(output(model, arguments), plain), name
            with intervene(model, Change("weights", lambda weights: 2 * weights, head=0)) as other:
                changed = output(model, arguments)
        assert not torch.allclose(changed, plain), name
        assert len(same.calls) == len(other.calls) >= 2
        tried.append(name)
    assert len(tried) > 8


class Pooling(nn.Module):
    """One query of its own over all tokens."""

    def forward(self, x):
        return F.scaled_dot_product_attention(x[:, :, :1].sin(), x, x)


class Returned(nn.Module):
    """Nothing but the log-sum-exp beside the output."""

    def forward(self, x):
        return flex.flex_attention(x, x, x, return_lse=True)[0]


REFUSALS = {
    "a head": (Change("weights", 0.0, head=[0, 2]), ArgumentError, "head must be below 2"),
    "a shape": (Change("weights", torch.zeros(4, 4)), ShapeError, r"to must broadcast to .*\[3, 2, 7, 7\]; it has"),
    "a result": (
        Change("values", lambda values: values[0]),
        ShapeError,
        r"to must return \[batch, heads, keys, value_dim\]",
    ),
    "no result": (Change("values", lambda values: None), ArgumentError, "to must return a tensor"),
    "a function": (Change("scores", lambda one, two: one), ArgumentError, "to cannot take .* missing 1 required"),
    "no layer": (Change("output", 0.0, layer=[0, 4]), UnseenError, r"no attention of layer 4 was called; .*\[0\]"),
    "no kind": (Change("output", 0.0, kind="cross"), UnseenError, "no call of attention had what Change"),
    "no position": (Change("weights", 0.0, queries=[7, 9]), UnseenError, r"queries=\[7, 9\]"),
    "some positions": (Change("weights", 0.0, keys=[6, 7, -7, -8]), UnseenError, r"keys \[7, -8\] of .* were 7"),
    "not causal": (Change("weights", 0.0, kind="causal"), UnseenError, "kind='causal'"),
}


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("attend", [F.scaled_dot_product_attention, by_einsum, regard.attend])
def test_impossible_changes_say_what_is_wrong(attend, name):
    model, x = Heads(attend), torch.randn(3, 7, 10)
    change, error, message = REFUSALS[name]
    with pytest.raises(error, match=message), intervene(model, change):
        model(x)
    assert torch.equal(model(x), model(x))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("weight", 0.0), UnknownNameError, "did you mean 'weights'"),
        (("weights", None), KindError, "to must be a number, a tensor, a function or a regard.watch"),
        (("weights", float("nan")), ArgumentError, "to must be finite"),
        (("output", float("-inf")), ArgumentError, "to must be finite"),
        (("scores", float("inf")), ArgumentError, "to must be finite, or −∞"),
        (("weights", torch.zeros(2, dtype=torch.int64)), KindError, "to must hold floating-point numbers"),
        (("weights", torch.zeros(1, 1, 1, 1, 1)), ArgumentError, "to must broadcast"),
        (("weights", torch.zeros(1, device="meta")), ArgumentError, "to must have elements"),
        (("values", 0.0, {"queries": 1}), ArgumentError, "queries has no meaning for 'values'"),
        (("output", 0.0, {"keys": 1}), ArgumentError, "keys has no meaning for 'output'"),
        (("output", 0.0, {"head": -1}), ArgumentError, "at least 0"),
        (("output", 0.0, {"layer": []}), ArgumentError, "layer must name at least one; None means all"),
        (("output", 0.0, {"layer": [1, 1]}), ArgumentError, "each one once"),
        (("output", 0.0, {"queries": 1.5}), KindError, "queries must be an integer"),
        (("output", 0.0, {"queries": slice(0, 4, -1)}), ArgumentError, "step"),
        (("output", 0.0, {"kind": "own"}), UnknownNameError, "kind"),
    ],
)
def test_changes_check_their_arguments(arguments, error, message):
    what, to, *options = arguments
    with pytest.raises(error, match=message):
        Change(what, to, **(options[0] if options else {}))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_contexts_refuse_what_they_cannot_change():
    model, x = Heads(HAND_WRITTEN["sdpa"][0]), torch.randn(3, 7, 10)
    change = Change("weights", 0.0)
    with pytest.raises(KindError, match="model must be"):
        intervene(F.relu, change)
    with intervene(model) as changed:
        output = model(x)
    assert torch.equal(output, model(x))
    assert not changed.calls
    with pytest.raises(KindError, match=r"changes\[1\] must be a regard.Change"):
        intervene(model, change, 0.0)
    with pytest.raises(KindError, match="compiled"), intervene(torch.compile(model), change):
        pass
    with intervene(model, change) as changed:
        with pytest.raises(ArgumentError, match="open already"), changed:
            pass
        model(x)
    heads = torch.randn(3, 2, 7, 5)
    pooling = Pooling()
    with (
        pytest.raises(ArgumentError, match="positions of queries are unknown"),
        intervene(pooling, Change("output", 0.0, queries=0)),
    ):
        pooling(heads)
    with pytest.raises(ArgumentError, match="positions from 0"), intervene(pooling, Change("weights", 0.0, keys=-1)):
        pooling(heads)
    with pytest.raises(ArgumentError, match="log-sum-exp"), intervene(returned := Returned(), Change("scores", 0.0)):
        returned(heads)
    with pytest.raises(ArgumentError, match="checkpointed"), intervene(model, change):
        checkpoint(model, x.requires_grad_(), use_reentrant=False)


def test_an_earlier_run_must_have_kept_what_is_taken():
    model, x = Heads(HAND_WRITTEN["sdpa"][0]), torch.randn(3, 7, 10)
    with regard.watch(model) as bare, torch.no_grad():
        model(x)
    for what, option in {
        "output": "outputs=True",
        "values": "outputs=True",
        "weights": 'read="view"',
        "key": "keep=True",
    }.items():
        with pytest.raises(ArgumentError, match=option), intervene(model, Change(what, bare)):
            model(x)
    with regard.watch(model, keep=True, outputs=True, heads=0, read="view") as seen, torch.no_grad():
        model(x)
    with pytest.raises(ArgumentError, match="has no head 1"), intervene(model, Change("output", seen)):
        model(x)
    with pytest.raises(ShapeError, match="3 batch rows"), intervene(model, Change("weights", seen, head=0)):
        model(x[:2])
    with pytest.raises(ShapeError, match="7 keys"), intervene(model, Change("values", seen, head=0)):
        model(x[:, :5])
    with intervene(model, Change("values", seen, head=0, keys=[0, 4])):
        model(x[:, :5])
    with intervene(model, Change("values", seen, head=0)):
        model(x)
        with pytest.raises(ArgumentError, match="no call 0 of '' in forward pass 1"):
            model(x)


COMPILED = {
    "sdpa": Pooling,
    "fused": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(10, 2, 20, batch_first=True), 1).eval(),
}


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_function_has_the_change_or_raises(name):
    """Compiled before or in the context, and exported: what is traced would not have the change."""
    torch.manual_seed(0)
    model, x = COMPILED[name](), torch.randn(2, 7, 10) if name == "fused" else torch.randn(2, 2, 7, 5)
    with torch.no_grad():
        plain = model(x)
        for compiled_before in (True, False):
            torch._dynamo.reset()
            loose = torch.compile(lambda x: model(x), backend="eager")
            strict = torch.compile(lambda x: model(x), backend="eager", fullgraph=True)
            if compiled_before:
                torch.testing.assert_close(loose(x), plain)
            with intervene(model, Change("output", 0.5, head=1)):
                changed = model(x)
                torch.testing.assert_close(loose(x), changed)
                torch.testing.assert_close(strict(x), changed)
                with pytest.raises(ArgumentError, match=r"while torch\.compile or torch\.export traces"):
                    torch.export.export(model, (x,))
            assert not torch.allclose(changed, plain)
            torch.testing.assert_close(loose(x), plain)
            torch.testing.assert_close(strict(x), plain)
