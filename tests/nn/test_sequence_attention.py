"""The self-attentions of layers by name: laws of all of them, and of the layers, stacks and models that take them."""

import copy
import importlib
import inspect
import math

import pytest
import torch

import regard
from regard import masks, models, nn
from regard.attention.execution import recorded_calls
from regard.errors import ArgumentError, KindError, UnknownNameError
from regard.explanations.model_attention import ModelAttention
from regard.nn.attention_names import CLASSES, USUAL_VALUES
from regard.records import TokenAxis

DIM, HEADS = 24, 2
names = pytest.mark.parametrize("name", CLASSES)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(3)


def config(name, **options):
    return nn.LayerConfig(dim=DIM, heads=HEADS, feedforward=17, dropout=0.0, attention=name, **options)


def encoder(name, **options):
    return nn.TransformerEncoder.create(2, config(name, **options), bidirectional=False).double()


def learned(module):
    """The parameters that learn from an output: an indexer learns from a loss of its own."""
    return [parameter for name, parameter in module.named_parameters() if ".indexer." not in name]


def tokens(*sizes):
    return torch.randn(*sizes, DIM, dtype=torch.float64)


@names
def test_a_later_token_changes_no_earlier_one_and_padding_changes_nothing(name):
    stack, x = encoder(name), tokens(3, 7)
    whole = stack(x, mask="causal", lengths=torch.tensor([7, 4, 0]))
    assert not whole[1, 4:].any()
    torch.testing.assert_close(whole[1, :4], stack(x[1:2, :4], mask="causal")[0])
    torch.testing.assert_close(whole[0, :5], stack(x[:1, :5], mask="causal")[0])


@names
def test_a_key_padding_mask_hides_nan_from_the_tokens_of_every_sequence(name):
    layer, x = config(name).encoder_layer(bidirectional=False).double(), tokens(3, 7)
    hidden = torch.zeros(3, 7).bool()
    hidden[1, 4:] = hidden[2, :2] = hidden[2, 5] = True
    for mask in (None, "causal"):
        output = layer(x.masked_fill(hidden[..., None], torch.nan), mask=mask, src_key_padding_mask=hidden)
        for row, padding, expected in zip(x, hidden, output, strict=True):
            if not (name == "retention" and padding[0]):  # its positions are absolute
                torch.testing.assert_close(layer(row[None, ~padding], mask=mask)[0], expected[~padding])
    assert layer(x[:0], src_key_padding_mask=hidden[:0]).shape == (0, 7, DIM)


@names
def test_gradients_through_a_cache_are_those_of_the_whole_sequence(name):
    stack, x = encoder(name), tokens(2, 5).requires_grad_()
    caches, parts = None, []
    for part in x.split((2, 1, 2), dim=1):
        rows, caches = stack.step(part, caches)
        parts.append(rows)
    wanted = x, *learned(stack)
    probe = tokens(2, 5)
    stepped = torch.autograd.grad((torch.cat(parts, dim=1) * probe).sum(), wanted)
    for one, other in zip(stepped, torch.autograd.grad((stack(x, mask="causal") * probe).sum(), wanted), strict=True):
        torch.testing.assert_close(one, other)


@names
def test_no_mask_means_the_same_with_a_cache_as_without(name):
    attention, x = encoder(name).layers[0].self_attn, tokens(2, 5)
    if CLASSES[name].path.startswith("regard.nn.linear_attention") and not attention.is_causal:
        with pytest.raises(ArgumentError, match="write mask='causal'"):
            attention(x, cache=attention.new_cache())
    else:
        torch.testing.assert_close(attention(x, cache=attention.new_cache()).output, attention(x).output)


@names
def test_the_table_of_names_says_what_a_class_has(name):
    path, lacks, is_causal = CLASSES[name]
    module, constructor = path.split(":")
    parameters = inspect.signature(getattr(importlib.import_module(module), constructor)).parameters
    assert set(lacks) == set(USUAL_VALUES) - set(parameters)
    attention, x = encoder(name).layers[0].self_attn, tokens(1, 4)
    assert attention.is_causal == is_causal
    weights = attention(x, need_weights=True).weights
    assert bool(weights.triu(1).any()) is not is_causal
    if is_causal:
        for make in (
            lambda: nn.TransformerEncoderLayer(DIM, HEADS, attention=name),
            lambda: models.TranslatorConfig(11, 13, architecture="transformer", self_attention=name),
            lambda: models.TextClassifierConfig(11, 2, architecture="transformer", self_attention=name),
        ):
            with pytest.raises(ArgumentError, match="cannot read in both directions"):
                make()


@names
def test_a_configuration_lacks_what_its_self_attention_lacks(name):
    def made(**options):
        return models.LanguageModel(models.LanguageModelConfig(11, hidden=DIM, heads=HEADS, **options))

    model = made(self_attention=name)
    assert (model.config.position in ("none", "sinusoidal")) == ("position" in CLASSES[name].lacks)
    for weights in model.stack.layers[0].self_attn.projection_weights():
        assert weights.std() < 0.03
    for option, value in (("score", "dot"), ("normalizer", "sparsemax"), ("kv_heads", 1), ("position", "alibi")):
        if option in CLASSES[name].lacks:
            with pytest.raises(ArgumentError, match=f"^{option} is not an option of self_attention '{name}'; leave"):
                made(self_attention=name, **{option: value})


POSITIONED = [
    (name, position)
    for name in CLASSES
    for position in ("none", "rotary", "alibi")
    if position == "none" or "position" not in CLASSES[name].lacks
]


@pytest.mark.parametrize(("name", "position"), POSITIONED)
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (3, 2)], ids=str)
def test_steps_with_a_cache_are_the_whole_sequence(name, position, sizes):
    stack, x = encoder(name, position=position), tokens(2, 5)
    expected, caches, parts = stack(x, mask="causal"), None, []
    for part in x.split(sizes, dim=1):
        rows, caches = stack.step(part, caches)
        parts.append(rows)
    torch.testing.assert_close(torch.cat(parts, dim=1), expected)
    assert [cache.length for cache in caches] == [5, 5]
    index, more = torch.tensor([1, 1, 0]), tokens(3, 1)
    selected = [cache.select(index) for cache in caches]
    torch.testing.assert_close(
        stack.step(more, selected)[0], stack(torch.cat([x[index], more], dim=1), mask="causal")[:, -1:]
    )
    # The earlier caches are as they were.
    torch.testing.assert_close(
        stack.step(more[:2], caches)[0], stack(torch.cat([x, more[:2]], 1), mask="causal")[:, -1:]
    )


@names
def test_weights_change_no_bit_and_are_those_of_visible_tokens(name):
    attention, x = encoder(name).layers[1].self_attn, tokens(2, 5)
    attended = attention(x, mask="causal", need_weights=True)
    assert torch.equal(attended.output, attention(x, mask="causal").output)
    assert attended.weights.shape == (2, HEADS, 5, 5)
    assert not attended.weights.triu(1).any()
    assert attended.weights.requires_grad


@names
def test_every_parameter_has_a_gradient_and_checkpointing_changes_none(name):
    gradients = []
    for checkpointing in (False, True):
        torch.manual_seed(5)
        layer, x = (
            config(name, activation_checkpointing=checkpointing).encoder_layer(bidirectional=False).double(),
            tokens(2, 5),
        )
        layer(x, mask="causal").square().sum().backward()
        gradients.append([parameter.grad for parameter in learned(layer)])
    for one, other in zip(*gradients, strict=True):
        assert one is not None
        assert one.isfinite().all()
        assert torch.equal(one, other)


@names
def test_layers_are_copied_saved_and_seen_by_hooks(name):
    layer, x = config(name).encoder_layer(bidirectional=False), torch.randn(2, 5, DIM)
    expected = layer(x, mask="causal")
    other = config(name).encoder_layer(bidirectional=False)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x, mask="causal"), expected)
    other, shapes = copy.deepcopy(layer), []
    other.self_attn.register_forward_hook(lambda _, args, output: shapes.append((args[0].shape, output.output.shape)))
    assert torch.equal(other(x, mask="causal"), expected)
    assert shapes == [((2, 5, DIM), (2, 5, DIM))]
    with regard.watch(layer) as record:
        assert torch.equal(layer(x, mask="causal"), expected)
    assert {call.name for call in record.calls} <= {"self_attn"}


@names
def test_the_language_model_and_the_translator_take_it_by_name(name):
    sizes = {"hidden": DIM, "heads": HEADS, "dropout": 0.0, "position": "none", "self_attention": name}
    model = models.LanguageModel(models.LanguageModelConfig(11, context=8, layers=2, **sizes)).eval()
    ids = torch.tensor([[3, 4, 5, 6], [7, 3, 9, 1]])
    caches = model.start()
    for token in ids.split(1, dim=1):
        log_probabilities, caches = model.step(token, caches)
    torch.testing.assert_close(log_probabilities, model(ids)[:, -1].log_softmax(-1))
    assert model.attention_weights(ids, layer=1).shape == (2, 4, 4)
    if CLASSES[name].is_causal:
        return
    sizes |= {"architecture": "transformer", "encoder_layers": 1, "decoder_layers": 2}
    translator = models.TransformerTranslator(models.TranslatorConfig(11, 13, **sizes)).eval()
    best = translator.translate(ids, torch.tensor([4, 2]), width=3, max_length=5)
    alone = translator.translate(ids[1:, :2], torch.tensor([2]), width=3, max_length=5)
    assert best[1].tokens == alone[0].tokens


def test_stacks_refuse_features_that_their_attention_lacks():
    attention = nn.DifferentialAttention(DIM, HEADS)
    layer = nn.TransformerEncoderLayer(DIM, HEADS, attention=attention)
    assert layer.self_attn is attention
    for options, error, message in (
        ({"attention": "diferential"}, UnknownNameError, "did you mean 'differential'"),
        ({"attention": 3}, KindError, "attention must be a name"),
        ({"attention": "differential", "score": "cosine"}, ArgumentError, "score is not an option of attention"),
        ({"attention": attention, "position": "alibi"}, ArgumentError, "leave it out: position='none'"),
        ({"attention": nn.DifferentialAttention(DIM, 3)}, ArgumentError, "nhead must be that of the attention, 3"),
    ):
        with pytest.raises(error, match=message):
            nn.TransformerEncoderLayer(DIM, HEADS, **options)
    # Of a decoder's layer the attention to the memory has it.
    assert nn.TransformerDecoderLayer(DIM, HEADS, attention="differential", score="cosine").multihead_attn.score
    with pytest.raises(KindError, match="a KeyValueCache; it is a str"):
        attention(torch.randn(1, 2, DIM), cache="cache")
    with pytest.raises(KindError, match="one cache for each layer"):
        encoder("differential").step(tokens(1, 1), ["cache", "cache"])


def literal_difference(attention, x, visible):
    """Ye et al. 2024, eq. 1 to 3, a number after the other."""
    dim, half = attention.head_dim, attention.head_dim // 2
    weight, offset = attention.in_proj.weight, attention.in_proj.bias
    q, k, v = (x @ weight.T + offset).split([DIM, DIM, DIM], dim=-1)
    (q1, q2), (k1, k2) = attention.lambda_query, attention.lambda_key
    start = 0.8 - 0.6 * math.exp(-0.3 * attention.depth)
    factor = torch.exp(q1 @ k1) - torch.exp(q2 @ k2) + start
    batch, length, _ = x.shape
    joined, both = x.new_zeros(batch, length, DIM), x.new_zeros(batch, HEADS, length, length)
    for b in range(batch):
        for h in range(HEADS):
            for i in range(length):
                rows = []
                for m in range(2):
                    part = slice((m * HEADS + h) * half, (m * HEADS + h + 1) * half)
                    row = torch.zeros(length, dtype=x.dtype)
                    for j in range(length):
                        if visible[i, j]:
                            row[j] = torch.exp(q[b, i, part] @ k[b, j, part] / half**0.5)
                    rows.append(row / row.sum())
                row = both[b, h, i] = rows[0] - factor * rows[1]
                mixed = row @ v[b, :, h * dim : (h + 1) * dim]
                mixed = mixed / (mixed.square().mean() + 1e-5).sqrt() * attention.norm.weight
                joined[b, i, h * dim : (h + 1) * dim] = mixed * (1 - start)
    return joined @ attention.out_proj.weight.T + attention.out_proj.bias, both


def test_differential_attention_is_the_equation():
    attention, x = nn.DifferentialAttention(DIM, HEADS, depth=2).double(), tokens(2, 4)
    torch.nn.init.normal_(attention.norm.weight)
    visible = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]]).bool()
    output, weights = literal_difference(attention, x, visible)
    attended = attention(x, mask=masks.keep(visible), need_weights=True)
    torch.testing.assert_close(attended.output, output)
    torch.testing.assert_close(attended.weights, weights)
    small = nn.DifferentialAttention(4, 1, position="rotary").double()
    assert torch.autograd.gradcheck(
        lambda x: small(x, mask="causal", need_weights=True)[:2], torch.randn(1, 3, 4).double().requires_grad_()
    )


def test_both_maps_of_differential_attention_have_masks_biases_and_grouped_heads():
    attention, x = nn.DifferentialAttention(DIM, 4, kv_heads=2, position="alibi").double(), tokens(2, 5)
    mask, bias = masks.where(lambda batch, head, query, key: key <= query + head), torch.randn(4, 5, 5).double()
    with regard.watch(attention, read=regard.Readings(weights=True)) as record:
        attended = attention(x, mask=mask, bias=bias, need_weights=True)
    first, second = (call.weights for call in record.calls)
    difference = first.double() - attention.lambda_full.detach() * second.double()
    torch.testing.assert_close(difference, attended.weights.detach(), rtol=1e-5, atol=1e-6)
    hidden = ~mask.dense(regard.shapes.grid.Grid.whole(2, 4, 5, 5))
    assert not first[hidden].any()
    assert not second[hidden].any()


def softmax_of(row, visible):
    powers = torch.stack([row[j].exp() if visible[j] else row[j] * 0 for j in range(len(row))])
    return powers / powers.sum()


def rms(vector, norm, epsilon=1e-6):
    return vector / (vector.square().mean() + epsilon).sqrt() * norm.weight


def literal_heads(attention, x, visible):
    """One head, one query after the other: gates of Qiu et al. 2025, eq. 5, norms as in Dehghani et al. 2023."""
    dim = attention.head_dim
    q, k, v = (x @ attention.in_proj.weight.T + attention.in_proj.bias).split([DIM, DIM, DIM], dim=-1)
    joined = x.new_zeros(x.shape)
    for b in range(x.shape[0]):
        for h in range(HEADS):
            part = slice(h * dim, (h + 1) * dim)
            keys = torch.stack([rms(key, attention.key_norm) for key in k[b, :, part]])
            for i in range(x.shape[1]):
                query = rms(q[b, i, part], attention.query_norm)
                joined[b, i, part] = softmax_of(keys @ query / dim**0.5, visible[i]) @ v[b, :, part]
    gates = 1 / (1 + torch.exp(-(x @ attention.gate.weight.T + attention.gate.bias)))
    return (gates * joined) @ attention.out_proj.weight.T + attention.out_proj.bias


def literal_latent(attention, x, visible):
    """DeepSeek-V2, eq. 9 to 19, for one head, one query after the other; a rotation turns pairs of halves."""
    dim, turned = attention.head_dim, attention.rotary_dim

    def rotated(vector, position):
        first, second = vector[: turned // 2], vector[turned // 2 :]
        angle = position * 10000 ** (-torch.arange(turned // 2, dtype=x.dtype) * 2 / turned)
        return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()])

    joined = x.new_zeros(x.shape)
    for b in range(x.shape[0]):
        down = attention.kv_down(x[b])
        latent = [rms(row[: attention.kv_rank], attention.kv_norm) for row in down]
        shared = [rotated(row[attention.kv_rank :], j) for j, row in enumerate(down)]
        queries = attention.query_up(
            torch.stack([rms(row, attention.query_norm) for row in attention.query_down(x[b])])
        )
        for h in range(HEADS):
            keys = torch.stack([torch.cat([attention.key_up[h] @ c, r]) for c, r in zip(latent, shared, strict=True)])
            values = torch.stack([attention.value_up[h] @ c for c in latent])
            for i in range(x.shape[1]):
                query = queries[i, h * (dim + turned) : (h + 1) * (dim + turned)]
                query = torch.cat([query[:dim], rotated(query[dim:], i)])
                weights = softmax_of(keys @ query / (dim + turned) ** 0.5, visible[i])
                joined[b, i, h * dim : (h + 1) * dim] = weights @ values
    return attention.out_proj(joined)


@pytest.mark.parametrize(
    ("attention", "literal"),
    [
        (lambda: nn.SelfAttention(DIM, HEADS, gate=True, qk_norm="rms"), literal_heads),
        (
            lambda: nn.LatentAttention(DIM, HEADS, kv_rank=7, query_rank=5, rotary_dim=4, position="rotary"),
            literal_latent,
        ),
    ],
    ids=["gated with norms", "latent"],
)
def test_heads_are_those_of_the_paper(attention, literal):
    attention, x = attention().double(), tokens(2, 4)
    for norm in (module for module in attention.modules() if isinstance(module, torch.nn.RMSNorm)):
        torch.nn.init.normal_(norm.weight)
    visible = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 1, 1], [1, 1, 1, 1]]).bool()
    output = attention(x, mask=masks.keep(visible)).output
    torch.testing.assert_close(output, literal(attention, x, visible))


def test_a_latent_cache_holds_the_compressed_vectors_alone():
    attention, x = nn.LatentAttention(DIM, HEADS, kv_rank=7, rotary_dim=4, position="rotary").double(), tokens(2, 5)
    _, weights, cache = attention(x[:, :3], mask="causal", cache=attention.new_cache(), need_weights=True)
    assert (cache.key.shape, cache.value.shape) == ((2, 1, 3, 7), (2, 1, 3, 4))
    _, absorbed, cache = attention(x[:, 3:], mask="causal", cache=cache, need_weights=True)
    expected = attention(x, mask="causal", need_weights=True).weights
    torch.testing.assert_close(weights, expected[:, :, :3, :3])
    torch.testing.assert_close(absorbed, expected[:, :, 3:])


def test_latent_heads_with_a_size_of_their_own_need_not_divide_the_features():
    for kind in (nn.LatentAttention, nn.IndexedAttention):
        assert kind(10, 4, head_dim=3)(torch.randn(2, 5, 10)).output.shape == (2, 5, 10)


def test_options_that_contradict_each_other_are_errors():
    for make, message in (
        (lambda: nn.SelfAttention(DIM, HEADS, gate=True, normalizer="sinkhorn"), "compares all queries"),
        (lambda: nn.LatentAttention(DIM, HEADS, position="shaw"), "must not depend on queries"),
        (lambda: nn.LatentAttention(DIM, HEADS, rotary_dim=4), "needs position='rotary'"),
        (lambda: nn.DifferentialAttention(6, 2), "must be even, half for each map"),
        (lambda: nn.LatentAttention(10, 4), "num_heads must divide embed_dim"),
    ):
        with pytest.raises(ArgumentError, match=message):
            make()


def test_talking_heads_are_multi_head_attention_until_they_talk():
    attention, x = nn.SelfAttention(DIM, HEADS, talking_heads=True).double(), tokens(2, 5)
    plain = torch.nn.MultiheadAttention(DIM, HEADS, batch_first=True, dtype=torch.float64)
    plain.load_state_dict(
        {
            "in_proj_weight": attention.in_proj.weight, "in_proj_bias": attention.in_proj.bias,
            "out_proj.weight": attention.out_proj.weight, "out_proj.bias": attention.out_proj.bias,
        }
    )  # fmt: skip
    torch.testing.assert_close(attention(x).output, plain(x, x, x)[0])
    with torch.no_grad():
        attention.normalizer.before[0, 1] = 1.0
    assert not torch.allclose(attention(x).output, plain(x, x, x)[0])


def test_both_maps_of_a_layer_are_recorded_as_one_attention_with_worked_steps():
    stack, x = encoder("differential"), tokens(1, 3)
    with torch.no_grad(), recorded_calls() as calls:
        stack(x, mask="causal")
        expected = stack.layers[0].self_attn(x, mask="causal", need_weights=True).weights
    axis = TokenAxis(("a", "b", "c"))
    first = ModelAttention("self_attn", 0, "causal", axis, axis, calls[:1])
    assert len(calls) == 2 + 2  # a call a layer, and the two of the attention alone
    assert first.heads == 2 * HEADS
    weights = torch.from_numpy(first.record().weights).double()
    factor = stack.layers[0].self_attn.lambda_full.detach()
    torch.testing.assert_close(weights[:HEADS] - factor * weights[HEADS:], expected[0], rtol=1e-5, atol=1e-6)
    steps = first.steps(HEADS + 1)
    assert steps.name == "self_attn, map 2, head 1"
    torch.testing.assert_close(torch.as_tensor(steps.matrices["weights"]), weights[HEADS + 1], rtol=1e-5, atol=1e-6)
