"""The attention function: options, masks given as tensors, dropout, compilers; and what is refused."""

import math
import re
import warnings

import pytest
import torch
from torch import nn

pytest.importorskip("transformers")

import regard
from covering import covering
from regard import biases, masks
from regard.errors import ArgumentError, BackendError, KindError, ShapeError, UnknownNameError
from regard.watching import register_transformers
from regard.watching.hugging_face import Implementation
from tiny_transformers import inputs, make

register_transformers()
attention = Implementation().attention


class Layer(nn.Module):
    is_causal = False


LAYER = Layer().eval()
B, H, G, Q, K, D = 2, 6, 3, 5, 7, 11


@pytest.fixture
def tensors():
    return [torch.randn(B, heads, length, D, dtype=torch.float64) for heads, length in ((H, Q), (G, K), (G, K))]


def scores(query, key, scale=D**-0.5):
    return query @ key.repeat_interleave(H // G, 1).mT * scale


def mixed(weights, value):
    return (weights @ value.repeat_interleave(H // G, 1)).transpose(1, 2)


def test_layout_groups_and_scale(tensors):
    query, key, value = tensors
    got, weights = attention(LAYER, query, key, value, None, scaling=0.3)
    assert weights is None
    assert got.shape == (B, Q, H, D)
    assert got.is_contiguous()
    assert torch.allclose(got, mixed(scores(query, key, 0.3).softmax(-1), value))
    assert torch.allclose(attention(LAYER, query, key, value)[0], mixed(scores(query, key).softmax(-1), value))


def test_soft_cap_position_bias_and_float_mask(tensors):
    query, key, value = tensors
    bias = torch.randn(1, H, Q, K, dtype=torch.float64)
    mask = torch.zeros(B, 1, Q, K, dtype=torch.float64).masked_fill(torch.rand(B, 1, Q, K) < 0.3, -math.inf)
    mask[..., 0] = 0.4
    want = (torch.tanh(scores(query, key) / 2.0) * 2.0 + bias + mask).softmax(-1)
    got, weights = attention(
        LAYER, query, key, value, mask, softcap=2.0, position_bias=bias, output_attentions=True
    )  # fmt: skip
    assert torch.allclose(weights, want)
    assert torch.allclose(got, mixed(want, value))


def test_masks_of_the_least_number_weigh_as_eager_does(tensors):
    """Also in rows that see nothing: adding the least number to every score leaves them uniform."""
    query, key, value = tensors
    mask = torch.zeros(B, 1, Q, K, dtype=torch.float64)
    mask[0, 0, 2:, 3:] = mask[1, 0, 1] = torch.finfo(torch.float64).min
    want = (scores(query, key) + mask).softmax(-1)
    assert torch.allclose(attention(LAYER, query, key, value, mask)[0], mixed(want, value))


def test_alibi_as_a_float_mask_and_as_a_bias():
    query, key, value = (torch.randn(B, 4, length, D, dtype=torch.float64) for length in (Q, K, K))
    slopes = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8], dtype=torch.float64)[:, None, None]
    dense = -slopes * (torch.arange(Q)[:, None] + K - Q - torch.arange(K)).abs()
    want = ((query @ key.mT * D**-0.5 + dense).softmax(-1) @ value).transpose(1, 2)
    assert torch.allclose(attention(LAYER, query, key, value, dense[None])[0], want)
    assert torch.allclose(attention(LAYER, query, key, value, position_bias=biases.alibi(4))[0], want)


def test_transformers_attention_has_sinks(tensors):
    query, key, value = tensors
    sinks = torch.randn(H, dtype=torch.float64)
    joined = torch.cat([scores(query, key), sinks[None, :, None, None].expand(B, H, Q, 1)], -1)
    want = joined.softmax(-1)[..., :-1]
    got, weights = attention(LAYER, query, key, value, s_aux=sinks, output_attentions=True)
    assert torch.allclose(weights, want)
    assert torch.allclose(got, mixed(want, value))


def test_without_a_mask_a_causal_layer_starts_at_the_first_key(tensors):
    query, key, value = tensors
    causal = torch.ones(Q, K, dtype=torch.bool).tril()
    want = mixed(scores(query, key).masked_fill(~causal, -math.inf).softmax(-1), value)
    assert torch.allclose(attention(LAYER, query, key, value, is_causal=True)[0], want)
    one = attention(LAYER, query[:, :, :1], key, value, is_causal=True)[0]
    assert torch.allclose(one, mixed(scores(query[:, :, :1], key).softmax(-1), value))


def test_without_a_mask_a_layer_sees_all_keys_as_in_eager(tensors):
    """BridgeTower of transformers 5.24 has layers with ``is_causal = True`` that it calls with None, for no mask."""

    class Causal(nn.Module):
        is_causal = True

    query, key, value = tensors
    want = mixed(scores(query, key).softmax(-1), value)
    assert torch.allclose(attention(Causal().eval(), query, key, value)[0], want)


def test_packed_sequences_by_their_lengths(tensors):
    query, key, value = (tensor[:1] for tensor in tensors)
    q_ends, k_ends = torch.tensor([0, 2, 2, 5], dtype=torch.int32), torch.tensor([0, 3, 4, 7], dtype=torch.int32)
    q_ids, k_ids = torch.tensor([0, 0, 2, 2, 2]), torch.tensor([0, 0, 0, 1, 2, 2, 2])
    want = scores(query, key).masked_fill(q_ids[:, None] != k_ids, -math.inf).softmax(-1)
    got = attention(LAYER, query, key, value, cu_seq_lens_q=q_ends, cu_seq_lens_k=k_ends, max_length_q=3)[0]
    assert torch.allclose(got, mixed(want, value))
    with pytest.raises(ShapeError, match="cu_seq_lens_q must end with"):
        attention(LAYER, query, key, value, cu_seq_lens_q=q_ends[:-1], cu_seq_lens_k=k_ends)
    with pytest.raises(KindError, match="cu_seq_lens_k must be a tensor"):
        attention(LAYER, query, key, value, cu_seq_lens_q=q_ends)


def test_learned_queries_have_one_batch_row(tensors):
    query, key, value = tensors
    want = attention(LAYER, query[:1].expand(B, -1, -1, -1), key, value)[0]
    assert torch.equal(attention(LAYER, query[:1], key, value)[0], want)


def test_dropout_only_while_training(tensors):
    query, key, value = tensors
    plain = attention(LAYER, query, key, value)[0]
    assert torch.equal(attention(LAYER, query, key, value, dropout=0.9)[0], plain)
    training = Layer().train()
    dropped, weights = attention(training, query, key, value, dropout=0.9, output_attentions=True)
    assert not torch.allclose(dropped, plain)
    # Weights are those before dropout.
    assert torch.allclose(weights.sum(-1), torch.ones(B, H, Q, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_transformers_attention_runs_in_half_precision_and_under_autocast(tensors, dtype):
    query, key, value = tensors
    want = mixed(scores(query, key).softmax(-1), value)
    got = attention(LAYER, *(tensor.to(dtype) for tensor in tensors))[0]
    assert got.dtype == dtype
    assert torch.allclose(got.double(), want, atol=3e-2)
    with torch.autocast("cpu", dtype):
        mixed_kinds = attention(LAYER, query.float(), key.to(dtype), value.to(dtype))[0]
    assert mixed_kinds.dtype == dtype
    assert torch.allclose(mixed_kinds.double(), want, atol=3e-2)
    with pytest.raises(KindError):
        attention(LAYER, query.float(), key.to(dtype), value.to(dtype))


REFUSED = {
    "cache": object(), "block_indices": torch.ones(1), "sinks": torch.ones(1),
    "head_mask": torch.ones(1), "layer_head_mask": torch.ones(1), "some_future_option": 3,
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_options_that_regard_cannot_compute_are_refused(tensors, name):
    with pytest.raises(ArgumentError, match=f"cannot compute {name}: .*eager"):
        attention(LAYER, *tensors, None, **{name: REFUSED[name]})
    attention(LAYER, *tensors, None, **{name: None})


def test_the_keys_that_an_indexer_selects_are_joined_with_the_mask(tensors):
    indices = torch.tensor([[[q % K, (q + 3) % K] for q in range(Q)]] * B, dtype=torch.int32)
    selected = torch.zeros(B, 1, Q, K, dtype=torch.bool).scatter(-1, indices[:, None].long(), True)
    visible = torch.rand(B, 1, Q, K, generator=torch.Generator().manual_seed(0)) > 0.4
    for mask in (None, visible):
        expected = attention(LAYER, *tensors, selected if mask is None else selected & mask)[0]
        assert torch.allclose(attention(LAYER, *tensors, mask, indices=indices)[0], expected, atol=1e-6)


@pytest.mark.parametrize(
    "mask", [torch.ones(B, K), torch.ones(B, K, dtype=torch.bool), masks.causal(), torch.ones(B, 1, Q, K).long()]
)
def test_masks_of_other_kinds_are_refused(tensors, mask):
    with pytest.raises(KindError, match="attention_mask must"):
        attention(LAYER, *tensors, mask)


def test_masks_of_another_length_are_refused(tensors):
    with pytest.raises(ShapeError, match=re.escape(f"[{B}, {H}, {Q}, {K}]")):
        attention(LAYER, *tensors, torch.ones(B, 1, Q, K + 1, dtype=torch.bool))


@pytest.mark.parametrize(
    "name", ["eager", "sdpa", "my_sdpa", "flash_attention_2", "", "a|b", "hub/kernel", "two words"]
)
def test_names_that_mean_something_else_are_refused(name):
    with pytest.raises(ArgumentError, match="name must be"):
        register_transformers(name)


def test_register_transformers_refuses_wrong_arguments():
    with pytest.raises(KindError, match="name must be a text"):
        register_transformers(3)
    with pytest.raises(UnknownNameError, match="tiled"):
        register_transformers("other", backend="tield")


def test_transformers_attention_runs_a_named_backend_or_raises():
    name = register_transformers("regard_pytorch", backend="sdpa")
    given = inputs("llama")
    model = make("llama", "eager").double()
    with torch.no_grad():
        want = model(**given).logits
        model.set_attn_implementation(name)
        assert torch.allclose(model(**given).logits, want, atol=1e-6)
    capped = make("gemma2", name)
    with pytest.raises(BackendError, match="sdpa"):
        capped(**inputs("gemma2"))


COMPILED = {
    "llama": {"num_hidden_layers": 1},
    "mistral": {"num_hidden_layers": 1},
    "gemma2": {},  # its two layers have different masks
    "bert": {"num_hidden_layers": 1},
    "t5": {"num_layers": 1},
    "vit": {"num_hidden_layers": 1},
}


# A layer of gemma2 has a window, as mistral's; bert and vit have no mask but that of padding.
@covering(name=COMPILED, sample_where=lambda name: name not in ("mistral", "vit"))
def test_models_with_registered_attention_compile(name):
    torch._dynamo.reset()  # code that models share is compiled a few times only
    model = make(name, "regard", **COMPILED[name]).double()
    given = inputs(name, "right" if name in ("llama", "bert") else None)
    if name == "t5":
        given["use_cache"] = False
    with torch.no_grad():
        want = model(**given)[0]
        got = torch.compile(model, backend="aot_eager", fullgraph=True)(**given)[0]
    kept = given.get("attention_mask", torch.ones(want.shape[:2])).bool()
    assert torch.allclose(got[kept], want[kept], rtol=1e-5, atol=1e-6)


def test_sinks_of_transformers_attention_compile(tensors):
    sinks = nn.Parameter(torch.randn(H, dtype=torch.float64))

    def run(query, key, value):
        return attention(LAYER, query, key, value, s_aux=sinks, softcap=3.0, output_attentions=True)

    got, want = torch.compile(run, backend="aot_eager", fullgraph=True)(*tensors), run(*tensors)
    assert all(torch.allclose(*pair) for pair in zip(got, want, strict=True))


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_memory_is_linear(name):
    """No tensor of queries × keys is made on the way, forward or backward."""
    from torch.utils._python_dispatch import TorchDispatchMode

    length = 2500

    class Largest(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            leaves = torch.utils._pytree.tree_leaves(result)
            largest.extend(leaf.untyped_storage().nbytes() for leaf in leaves if type(leaf) is torch.Tensor)
            return result

    largest = [0]
    model = make(name, register_transformers("regard_tiled", backend="tiled"), max_position_embeddings=4096)
    ids = torch.randint(3, 90, (1, length))
    padding = torch.ones(1, length, dtype=torch.int64)
    padding[:, :50] = 0
    with Largest():
        model(ids, attention_mask=padding, use_cache=False).logits.sum().backward()
    assert max(largest) < length * length * 4 * 4 / 4  # four heads in single precision would be four times that


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_gradient_checkpointing_gives_the_gradients_of_eager(reentrant):
    given = inputs("mistral", "left")
    visible = given["attention_mask"].bool()
    gradients = []
    for checkpointing in (False, True):
        model = make("mistral", "regard").double().train()
        if checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
        model(**given, use_cache=False).logits[visible].square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert all(torch.allclose(*pair) for pair in zip(*gradients, strict=True))


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_oss", "t5"])
def test_models_in_half_precision(name):
    """As close to the model in double precision as eager is."""
    given = inputs(name)
    with torch.no_grad():
        oracle = make(name, "eager").bfloat16().double()(**given)[0]
        eager = make(name, "eager").bfloat16()(**given)[0].double()
        got = make(name, "regard").bfloat16()(**given)[0]
    assert got.dtype == torch.bfloat16
    assert (got.double() - oracle).abs().mean() <= 1.3 * (eager - oracle).abs().mean()


def test_a_model_with_registered_attention_is_exported():
    model = make("llama", "regard").double()
    given = inputs("llama", "left") | {"use_cache": False}
    with torch.no_grad():
        exported = torch.export.export(model, (), given, strict=False).module()
        visible = given["attention_mask"].bool()
        assert torch.allclose(exported(**given).logits[visible], model(**given).logits[visible])


@pytest.mark.parametrize("name", ["llama", "mistral", "bart"])
def test_weights_of_generated_tokens(name):
    given = inputs(name)
    given.pop("decoder_input_ids", None)
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    options |= {"return_dict_in_generate": True, "output_attentions": True}
    results = [make(name, kind).generate(**given, **options) for kind in ("eager", "regard")]
    fields = [field for field in results[0] if "attentions" in field and results[0][field]]
    assert fields
    for field in fields:
        want, got = (torch.utils._pytree.tree_leaves(result[field]) for result in results)
        assert len(want) == len(got)
        assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(want, got, strict=True))


LATER = ~torch.ones(9, 9, dtype=torch.bool).tril()[None, None]
PLACE = torch.arange(9).expand(2, 1, 1, 9)
HIDDEN = {
    "causal": LATER,
    "window": LATER | torch.ones(9, 9, dtype=torch.bool).tril(-3),
    "padding": torch.tensor([9, 6])[:, None, None, None] <= PLACE,
    "causal+padding": LATER | (torch.tensor([0, 3])[:, None, None, None] > PLACE),
    "dense": torch.eye(9, dtype=torch.bool)[None, None],
    "none": torch.zeros(1, 1, 9, 9, dtype=torch.bool),
}


@pytest.mark.parametrize("plus", ["nothing", "a bias in the mask", "a position bias"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("name", HIDDEN)
def test_a_mask_of_numbers_is_recorded_as_the_pairs_that_it_hides(name, dtype, plus):
    """As the same call of scaled_dot_product_attention is: by −∞ or the dtype's lowest number."""

    class Attend(nn.Module):
        def forward(self, x, mask, bias):
            if self.own:
                return attention(self, x, x, x, mask, position_bias=bias)[0]
            return nn.functional.scaled_dot_product_attention(x, x, x, mask if bias is None else mask + bias)

    model, x = Attend(), torch.randn(2, 2, 9, 4, dtype=dtype)
    bias = 0.5 * torch.randn(1, 2, 9, 9, dtype=dtype)
    for lowest in (-math.inf, torch.finfo(dtype).min):
        mask = torch.zeros(HIDDEN[name].shape, dtype=dtype).masked_fill(HIDDEN[name], lowest)
        if plus == "a bias in the mask":
            mask = mask.masked_fill(~HIDDEN[name], 0.25)
        calls = []
        for model.own in (True, False):
            with torch.no_grad(), regard.watch(model, read=regard.Readings(weights=True)) as seen:
                model(x, mask, bias if plus == "a position bias" else None)
            calls += seen.calls
        own, pytorch = calls
        assert own.mask == name
        assert own.has_bias == (plus != "nothing") or name == "none"
        assert own.kind == ("causal" if "causal" in name or name == "window" else "self")
        for row in range(2):
            assert torch.equal(*torch.broadcast_tensors(own.visible(row), pytorch.visible(row)))
        assert torch.equal(own.weights == 0, pytorch.weights == 0)


def test_a_row_that_the_lowest_number_hides_whole_sees_all_keys():
    """Adding it to every score of a row leaves the weights as they are, or uniform: no key is hidden."""

    class Attend(nn.Module):
        def forward(self, x, mask):
            return attention(self, x, x, x, mask)[0]

    lowest = torch.finfo(torch.float64).min
    mask = torch.zeros(1, 1, 5, 5, dtype=torch.float64).masked_fill_(LATER[..., :5, :5], lowest)
    mask[0, 0, 2] = lowest
    with regard.watch(model := Attend(), read=regard.Readings(weights=True)) as seen:
        model(torch.randn(1, 2, 5, 4, dtype=torch.float64), mask)
    (call,) = seen.calls
    assert (call.visible(0).sum(-1) == torch.tensor([1, 2, 5, 4, 5])).all()
    assert ((call.weights > 0) == call.visible(0)).all()


@pytest.mark.parametrize("kind", ["regard", "sdpa", "eager"])
def test_token_timestamps_of_whisper_set_the_model_to_eager_which_is_said(kind):
    """As transformers 5.24 does it, for good, in ``generate(return_token_timestamps=True)``."""
    model = make("whisper", kind)
    settings = model.generation_config
    settings.alignment_heads, settings.no_timestamps_token_id, settings.is_multilingual = [[0, 0], [1, 1]], 90, False
    given = inputs("whisper", dtype=torch.float32)["input_features"]
    options = {"max_new_tokens": 4, "pad_token_id": 0, "eos_token_id": None, "return_timestamps": False}
    with warnings.catch_warnings(record=True, action="always") as caught, regard.watch(model) as seen:
        model.generate(given, return_token_timestamps=True, **options)
    said = [str(warning.message) for warning in caught if "attention implementation" in str(warning.message)]
    assert model.config._attn_implementation == "eager"
    if kind == "eager":
        assert said == []
    else:
        assert len(said) == 1
        assert f"Whisper was set from '{kind}' to 'eager'" in said[0]
        assert f"model.set_attn_implementation('{kind}')" in said[0]
    # Two layers of the encoder, and two calls of each of the decoder's for each token.
    assert [call.source for call in seen.calls] == ["softmax"] * (2 + 4 * 4)
    model.set_attn_implementation(kind)
    with regard.watch(model) as seen, warnings.catch_warnings(action="error"):
        model.generate(given, **options)
    source = {"regard": "regard", "sdpa": "scaled_dot_product_attention", "eager": "softmax"}[kind]
    assert {call.source for call in seen.calls} == {source}
