"""Hugging Face models of a local folder: answers and attention are those of a direct forward pass."""

import json
import shutil

import numpy as np
import pytest
import torch

from page_servers import serving
from pretrained_folders import TEXT
from regard.errors import ArgumentError, RunError
from regard.page.models import open_model
from regard.page.reading import Answer

transformers = pytest.importorskip("transformers")


def eager(model):
    """The same weights, computed by the path of transformers that returns attention."""
    model.set_attn_implementation("eager")
    return model.eval()


def continued(model, ids):
    """Twelve more tokens, or those up to the end: the most likely ones, each of a forward pass over all before it."""
    ids = dict(ids)
    for _ in range(12):
        with torch.inference_mode():
            best = model(**ids).logits[:, -1:].argmax(-1)
        ids = {name: torch.cat([one, one[:, -1:]], 1) for name, one in ids.items()}
        ids["input_ids"][:, -1:] = best
        if best == model.generation_config.eos_token_id:
            break
    return ids


@pytest.mark.parametrize("kind", ["classify", "fill in", "encode", "next token"])
def test_attention_is_that_of_a_forward_pass(folder_of, tokenizer, kind):
    opened = open_model(folder_of(kind))
    assert opened.task == kind
    reading = opened.read(TEXT)
    ids = tokenizer(TEXT, return_tensors="pt")
    axis = reading.document.records[0].queries
    if kind == "next token":
        ids = continued(opened.model, ids)
        assert axis.generated == 12
        assert reading.answer.text == tokenizer.decode(ids["input_ids"][0, 12:], skip_special_tokens=True)
    with torch.inference_mode():
        expected = eager(opened.model)(**ids, output_attentions=True).attentions
    assert len(reading.document.records) == 2
    for record, weights in zip(reading.document.records, expected, strict=True):
        np.testing.assert_allclose(record.weights, weights[0].numpy(), atol=1e-6)
        assert record.kind == ("causal" if kind == "next token" else "self")
        assert record.queries.special[:12] == (True, *[False] * 10, True)
        assert record.queries.tokens[1:4] == ("the", "quick", "brown")
    assert [word for word in axis.words if word.start < 12] == [range(place, place + 1) for place in range(12)]


def test_labels_with_probabilities(folder_of, tokenizer):
    opened = open_model(folder_of("classify"))
    answer = opened.read(TEXT).answer
    with torch.inference_mode():
        expected = opened.model(**tokenizer(TEXT, return_tensors="pt")).logits[0].softmax(-1)
    assert dict(answer.ranked) == pytest.approx(dict(zip(("bad", "fair", "good"), expected.tolist(), strict=True)))
    assert answer.text == answer.ranked[0][0]
    assert sorted((value for _, value in answer.ranked), reverse=True) == [value for _, value in answer.ranked]


def test_next_tokens_and_masked_words(folder_of, tokenizer):
    for kind, text, place in (("next token", TEXT, -1), ("fill in", "the [MASK] brown fox", 2)):
        opened = open_model(folder_of(kind))
        answer = opened.read(text).answer
        with torch.inference_mode():
            expected = opened.model(**tokenizer(text, return_tensors="pt")).logits[0, place].softmax(-1).topk(8)
        assert [value for _, value in answer.ranked] == pytest.approx(expected.values.tolist())
        assert answer.ranked[0][0] == tokenizer.decode([int(expected.indices[0])])
    assert "Write [MASK]" in opened.read("no mask").answer.notes[0]
    assert "first of 2" in opened.read("[MASK] brown [MASK]").answer.notes[0]


def test_an_encoder_decoder_has_three_kinds_of_attention(folder_of, tokenizer):
    opened = open_model(folder_of("generate"))
    reading = opened.read(TEXT)
    kinds = [record.kind for record in reading.document.records]
    assert {kind: kinds.count(kind) for kind in kinds} == {"self": 2, "causal": 2, "cross": 2}
    ids = tokenizer(TEXT, return_tensors="pt")
    generated = opened.model.generate(**ids, max_new_tokens=64, do_sample=False)
    assert reading.answer.text == tokenizer.decode(generated[0], skip_special_tokens=True)
    with torch.inference_mode():
        expected = eager(opened.model)(**ids, decoder_input_ids=generated[:, :-1], output_attentions=True)
    names = {"self": "encoder_attentions", "causal": "decoder_attentions", "cross": "cross_attentions"}
    for record in reading.document.records:
        weights = getattr(expected, names[record.kind])[record.layer]
        np.testing.assert_allclose(record.weights, weights[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("kind", ["classify", "next token", "generate"])
def test_worked_steps_of_a_pretrained_model_lead_to_its_weights(folder_of, kind):
    reading = open_model(folder_of(kind)).read(TEXT)
    for place, record in enumerate(reading.document.records):
        steps = reading.steps(place, 1)
        np.testing.assert_allclose(steps.matrices["weights"], record.weights[1], atol=1e-6)
        found = steps.matrices
        np.testing.assert_allclose(found["weights"] @ found["value"], found["output"], atol=1e-6)
        assert steps.head == 1
        assert steps.query_labels == record.queries.tokens


def test_a_pretrained_model_is_served(folder_of):
    with serving(open_model(folder_of("classify"))) as client:
        found = client.read(TEXT).json
        assert found["answer"]["label"] == "Label"
        assert len(found["payload"]["records"]) == 2
        body = {"reading": found["reading"], "record": 1, "head": 1, "pane": "a", "number": 1}
        assert client.ask("steps", body).status == 200
        long = client.read("dog " * 31, number=2)
        assert long.status == 422
        assert "33 tokens" in long.json["error"]
        assert "at most 32" in long.json["error"]
        for number, text in enumerate(("", " ", "\x00", "\U0001f98a"), start=3):
            assert client.read(text, number=number).status == 200, text


def test_a_folder_that_cannot_be_loaded_is_one_line(folder_of, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RunError, match="cannot be loaded by transformers") as raised:
        open_model(tmp_path)
    assert "\n" not in str(raised.value)
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoConfig": "own.Own"}, "model_type": "own"}')
    (tmp_path / "own.py").write_text("raise SystemExit('code of the folder ran')")
    with pytest.raises(RunError, match="cannot be loaded"):
        open_model(tmp_path)


def test_a_text_with_too_many_weights_is_refused(folder_of, monkeypatch):
    opened = open_model(folder_of("classify"))
    monkeypatch.setattr("regard.page.reading.MOST_WEIGHTS", 100)
    with pytest.raises(ArgumentError, match="shorten it"):
        opened.read(TEXT)


def changed(folder, copy, file, **fields):
    """A copy of a model's folder in which a JSON file has other fields."""
    shutil.copytree(folder, copy)
    path = copy / file
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **fields}))
    return copy


@pytest.mark.parametrize(
    ("file", "fields", "message"),
    [
        ("config.json", {"_attn_implementation": "kernels-community/flash-attn"}, "looked for outside of the folder"),
        ("config.json", {"attn_implementation": "flash_attention_2"}, "looked for outside of the folder"),
        ("config.json", {"_attn_implementation": {"": "sdpa", "text_config": "a/b:c"}}, "'a/b:c', which would be"),
        ("config.json", {"text_config": {"_attn_implementation": "a/b"}}, "looked for outside of the folder"),
        ("config.json", {"parts": [{"vision_config": {"attn_implementation": "a/b"}}]}, "outside of the folder"),
        ("config.json", {"attn_implementation": ["a/b"]}, "looked for outside of the folder"),
        ("config.json", {"_attn_implementation_internal": "a/b"}, "looked for outside of the folder"),
        ("config.json", {"experts_implementation": "a/b"}, "looked for outside of the folder"),
        ("generation_config.json", {"attn_implementation": "paged|a/b"}, "looked for outside of the folder"),
        ("config.json", {"model_type": "new", "auto_map": {"AutoConfig": "code.New"}}, "code of its own"),
        ("config.json", {"backbone": "owner/model", "use_timm_backbone": False}, "looked for outside of the folder"),
        ("config.json", {"trust_remote_code": True}, "which is never run"),
        ("config.json", {"quantization_config": {"quant_method": "mxfp4"}}, "the weights are quantized"),
        ("config.json", {"torch_dtype": "load"}, "torch_dtype is 'load'; it must be one of auto, float64"),
        ("config.json", {"dtype": 3}, "dtype is 3; it must be one of"),
        ("tokenizer_config.json", {"vocab_file": "/etc/passwd"}, "outside of the folder"),
        ("tokenizer_config.json", {"vocab_file": "../secret.txt"}, "outside of the folder"),
        ("adapter_config.json", {"base_model_name_or_path": "owner/model"}, "holds an adapter"),
        ("model.safetensors.index.json", {"weight_map": {"a": "../model.safetensors"}}, "not a .safetensors file in"),
        ("model.safetensors.index.json", {"weight_map": {"a": "/tmp/model.safetensors"}}, "not a .safetensors file in"),
        ("model.safetensors.index.json", {"weight_map": {"a": "part.bin"}}, "not a .safetensors file in the folder"),
        ("model.safetensors.index.json", {"weight_map": {"a": "b.safetensors"}}, "there is no file 'b.safetensors'"),
        ("model.safetensors.index.json", {"weight_map": ["a"]}, "weight_map must say the file of each weight"),
    ],
)
def test_a_folder_that_asks_for_more_is_refused_before_it_is_loaded(
    folder_of, tmp_path, monkeypatch, file, fields, message
):
    (tmp_path / "secret.txt").write_text("word\n")
    folder = changed(folder_of("encode"), tmp_path / "model", file, **fields)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda *_, **__: pytest.fail("was loaded"))
    with pytest.raises(RunError) as refused:
        open_model(folder)
    assert message in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_files_outside_of_the_folder_and_pickles_are_refused(folder_of, tmp_path):
    folder = changed(folder_of("encode"), tmp_path / "model", "config.json")
    weights = folder / "model.safetensors"
    weights.rename(tmp_path / "elsewhere.safetensors")
    weights.symlink_to(tmp_path / "elsewhere.safetensors")
    with pytest.raises(RunError, match="is a link that leads out of the folder"):
        open_model(folder)
    weights.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04N.")
    with pytest.raises(RunError, match="not pickled weights"):
        open_model(folder)
    for content in ("[", "[]", "[" * 100_000, "9" * 5000):
        (folder / "config.json").write_text(content)
        with pytest.raises(RunError, match=r"config\.json (is not JSON|must hold a JSON object)"):
            open_model(folder)


def test_folders_with_settings_that_stay_inside_are_loaded(folder_of, tmp_path):
    """The cache of the hub, whose snapshots are links to its blobs; code that transformers has itself."""
    snapshot = tmp_path / "models--a--b" / "snapshots" / "1"
    fields = {"auto_map": {"AutoModel": "code.Bert"}, "_attn_implementation": "eager", "torch_dtype": "float32"}
    changed(folder_of("encode"), snapshot, "config.json", **fields)
    blobs = tmp_path / "models--a--b" / "blobs"
    blobs.mkdir()
    for number, path in enumerate(sorted(snapshot.iterdir())):
        path.rename(blobs / str(number))
        path.symlink_to(f"../../blobs/{number}")
    assert open_model(snapshot).read(TEXT).document.records


@pytest.mark.parametrize("kind", ["classify", "fill in", "next token"])
def test_probabilities_add_up_to_1_with_what_is_not_listed(folder_of, kind):
    answer = open_model(folder_of(kind)).read("the quick [MASK] fox").answer
    assert sum(value for _, value in answer.ranked) + answer.rest == pytest.approx(1, abs=1e-5)
    assert (answer.rest > 1e-4) == (kind != "classify")  # three labels are all listed


def test_labels_without_ink_are_visible():
    ranked = tuple((label, 0.1) for label in ("\n", "\t", " ", "  ", "", "\u200b", " the"))
    labels = [one["label"] for one in Answer("Next token", ranked=ranked).to_dict()["ranked"]]
    assert labels == ["↵", "⇥", "␣", "␣␣", "∅", "\\u200b", "␣the"]
