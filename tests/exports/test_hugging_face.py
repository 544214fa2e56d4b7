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


def classifier(**options):
    tokenizer = Tokenizer.train(TEXTS * 3, "bpe", 90)
    bert = {
        "architecture": "transformer", "norm": "post", "position": "learned", "pooling": "cls", "embedding_norm": True,
        "activation": "gelu", "hidden": 12, "heads": 2, "layers": 2, "feedforward": 17, "max_length": 60,
    }  # fmt: skip
    config = models.TextClassifierConfig(len(tokenizer), 3, **{**bert, **options})
    return models.TextClassifier(config), {"tokenizer": tokenizer, "labels": Labels(["bad", "good", "so so"])}


def one_vocabulary(**options):
    tokenizer = Tokenizer.train(TEXTS * 3, "bpe", 90)
    config = models.TranslatorConfig(len(tokenizer), len(tokenizer), **{**TRANSFORMER, "norm": "post", **options})
    return models.TransformerTranslator(config), {"source": tokenizer, "target": tokenizer}


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
    "post-norm": ("MarianMTModel", lambda: translator(norm="post", tied="target", activation="silu")),
    "post-norm untied": ("MarianMTModel", lambda: translator(norm="post", tied="none", activation="gelu")),
    "post-norm tied": ("MarianMTModel", lambda: one_vocabulary(tied="all")),
    "class token": ("BertForSequenceClassification", classifier),
    "class token, sinusoidal": (
        "BertForSequenceClassification",
        lambda: classifier(position="sinusoidal", activation="relu"),
    ),
    "vit": ("ViTForImageClassification", vision_transformer),
}


@pytest.mark.parametrize("name", CASES)
def test_the_loaded_model_gives_the_same_logits(name, tmp_path):
    kind, make = CASES[name]
    torch.manual_seed(1)
    model, files = make()
    written = save(moved(model, 0.1), files, tmp_path)
    assert written.architecture == kind
    assert written.difference < 1e-5
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == [kind]
    for side, folder in (("source", tmp_path), ("tokenizer", tmp_path), ("target", tmp_path / "target")):
        if side in files and folder.is_dir():
            loaded = transformers.AutoTokenizer.from_pretrained(folder)
            first = [len(files[side])] if kind.startswith("Bert") else []
            assert [loaded(text).input_ids for text in TEXTS] == [first + files[side].encode(text) for text in TEXTS]
            assert set(loaded(TEXTS[:2], padding=True)) == {"input_ids", "attention_mask"}
            # transformers 4.57 knows no TokenizersBackend, the name that transformers 5 writes for this class.
            settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
            assert settings["tokenizer_class"] == "PreTrainedTokenizerFast"


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


def moved(model, amount):
    """The model in evaluation, as after a training: no bias is 0, and no norm is the identity."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += amount * torch.randn_like(parameter)
    return model.eval()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_generate_gives_our_translations_greedily_and_by_beam_search(norm, tmp_path):
    torch.manual_seed(2)
    model, files = translator(norm=norm, tied="none")
    moved(model, 0.2)
    with torch.no_grad():
        model.output.bias[2] += 2.0  # some translations end
    save(model, files, tmp_path)
    loaded = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    source, target = (transformers.AutoTokenizer.from_pretrained(path) for path in (tmp_path, tmp_path / "target"))
    read = source(TEXTS, return_tensors="pt", padding=True)
    # Ours divides a sum of logarithms by ((5 + n) / 6) ** a, and theirs by n ** a: the same with an a of 0.
    for width, options in ((1, {}), (3, {"length_penalty": 0.0, "early_stopping": True})):
        ours = model.translate(
            read.input_ids, read.attention_mask.sum(1), max_length=14, width=width, length_penalty=0.0
        )
        theirs = loaded.generate(**read, max_length=16, num_beams=width, **options)
        ended = 0
        for hypothesis, (_, *row) in zip(ours, theirs.tolist(), strict=True):
            if len(hypothesis.tokens) == 14:  # the longest: only ours must end there, which a beam search weighs
                assert width > 1 or row[:14] == hypothesis.tokens
                continue
            ended += len(hypothesis.tokens) > 0
            assert row[: row.index(2)] == hypothesis.tokens
            text = target.decode(row, skip_special_tokens=True)
            assert text == files["target"].decode(hypothesis.tokens, unknown="")
        assert width == 1 or ended > 1


def test_a_pipeline_gives_our_labels_and_probabilities(tmp_path):
    torch.manual_seed(1)
    model, files = classifier()
    save(moved(model, 0.5), files, tmp_path)
    pipeline = transformers.pipeline("text-classification", str(tmp_path), top_k=None)
    texts = [*TEXTS, "<cls> a", TEXTS[0] * 9]
    for text, labelled in zip(texts, pipeline(texts, truncation=True), strict=True):
        ids = files["tokenizer"].encode(text)[: model.config.max_length]
        probabilities = model(torch.tensor([ids]), torch.tensor([len(ids)])).logits[0].softmax(-1).tolist()
        theirs = {one["label"]: one["score"] for one in labelled}
        assert theirs == pytest.approx(dict(zip(files["labels"].names, probabilities, strict=True)), abs=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: language(position="alibi"), "neither learned nor rotary; train with --position rotary"),
        (lambda: language(position="learned", norm="post"), "post-norm.*--norm pre"),
        (lambda: language(position="learned", kv_heads=1), "fewer key heads"),
        (
            lambda: language(position="learned", normalizer="entmax15", score="dot"),
            "--score scaled_dot --normalizer softmax",
        ),
        (lambda: translator(position="shaw")[0], "--position sinusoidal"),
        (lambda: translator(norm="post", position="learned")[0], "not sinusoidal; train with --position sinusoidal"),
        (lambda: translator(norm="post", final_norm=True)[0], "one more normalization.*--norm post --no-final-norm"),
        (MODELS["TextClassifier transformer"], "no class token.*--pooling cls --embedding-norm --norm post"),
        (lambda: classifier(norm="pre")[0], "pre-norm.*; train with --norm post, or"),
        (lambda: classifier(position="rotary")[0], "neither learned nor sinusoidal; train with --position learned"),
        (lambda: classifier(final_norm=True)[0], "one more normalization.*--norm post --no-final-norm"),
        (MODELS["TextClassifier lstm"], "architecture 'lstm'; train with --architecture transformer --norm post"),
        (MODELS["RecurrentTranslator"], "RecurrentTranslator"),
        (MODELS["TransformerPointerGenerator"], "copies words"),
        (MODELS["ImageClassifier vit"], "class token"),
        (MODELS["ImageClassifier cnn"], "Vision Transformer"),
        (MODELS["Segmenter"], "Segmenter"),
    ],
)
def test_models_without_a_hugging_face_class_say_why(make, message, tmp_path):
    with pytest.raises(ArgumentError, match=message):
        save(make().eval(), {}, tmp_path)
    assert not any(tmp_path.iterdir())
