"""Views of models of transformers: their attentions, and their tokens by their tokenizer."""

import pytest
import torch

pytest.importorskip("transformers")

import tokenizers
import transformers

import regard
from regard.errors import ArgumentError, KindError, ShapeError
from regard.viewer import View
from tiny_transformers import FAMILIES, make

WORDS = ["[PAD]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "a", "mat"]


@pytest.fixture(scope="module")
def tokenizer():
    vocabulary = {word: number for number, word in enumerate([*WORDS, *(f"w{number}" for number in range(9, 97))])}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[PAD]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="[PAD]", cls_token="[CLS]")


def watched(model, run):
    with torch.no_grad(), regard.watch(model, read=regard.Readings(weights=True)) as seen:
        result = run(model)
    return seen, result


IDS = torch.tensor([[1, 3, 4, 5, 6, 7, 8]])
TOKENS = ("[CLS]", "the", "cat", "sat", "on", "a", "mat")


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_tokens_of_one_pass(name, tokenizer):
    seen, _ = watched(make(name, "sdpa"), lambda model: model(IDS))
    records = View(seen, tokenizer).document.records
    assert len(records) == 2
    for record in records:
        assert record.queries.labels == record.keys.labels == TOKENS
        assert record.queries.special == (True, *[False] * 6)


READERS = {
    "batch": lambda model: model(torch.cat((IDS.flip(1), IDS))),
    "passes": lambda model: (model(IDS.flip(1)), model(IDS)),
    "generations": lambda model: [
        model.generate(ids, max_new_tokens=1, do_sample=False, pad_token_id=0) for ids in (IDS.flip(1), IDS)
    ],
}


@pytest.mark.parametrize("name", ["bert", "llama"])
@pytest.mark.parametrize("reads", READERS)
def test_all_texts_that_a_model_read_are_shown(name, reads, tokenizer):
    if (name, reads) == ("bert", "generations"):
        pytest.skip("an encoder writes nothing")
    seen, _ = watched(make(name, "sdpa"), READERS[reads])
    document = View(seen, tokenizer).document
    assert document.text_numbers == (0, 0, 1, 1)
    assert "," not in document.title
    texts = [TOKENS[::-1], TOKENS]
    assert [record.keys.labels for record in document.records] == [texts[0], texts[0], texts[1], texts[1]]
    for example, expected in enumerate(texts):
        records = View(seen, tokenizer, example=example).document.records
        assert [record.keys.labels for record in records] == [expected] * 2
        for record, other in zip(records, document.records[2 * example :], strict=False):
            assert (record.weights == other.weights).all()
    named = View(seen, texts).document
    assert [record.keys.labels for record in named.records] == [record.keys.labels for record in document.records]
    with pytest.raises(ShapeError, match="lists for 2 texts; there are 3"):
        View(seen, [*texts, TOKENS])
    by_tokenizer = seen.document(tokenizer, batch_row=seen.texts(tokenizer)[1].batch_row)
    assert [record.keys.labels for record in by_tokenizer.records] == [TOKENS] * 2


@pytest.mark.parametrize("cached", [True, False])
def test_steps_of_a_generation_are_one_text(cached, tokenizer):
    options = {"max_new_tokens": 3, "min_new_tokens": 3, "do_sample": False, "pad_token_id": 0, "use_cache": cached}
    seen, ids = watched(make("llama", "sdpa"), lambda model: model.generate(IDS, **options))
    document = View(seen, tokenizer).document
    assert document.text_numbers is None
    assert document.records[0].keys.labels == tuple(tokenizer.convert_ids_to_tokens(ids[0, :-1]))


def test_texts_beyond_the_size_of_a_file_are_named(tokenizer, monkeypatch):
    seen, _ = watched(make("bert", "sdpa"), lambda model: [model(IDS.roll(shift, 1)) for shift in range(3)])
    whole = View(seen, tokenizer).document
    size = sum(record.weights.size for record in whole.records) // 3
    for texts in (1, 2, 3):
        monkeypatch.setattr("regard.viewer.watched_contents.MOST_OF_TEXTS", texts * size)
        document = View(seen, tokenizer).document
        assert len(document.records) == 2 * texts
        rest = (("texts", f"the first {texts} of 3; View(watched, tokens, example={texts}) shows the next"),)
        assert document.texts == (rest if texts < 3 else ())


def test_several_outputs_are_texts_by_their_tokens():
    model = make("bert", "eager")
    texts = [TOKENS, TOKENS[:4]]
    outputs = [model(IDS[:, : len(text)], output_attentions=True).attentions for text in texts]
    document = View(outputs, texts).document
    assert document.text_numbers == (0, 0, 1, 1)
    assert [len(record.keys) for record in document.records] == [7, 7, 4, 4]
    assert torch.equal(torch.from_numpy(document.records[3].weights), outputs[1][1][0].detach())
    batch = model(torch.cat((IDS, IDS.flip(1))), output_attentions=True).attentions
    for content in (batch, torch.stack(batch)):
        document = View(content, [TOKENS, TOKENS[::-1]]).document
        assert [record.layer for record in document.records] == [0, 1, 0, 1]
        assert torch.equal(torch.from_numpy(document.records[2].weights), batch[0][1].detach())
        assert View(content, [TOKENS, TOKENS[::-1]], example=1).document.records[0].keys.labels == TOKENS[::-1]
        with pytest.raises(ShapeError, match="lists for the 2 examples of the batch; there are 1"):
            View(content, [TOKENS])
    with pytest.raises(ShapeError, match="lists for 2 texts; there are 1"):
        View(outputs, [TOKENS])


def test_generated_tokens_label_both_axes(tokenizer):
    seen, ids = watched(
        make("llama", "sdpa"),
        lambda model: model.generate(IDS, max_new_tokens=4, min_new_tokens=4, do_sample=False, pad_token_id=0),
    )
    record = View(seen, tokenizer).document.records[0]
    # No step reads the last token.
    assert record.queries.labels == record.keys.labels == tuple(tokenizer.convert_ids_to_tokens(ids[0, :-1]))


def test_kept_calls_of_a_generated_text_are_shown_one_by_one():
    model = make("llama", "sdpa")
    with torch.no_grad(), regard.watch(model, keep=True) as seen:
        model.generate(IDS, max_new_tokens=3, min_new_tokens=3, do_sample=False, pad_token_id=0)
    with pytest.raises(ArgumentError, match=r"View\(watched\.calls\[0\], tokens\).*or for the whole sequence read="):
        View(seen, TOKENS)
    assert View(seen.calls[0], TOKENS).document.records[0].keys.labels == TOKENS


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "bart"])
def test_each_beam_has_the_tokens_that_it_read(name, tokenizer):
    model, beams = make(name, "eager"), 5
    two = torch.cat((IDS, IDS.flip(1)))
    search = {"max_new_tokens": 6, "min_new_tokens": 6, "num_beams": beams, "do_sample": False, "pad_token_id": 0}
    seen, _ = watched(model, lambda model: model.generate(two, **search))
    is_decoder_only = name in ("gpt2", "llama")
    written = set()
    for example in range(2 * beams):
        records = View(seen, tokenizer, example=example).document.records
        tokens = next(record.queries.labels for record in records if record.kind == "causal")
        ids = torch.tensor([tokenizer.convert_ids_to_tokens(range(97)).index(token) for token in tokens])[None]
        source = two[example // beams, None]
        # One pass over the named tokens pays the same attention.
        if is_decoder_only:
            assert torch.equal(ids[:, :7], source)
            alone, _ = watched(model, lambda model, ids=ids: model(ids))
        else:
            alone, _ = watched(model, lambda model, ids=ids, source=source: model(source, decoder_input_ids=ids))
        expected = View(alone, tokenizer).document.records
        assert len(records) == len(expected)
        for record, other in zip(records, expected, strict=True):
            assert (record.kind, record.queries.labels) == (other.kind, other.queries.labels)
            assert record.keys.labels == other.keys.labels
            torch.testing.assert_close(torch.from_numpy(record.weights), torch.from_numpy(other.weights))
        written.add((example // beams, tokens))
    assert len(written) == 2 * beams


@pytest.mark.parametrize("name", ["t5", "bart"])
@pytest.mark.parametrize("generates", [False, True])
def test_both_sides_of_an_encoder_decoder(name, generates, tokenizer):
    target = torch.tensor([[0, 8, 7]])

    def run(model):
        if generates:
            model.generate(IDS[:, :4], max_new_tokens=2, min_new_tokens=2, num_beams=1, do_sample=False)
            return model.generate(IDS, max_new_tokens=4, min_new_tokens=4, num_beams=1, do_sample=False)[:, :-1]
        model(input_ids=IDS, decoder_input_ids=target)
        return target

    seen, ids = watched(make(name, "eager"), run)
    written = tuple(tokenizer.convert_ids_to_tokens(ids[0]))
    sides = {"self": (TOKENS, TOKENS), "causal": (written, written), "cross": (written, TOKENS)}
    records = View(seen, tokenizer, example=int(generates)).document.records
    assert {record.kind for record in records} == set(sides)
    for record in records:
        assert (record.queries.labels, record.keys.labels) == sides[record.kind]
    with pytest.raises(ArgumentError, match="rows=target_tokens, columns=source_tokens"):
        View(seen, TOKENS)


def test_tokens_that_are_not_known(tokenizer):
    model = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True).eval()
    seen, _ = watched(model, lambda layer: layer(torch.randn(1, 3, 8)))
    with pytest.raises(ArgumentError, match=r"token ids are not known.*convert_ids_to_tokens\(ids\)"):
        View(seen, tokenizer)


def test_attentions_of_an_output(tokenizer):
    model = make("bert", "eager")
    outputs = model(IDS, output_attentions=True)
    records = View(outputs.attentions, tokenizer.convert_ids_to_tokens(IDS[0])).document.records
    assert [record.keys.labels for record in records] == [TOKENS] * FAMILIES["bert"].options["num_hidden_layers"]
    assert torch.equal(torch.from_numpy(records[1].weights), outputs.attentions[1][0].detach())
    with pytest.raises(ArgumentError, match=r"View\(outputs.attentions, tokens\)"):
        View(outputs, tokenizer)
    with pytest.raises(KindError, match="convert_ids_to_tokens"):
        View(outputs.attentions, tokenizer)


def test_an_implementation_without_attentions():
    model = make("bert", "sdpa")
    for content in (model(IDS), model(IDS, output_attentions=True).attentions):
        with pytest.raises(ArgumentError, match=r"set_attn_implementation\('eager'\).*regard.watch"):
            View(content, TOKENS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", "all-MiniLM-L6-v2"),
        ("/home/me/runs/translator/model/", "translator"),
        ("C:\\models\\gpt2", "gpt2"),
        ("/cache/models--google--vit-base/snapshots/9f3e/", "vit-base"),
        ("model", "model"),
        ("", "SimpleNamespace"),
        (None, "SimpleNamespace"),
        ("./", "SimpleNamespace"),
    ],
)
def test_a_model_is_called_by_its_name_and_never_by_a_path(name, expected):
    from types import SimpleNamespace

    from regard.names.model_name import model_name

    assert model_name(SimpleNamespace(name_or_path=name)) == expected
