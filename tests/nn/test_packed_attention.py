"""Layers whose packed rows reach the kernel as they are: the same results as on padded heads, watched or not."""

import pytest
import torch

from regard import masks, nn, watch
from regard.attention import register_backend, unregister_backend
from regard.attention.backends.backend import Backend
from regard.attention.execution import recorded_calls
from regard.errors import BackendError
from regard.kernels import availability
from regard.kernels.cpu import packed_call
from regard.nn.attention_heads import AttentionHeads
from regard.nn.key_values import EncoderOutput

if availability.why_missing() is not None:
    pytest.skip("kernels are compiled by Numba", allow_module_level=True)

SOURCE, TARGET, D, H = torch.tensor([7, 0, 3, 1]), torch.tensor([2, 5, 4, 1]), 24, 4
KINDS = {
    "default": {},
    "pre-norm": {"norm_first": True},
    "grouped": {"kv_heads": 2},
    "dropout": {"dropout": 0.4},
    "checkpointing": {"dropout": 0.4, "activation_checkpointing": True},
}


@pytest.fixture(autouse=True)
def _everywhere(monkeypatch):
    monkeypatch.setattr(packed_call, "microkernel_is_faster", lambda: True)


@pytest.fixture
def taken(monkeypatch):
    """For each call whether the kernel took it."""
    calls = []
    attend_documents = AttentionHeads._attend_documents

    def attend(*arguments):
        found = attend_documents(*arguments)
        calls.append(found is not None)
        return found

    monkeypatch.setattr(AttentionHeads, "_attend_documents", attend)
    return calls


def make(**options):
    torch.manual_seed(3)
    return nn.Transformer.create(2, 2, nn.LayerConfig(D, H, 2 * D, **{"dropout": 0.0, **options}))


def inputs(dtype=torch.float32):
    torch.manual_seed(4)
    return (torch.randn(4, length, D, dtype=dtype).requires_grad_() for length in (7, 5))


def gradients(model, **options):
    """The output and all gradients, by name."""
    source, target = inputs()
    torch.manual_seed(5)
    output = model(source, target, **{"tgt_mask": "causal", **options}, src_lengths=SOURCE, tgt_lengths=TARGET)
    leaves = {"source": source, "target": target, **dict(model.named_parameters())}
    found = torch.autograd.grad((output * torch.randn_like(output)).sum(), list(leaves.values()))
    return {"output": output.detach(), **dict(zip(leaves, found, strict=True))}


def on_padded_heads(monkeypatch, run):
    with monkeypatch.context() as context:
        context.setattr(AttentionHeads, "_attend_documents", lambda *_: None)
        return run()


@pytest.mark.parametrize("kind", ["default", "pre-norm", "grouped"])
@pytest.mark.parametrize("tgt_mask", ["causal", masks.window(1, 1), masks.causal() & masks.window(2, 4)], ids=str)
def test_layers_are_those_on_padded_heads(monkeypatch, taken, kind, tgt_mask):
    model = make(**KINDS[kind])
    found = gradients(model, tgt_mask=tgt_mask)
    assert taken == [True] * 6
    wanted = on_padded_heads(monkeypatch, lambda: gradients(model, tgt_mask=tgt_mask))
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["watched", "recorded"])
def test_looking_changes_no_bit(taken, kind, how):
    model = make(**KINDS[kind])
    plain = gradients(model)
    with watch(model) if how == "watched" else recorded_calls() as calls:
        seen = gradients(model)
    assert all(taken)
    assert len(calls.calls if how == "watched" else calls) >= 6
    assert all(torch.equal(value, seen[name]) for name, value in plain.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_asking_a_packed_stack_for_weights_changes_no_bit(taken, dtype, dropout):
    model, (source, target) = make(dropout=dropout).to(dtype), inputs(dtype)
    packing, keys, found = nn.Packing(TARGET, 5), nn.Packing(SOURCE, 7), []
    memory = [EncoderOutput(keys.pack(source), keys)] * 2
    for layer in (None, 1):
        torch.manual_seed(5)
        found.append(model.decoder.run(packing.pack(target), packing, memory, masks.causal(), None, layer))
    assert all(taken)
    assert torch.equal(found[0].rows, found[1].rows)
    weights = found[1].weights.float()
    sums = weights.sum(-1).transpose(1, 2)[torch.arange(5) < TARGET[:, None]]
    seen = SOURCE.repeat_interleave(TARGET)[:, None].ne(0).float()
    torch.testing.assert_close(sums, seen.expand_as(sums), rtol=1e-2, atol=1e-2)
    (grad,) = torch.autograd.grad(weights.square().sum(), source)
    assert grad.abs().sum() > 0


def test_autocast_runs_on_it_too(monkeypatch, taken):
    model = make()
    with torch.autocast("cpu", torch.bfloat16):
        found = gradients(model)
        wanted = on_padded_heads(monkeypatch, lambda: gradients(model))
    assert all(taken)
    for name, value in wanted.items():
        near = (found[name] - value).norm() / value.norm().clamp(min=1e-6)
        assert near < 0.05, name


def second_derivative(model):
    source, target = inputs()
    output = model(source, target, tgt_mask="causal", src_lengths=SOURCE, tgt_lengths=TARGET)
    (grad,) = torch.autograd.grad(output.square().sum(), source, create_graph=True)
    return torch.autograd.grad(grad.square().sum(), [source, target, *model.parameters()], allow_unused=True)


@pytest.mark.parametrize("kind", ["default", "grouped"])
def test_a_gradient_has_a_gradient(monkeypatch, taken, kind):
    model = make(**KINDS[kind])
    found = second_derivative(model)
    assert all(taken)
    for one, other in zip(found, on_padded_heads(monkeypatch, lambda: second_derivative(model)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_dropout_has_no_second_derivative():
    with pytest.raises(BackendError, match="second derivative"):
        second_derivative(make(dropout=0.4))


def test_batches_of_gradients(taken):
    model, (source, target) = make(), inputs()
    output = model(source, target, tgt_mask="causal", src_lengths=SOURCE, tgt_lengths=TARGET)
    several = torch.randn(3, *output.shape)
    (found,) = torch.autograd.grad(output, source, several, retain_graph=True, is_grads_batched=True)
    wanted = torch.stack([torch.autograd.grad(output, source, one, retain_graph=True)[0] for one in several])
    assert all(taken)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 3e38])
def test_a_later_token_reaches_no_earlier_one(bad):
    encoder = make().encoder
    source, _ = inputs()
    with torch.no_grad():
        source[0, 4] = bad
    output = encoder(source, lengths=SOURCE, mask=masks.causal())
    clean = source.detach().clone()
    clean[0, 4] = 1.0
    wanted = encoder(clean, lengths=SOURCE, mask=masks.causal())
    torch.testing.assert_close(output[0, :4], wanted[0, :4], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 3e38])
@pytest.mark.parametrize("part", [0, D, 2 * D], ids=["query", "key", "value"])
def test_a_later_row_reaches_no_gradient_of_an_earlier_query(bad, part):
    attention = nn.MultiheadAttention(D, H, batch_first=True)
    packing = nn.Packing(TARGET, 5)
    products = torch.randn(int(TARGET.sum()), 3 * D)
    # The last token of the second sequence.
    products[6, part : part + D] = bad
    products.requires_grad_()
    earlier = torch.ones(len(products), dtype=torch.bool)
    earlier[6] = False

    def grads():
        found = attention._attend_documents((products,), packing, packing, masks.causal())
        if found is None:
            padded = packing.pad(products).split(D, dim=-1)
            heads = (attention.split(each) for each in padded)
            mask = masks.causal() & masks.lengths(TARGET)
            rows = packing.pack(attention.join(attention.attend_heads(*heads, masks=[mask]).output))
        else:
            rows = found.output
        return torch.autograd.grad(rows[earlier].square().sum(), products)[0]

    # Keys and values of earlier rows are seen by the bad one.
    assert grads()[earlier, :D].isfinite().all()


def test_nan_in_a_packed_sequence_reaches_no_other_one():
    encoder = make().encoder
    source, _ = inputs()
    with torch.no_grad():
        source[0, 2] = torch.nan
    output = encoder(source, lengths=SOURCE)
    assert output[0].isnan().any()
    assert output[1:].isfinite().all()


def test_a_gradient_that_is_negated_when_it_is_read():
    attention, packing = nn.MultiheadAttention(D, H, dropout=0.4, batch_first=True), nn.Packing(TARGET, 5)
    products = torch.randn(int(TARGET.sum()), 3 * D, requires_grad=True)
    attended = attention._attend_documents((products,), packing, packing, masks.causal())
    assert attended is not None
    given = torch.randn_like(attended.output)
    found, wanted = (
        torch.autograd.grad(attended.output, products, grad, retain_graph=True)[0]
        for grad in (torch._neg_view(given), -given)
    )
    assert torch.equal(found, wanted)


class _Another(Backend):
    name = "another"

    def run(self, problem, gatherer=None):
        return problem.query.new_zeros(*problem.query.shape[:3], problem.value.shape[3])


OTHERS = {
    "rotary": {"position": "rotary"},
    "bias": {"position": "t5"},
    "normalizer": {"normalizer": "entmax15"},
    "score": {"score": "additive"},
    "backend": {"backend": "reference"},
}


@pytest.mark.parametrize("options", OTHERS.values(), ids=OTHERS)
def test_other_attention_is_left_to_the_backends(taken, options):
    gradients(make(**options))
    # The attention of a decoder to an encoder has no position.
    crosses = "position" in options
    assert taken == [False, False, False, crosses, False, crosses]


@pytest.mark.parametrize("mask", [masks.prefix(2), ~masks.causal(), masks.lengths(torch.tensor([1, 1, 1, 1]))], ids=str)
def test_other_masks_are_left_to_the_backends(taken, mask):
    source, _ = inputs()
    make().encoder(source, lengths=SOURCE, mask=mask)
    assert taken == [False] * 2


def test_long_sequences_and_double_precision_are_left_to_the_backends(taken):
    encoder = make().encoder
    encoder(torch.randn(1, 65, D), lengths=torch.tensor([65]))
    encoder.double()(torch.randn(1, 5, D, dtype=torch.float64), lengths=torch.tensor([4]))
    assert taken == [False] * 4


def test_a_part_that_is_seen_or_replaced_is_called_with_padded_sequences(taken):
    class Doubled(nn.MultiheadAttention):
        def attend_heads(self, query, key, value, **options):
            attended = super().attend_heads(query, key, value, **options)
            return attended._replace(output=2 * attended.output)

    torch.manual_seed(3)
    layer, source, shapes = nn.TransformerEncoderLayer(D, H, 2 * D, batch_first=True), inputs(), []
    source = next(source)
    layer.linear1.register_forward_hook(lambda _, args, output: shapes.append((args[0].shape, output.shape)))
    layer(source, lengths=SOURCE)
    assert shapes == [((4, 7, D), (4, 7, 2 * D))]
    layer.linear1._forward_hooks.clear()
    layer(source, lengths=SOURCE)
    assert taken == [True]
    layer.self_attn = Doubled(D, H, batch_first=True)
    layer(source, lengths=SOURCE)
    assert taken == [True]


def test_a_registered_backend_that_comes_first_is_considered(taken):
    register_backend(_Another(), before="sdpa")
    try:
        source, _ = inputs()
        make().encoder(source, lengths=SOURCE)
    finally:
        unregister_backend("another")
    assert taken == [False] * 2


def test_lengths_that_change_later_change_no_packing():
    lengths = TARGET.clone()
    packing = nn.Packing(lengths, 5)
    lengths += 1000
    assert packing.lengths.tolist() == TARGET.tolist()


def test_watching_names_the_attention():
    model = make()
    with watch(model) as calls:
        gradients(model)
    names = [call.name for call in calls.calls]
    assert names[:2] == ["encoder.layers.0.self_attn", "encoder.layers.1.self_attn"]
    assert set(names[2:]) == {f"decoder.layers.{n}.{part}" for n in (0, 1) for part in ("self_attn", "multihead_attn")}
