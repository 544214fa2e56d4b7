"""Folders that transformers loads: the same logits, the same ids, and a reason where no class fits."""

import json

import pytest
import torch

from exports.test_programs import language
from module_cases import MODELS, TRANSFORMER
from regard import models
from regard.data.images.reading import fit_image
from regard.data.labels import Labels
from regard.data.text.tokenizers import TextTokenizer, Tokenizer
from regard.errors import ArgumentError
from regard.exports.hugging_face import save

transformers = pytest.importorskip("transformers")

TEXTS = [
    "The cat sat on a mat.", "Ein Hund läuft 12 km!", "今天天气很好。", "مرحبا بالعالم", "วันนี้อากาศดี",
    "<pad> <bos> a <end>  b\n\tc",
]  # fmt: skip


def language_model(**options):
    tokenizer = TextTokenizer.train(["\n".join(TEXTS) * 3], "bpe", 300)
    sizes = {"hidden": 12, "heads": 2, "feedforward": 17, "layers": 2, "context": 11, "dropout": 0.1}
    model = models.LanguageModel(models.LanguageModelConfig(len(tokenizer), **{**sizes, **options}))
    return model, {"tokenizer": tokenizer}


def translator(**options):
    source = Tokenizer.train(TEXTS * 3, "bpe", 90)
    target = Tokenizer.train(TEXTS[:2] * 3, "word", 40)
    config = models.TranslatorConfig(len(source), len(target), **{**TRANSFORMER, "decoder_layers": 2, **options})
    return models.TransformerTranslator(config), {"source": source, "target": target}


def vision_transformer():
    return MODELS["ImageClassifier cls"](), {"labels": Labels(["cat", "dog", "owl"])}


CASES = {
    "gpt2": ("GPT2LMHeadModel", lambda: language_model(position="learned")),
    "gpt2 untied": ("GPT2LMHeadModel", lambda: language_model(position="learned", tied="none", activation="relu")),
    "rotary": ("Starcoder2ForCausalLM", lambda: language_model(position="rotary", kv_heads=1)),
    "sinusoidal": ("PegasusForConditionalGeneration", translator),
    "learned": (
        "BlenderbotForConditionalGeneration",
        lambda: translator(position="learned", max_length=12, tied="none", activation="gelu"),
    ),
    "vit": ("ViTForImageClassification", vision_transformer),
}


@pytest.mark.parametrize("name", CASES)
def test_the_loaded_model_gives_the_same_logits(name, tmp_path):
    kind, make = CASES[name]
    torch.manual_seed(1)
    model, files = make()
    with torch.no_grad():  # as after a training: no bias is 0, and no norm is the identity
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    written = save(model.eval(), files, tmp_path)
    assert written.architecture == kind
    assert written.difference < 1e-4
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [kind]
    for side, folder in (("source", tmp_path), ("tokenizer", tmp_path), ("target", tmp_path / "target")):
        if side in files:
            loaded = transformers.AutoTokenizer.from_pretrained(folder)
            assert [loaded(text).input_ids for text in TEXTS] == [files[side].encode(text) for text in TEXTS]
            assert set(loaded(TEXTS[:2], padding=True)) == {"input_ids", "attention_mask"}


@pytest.mark.parametrize("fit", ["stretch", "crop"])
def test_a_folder_prepares_images_as_regard_does_or_says_that_it_does_not(fit, tmp_path):
    model, files = vision_transformer()
    height, width = model.encoder.size
    written = save(model.eval(), files, tmp_path, fit)
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    loaded = transformers.AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    image = torch.randint(256, (height + 9, width + 2, 3), dtype=torch.uint8).numpy()
    fitted = fit_image(image, (height, width), fit).pixels
    given = image if fit == "stretch" else fitted
    with torch.no_grad():
        theirs = loaded(**processor(images=given, return_tensors="pt")).logits
        torch.testing.assert_close(theirs, model(torch.from_numpy(fitted)[None]).logits, rtol=1e-4, atol=1e-5)
    if fit == "stretch":
        assert not written.note
        return
    assert f"give the folder images of {width} × {height} pixels" in written.note
    with pytest.raises(ValueError, match="size"):
        loaded(**processor(images=image, return_tensors="pt"))


def test_a_translator_translates_as_the_loaded_model_generates(tmp_path):
    torch.manual_seed(2)
    model, files = translator()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    save(model.eval(), files, tmp_path)
    loaded = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    tokens = torch.tensor([files["source"].encode(TEXTS[0])])
    ours = model.translate(tokens, torch.tensor([tokens.shape[1]]), max_length=6)[0].tokens
    theirs = loaded.generate(tokens, max_new_tokens=6, do_sample=False)[0].tolist()
    assert theirs[1 : 1 + len(ours)] == ours


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: language(position="alibi"), "neither learned nor rotary; train with --position rotary"),
        (lambda: language(position="learned", norm="post"), "post-norm.*--norm pre"),
        (lambda: language(position="learned", kv_heads=1), "fewer key heads"),
        (
            lambda: language(position="learned", normalizer="entmax15", score="dot"),
            "--score .* and --normalizer softmax",
        ),
        (lambda: translator(position="shaw")[0], "--position sinusoidal"),
        (MODELS["TextClassifier transformer"], "reads? the label off the first token"),
        (MODELS["RecurrentTranslator"], "RecurrentTranslator"),
        (MODELS["TransformerPointerGenerator"], "copies words"),
        (MODELS["ImageClassifier vit"], "class token"),
        (MODELS["ImageClassifier cnn"], "Vision Transformer"),
        (MODELS["Segmenter"], "Segmenter"),
    ],
)
def test_what_has_no_class_says_why(make, message, tmp_path):
    with pytest.raises(ArgumentError, match=message):
        save(make().eval(), {}, tmp_path)
    assert not any(tmp_path.iterdir())
