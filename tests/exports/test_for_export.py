"""A training for an export: its first lines say which ones there are, and the option chooses a model that has it."""

import dataclasses

import pytest

import regard
from regard.errors import ArgumentError
from regard.exports.export import check, formats_text
from regard.exports.formats import FORMATS
from regard.models.checkpoint import create_model
from regard.tasks import registry
from regard.training.config import options_by_section
from regard.training.fitted_config import fit_config

TINY = {"bundled": 200}
CHOSEN = {
    "classify": {"architecture": "transformer", "norm": "post", "pooling": "cls", "embedding_norm": True},
    "images": {"architecture": "vit", "pooling": "cls"},
    "language": {"position": "rotary", "norm": "pre"},
    "summarize": {"architecture": "transformer", "copy": False},
    "translate": {"architecture": "transformer"},
}
"""Task → options of the model of a training for a folder of transformers; the other tasks have none."""


def configured(task, **options):
    task = registry.find(task)
    return fit_config(task, options_by_section(task, {**TINY, **options}), measured=False).config


@pytest.mark.parametrize("task", registry.names())
def test_the_option_chooses_a_model_that_the_export_takes(task):
    if task not in CHOSEN:
        with pytest.raises(ArgumentError, match=r"--for-export hf: no class of .*; export to onnx or torch"):
            configured(task, for_export="hf")
        return
    config = configured(task, for_export="hf")
    assert CHOSEN[task].items() <= vars(config.model).items()
    registry.find(task).check_export(config.model, config.data, "hf")


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("classify", {"heads": 2, "hidden": 8, "norm": "post"}),
        ("classify", {"architecture": "transformer"}),
        ("summarize", {"copy": False, "heads": 2, "hidden": 8}),
        ("translate", {"norm": "post", "position": "sinusoidal"}),
        ("images", {"heads": 2, "hidden": 8}),
    ],
)
def test_options_of_the_chosen_model_stay(task, options):
    model = configured(task, for_export="hf", **options).model
    assert {**CHOSEN[task], **options}.items() <= vars(model).items()


@pytest.mark.parametrize("to", FORMATS[:2])
@pytest.mark.parametrize("task", registry.names())
def test_the_usual_models_have_the_other_exports(task, to):
    assert configured(task, for_export=to).model == configured(task).model


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("classify", {"architecture": "lstm"}, "architecture 'lstm'; train with --architecture transformer"),
        ("classify", {"embedding": 16}, "needs a training with --architecture .*: embedding has no meaning"),
        ("classify", {"score": "dot", "pooling": "attention"}, "--pooling cls"),
        ("images", {"architecture": "cnn"}, "train with --architecture vit --pooling cls, or export to onnx or torch"),
        ("summarize", {"copy": True}, "copies words of the source; train with --no-copy --architecture transformer"),
        ("classify", {"norm": "pre"}, "train with --architecture transformer --norm post"),
        ("translate", {"attention": "luong"}, "--architecture transformer: attention has no meaning"),
        ("language", {"kv_heads": 1, "heads": 2, "position": "learned"}, "fewer key heads.*without --kv-heads"),
    ],
)
def test_options_that_the_export_does_not_permit_are_refused_with_those_that_it_does(task, options, message):
    with pytest.raises(ArgumentError, match=f"--for-export hf.*{message}"):
        configured(task, for_export="hf", **options)


def test_a_backbone_of_another_package_is_no_class_of_transformers():
    pytest.importorskip("torchvision", reason="needs the extra backbones")
    with pytest.raises(ArgumentError, match=r"--for-export hf needs a training with --architecture vit .*backbone"):
        configured("images", for_export="hf", backbone="torchvision:resnet18")


def test_a_step_needs_the_keys_of_multi_head_attention_in_each_format():
    for to in FORMATS:
        with pytest.raises(ArgumentError, match=f"--for-export {to}: .*train with --self-attention multihead"):
            configured("language", for_export=to, self_attention="linear", hidden=8, heads=2)


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("classify", "exports: onnx, torch (hf with --for-export hf)"),
        ("language", "exports: onnx, torch, hf"),
        ("sounds", "exports: onnx, torch"),
    ],
)
def test_the_exports_of_a_model_are_those_that_its_export_takes(task, text):
    config = configured(task, hidden=8, **({"heads": 2} if task == "language" else {}))
    fields = {"language": {"vocabulary": 9}, "sounds": {"width": 40, "labels": 3}}
    sizes = fields.get(task, {"vocabulary": 9, "labels": 3})
    model = create_model(dataclasses.replace(config.model, **sizes))
    assert formats_text(model) == text
    for to in FORMATS:
        if to in text.partition("(")[0]:
            check(model.eval(), to)
        else:
            with pytest.raises(ArgumentError):
                check(model.eval(), to)


@pytest.mark.slow
def test_a_training_tries_its_export_before_the_first_step(tmp_path, monkeypatch, capsys):
    transformers = pytest.importorskip("transformers")
    films = ["a fine film", "a dull film", "fine music", "dull music"] * 8, ["good", "bad", "good", "bad"] * 8
    options = {"validation": 0.25, "epochs": 1, "hidden": 8, "layers": 1, "threads": 1}
    run = regard.train("classify", films, run=tmp_path / "run", for_export="hf", **options)
    printed = "".join(capsys.readouterr())
    assert "architecture transformer (for_export hf) · norm post (" in printed
    assert "exports: onnx, torch, hf" in printed
    exported = run.export("hf", tmp_path / "hf")
    assert max(exported.differences.values()) < 1e-4
    same = regard.train("classify", films, run=tmp_path / "same", **CHOSEN["classify"], position="learned", **options)
    assert same.folder.read_metrics()[0]["val_loss"] == run.folder.read_metrics()[0]["val_loss"]

    def fails(*_):
        raise ArgumentError("no such model")

    monkeypatch.setattr(transformers.BertForSequenceClassification, "save_pretrained", fails)
    with pytest.raises(ArgumentError, match="no such model"):
        regard.train("classify", films, run=tmp_path / "other", for_export="hf", **options)
    assert not (tmp_path / "other").exists()
