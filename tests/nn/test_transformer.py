"""The blocks of a Transformer: equal to PyTorch's, open to every score, normalizer and position, with caches."""

import itertools

import pytest
import torch
from torch import nn as torch_nn

from regard import masks, nn
from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.positions import DynamicNTK, Rotary, YaRN

B, S, T, D, H, F = 3, 7, 5, 12, 2, 17
SOURCE_LENGTHS, TARGET_LENGTHS = torch.tensor([7, 3, 1]), torch.tensor([2, 5, 4])

KINDS = {
    "default": {},
    "pre-norm": {"norm_first": True},
    "grouped": {"kv_heads": 1},
    "sparsemax": {"normalizer": "sparsemax"},
    "entmax15": {"normalizer": "entmax15"},
    "additive": {"score": "additive"},
    "general": {"score": "general"},
    "cosine": {"score": "cosine"},
    "rotary": {"position": "rotary"},
    "alibi": {"position": "alibi"},
    "t5": {"position": "t5"},
    "shaw": {"position": "shaw"},
    "by layer": {"position": (Rotary(4, 100.0, scaling=YaRN(2.0, 5)), "none", "alibi")},
    "gelu": {"activation": "gelu"},
}


def make(**options):
    torch.manual_seed(5)
    return nn.Transformer.create(2, 2, nn.LayerConfig(D, H, F, **options)).double().eval()


def inputs():
    torch.manual_seed(6)
    return torch.randn(B, S, D, dtype=torch.float64), torch.randn(B, T, D, dtype=torch.float64)


def valid(lengths, length):
    return torch.arange(length) < lengths[:, None]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_weights_load_from_and_into_pytorch(norm_first, activation):
    theirs = torch_nn.Transformer(D, H, 2, 2, F, 0.0, activation, batch_first=True, norm_first=norm_first).double()
    ours = make(norm_first=norm_first, activation=activation)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) / 10)
    ours.load_state_dict(theirs.state_dict())
    source, target = inputs()
    source_padding, target_padding = ~valid(SOURCE_LENGTHS, S), ~valid(TARGET_LENGTHS, T)
    expected = theirs(
        source,
        target,
        tgt_mask=torch_nn.Transformer.generate_square_subsequent_mask(T, dtype=torch.float64),
        src_key_padding_mask=source_padding.double() * -1e9,
        memory_key_padding_mask=source_padding.double() * -1e9,
        tgt_key_padding_mask=target_padding.double() * -1e9,
    )
    found = ours(source, target, tgt_mask="causal", src_lengths=SOURCE_LENGTHS, tgt_lengths=TARGET_LENGTHS)
    torch.testing.assert_close(found[~target_padding], expected[~target_padding])
    assert (found[target_padding] == 0).all()
    theirs.load_state_dict(make(norm_first=norm_first, activation=activation).state_dict())


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_a_padded_batch_is_each_sequence_alone(options):
    model = make(**options)
    source, target = inputs()
    source[~valid(SOURCE_LENGTHS, S)] = torch.nan
    target[~valid(TARGET_LENGTHS, T)] = torch.inf
    found = model(source, target, tgt_mask="causal", src_lengths=SOURCE_LENGTHS, tgt_lengths=TARGET_LENGTHS)
    for row, (s, t) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        alone = model(source[row : row + 1, :s], target[row : row + 1, :t], tgt_mask="causal")
        torch.testing.assert_close(found[row, :t], alone[0])


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_gradients_of_packed_rows_are_those_of_single_sequences(options):
    model = make(**options)
    source, target = (tensor.requires_grad_() for tensor in inputs())
    factor = torch.randn(B, T, D, dtype=torch.float64)
    names = dict(model.named_parameters())
    found = torch.autograd.grad(
        (
            model(source, target, tgt_mask="causal", src_lengths=SOURCE_LENGTHS, tgt_lengths=TARGET_LENGTHS) * factor
        ).sum(),
        [source, target, *names.values()],
    )
    total = sum(
        (model(source[row : row + 1, :s], target[row : row + 1, :t], tgt_mask="causal") * factor[row, :t]).sum()
        for row, (s, t) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True))
    )
    expected = torch.autograd.grad(total, [source, target, *names.values()])
    for name, ours, theirs in zip(["source", "target", *names], found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, msg=lambda text, name=name: f"{name}: {text}")
        assert ours.abs().sum() > 0, name


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("cuts", [(1, 1, 1, 1, 1), (2, 1, 2), (5,)], ids=str)
def test_decoding_with_a_cache_is_full_decoding(options, cuts):
    model = make(**options)
    source, target = inputs()
    memory = model.encoder(source, lengths=SOURCE_LENGTHS)
    expected = model.decoder(target, memory, mask="causal", memory_lengths=SOURCE_LENGTHS)
    remembered, caches = model.decoder.remember(memory, SOURCE_LENGTHS), None
    parts = []
    for part in target.split(list(cuts), dim=1):
        rows, caches, weights = model.decoder.step(part, remembered, caches, weights_of=1)
        parts.append(rows.view(B, -1, D))
        assert weights.shape == (B, H, part.shape[1], S)
        assert (weights[1, :, :, 3:] == 0).all()
    torch.testing.assert_close(torch.cat(parts, 1), expected)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_a_causal_encoder_with_a_cache_is_the_whole_one(options):
    torch.manual_seed(5)
    model = nn.TransformerEncoder.create(2, nn.LayerConfig(D, H, F, **options), bidirectional=False).double().eval()
    source, _ = inputs()
    expected = model(source, mask=masks.causal())
    caches, parts = None, []
    for part in source.split([3, 1, 1, 2], dim=1):
        found, caches = model.step(part, caches)
        parts.append(found)
    torch.testing.assert_close(torch.cat(parts, 1), expected)


@pytest.mark.parametrize(
    "caches", [[], [nn.KeyValueCache()], [nn.KeyValueCache()] * 3, nn.KeyValueCache(), [None, None]]
)
def test_a_step_without_one_cache_for_each_layer_is_an_error(caches):
    model = make()
    source, target = inputs()
    encoder, remembered = model.encoder, model.decoder.remember(source)
    for step in (
        lambda: model.decoder.step(target, remembered, caches),
        lambda: model.decoder.run(target.flatten(0, 1), nn.Packing(torch.full((B,), T), T), remembered, None, caches),
        lambda: encoder.step(source, caches),
    ):
        with pytest.raises(
            (ArgumentError, KindError), match=r"caches must be None before.*for each layer.*; it (is|has)"
        ):
            step()


def test_a_step_says_how_a_memory_is_remembered():
    model = make()
    source, target = inputs()
    with pytest.raises(
        KindError, match=r"not the encoder's output itself: write remembered = decoder\.remember\(memory\)"
    ):
        model.decoder.step(target, source)
    with pytest.raises(ArgumentError, match="one part for each of 2 layers; it has 1"):
        model.decoder.step(target, model.decoder.remember(source)[:1])


def test_a_search_can_continue_from_any_earlier_cache():
    torch.manual_seed(1)
    keys = torch.randn(6, 2, 3, 1, 4)  # six tokens of two rows, three heads
    first = nn.KeyValueCache().appended(keys[0], keys[0]).appended(keys[1], keys[1])
    one, two = first.appended(keys[2], keys[2]), first.appended(keys[3], keys[3])
    longer = one.appended(keys[4], keys[4])
    for cache, tokens in ((first, (0, 1)), (one, (0, 1, 2)), (two, (0, 1, 3)), (longer, (0, 1, 2, 4))):
        assert cache.length == len(tokens)
        for stored in (cache.key, cache.value):
            assert torch.equal(stored, torch.cat([keys[token] for token in tokens], dim=2))
    chosen = longer.select(torch.tensor([1, 1, 0]))
    assert torch.equal(chosen.key, longer.key[[1, 1, 0]])
    assert torch.equal(chosen.appended(keys[5][[1, 1, 0]], keys[5][[1, 1, 0]]).key[:, :, -1:], keys[5][[1, 1, 0]])
    many = nn.KeyValueCache()
    for number in range(70):
        many = many.appended(keys[number % 6], keys[number % 6])
    assert torch.equal(many.value, torch.cat([keys[number % 6] for number in range(70)], dim=2))
    with pytest.raises(ArgumentError, match="value must be given where key is"):
        nn.KeyValueCache(keys[0])


def test_asking_a_decoder_step_for_weights_changes_no_bit():
    model = make()
    source, target = inputs()
    remembered = model.decoder.remember(model.encoder(source))
    outputs = [
        model.decoder.step(target, remembered, [nn.KeyValueCache()] * 2, weights_of).rows for weights_of in (None, 0, 1)
    ]
    assert all(torch.equal(outputs[0], other) for other in outputs[1:])


def test_positions_by_layer_repeat_and_belong_to_their_layers():
    local, whole = Rotary(6, 10.0), Rotary(6, 1000.0)  # two bases, as in Gemma 3
    config = nn.LayerConfig(D, H, F, position=(local, local, whole, "none"))
    torch.manual_seed(5)
    stack = nn.TransformerEncoder.create(6, config)
    torch.manual_seed(5)
    alone = [
        nn.LayerConfig(D, H, F, position=position).encoder_layer()
        for position in (local, local, whole, "none", local, local)
    ]
    expected = nn.TransformerEncoder.from_layers(alone, config.final_norm())
    source, _ = inputs()
    assert torch.equal(stack.eval()(source.float()), expected.eval()(source.float()))
    assert [repr(layer.self_attn.position) for layer in stack.layers] == [
        repr(each) for each in (local, local, whole, None, local, local)
    ]
    assert len({id(layer.self_attn.position) for layer in stack.layers}) == 6
    decoder = nn.TransformerDecoder.create(3, nn.LayerConfig(D, H, F, position=("none", "rotary")))
    assert [layer.self_attn.position is None for layer in decoder.layers] == [True, False, True]


def test_padding_never_changes_the_frequencies_of_a_sequence():
    model = make(position=Rotary(6, 100.0, scaling=DynamicNTK(2.0, 2)))
    source, target = inputs()
    padded = model(source, target, tgt_mask="causal", src_lengths=SOURCE_LENGTHS, tgt_lengths=TARGET_LENGTHS)
    for row, (s, t) in enumerate(zip(SOURCE_LENGTHS, TARGET_LENGTHS, strict=True)):
        alone = model(source[row : row + 1, :s], target[row : row + 1, :t], tgt_mask="causal")
        torch.testing.assert_close(padded[row, :t], alone[0])


@pytest.mark.parametrize("lengths", list(itertools.product((0, 1, 3), repeat=2)), ids=str)
def test_packing_and_padding_are_inverse(lengths):
    packing = nn.Packing(torch.tensor(lengths), 3)
    padded = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    rows = packing.pack(padded)
    assert torch.equal(rows, padded[valid(torch.tensor(lengths), 3)])
    assert torch.equal(packing.pad(rows), padded * valid(torch.tensor(lengths), 3)[..., None])
    torch.autograd.gradcheck(lambda padded: packing.pad(packing.pack(padded) ** 2), padded)


def test_transformer_stacks_name_wrong_arguments():
    with pytest.raises(ArgumentError, match=r"lengths must be in 0\.\.3"):
        nn.Packing(torch.tensor([4]), 3)
    with pytest.raises(ShapeError, match=r"lengths must be \[batch\]"):
        nn.Packing(torch.tensor([[4]]), 3)
    with pytest.raises(ArgumentError, match="heads must divide dim"):
        nn.LayerConfig(10, 3)
    with pytest.raises(ArgumentError, match="rotary"):
        nn.LayerConfig(10, 2, position="rotary")
    with pytest.raises(UnknownNameError, match="position"):
        nn.LayerConfig(position="nowhere")
    with pytest.raises(UnknownNameError, match="rope"):
        nn.LayerConfig(position=("rotary", "rope"))
    with pytest.raises(ArgumentError, match="position must have at least one"):
        nn.LayerConfig(position=())
    with pytest.raises(UnknownNameError, match="activation"):
        nn.LayerConfig(activation="step").encoder_layer()
    with pytest.raises(ArgumentError, match="layers"):
        nn.TransformerEncoder.from_layers([])
    with pytest.raises(ArgumentError, match="layers"):
        nn.Transformer.create(0, 1)
