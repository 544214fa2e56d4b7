"""Scores as sums over what modules wrote to the residual stream: they add up, and removing a part has its effect.

The oracle runs the model a second time with what each module wrote and the statistics of each normalization held fixed,
and removes one part from what a module writes: the change of queries and keys is the part's.
"""

import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard import models
from regard.errors import ArgumentError, KindError, UnknownNameError
from regard.watching import explain_weight, weight_sources
from watching.models import HAND_WRITTEN, Heads

IDS = torch.tensor([[3, 14, 15, 9, 26, 5, 8], [3, 5, 9, 7, 9, 3, 2]])
QUERY, KEY = 5, 3
CAP = 0.01

SMALL = {
    "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 20, "vocab_size": 31,
    "max_position_embeddings": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 4}
GPT2 = {
    "vocab_size": 31,
    "n_embd": 16,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 40,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
OPT = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "ffn_dim": 20,
    "vocab_size": 31,
    "max_position_embeddings": 40,
    "word_embed_proj_dim": 12,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

FAMILIES = {
    # name: class, configuration, its values; families whose norms compute in float32 add up to its rounding
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", GROUPED),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**GROUPED, "attn_logit_softcapping": CAP}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {**SMALL, "num_key_value_heads": 2}),
    "gpt-neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", SMALL),
    "opt": ("OPTForCausalLM", "OPTConfig", OPT),
    "bloom": ("BloomForCausalLM", "BloomConfig", {"hidden_size": 16, "n_layer": 3, "n_head": 4, "vocab_size": 31}),
    "falcon": (
        "FalconForCausalLM", "FalconConfig",
        {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 31},
    ),
    "bert": ("BertModel", "BertConfig", SMALL),
    "t5": (
        "T5EncoderModel", "T5Config",
        {"d_model": 16, "d_kv": 4, "d_ff": 20, "num_layers": 3, "num_heads": 4, "vocab_size": 31},
    ),
}  # fmt: skip
ROUNDED = {"llama", "qwen3", "gemma2", "phi3"}


def built(name, implementation="sdpa"):
    transformers = pytest.importorskip("transformers")
    kind, config, values = FAMILIES[name]
    torch.manual_seed(7)
    settings = getattr(transformers, config)(**values)
    settings._attn_implementation = implementation
    model = getattr(transformers, kind)(settings).eval().double()
    for parameter in model.parameters():  # gains and biases other than 1 and 0
        parameter.data.add_(torch.randn_like(parameter) * 0.2)
    return model


def logits(output):
    return output if isinstance(output, torch.Tensor) else next(iter(output.to_tuple()))


def seen_of(model, *inputs, **options):
    with torch.no_grad():
        expected = logits(model(*inputs))
        with regard.watch(model, inputs=True, **options) as seen:
            assert torch.equal(logits(model(*inputs)), expected)
    return seen


def added(parts):
    """The relative difference between a score and the sum of its parts."""
    total = float(parts.pairs.sum()) + parts.cap + parts.bias + parts.rest
    assert parts.of_query.sum() == pytest.approx(parts.of_key.sum()) == pytest.approx(parts.pairs.sum())
    assert total == pytest.approx(parts.total)
    return abs(parts.rest) / np.abs(parts.pairs).sum()


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", FAMILIES)
def test_parts_of_each_family_add_up_to_the_score(name, implementation):
    if implementation == "sdpa" and name in ("bloom", "gemma2"):
        pytest.skip("transformers has only eager attention for it")
    seen = seen_of(built(name, implementation), IDS)
    limit = 2e-6 if name in ROUNDED else 1e-12
    for call in seen.calls:
        for against in (None, "mean", 1):
            parts = explain_weight(seen, call.layer, 2, QUERY, KEY, batch_row=1, against=against)
            assert added(parts) < limit, (name, call.layer, against)
        heads = [source for source in parts.sources if source.kind == "head"]
        assert [(each.layer, each.head) for each in heads] == [(n, h) for n in range(call.layer) for h in range(4)]
        row = torch.from_numpy(call.tiles[1].tile((QUERY, QUERY + 1), (0, 7)))[2, 0]
        visible = int((row > 0).sum())
        assert (parts.rank, parts.visible) == (1 + int((row > row[KEY]).sum()), visible)
        assert parts.weight == pytest.approx(float(row[KEY]), rel=1e-5)
        one, other = (explain_weight(seen, call.layer, 2, QUERY, key, batch_row=1) for key in (KEY, 1))
        assert parts.score == pytest.approx(one.score)
        assert parts.total == pytest.approx(one.score - other.score, abs=1e-9)
        assert one.score - other.score == pytest.approx(float((row[KEY] / row[1]).log()), abs=1e-4)
        if name == "gemma2":
            product = one.pairs.sum()
            assert one.cap == pytest.approx(CAP * np.tanh(product / CAP) - product, abs=1e-8)
            assert one.cap != 0
        if name in ("bloom", "t5"):
            assert one.bias != 0


class Frozen:
    """A second run of a model in which what modules write, and the statistics of normalizations, are held fixed."""

    def __init__(self, model, writes, norms, layer, monkeypatch):
        self.model, self.writes, self.layer = model, writes, layer
        self.norms = {name: model.get_submodule(name) for name in norms}
        self.outputs, self.inputs, self.factors, self.sides = {}, {}, {}, []
        attend = F.scaled_dot_product_attention

        def noted(query, key, value, *args, **kwargs):
            self.sides.append((query, key))
            return attend(query, key, value, *args, **kwargs)

        with monkeypatch.context() as patched:
            patched.setattr(F, "scaled_dot_product_attention", noted)
            hooks = [
                model.get_submodule(name).register_forward_hook(
                    lambda _, args, output, name=name: self.outputs.__setitem__(name, output)
                )
                for name in writes
            ]
            hooks += [
                norm.register_forward_hook(lambda module, args, output, name=name: self.note(name, module, args[0]))
                for name, norm in self.norms.items()
            ]
            hooks += [
                module.register_forward_pre_hook(lambda _, args, name=name: self.inputs.__setitem__(name, args[0]))
                for name, module in model.named_modules()
                if name.endswith(("c_proj", "o_proj", "attention.output.dense"))
            ]
            with torch.no_grad():
                model(IDS)
            for hook in hooks:
                hook.remove()
            self.whole = self.sides[layer]
            self.patched = noted

    def note(self, name, module, input):
        centered = input - input.mean(-1, keepdim=True) if isinstance(module, nn.LayerNorm) else input
        self.factors[name] = (centered.square().mean(-1, keepdim=True) + _eps(module)).rsqrt()

    def without(self, name, part, monkeypatch):
        """Queries and keys of the layer without a part of what a module writes."""

        def write(own):
            def hook(module, args, output):
                fixed = self.outputs[own]
                first = fixed[0] if isinstance(fixed, tuple) else fixed
                first = first - part if own == name else first
                return (first, *fixed[1:]) if isinstance(fixed, tuple) else first

            return hook

        def norm(own):
            def hook(module, args, output):
                input = args[0]
                if isinstance(module, nn.LayerNorm):
                    input = input - input.mean(-1, keepdim=True)
                    return input * self.factors[own] * module.weight + module.bias
                return input * self.factors[own] * module.weight

            return hook

        hooks = [self.model.get_submodule(each).register_forward_hook(write(each)) for each in self.writes]
        hooks += [module.register_forward_hook(norm(own)) for own, module in self.norms.items()]
        self.sides = []
        with monkeypatch.context() as patched, torch.no_grad():
            patched.setattr(F, "scaled_dot_product_attention", self.patched)
            self.model(IDS)
        for hook in hooks:
            hook.remove()
        return self.sides[self.layer]


def _eps(module):
    return getattr(module, "eps", getattr(module, "variance_epsilon", None))


ORACLES = {
    # name: tables, and for each layer its attention, feedforward network, output projection and normalizations
    "gpt2": (
        ("transformer.wte", "transformer.wpe"), "transformer.h.{}.attn", "transformer.h.{}.mlp",
        "transformer.h.{}.attn.c_proj", ("transformer.h.2.ln_1",),
    ),
    "llama": (
        ("model.embed_tokens",), "model.layers.{}.self_attn", "model.layers.{}.mlp", "model.layers.{}.self_attn.o_proj",
        ("model.layers.2.input_layernorm",),
    ),
    "qwen3": (
        ("model.embed_tokens",), "model.layers.{}.self_attn", "model.layers.{}.mlp", "model.layers.{}.self_attn.o_proj",
        ("model.layers.2.input_layernorm", "model.layers.2.self_attn.q_norm", "model.layers.2.self_attn.k_norm"),
    ),
    "bert": (
        ("embeddings.word_embeddings", "embeddings.position_embeddings", "embeddings.token_type_embeddings"),
        "encoder.layer.{}.attention.output.dense", "encoder.layer.{}.output.dense",
        "encoder.layer.{}.attention.output.dense",
        ("embeddings.LayerNorm",
         *(f"encoder.layer.{n}.{name}.LayerNorm" for n in (0, 1) for name in ("attention.output", "output"))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ORACLES)
def test_removing_a_part_changes_the_score_by_it(name, monkeypatch):
    tables, attention, network, projection, norms = ORACLES[name]
    model, limit = built(name), 3e-6 if name in ROUNDED else 1e-11
    seen = seen_of(model, IDS)
    parts = explain_weight(seen, 2, 2, QUERY, KEY, batch_row=1)
    writes = [*tables, *(each.format(n) for n in (0, 1) for each in (attention, network))]
    run = Frozen(model, writes, norms, 2, monkeypatch)
    removed = {table: (table, run.outputs[table]) for table in tables}
    for n in (0, 1):
        removed[network.format(n)] = network.format(n), run.outputs[network.format(n)]
        weight = model.get_submodule(projection.format(n)).weight
        weight = weight if name == "gpt2" else weight.T
        heads = run.inputs[projection.format(n)]
        for head in (0, 3):
            own = slice(4 * head, 4 * head + 4)
            removed[n, head] = attention.format(n), heads[..., own] @ weight[own]
    names = {(s.layer, s.head) if s.kind == "head" else s.name: index for index, s in enumerate(parts.sources)}
    factor = model.config.hidden_size // 4
    query, key = run.whole

    def score(queries, keys):
        return float(queries[1, 2, QUERY] @ keys[1, 2 * keys.shape[1] // 4, KEY]) * factor**-0.5

    assert parts.score == pytest.approx(score(query, key), rel=1e-6)
    for source, (module, part) in removed.items():
        own_query, own_key = run.without(module, part.detach(), monkeypatch)
        index = names[source]
        assert score(query, key) - score(own_query, key) == pytest.approx(parts.of_query[index], rel=limit, abs=limit)
        assert score(query, key) - score(query, own_key) == pytest.approx(parts.of_key[index], rel=limit, abs=limit)
        both = score(query - own_query, key - own_key)
        assert both == pytest.approx(parts.pairs[index, index], rel=limit, abs=limit)


class Induction(nn.Module):
    """A head that copies the previous token, and one that looks for a copy of its own token."""

    def __init__(self, tokens, length):
        super().__init__()
        self.token, self.place = nn.Embedding(tokens, 2 * tokens + length), nn.Embedding(length, 2 * tokens + length)
        features = 2 * tokens + length
        self.maps = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(features, features, bias=False) for name in "qkvo"}) for _ in range(2)
        )
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        own, copied, places = slice(0, tokens), slice(tokens, 2 * tokens), slice(2 * tokens, features)
        with torch.no_grad():
            self.token.weight[:, own] = torch.eye(tokens)
            self.place.weight[:, places] = torch.eye(length)
            before, after = self.maps
            before["q"].weight[places, places] = 60 * torch.eye(length).roll(-1, 0)  # its position, one earlier
            before["k"].weight[places, places] = torch.eye(length)
            before["v"].weight[copied, own] = torch.eye(tokens) / 2
            after["q"].weight[own, own] = 60 * torch.eye(tokens)
            after["k"].weight[own, copied] = torch.eye(tokens)
            for each in self.maps:
                each["o"].weight.copy_(2 * torch.eye(features))

    def forward(self, ids):
        x = self.token(ids) + self.place(torch.arange(ids.shape[1]))
        for maps in self.maps:
            query, key, value = (maps[name](x)[:, None] for name in "qkv")
            heads = F.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + maps["o"](heads[:, 0])
        return x


def test_the_previous_token_head_is_the_largest_part_of_an_induction_heads_key():
    model = Induction(tokens=6, length=8)
    seen = seen_of(model, torch.tensor([[4, 1, 3, 0, 5, 2, 1, 3]]))
    parts = explain_weight(seen, layer=1, head=0, query=6, key=2)  # the second 1 looks after the first one, at the 3
    assert parts.rank == 1
    assert parts.weight > 0.99
    largest = parts.largest(1)[0]
    assert (largest.query.label, largest.key.label) == ("embedding", "head 0 of layer 0")
    assert largest.score == pytest.approx(parts.score, rel=1e-4)
    relative = explain_weight(seen, layer=1, head=0, query=6, key=2, against="mean")
    assert relative.total == pytest.approx(parts.score * (1 - 1 / 7), rel=1e-3)


@pytest.mark.parametrize("norm_first", [True, False])
def test_layers_of_pytorch_and_of_regard_have_the_same_parts(norm_first):
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(16, 4, 20, batch_first=True, norm_first=norm_first)
    stack = nn.TransformerEncoder(theirs, 3, enable_nested_tensor=False).double().train()
    own = (
        regard.nn.TransformerEncoder(
            regard.nn.TransformerEncoderLayer(16, 4, 20, batch_first=True, norm_first=norm_first), 3
        )
        .double()
        .eval()
    )
    for module in stack.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = 0.0
    own.load_state_dict(stack.state_dict())
    x = torch.randn(2, 7, 16).double()
    one, other = (explain_weight(seen_of(each, x), 2, 1, QUERY, KEY, batch_row=1) for each in (stack, own))
    assert added(one) < 1e-12
    assert [source.kind for source in one.sources] == [source.kind for source in other.sources]
    np.testing.assert_allclose(one.pairs, other.pairs, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("position", ["rotary", "alibi", "t5", "shaw"])
def test_positions_of_regard_are_exact_or_have_a_line(position):
    layer = regard.nn.TransformerEncoderLayer(16, 4, 20, batch_first=True, norm_first=True, position=position)
    model = regard.nn.TransformerEncoder(layer, 2).double().eval()
    parts = explain_weight(seen_of(model, torch.randn(2, 7, 16).double()), 1, 3, QUERY, KEY)
    assert added(parts) < 1e-12
    assert (parts.bias == 0) == (position == "rotary")


@pytest.mark.parametrize("name", [name for name in HAND_WRITTEN if name != "regard-random"])
def test_parts_of_each_way_to_attend_add_up(name):
    model, x = Heads(HAND_WRITTEN[name][0]).double().eval(), torch.randn(2, 7, 10).double()
    with torch.no_grad(), regard.watch(model, inputs=True) as seen:
        model(x)
    parts = explain_weight(seen, 0, 1, QUERY, KEY, batch_row=1)
    assert [source.label for source in parts.sources] == ["input", "biases"]
    assert added(parts) < 1e-12


@pytest.mark.parametrize("name", ["sdpa", "softmax-einsum"])
def test_the_change_of_a_score_is_the_rest_of_its_parts(name):
    model, x = Heads(HAND_WRITTEN[name][0]).double().eval(), torch.randn(2, 7, 10).double()
    own = explain_weight(seen_of(model, x), 0, 1, QUERY, KEY)
    change = regard.Change("scores", lambda scores: scores + 2.0, head=1, keys=KEY)
    with torch.no_grad(), regard.intervene(model, change), regard.watch(model, inputs=True, read="view") as seen:
        model(x)
    parts, other = (explain_weight(seen, 0, 1, QUERY, key) for key in (KEY, KEY + 1))
    assert parts.score == pytest.approx(own.score + 2.0)
    assert parts.rest == pytest.approx(2.0)
    np.testing.assert_allclose(parts.pairs, own.pairs, atol=1e-12)
    assert np.log(parts.weight / other.weight) == pytest.approx(parts.score - other.score)


def test_attributes_that_results_do_not_have_are_attribute_errors():
    model = Heads(F.scaled_dot_product_attention)
    parts = explain_weight(seen_of(model, torch.randn(2, 7, 10)), 0, 1, QUERY, KEY)
    for result in (parts, regard.intervene(model, regard.Change("output", 0.0))):
        assert not hasattr(result, "_ipython_canary_method_should_not_exist_")  # a notebook asks for it first
        with pytest.raises(AttributeError, match="has no attribute 'matrix'"):
            _ = result.matrix


HIDDEN = torch.ones(7, 7, dtype=torch.bool).triu(1)
HIDING = {
    "filled": lambda scores: scores.masked_fill(HIDDEN, -torch.inf),
    "filled-in-place": lambda scores: scores.masked_fill_(HIDDEN, torch.finfo(scores.dtype).min),
    "added": lambda scores: scores + torch.zeros(7, 7).masked_fill(HIDDEN, -torch.inf),
}


@pytest.mark.parametrize("name", HIDING)
def test_a_mask_within_a_hand_written_softmax_adds_nothing_to_visible_keys(name):
    hide = HIDING[name]
    model = Heads(lambda query, key, value: hide(query @ key.mT * 0.3).softmax(-1) @ value).double().eval()
    seen = seen_of(model, torch.randn(2, 7, 10).double())
    parts = explain_weight(seen, 0, 1, QUERY, KEY, batch_row=1)
    assert added(parts) < 1e-12
    assert (parts.bias, parts.visible) == (0, QUERY + 1)
    of_key = weight_sources.score_parts(seen.calls[0], 1, 1).of_key.sum(0)
    assert of_key[QUERY, KEY] == pytest.approx(parts.score)
    assert np.isfinite(of_key).all()
    with pytest.raises(ArgumentError, match="hides key 6 from query 5"):
        explain_weight(seen, 0, 1, QUERY, 6)


def test_parts_of_cached_tokens_are_those_of_one_pass():
    model = built("llama")
    with torch.no_grad():
        tokens = model.generate(IDS, max_new_tokens=4, do_sample=False)
        with regard.watch(model, inputs=True) as seen:
            assert torch.equal(model.generate(IDS, max_new_tokens=4, do_sample=False), tokens)
    whole = seen_of(model, tokens)
    for query, key in ((9, 8), (8, 3), (5, 2)):
        one = explain_weight(seen, 2, 3, query, key, batch_row=1)
        other = explain_weight(whole, 2, 3, query, key, batch_row=1)
        assert one.sources == other.sources
        np.testing.assert_allclose(one.pairs, other.pairs, rtol=1e-4, atol=1e-6)


def test_some_heads_and_layers_leave_the_others_as_one_part():
    seen = seen_of(built("gpt2"), IDS, heads=[2])
    parts = explain_weight(seen, 2, 2, QUERY, KEY)
    assert added(parts) < 1e-12
    assert [source.label for source in parts.sources if source.kind == "head"] == [
        "other heads of layer 0", "head 2 of layer 0", "other heads of layer 1", "head 2 of layer 1",
    ]  # fmt: skip
    parts = explain_weight(seen_of(built("gpt2"), IDS, layers=[2]), 2, 2, QUERY, KEY)
    assert added(parts) < 1e-12
    assert "attn of layer 1" in parts.labels


def test_dropout_of_the_residual_stream_is_a_part_of_the_run():
    model = built("gpt2").train()
    for module in model.modules():
        if hasattr(module, "attn_dropout"):
            module.attn_dropout.p = 0.0
    torch.manual_seed(3)
    with torch.no_grad(), regard.watch(model, inputs=True) as seen:
        model(IDS)
    assert added(explain_weight(seen, 2, 2, QUERY, KEY)) < 1e-12


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_adapters_are_a_part_of_the_projections():
    peft = pytest.importorskip("peft")
    model = built("llama")
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "k_proj", "o_proj"], init_lora_weights=False)
    model = peft.get_peft_model(model, config).double().eval()
    seen = seen_of(model, IDS)
    parts = explain_weight(seen, 2, 2, QUERY, KEY)
    assert added(parts) < 2e-6
    written = zip(parts.sources, parts.of_query, parts.of_key, strict=True)
    assert {source.kind for source, *own in written if any(own)} == {"embedding", "head", "module"}


def test_a_cross_attention_has_the_writes_of_both_stacks():
    torch.manual_seed(0)
    model = regard.nn.Transformer(16, 2, 2, 2, 20, batch_first=True).double().eval()
    x = torch.randn(2, 7, 16).double()
    seen = seen_of(model, x, x[:, :5])
    parts = explain_weight(seen, 1, 1, 4, 3, kind="cross")
    assert added(parts) < 1e-12
    assert len(set(parts.labels)) == len(parts.labels)
    names = [source.name for source in parts.sources if source.kind == "head"]
    assert {name.partition(".")[0] for name in names} == {"encoder", "decoder"}
    self_attention = next(call for call in seen.calls if call.name == "decoder.layers.0.self_attn")
    with pytest.raises(ArgumentError, match="layer, kind and name must name one attention, and"):
        explain_weight(seen, 0, 1, 4, 3)
    assert explain_weight(seen, 0, 1, 4, 3, name=self_attention.name).name == self_attention.name


def test_a_pair_that_cannot_be_explained_is_an_error_that_says_why():
    model = models.LanguageModel(models.LanguageModelConfig(31, context=8, hidden=12, layers=2, heads=2)).eval()
    seen = seen_of(model, IDS)
    explain_weight(seen, 1, 1, QUERY, KEY)
    for options, match in (
        ({"layer": 2}, "layer, kind and name must name one attention, and 0"),
        ({"kind": "cross"}, "layer, kind and name must name one"),
        ({"head": 2}, "head must be below 2"),
        ({"query": 7}, "query must be from 0 to 6"),
        ({"key": 7}, "key must be one of the 7 keys"),
        ({"key": 6}, "hides key 6 from query 5"),
        ({"against": 9}, "against must be one of the 7 keys"),
        ({"batch_row": 2}, "batch_row must be below 2"),
    ):
        with pytest.raises(ArgumentError, match=match):
            explain_weight(seen, **{"layer": 1, "head": 1, "query": QUERY, "key": KEY, **options})
    with pytest.raises(UnknownNameError, match="kind"):
        explain_weight(seen, 1, 1, QUERY, KEY, kind="both")
    with pytest.raises(KindError, match="seen must be the result"):
        explain_weight(model, 1, 1, QUERY, KEY)
    with pytest.raises(KindError, match="head"):
        explain_weight(seen, 1, "1", QUERY, KEY)
    with regard.watch(model, keep=True) as without, torch.no_grad():
        model(IDS)
    with pytest.raises(ArgumentError, match="inputs=True"):
        explain_weight(without, 1, 1, QUERY, KEY)
    assert pickle.loads(pickle.dumps(seen.calls[1])).origin is None
    mha = nn.MultiheadAttention(12, 2, batch_first=True)
    x = torch.randn(2, 7, 12)
    with regard.watch(mha, inputs=True) as seen:
        mha(x, x, x)
    with pytest.raises(ArgumentError, match="need_weights=False"):
        explain_weight(seen, 0, 1, QUERY, KEY)
    additive = regard.nn.SelfAttention(12, 2, score="distance")
    with regard.watch(additive, inputs=True) as seen:
        additive(x)
    with pytest.raises(ArgumentError, match="no scaled inner product"):
        explain_weight(seen, 0, 1, QUERY, KEY)


def test_records_of_inputs_grow_linearly_with_the_length():
    sizes = []
    for length in (32, 64):
        torch.manual_seed(0)
        model = models.LanguageModel(models.LanguageModelConfig(31, context=64, hidden=12, layers=2, heads=2)).eval()
        seen = seen_of(model, torch.randint(0, 31, (1, length)))
        stack, steps, total = [each for call in seen.calls for each in (call.origin.query, call.origin.key)], set(), 0
        while stack:
            step = stack.pop()
            if step not in steps:
                steps.add(step)
                stack += step.parents
                total += sum(each.numel() for each in vars(step).values() if isinstance(each, torch.Tensor))
        sizes.append(total)
    assert sizes[1] == pytest.approx(2 * sizes[0], rel=0.05)


def test_parts_of_all_scores_are_those_of_each_pair(monkeypatch):
    seen = seen_of(built("gpt2"), IDS)
    call = seen.calls[2]
    whole = weight_sources.score_parts(call, 1, 2)
    for query, key in ((QUERY, KEY), (6, 0)):
        parts = explain_weight(seen, 2, 2, query, key, batch_row=1)
        assert whole.sources == parts.sources
        np.testing.assert_allclose(whole.of_query[:, query, key], parts.of_query, atol=1e-12)
        np.testing.assert_allclose(whole.of_key[:, query, key], parts.of_key, atol=1e-12)
    monkeypatch.setattr(weight_sources, "MOST_PARTS", 5 * 7 * 7)
    few = weight_sources.score_parts(call, 1, 2)
    assert [source.kind for source in few.sources][-1] == "others"
    assert len(few.sources) == 5
    np.testing.assert_allclose(few.of_key.sum(0), whole.of_key.sum(0), atol=1e-12)
    monkeypatch.setattr(weight_sources, "MOST_TOKENS", 6)
    with pytest.raises(ArgumentError, match="more than 6 tokens"):
        weight_sources.score_parts(call, 1, 2)


def test_printed_parts_have_a_row_for_each_source_and_their_sum():
    seen = seen_of(built("gpt2"), IDS)
    parts = explain_weight(seen, 2, 2, QUERY, KEY, against="mean")
    text = str(parts)
    for label in ("embedding", "position", "head 3 of layer 1", "mlp of layer 0", "biases", "score − mean"):
        assert label in text
    assert "number" in text.splitlines()[1]
    labels, numbers = parts._rows(4)
    assert labels[4] == "9 more"
    np.testing.assert_allclose(numbers[:-1].sum(0), numbers[-1], atol=1e-9)
    html = parts._repr_html_()
    assert html.count("<tr>") == len(parts._rows(12)[0]) + 1
    assert len(parts.largest(3)) == 3
    assert np.all(np.diff([abs(pair.score) for pair in parts.largest(9)]) <= 0)
    pytest.importorskip("matplotlib")
    axes = parts.figure(rows=5).axes
    assert [each.get_title(loc="left") for each in axes] == ["in the query", "in the key"]
    widths = [bar.get_width() for bar in axes[1].patches]
    np.testing.assert_allclose(sum(widths[:-1]), widths[-1], atol=1e-9)


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
def test_the_keys_of_a_static_cache_are_one_part_of_that_name():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(**GROUPED)
    model = transformers.LlamaForCausalLM(config).eval()
    cache = transformers.StaticCache(config=config, max_cache_len=9)
    with torch.no_grad(), regard.watch(model, inputs=True) as seen:
        model(IDS[:1, :5], past_key_values=cache)
        model(IDS[:1, 5:6], past_key_values=cache)
    parts = explain_weight(seen, layer=2, head=1, query=5, key=2)
    (cached,) = (number for number, source in enumerate(parts.sources) if source.kind == "cache")
    assert parts.sources[cached].label == "static cache of layer 2, one part"
    assert parts.pairs[:, cached].sum() == pytest.approx(parts.score, abs=1e-6)
