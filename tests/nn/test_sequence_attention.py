"""The self-attentions of layers by name: laws of all of them, and of the layers, stacks and models that take them."""

import copy
import math

import pytest
import torch

import regard
from regard import masks, models, nn
from regard.errors import ArgumentError, KindError, UnknownNameError
from regard.nn.attention_names import CLASSES

DIM, HEADS = 24, 2
names = pytest.mark.parametrize("name", CLASSES)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(3)


def config(name, **options):
    return nn.LayerConfig(dim=DIM, heads=HEADS, feedforward=17, dropout=0.0, attention=name, **options)


def encoder(name, **options):
    return nn.TransformerEncoder.create(2, config(name, **options), bidirectional=False).double()


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
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 1), (3, 2), (1, 4)], ids=str)
def test_steps_with_a_cache_are_the_whole_sequence(name, sizes):
    stack, x = encoder(name), tokens(2, 5)
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
        layer, x = config(name, activation_checkpointing=checkpointing).encoder_layer().double(), tokens(2, 5)
        layer(x, mask="causal").square().sum().backward()
        gradients.append([parameter.grad for parameter in layer.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert one is not None
        assert one.isfinite().all()
        assert torch.equal(one, other)


@names
def test_layers_are_copied_saved_and_seen_by_hooks(name):
    layer, x = config(name).encoder_layer(), torch.randn(2, 5, DIM)
    expected = layer(x, mask="causal")
    other = config(name).encoder_layer()
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
    sizes |= {"architecture": "transformer", "encoder_layers": 1, "decoder_layers": 2}
    translator = models.TransformerTranslator(models.TranslatorConfig(11, 13, **sizes)).eval()
    best = translator.translate(ids, torch.tensor([4, 2]), width=3, max_length=5)
    alone = translator.translate(ids[1:, :2], torch.tensor([2]), width=3, max_length=5)
    assert best[1].tokens == alone[0].tokens


def test_what_an_attention_lacks_is_one_clear_error():
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
    difference = first.double() - attention.weight_of_second.detach() * second.double()
    torch.testing.assert_close(difference, attended.weights.detach(), rtol=1e-5, atol=1e-6)
    hidden = ~mask.dense(regard.shapes.Grid.whole(2, 4, 5, 5))
    assert not first[hidden].any()
    assert not second[hidden].any()
