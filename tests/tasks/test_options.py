"""One vocabulary of options: a name means the same in every task, and old and foreign names lead to it."""

import dataclasses
import itertools
import json
import subprocess
import sys
import types
import typing

import pytest
import yaml

import regard
from regard.cli.config_options import field_help
from regard.cli.run_configuration import as_yaml, compose_config
from regard.configuration import Configuration
from regard.configuration.options import choices, is_union, offered, option_fields, option_types
from regard.configuration.upgrades import upgraded
from regard.errors import ArgumentError, RunError
from regard.models import checkpoint
from regard.names.old_names import FOREIGN_FIELDS, RENAMED_FIELDS, REPLACED_OPTIONS
from regard.tasks import registry
from regard.tasks.task import TableTask
from regard.training.config import RunConfig, make_config

MEANINGS = {
    "activation": "activation of the feedforward networks",
    "activation_checkpointing": "activations are computed again",
    "architecture": "architecture",
    "attention": "attention of the decoder",
    "backbone": "a network of another package",
    "backbone_map": "feature map of the backbone",
    "backbone_weights": "first weights of the backbone",
    "batch_size": "of a batch, on each device",
    "blocks": "residual blocks at each scale",
    "bundled": "of the generated|of generated examples",
    "channels": "channels of",
    "class_weights": "counts in inverse proportion",
    "decoder_layers": "layers of the decoder",
    "dropout": "dropout rate",
    "embedding": "features of an embedded token",
    "encoder_layers": "layers of the encoder",
    "feedforward": "units of the hidden layer of the feedforward networks; 0: four times hidden",
    "feedforward_chunk": "tokens that the feedforward networks treat at a time",
    "final_norm": "one more layer normalization at the end of each stack",
    "fit": "how an image becomes square",
    "flip": "mirror half of the",
    "freeze_backbone": "the weights of the backbone stay",
    "gate": "gate of each residual block",
    "grid": "features of an annotation",
    "heads": "query heads; a divisor of hidden",
    "held_out": "used for validation when there",
    "hidden": "features of",
    "image_size": "pixels of a side",
    "jitter": "brightness",
    "kv_heads": "key and value heads",
    "label_column": "column of the labels",
    "label_smoothing": "probability that is distributed over",
    "layers": "layers of the",
    "lowercase": "into lower case",
    "max_length": "largest number of tokens of",
    "min_count": "a word that occurs fewer times",
    "norm": "layer normalization before each part",
    "normalizer": "normalizer of the attention weights",
    "pooling": "pooling of the annotations to one vector",
    "position": "positions that are added",
    "score": "score of the attention",
    "self_attention": "self-attention of the layers",
    "stages": "stages of the convolutional network",
    "text_column": "column of the texts",
    "tied": "embeddings that share their weights",
    "tokenizer": "sub-words",
    "tokens_per_batch": "tokens of",
    "train": "training",
    "vocabulary": "largest size of",
    "window": "tokens on each side that are attended to",
}
"""Option that several tasks have → what its help says in all of them."""

SPELLED_ELSEWHERE = {
    "encoder", "network", "model", "cell", "dim", "hidden_dim", "weigh", "norm_first", "colour", "mirror", "lr", "gpus",
    "d_model", "num_layers", "beam_size", "output",
}  # fmt: skip
"""Names that no option has: another one means this."""


def sections(task):
    return {"data": task.data_config, "model": task.model_config, "training": task.training_config}


def kind_of(hint):
    """The type of an option without its choices and without None: ``str``, ``int``, ..."""
    if is_union(hint):
        kinds = {kind_of(part) for part in typing.get_args(hint) if part is not types.NoneType}
        assert len(kinds) == 1, hint
        return kinds.pop()
    return type(typing.get_args(hint)[0]) if typing.get_origin(hint) is typing.Literal else hint


def test_an_option_means_the_same_in_every_task():
    kinds, owners = {}, {}
    for name in registry.BUILT_IN_TASKS:
        for kind in sections(registry.find(name)).values():
            texts, hints = field_help(kind), option_types(kind)
            for field in option_fields(kind):
                assert kinds.setdefault(field.name, kind_of(hints[field.name])) == kind_of(hints[field.name]), field
                owners.setdefault(field.name, {})[name] = texts[field.name]
    assert not kinds.keys() & SPELLED_ELSEWHERE
    several = {name: texts for name, texts in owners.items() if len(set(texts.values())) > 1}
    assert several.keys() <= MEANINGS.keys()
    for option, meaning in MEANINGS.items():
        for task, text in owners[option].items():
            assert any(part in text.lower() for part in meaning.split("|")), f"{task}: --{option}: {text}"


@pytest.mark.slow
def test_options_are_listed_without_pytorch():
    # The package itself is left out: only the modules that the registry imports are looked at.
    code = (
        "import sys, types\n"
        "package = types.ModuleType('regard'); package.__path__ = sys.argv[1:]; sys.modules['regard'] = package\n"
        "from regard.tasks.registry import BUILT_IN_TASKS, find\n"
        "from regard.cli.train_commands import make_command\n"
        "for name in BUILT_IN_TASKS: make_command(find(name)), find(name).model_config()\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    new = set(subprocess.check_output([sys.executable, "-c", code, *regard.__path__], text=True).split())
    assert not new & {"torch", "numpy", "lightning", "tokenizers", "datasets", "yaml", "sacrebleu", "matplotlib"}


def test_an_option_without_a_meaning_is_refused_and_its_default_follows_the_architecture():
    """For each model: every option that needs another one is refused without it, and accepted at its default."""
    for name in registry.BUILT_IN_TASKS:
        kind = registry.find(name).model_config
        config = kind()
        for field in option_fields(kind):
            if config.unmet_need(field) is None:
                continue
            usual = getattr(config, field.name)
            assert dataclasses.replace(config, **{field.name: usual}) == config
            other = {bool: lambda one: not one, int: lambda one: (one or 0) + 2, float: lambda one: one + 0.5}
            choices = [one for one in typing.get_args(option_types(kind)[field.name]) if one not in (usual, None)]
            kind_of_field = kind_of(option_types(kind)[field.name])
            value = [*choices, "timm:x"][0] if kind_of_field is str else other[kind_of_field](usual)
            with pytest.raises(ArgumentError, match=f"{field.name} (has no meaning with|needs)"):
                dataclasses.replace(config, **{field.name: value})


# What earlier versions wrote, and how it is read.
OLD = {
    "translate": [
        (
            {"attention": "transformer", "cell": "lstm", "embedding": 12, "hidden": 12, "heads": 2, "feedforward": 7},
            {"architecture": "transformer", "hidden": 12, "heads": 2, "feedforward": 7},
        ),
        (
            {"attention": "luong", "cell": "gru", "score": None, "tied": "all", "heads": 8, "feedforward": 2048},
            {"architecture": "gru", "attention": "luong", "tied": "all"},
        ),
        (
            {"hidden_dim": 12, "embedding_dim": 6, "tied_embeddings": "none"},
            {"hidden": 12, "embedding": 6, "tied": "none"},
        ),
    ],
    "summarize": [
        (
            {"model": "recurrent", "cell": "gru", "hidden": 14, "dim": 256, "norm_first": True, "encoder_layers": None},
            {"architecture": "gru", "hidden": 14},
        ),
        (
            {"model": "transformer", "cell": "lstm", "hidden": 256, "dim": 32, "norm_first": False, "score": None},
            {"architecture": "transformer", "hidden": 32, "norm": "post", "final_norm": True},
        ),
    ],
    "language": [({"tied": False, "hidden": 12}, {"tied": "none", "hidden": 12}), ({"tied": True}, {})],
    "classify": [
        ({"encoder": "gru", "hidden": 6, "heads": 3, "position": "rotary"}, {"architecture": "gru", "hidden": 6}),
        ({"encoder": "transformer", "window": 2}, {"architecture": "transformer", "window": 2}),
    ],
    "transcribe": [
        ({"encoder": "gru", "decoder_hidden": 9}, {"architecture": "gru", "decoder_hidden": 9}),
        (
            {"encoder": "transformer", "pyramid_layers": 0, "embedding": 128, "score": "location_aware"},
            {"architecture": "transformer"},
        ),
    ],
    "sounds": [({"encoder": "lstm", "pooling": "mean"}, {"pooling": "mean"})],
    "segment": [({"context": "non_local", "gate": "se"}, {"attention": "non_local"})],
    "images": [
        ({"network": "cbam", "hidden": 128, "grid": 16}, {"architecture": "cnn", "gate": "cbam", "grid": 16}),
        ({"network": "vit", "hidden": 16, "patch": 4}, {"hidden": 16, "patch": 4}),
    ],
    "caption": [
        ({"attention": "transformer", "cell": "lstm", "tied": True, "embedding": 256}, {"architecture": "transformer"}),
        (
            {"attention": "hard", "cell": "gru", "weigh": "se"},
            {"attention": "hard", "architecture": "gru", "gate": "se"},
        ),
    ],
}


@pytest.mark.parametrize("name", registry.BUILT_IN_TASKS)
def test_the_configuration_of_an_old_run_and_an_old_file_are_read(name, tmp_path):
    task = registry.find(name)
    for old, new in OLD[name]:
        content = {"task": name, "data": {"bundled": 60}, "model": old, "training": {}}
        wanted = task.model_config(**new)
        assert RunConfig.from_dict(content, "config.yaml", task).model == wanted
        file = tmp_path / "old.yaml"
        file.write_text(yaml.safe_dump(content))
        config = compose_config(task, file, {}).config
        assert {option: getattr(config.model, option) for option in new} == new
        again = yaml.safe_load(as_yaml(config))
        assert RunConfig.from_dict(again, "config.yaml", task) == config
        assert not again["model"].keys() & {one for formers in RENAMED_FIELDS.values() for one in formers} - {"context"}


@pytest.mark.parametrize(
    "name", [name for name in registry.BUILT_IN_TASKS if hasattr(registry.find(name).model_config, "final_norm")]
)
def test_a_run_configuration_as_file_trains_the_model_of_the_run(name, tmp_path):
    task, file = registry.find(name), tmp_path / "config.yaml"

    def composed(content, **options):
        file.write_text(yaml.safe_dump(content))
        return compose_config(task, file, options).config.model

    model = {"norm": "post"}
    if task.model_config().architecture != "transformer":
        model["architecture"] = "transformer"
    run = {"task": name, "data": {"bundled": 3_000}, "model": model, "training": {}}
    new = composed(run)
    assert not new.final_norm
    assert composed({**run, "versions": {"python": "3.11"}}) == dataclasses.replace(new, final_norm=True)
    assert not composed({**run, "versions": {}, "model": {**model, "final_norm": False}}).final_norm
    assert not composed({**run, "versions": {}}, final_norm=False).final_norm
    assert composed({**run, "versions": {}}, norm="pre").norm == "pre"
    assert composed({**run, "model": {**model, "norm": "pre"}, "versions": {}}, norm="post") == new


@pytest.mark.parametrize(
    "name", [name for name in registry.BUILT_IN_TASKS if hasattr(registry.find(name).model_config, "backbone")]
)
def test_a_run_of_before_has_the_former_map_of_its_backbone(name, tmp_path):
    task, file = registry.find(name), tmp_path / "config.yaml"

    def composed(content, **options):
        file.write_text(yaml.safe_dump(content))
        return compose_config(task, file, options).config.model.backbone_map

    choice = task.model_config.models.keys() - {"vit"}
    model = {"architecture": min(choice), "backbone": "timm:x"}
    run = {"task": name, "data": {"bundled": 300}, "model": model, "training": {}}
    assert RunConfig.from_dict(run, "old", task).model.backbone_map == "last_stage"
    new = {**run, "model": {**model, "backbone_map": "pooled"}}
    assert RunConfig.from_dict(new, "new", task).model.backbone_map == "pooled"
    assert RunConfig.from_dict({**run, "model": {}}, "without", task).model.backbone_map == "pooled"
    # What an author of today writes has the meaning of today, and so has another backbone than that of the run.
    assert composed(run) == composed({**new, "versions": {}}) == "pooled"
    assert composed({**run, "versions": {}}) == composed({**run, "versions": {}}, backbone="timm:x") == "last_stage"
    assert composed({**run, "versions": {}}, backbone="timm:y") == "pooled"
    assert composed({**run, "versions": {}}, backbone_map="pooled") == "pooled"


def test_training_options_of_old_files_are_read():
    segment, caption = registry.find("segment"), registry.find("caption")
    content = {"data": {"bundled": 60}, "model": {}, "training": {"zoom": 2.0, "colour": 0.1, "mirror": False}}
    training = RunConfig.from_dict({"task": "segment", **content}, "config.yaml", segment).training
    assert (training.rescale, training.jitter, training.flip) == (2.0, 0.1, False)
    model = {"backbone": "timm:x", "backbone_weights": "a.pth", "freeze_backbone": True}
    content = {"task": "caption", "data": {"bundled": 60}, "model": model, "training": {"zoom": 0.1}}
    run = RunConfig.from_dict(content, "config.yaml", caption)
    assert (run.training.backbone_weights, run.training.freeze_backbone, run.training.zoom) == ("a.pth", True, 0.1)
    with pytest.raises(ArgumentError, match="backbone_weights needs backbone"):
        caption.check_run(dataclasses.replace(run, model=caption.model_config()))


def test_a_file_with_a_foreign_name_is_told_the_one_of_here(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("data: {bundled: 20}\ntraining: {lr: 0.1}\n")
    with pytest.raises(RunError, match=r"a field 'lr' that .*; here it is 'learning_rate'"):
        compose_config(registry.find("translate"), file, {})


# The headers of models of earlier versions: the fields that differ.
HEADERS = {
    "recurrent_translator": (
        {"hidden_dim": 8, "embedding_dim": 6, "cell": "gru", "tied_embeddings": "none", "max_source": 9, "score": None},
        {"hidden": 8, "embedding": 6, "architecture": "gru", "tied": "none"},
    ),
    "transformer_translator": (
        {"dim": 8, "heads": 2, "norm_first": False, "feedforward": 9},
        {"hidden": 8, "heads": 2, "norm": "post", "final_norm": True, "feedforward": 9, "architecture": "transformer"},
    ),
    "transformer_captioner": (
        {"dim": 8, "heads": 2, "tied_embeddings": True, "grid_dim": 8, "weigh": "cbam"},
        {"hidden": 8, "heads": 2, "tied": "target", "grid": 8, "gate": "cbam", "architecture": "transformer"},
    ),
    "recurrent_transcriber": (
        {"hidden_dim": 8, "decoder_dim": 8, "score_dim": 5, "encoder": "lstm"},
        {"hidden": 8, "decoder_hidden": 8, "score_features": 5},
    ),
    "image_classifier": (
        {"network": "cnn", "weigh": "se", "grid_dim": 8, "pooling": "mean", "dim": 192, "layers": 6},
        {"architecture": "cnn", "gate": "se", "grid": 8, "pooling": "mean"},
    ),
    "segmenter": ({"context": "none"}, {"attention": "none"}),
}


@pytest.mark.parametrize("name", HEADERS)
def test_the_header_of_an_old_model_is_read(name):
    old, new = HEADERS[name]
    kind = checkpoint.model_classes(name)[1]
    assert checkpoint.config_of_header(kind, json.loads(json.dumps(old)), name, "a file") == kind(**new)


def test_an_upgrade_changes_nothing_of_today():
    for name in registry.BUILT_IN_TASKS:
        kind = registry.find(name).model_config
        assert issubclass(kind, Configuration)
        fields = {field.name: getattr(kind(), field.name) for field in option_fields(kind)}
        assert upgraded(kind, fields) == fields


DURATIONS = ("timeout", "seconds", "max-seconds", "time-limit", "max-time")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train classify --encoder lstm", "--encoder is now --architecture"),
        ("train summarize --model transformer", "--model is now --architecture"),
        ("train images --network=vit", "--network is now --architecture"),
        ("train translate --cell gru", "--cell is now --architecture"),
        ("train summarize --dim 8", "--dim is now --hidden"),
        ("train segment --context dual", "--context is now --attention"),
        ("train segment --mirror", "--mirror is now --flip"),
        ("train translate --attention transformer", "--attention transformer is now --architecture transformer"),
        ("train images --architecture cbam", "--architecture cnn --gate cbam"),
        ("train language --no-tied", "--no-tied is now --tied none"),
        ("train translate --lr 1", "here it is --learning-rate"),
        ("train translate --gpus 1", "here it is --devices"),
        ("train translate --batch-size 8", "here it is --tokens-per-batch"),
        ("train translate --early-stopping 3", "here it is --patience"),
        ("train translate --layers 3", "here it is --encoder-layers"),
        ("train transcribe --audio-column a", "here it is --sound-column"),
        ("train translate --output a", "here it is --run"),
        ("train translate --epocs 3", "did you mean --epochs?"),
        *((f"train translate --{one} 3", "here it is --max-minutes") for one in DURATIONS),
        ("train translate --max-minutes 20s", "it is '20s'; for 20s write 0.33"),
        ("train translate --max-minutes 2h", "it is '2h'; for 2h write 120"),
        ("train translate --batch 3", "here it is --tokens-per-batch"),
        ("train images --batch 3", "here it is --batch-size"),
        ("train translate --tumbleweed 3", "no option --tumbleweed; see"),
        ("predict x --top-k 3", "here it is --n-best"),
        ("predict x --num-return-sequences 3", "here it is --n-best"),
        ("predict x --num-beams 3", "here it is --beam"),
    ],
)
def test_the_command_line_says_what_an_old_or_a_foreign_option_is_here(run_command, command, words):
    code, _, error = run_command(*command.split())
    assert code != 0
    assert words in error
    message, *corrected = error.strip().splitlines()
    assert message.startswith("regard: error: ")
    assert len(corrected) <= 1
    assert all(line.startswith(f"regard {command.split()[0]} ") for line in corrected)


def test_every_suggestion_is_an_option_of_some_command():
    tasks = [registry.find(name) for name in registry.BUILT_IN_TASKS]
    known = {"run", "quiet", "to", "pictures", "masks", "file", "column"}
    for task in tasks:
        for kind in (*sections(task).values(), task.prediction_config, task.evaluation_config):
            known |= {field.name for field in dataclasses.fields(kind)}
    assert set(RENAMED_FIELDS) <= known
    assert {name for names in FOREIGN_FIELDS.values() for name in names} <= known
    for line in REPLACED_OPTIONS.values():
        assert {part.removeprefix("--") for part in line.split() if part.startswith("--")} <= known


def builds(task, field, choice):
    """Whether some configuration of the model that a task trains has this choice."""
    kind, hints = task.model_config, option_types(task.model_config)
    needs = dict(field.metadata.get("needs", {})) | {"backbone": "torchvision:resnet18"}
    needs = {name: value if isinstance(value, tuple) else (value,) for name, value in needs.items() if name in hints}
    architectures = choices(hints["architecture"]) if "architecture" in hints else (None,)
    needs.setdefault("architecture", architectures)
    for values in itertools.product(*needs.values(), ({}, {"position": "none"})):
        options = dict(zip(needs, values, strict=False)) | values[-1] | {field.name: choice}
        options = {name: value for name, value in options.items() if name in hints and value is not True}
        for without in ((), ("backbone",)):
            known = {name: value for name, value in options.items() if name not in without}
            try:
                TableTask.check_run(task, types.SimpleNamespace(model=kind(**known)))
            except ArgumentError:
                continue
            return True
    return False


@pytest.mark.parametrize("name", registry.BUILT_IN_TASKS)
def test_a_choice_that_help_offers_makes_a_model_and_no_other_does(name):
    task, seen = registry.find(name), 0
    texts, hints = field_help(task.model_config), option_types(task.model_config)
    for field in option_fields(task.model_config):
        known, shown = choices(hints[field.name]), offered(task.model_config, field.name)
        for choice in (choice for choice in known if choice is not None):
            assert builds(task, field, choice) == (choice in shown), f"{name}: {field.name}={choice!r}"
            if len(shown) < len(known):
                assert (f" {choice}" in texts[field.name].replace(",", " ").replace(".", " ")) == (choice in shown)
            seen += 1
    assert seen


@pytest.mark.parametrize("name", ["classify", "language", "summarize", "transcribe", "translate"])
def test_an_indexer_that_the_loss_of_a_task_does_not_train_is_refused(name):
    task = registry.find(name)
    options = {"architecture": "transformer", "position": "none", "self_attention": "indexed"}
    known = {field.name for field in dataclasses.fields(task.model_config)}
    fields = {"model": {key: value for key, value in options.items() if key in known}, "data": {"bundled": 60}}
    with pytest.raises(ArgumentError, match=r"self_attention 'indexed' learns from nn\.IndexedAttention\.index_loss"):
        make_config(task, {"training": {}, **fields})
