"""Generation is joined to what one pass over the final sequence computes, whatever was done to the caches."""

import pytest
import torch

import regard
from regard.errors import ArgumentError
from tiny_transformers import FAMILIES, VOCABULARY, make

transformers = pytest.importorskip("transformers")

READ = regard.Readings(weights=True, entropy=True, received=True, distance=True, top_k=2)
NEW = 6
PADDED = torch.ones(2, 11, dtype=torch.int64)
PADDED[1, :4] = 0
IDS = torch.tensor([[5, 17, 9, 5, 17, 9, 33, 5, 17, 9, 5], [0, 0, 0, 0, 21, 8, 44, 21, 8, 44, 21]])
"""Tokens that repeat, so that a prompt has drafts of what follows; the second row begins with padding."""
ONE = {"input_ids": IDS[:1], "attention_mask": PADDED[:1]}
TWO = {"input_ids": IDS, "attention_mask": PADDED}
BEAMS = {"num_beams": 3, "num_return_sequences": 2}
MODES = {
    "greedy": (TWO, {}),
    "sampled": (TWO, {"do_sample": True, "num_return_sequences": 2}),
    "beams": (TWO, BEAMS),
    "beams, prompt in pieces": (TWO, {**BEAMS, "prefill_chunk_size": 4}),
    "beams, prompt in pieces and one token": (TWO, {**BEAMS, "prefill_chunk_size": 5}),
    "beams, no cache": (TWO, {**BEAMS, "use_cache": False}),
    "prompt in pieces": (TWO, {"prefill_chunk_size": 4}),
    "prompt lookup": (ONE, {"prompt_lookup_num_tokens": 3, "max_new_tokens": 12, "min_new_tokens": 12}),
    "assisted": (ONE, {"assistant_model": None, "max_new_tokens": 9, "min_new_tokens": 9}),
    "no cache": (TWO, {"use_cache": False}),
    "static": (TWO, {"cache_implementation": "static"}),
}
DECODERS = ["gpt2", "llama", "opt", "mistral", "gemma2", "gpt_oss", "deepseek_v3", "diffllama"]
PAIRS = ["t5", "bart"]


def options_of(options):
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 0, **options}
    return {**options, "return_dict_in_generate": True, "output_scores": True}


def in_one_pass(name, arguments):
    """The weights of each layer, by its kind, as the library gives them for a whole sequence."""
    model = make(name, "eager")
    with torch.no_grad():
        found = model(**arguments, use_cache=False, output_attentions=True)
    if FAMILIES[name].inputs == "pairs":
        return {"causal": found.decoder_attentions, "cross": found.cross_attentions}
    return {"causal": found.attentions}


def check(name, joined, fed, given):
    """Compare the joined records with one pass over the tokens that were fed."""
    batch, present = len(fed), given["attention_mask"]
    repeats = batch // len(present)
    present = present.repeat_interleave(repeats, 0)
    if FAMILIES[name].inputs == "pairs":
        source = given["input_ids"].repeat_interleave(repeats, 0)
        expected = in_one_pass(name, {"input_ids": source, "attention_mask": present, "decoder_input_ids": fed})
        shown = torch.ones_like(fed, dtype=torch.bool)
    else:
        grown = torch.ones(batch, fed.shape[1] - present.shape[1], dtype=torch.int64)
        mask = torch.cat([present, grown], 1)
        arguments = {"input_ids": fed, "attention_mask": mask}
        if name != "opt":  # it computes positions by the mask
            arguments["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        expected, shown = in_one_pass(name, arguments), mask.bool()
    for kind, layers in expected.items():
        calls = [call for call in joined if call.kind == kind]
        maps = 2 if name == "diffllama" else 1
        assert len(calls) == len(layers) * maps
        for call, weights in zip(calls, [each for each in layers for _ in range(maps)], strict=True):
            assert call.weights.shape[2:] == weights.shape[2:], (call.name, call.shape)
            if maps == 1:
                ours, theirs = (each.transpose(1, 2)[shown] for each in (call.weights, weights))
                torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(call.received, call.weights.sum(-2))
            visible = call.visible(0)
            assert bool((call.weights[0] * ~visible == 0).all())


CASES = [
    (name, mode)
    for name in (*DECODERS, *PAIRS)
    for mode in MODES
    if name in DECODERS or "prompt" not in mode or mode == "prompt lookup"
]


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_generation_of_every_mode_is_joined(name, mode):
    given, options = MODES[mode]
    options = options_of(options)
    model = make(name, "sdpa" if name not in ("gemma2", "gpt_oss") else "eager")
    if "assistant_model" in options:
        options["assistant_model"] = assistant = make(name, "eager")
        for parameter in assistant.parameters():
            parameter.data += torch.randn(parameter.shape) * 0.03  # some of its tokens are rejected
    torch.manual_seed(2)
    with torch.no_grad(), regard.watch(model, read=READ) as seen:
        found = model.generate(**given, **options)
    joined = seen.stitched(beam_indices=found.get("beam_indices"))
    check(name, joined, found.sequences[:, :-1], given)


def tokens(*numbers):
    return torch.tensor([numbers])


@pytest.mark.parametrize("name", ["llama", "mistral", "bart"])
def test_a_cache_that_is_cropped_by_hand(name):
    """The rows of tokens that were removed are gone, also where nothing follows."""
    model = make(name, "sdpa")
    given, cache = dict(ONE), transformers.DynamicCache(config=model.config.get_text_config(decoder=True))
    first, second = tokens(5, 17, 9), tokens(21, 8)  # fewer than the window, so that it can be cropped
    if name == "bart":
        cache = transformers.EncoderDecoderCache(cache, transformers.DynamicCache())

        with torch.no_grad():
            source = model.model.encoder(**given)

        def read(ids):
            model(encoder_outputs=source, attention_mask=PADDED[:1], decoder_input_ids=ids, cache=cache)

    else:

        def read(ids):
            model(ids, cache=cache)

    with torch.no_grad(), regard.watch(model, read=READ) as seen:
        read(first)
        cache.crop(-2)
        read(second)
        cut = [call for call in seen.stitched() if call.kind != "self"]
        cache.crop(-1)
        ended = [call for call in seen.stitched() if call.kind != "self"]
    arguments = given if name == "bart" else {"attention_mask": torch.ones(1, 0).long()}
    check(name, cut, tokens(5, 21, 8), arguments)
    check(name, ended, tokens(5, 21), arguments)
    assert seen.sequences == 1


def test_rows_of_a_cache_that_are_chosen_by_hand():
    """Rows that are repeated, dropped and reordered without a word are told by their keys."""
    model, cache = make("llama", "eager"), transformers.DynamicCache()
    with torch.no_grad(), regard.watch(model, read=READ) as seen:
        model(torch.tensor([[5, 17, 9], [8, 44, 21]]), cache=cache)
        cache.batch_repeat_interleave(2)
        model(torch.tensor([[30], [31], [32], [33]]), cache=cache)
        cache.batch_select_indices(torch.tensor([3, 0, 1]))
        model(torch.tensor([[40], [41], [42]]), cache=cache)
    expected = torch.tensor([[8, 44, 21, 33, 40], [5, 17, 9, 30, 41], [5, 17, 9, 31, 42]])
    check("llama", seen.stitched(), expected, {"attention_mask": torch.ones(3, 0).long()})


def test_caches_that_are_read_in_turn():
    """Two conversations that begin alike, and one that starts anew: each record follows its own cache."""
    model = make("gpt2", "eager")
    none = {"attention_mask": torch.ones(1, 0).long()}
    with torch.no_grad(), regard.watch(model, read=READ) as seen:
        caches = [transformers.DynamicCache(), transformers.DynamicCache()]
        for number, cache in enumerate(caches):
            model(tokens(5, 17 + number), cache=cache)
        for step in range(3):
            for number, cache in enumerate(caches):
                model(tokens(30 + 10 * number + step), cache=cache)
    with torch.no_grad(), regard.watch(model) as single:
        model(tokens(5, 17))
    assert seen.sequences == 2
    check("gpt2", seen.stitched(0), tokens(5, 17, 30, 31, 32), none)
    check("gpt2", seen.stitched(1), tokens(5, 18, 40, 41, 42), none)
    for watched, number in ((seen, 2), (seen, -3), (single, 1), (single, -2)):
        with pytest.raises(
            ArgumentError, match=f"to {watched.sequences - 1}, one of {watched.sequences}; it is {number}$"
        ):
            watched.stitched(number)


def test_keys_that_no_call_computed():
    """A cache that was filled elsewhere can be joined from there on; beside other calls it is refused."""
    model = make("llama", "sdpa")
    cache = transformers.DynamicCache()
    with torch.no_grad():
        model(tokens(5, 17, 9), cache=cache)
        with regard.watch(model, read=READ) as seen:
            model(tokens(30), cache=cache)
            model(tokens(31), cache=cache)
        assert [call.shape for call in seen.stitched()] == [(1, 4, 2, 5)] * 2
        with regard.watch(model, read=READ) as seen:
            model(tokens(5, 17, 9))
            model(tokens(32), cache=cache)
    with pytest.raises(ArgumentError, match="reads 5 keys of a cache that are not those of its earlier calls"):
        seen.stitched()
    assert [call.shape for call in seen.stitched(0)] == [(1, 4, 3, 3)] * 2


def test_beam_indices_of_another_search():
    model = make("llama", "sdpa")
    with torch.no_grad(), regard.watch(model, read=READ) as seen:
        found = model.generate(**TWO, **options_of(BEAMS))
    with pytest.raises(ArgumentError, match="beam_indices are not those of the calls"):
        seen.stitched(beam_indices=found.beam_indices.roll(1, 0) // 3 * 3)
    with pytest.raises(
        ArgumentError, match=r"beam_indices has 8 tokens; the calls of 'model\.layers\.0\.self_attn' have 6"
    ):
        seen.stitched(beam_indices=torch.zeros(1, 8, dtype=torch.int64))


def test_readings_of_calls_that_are_given_in_part():
    """What a call read of all its queries is no reading of some of them: it follows from weights, or there is none."""
    model, given = make("llama", "sdpa"), options_of(MODES["prompt lookup"][1])
    for read in (regard.Readings(received=True, entropy=True), READ):
        with torch.no_grad(), regard.watch(model, read=read) as seen:
            model.generate(**ONE, **given)
        assert max(call.queries for call in seen.calls[2:]) > 1
        for call in seen.stitched():
            assert call.entropy.shape == (1, 4, 22)
            assert (call.received is None) == (call.weights is None)
            if call.weights is not None:
                gap = (torch.arange(22)[:, None] - torch.arange(22)).abs()
                torch.testing.assert_close(call.distance, (call.weights * gap).sum(-1), rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(call.top_weights, call.weights.topk(2).values)
                found = call.weights.gather(-1, call.top_indices.clamp(min=0)) * (call.top_indices >= 0)
                torch.testing.assert_close(found, call.top_weights)


def joined_attention(implementation="eager"):
    """T5Gemma 2, whose decoder's layers attend to their own tokens and to the source in one softmax."""
    from tiny_transformers import _VISION, GROUPED, SLIDING

    text = {**GROUPED, "head_dim": 6, "query_pre_attn_scalar": 6, "sliding_window": 4, **SLIDING}
    encoder = {"text_config": text, "vision_config": _VISION, "mm_tokens_per_image": 4, "image_token_index": 96}
    numbers = {"image_token_index": 96, "vocab_size": VOCABULARY}
    config = transformers.T5Gemma2Config(encoder=encoder, decoder=text, **numbers)
    torch.manual_seed(5)
    model = transformers.T5Gemma2ForConditionalGeneration._from_config(config, attn_implementation=implementation)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.15)
    return model.eval()


@pytest.mark.parametrize("mode", ["greedy", "sampled", "beams", "prompt lookup", "no cache"])
def test_keys_of_own_tokens_and_of_a_source(mode):
    """transformers 5.24 gives the own part as decoder_attentions and the source's as cross_attentions."""
    model, (given, options) = joined_attention(), MODES[mode]
    torch.manual_seed(2)
    with torch.no_grad(), regard.watch(model, read=READ) as seen:
        found = model.generate(**given, **options_of(options))
        fed = found.sequences[:, :-1]
        repeats = len(fed) // len(given["input_ids"])
        source = {name: each.repeat_interleave(repeats, 0) for name, each in given.items()}
    with torch.no_grad():
        whole = model(**source, decoder_input_ids=fed, use_cache=False, output_attentions=True)
    calls = [call for call in seen.stitched(beam_indices=found.get("beam_indices")) if "decoder" in call.name]
    assert len(calls) == 2
    for call, own, other in zip(calls, whole.decoder_attentions, whole.cross_attentions, strict=True):
        torch.testing.assert_close(call.weights, torch.cat([own, other], -1), rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(call.received, call.weights.sum(-2))
        torch.testing.assert_close(call.weights.gather(-1, call.top_indices), call.top_weights)
        assert call.distance is None or mode == "no cache"  # there is none between a token and a source


def test_labels_of_own_tokens_and_of_a_source():
    model = joined_attention()
    with torch.no_grad(), regard.watch(model, read=READ) as seen:
        found = model.generate(**TWO, **options_of({}))
    own, source = [f"t{i}" for i in range(NEW + 1)], [f"s{i}" for i in range(11)]
    assert found.sequences.shape[1] == NEW + 1
    shown = regard.View(seen, rows=own, columns=source, example=1).document
    for record in (*seen.records(own, source), *shown.records):
        if "decoder" in record.name:
            assert record.queries.tokens == tuple(own[:-1])
            assert record.keys.tokens == (*own[:-1], *source)
        else:
            assert record.keys.tokens == tuple(source)


def test_a_source_behind_free_places_is_refused():
    model = joined_attention()
    with torch.no_grad(), regard.watch(model, read=READ) as seen:
        model.generate(**TWO, **options_of({"cache_implementation": "static"}))
    with pytest.raises(ArgumentError, match="cannot be joined"):
        seen.stitched()


class Tokens:
    """A tokenizer of numbers."""

    all_special_ids = (0,)

    def convert_ids_to_tokens(self, ids):
        return [str(id) for id in ids]


LABELLED = [("llama", "prompt in pieces")] + [
    (name, mode) for name in ("llama", "bart") for mode in ("greedy", "prompt lookup", "assisted", "sampled", "beams")
]


@pytest.mark.parametrize(("name", "mode"), LABELLED)
def test_labels_are_the_tokens_of_the_rows(name, mode):
    """Tokens that a search removed label nothing, and each row of the batch has its own."""
    (given, options), model = MODES[mode], make(name, "sdpa")
    options = options_of(options)
    if "assistant_model" in options:
        options["assistant_model"] = make(name, "sdpa", tie_word_embeddings=False)
    with torch.no_grad(), regard.watch(model, read=READ) as seen:
        found = model.generate(**given, **options).sequences
    read = [seen.token_axes(Tokens(), row) for row in range(seen.stitched()[-1].batch)]
    for row in range(len(found)):
        written = tuple(str(id) for id in found[row, :-1].tolist())
        if mode == "beams":  # those of the last step, of which the best ones are returned
            assert written[:-1] in [queries.tokens[:-1] for queries, _ in read]
            continue
        queries, keys = read[row]
        assert queries.tokens == written
        if name == "bart":
            source = given["input_ids"][row * len(given["input_ids"]) // len(found)]
            assert keys.tokens == tuple(str(id) for id in source.tolist())


def test_another_model_that_a_search_asks_is_not_watched():
    """An assistant's attention is not that of the watched model, whose method calls it."""
    model, assistant = make("gpt2", "eager"), make("gpt2", "eager")
    options = options_of({**MODES["assisted"][1], "assistant_model": assistant})
    with torch.no_grad(), regard.watch(model) as seen:
        model.generate(**ONE, **options)
    assert {call.name for call in seen.calls} == {f"transformer.h.{layer}.attn" for layer in (0, 1)}


def test_records_of_a_part_of_a_module_are_told():
    """Longformer of transformers 5.24: the global token's row is read, and the window's weights are in no sum."""
    sizes = {"hidden_size": 24, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LongformerConfig(
        vocab_size=VOCABULARY, attention_window=[4, 4], max_position_embeddings=40, **sizes
    )
    model, ids = transformers.LongformerModel(config).eval(), IDS[:1, :8]
    is_global = torch.zeros_like(ids)
    is_global[:, 0] = 1
    with (
        pytest.warns(regard.watching.UnseenAttentionWarning, match=r"layer.0.attention.self.*a part of its attention"),
        torch.no_grad(),
        regard.watch(model) as seen,
    ):
        model(ids, global_attention_mask=is_global)
    assert {call.shape for call in seen.calls} == {(1, 4, 1, 8)}


class OnceSeenAttention(torch.nn.Module):
    """Attention that is seen in some runs alone, or of which two softmaxes make one sum that is seen."""

    def forward(self, x, how):
        scores = x @ x.mT
        if how == "relu":
            return scores.relu() @ x
        if how == "difference":
            return (scores.softmax(-1) - 0.5 * (-scores).softmax(-1)) @ x
        if how == "both":
            x = x + torch.stack([(row.softmax(-1).cumsum(-1)[..., None] * x).amax(1) for row in scores.unbind(1)], 1)
        return scores.softmax(-1) @ x


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        (["seen", "relu"], "gave records in some of its runs, and none in others"),
        (["relu", "seen"], "gave records in some of its runs, and none in others"),
        (["both"], "gave records of a part of its attention"),
        (["seen", "difference"], None),
    ],
)
def test_a_record_covers_its_own_run_and_its_own_weights(runs, message):
    import warnings

    model, x = torch.nn.Sequential(torch.nn.Identity()), torch.randn(2, 5, 8)
    model[0] = OnceSeenAttention()
    with warnings.catch_warnings(record=True, action="always") as caught, torch.no_grad(), regard.watch(model) as seen:
        for how in runs:
            model[0](x, how)
    assert seen.calls
    told = [str(each.message).partition(" in Sequential ")[2].split(":")[0] for each in caught]
    assert told == [message] * bool(message)
