"""Files of models that were saved before a backbone was the map that its network pools still compute the same.

Version 0.2 had of timm the last map of ``features_only=True``, whose networks have other names of tensors, and of
torchvision the last map of more than one position. The networks here are made up, or those of timm 1.0.31 and
torchvision 0.29.1.
"""

import dataclasses
import json
import sys
import types

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from regard import models
from regard.configuration.options import is_option
from regard.errors import ArgumentError, DataError, RunError, UnknownNameError
from regard.models.checkpoint import MODELS, config_of_header, model_classes


class Vision(nn.Module):
    """As the networks of torchvision are: maps, pooling, a classifier."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 4, 4)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 7, 2, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(7, 11)

    def forward(self, images):
        return self.fc(self.avgpool(self.second(self.norm(self.first(images)))).flatten(1))


class Pooled(nn.Module):
    """As the networks of timm are: stages, and a convolution in front of the pooling."""

    num_features = 10

    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(nn.Conv2d(3, 4, 4, 4), nn.Conv2d(4, 6, 2, 2))
        self.conv_head = nn.Conv2d(6, 10, 1)

    def forward_features(self, images):
        return self.conv_head(self.stages(images))


class Stages(nn.Module):
    """As the networks of timm are with ``features_only=True``, which flattens the names of some families."""

    feature_info = types.SimpleNamespace(channels=lambda: [6])

    def __init__(self, form):
        super().__init__()
        self.stages_0, self.stages_1 = nn.Conv2d(3, 4, 4, 4), nn.Conv2d(4, 6, 2, 2)
        self.form = form

    def forward(self, images):
        last = self.stages_1(self.stages_0(images))
        return [{"first": last, "last": last.permute(0, 2, 3, 1), "flat": last.flatten(2)}[self.form]]


@pytest.fixture
def packages(monkeypatch):
    """torchvision and timm as far as they are used."""
    models = types.ModuleType("torchvision.models")
    models.list_models = lambda module=None: ["net"]
    models.get_model = lambda name, weights=None: Vision()
    torchvision, timm = types.ModuleType("torchvision"), types.ModuleType("timm")
    torchvision.models = models
    timm.list_models = lambda: ["first", "last", "flat"]

    def create_model(name, pretrained, num_classes=None, features_only=False, out_indices=None):
        assert not pretrained
        assert (out_indices == (-1,)) == features_only != (num_classes == 0)
        return Stages(name) if features_only else Pooled()

    timm.create_model = create_model
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    monkeypatch.setitem(sys.modules, "timm", timm)


def random_statistics(network):
    """The network in evaluation, with random statistics of its normalizations."""
    torch.manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.8, 1.2)
    return network.eval()


def without_map(config):
    """The fields of a configuration as version 0.2 stored them."""
    return {name: value for name, value in dataclasses.asdict(config).items() if name != "backbone_map"}


def loaded_as_saved(file, name, size, network, last):
    """Saves a classifier of images as version 0.2 did, and loads it.

    Args:
        file: where it is saved.
        name: the backbone.
        size: height and width of the images.
        network: its network, as that version had it.
        last: computes the feature map ``[batch, dim, rows, columns]`` of normalized images.
    """
    images = torch.randint(256, (2, *size, 3), dtype=torch.uint8)
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    with torch.no_grad():
        map_ = last(((images / 255 - mean) / deviation).permute(0, 3, 1, 2))
        output = nn.Linear(map_.shape[1], 3)
        expected = output(map_.mean((2, 3)))
    config = models.ImageClassifierConfig(
        image_height=size[0], image_width=size[1], labels=3, architecture="cnn", backbone=name
    )
    tensors = {f"encoder.network.network.network.{name}": one for name, one in network.state_dict().items()}
    tensors |= {f"output.{name}": one.detach() for name, one in output.state_dict().items()}
    header = {"regard": "image_classifier", "config": json.dumps(without_map(config))}
    save_file({name: one.contiguous() for name, one in tensors.items()}, file, header)
    model = models.load_model(file)
    assert model.grid == tuple(map_.shape[2:])
    assert model.encoder.dim == map_.shape[1]
    with torch.no_grad():
        torch.testing.assert_close(model(images).logits, expected, rtol=1e-4, atol=1e-5)
    again = models.load_model(models.save_model(file.with_name("again.safetensors"), model))
    assert again.config == model.config
    with torch.no_grad():
        assert torch.equal(again(images).logits, model(images).logits)
    return model


@pytest.mark.parametrize("form", ["first", "last"])
@pytest.mark.usefixtures("packages")
def test_a_file_with_a_network_of_timm(form, tmp_path):
    network = Stages(form)
    model = loaded_as_saved(
        tmp_path / "old.safetensors", f"timm:{form}", (16, 24), network, lambda x: network.stages_1(network.stages_0(x))
    )
    assert (model.encoder.dim, model.grid, model.config.backbone_map) == (6, (2, 3), "last_stage")


@pytest.mark.usefixtures("packages")
def test_a_file_whose_pooled_map_had_one_position(tmp_path):
    network = random_statistics(Vision())
    del network.fc
    model = loaded_as_saved(
        tmp_path / "old.safetensors", "torchvision:net", (8, 8), network, lambda x: network.norm(network.first(x))
    )
    assert (model.encoder.dim, model.grid) == (4, (2, 2))


@pytest.mark.usefixtures("packages")
def test_a_file_whose_pooled_map_had_more_positions(tmp_path):
    network = random_statistics(Vision())
    del network.fc
    pooled = nn.Sequential(network.first, network.norm, network.second)
    model = loaded_as_saved(tmp_path / "old.safetensors", "torchvision:net", (16, 24), network, pooled)
    assert (model.encoder.dim, model.grid) == (7, (2, 3))


@pytest.mark.parametrize(
    ("backbone", "size", "dim"), [("timm:first", (16, 24), 10), ("torchvision:net", (8, 8), 7)], ids=["timm", "vision"]
)
@pytest.mark.usefixtures("packages")
def test_a_new_file_has_the_map_that_is_pooled(backbone, size, dim, tmp_path):
    sizes = {"image_height": size[0], "image_width": size[1], "labels": 3}
    model = models.ImageClassifier(models.ImageClassifierConfig(**sizes, architecture="cnn", backbone=backbone)).eval()
    again = models.load_model(models.save_model(tmp_path, model))
    assert again.config == model.config
    assert again.encoder.dim == dim
    images = torch.randint(256, (2, *size, 3), dtype=torch.uint8)
    assert torch.equal(again(images).logits, model(images).logits)


WITH_BACKBONE = [
    name for name in MODELS if any(field.name == "backbone" for field in dataclasses.fields(model_classes(name)[1]))
]


@pytest.mark.parametrize("name", WITH_BACKBONE)
def test_the_header_of_an_old_file_says_the_last_stage(name):
    kind = model_classes(name)[1]
    choices = [one for one in kind.models if one != "vit"]
    choice = choices[-1] if name.startswith("transformer") else choices[0]
    sizes = {field.name: 32 for field in dataclasses.fields(kind) if not is_option(field) and field.default is None}
    for backbone in ("timm:first", "torchvision:net", ""):
        new = kind(**sizes, architecture=choice, backbone=backbone)
        stored = dataclasses.asdict(new)
        assert config_of_header(kind, stored, name, "new") == new
        former = config_of_header(kind, without_map(new), name, "old")
        assert former == dataclasses.replace(new, backbone_map="last_stage" if backbone else "pooled")
        assert config_of_header(kind, dataclasses.asdict(former), name, "again") == former


def test_a_map_of_no_backbone_is_refused():
    with pytest.raises(ArgumentError, match="backbone_map needs backbone; leave it out, or give both"):
        models.GridConfig(image_height=16, image_width=16, backbone_map="last_stage")
    with pytest.raises(UnknownNameError, match="backbone_map 'last_stag'; did you mean 'last_stage'"):
        models.GridConfig(image_height=16, image_width=16, backbone="timm:first", backbone_map="last_stag")


@pytest.mark.usefixtures("packages")
def test_weights_are_read_and_what_has_no_last_stage_is_refused(tmp_path):
    sizes, network = {"image_height": 16, "image_width": 24}, Stages("first")
    encoder = models.GridEncoder(models.GridConfig(**sizes, backbone="timm:first", backbone_map="last_stage"))
    torch.save(network.state_dict(), tmp_path / "a.pth")
    encoder.load_backbone(tmp_path / "a.pth")
    images = torch.rand(2, 3, 16, 24)
    assert torch.equal(encoder.network(images), network(images)[0])
    torch.save(Pooled().state_dict(), tmp_path / "b.pth")
    with pytest.raises(DataError, match="has no tensor 'stages_0"):
        encoder.load_backbone(tmp_path / "b.pth")
    encoder.freeze_backbone()
    assert not any(one.requires_grad for one in encoder.parameters())
    for backbone, side in (("timm:flat", 16), ("torchvision:net", 4)):
        config = models.GridConfig(image_height=side, image_width=side, backbone=backbone, backbone_map="last_stage")
        with pytest.raises(ArgumentError, match=f"{backbone} has no feature map of images of {side} × {side}"):
            models.GridEncoder(config)


@pytest.mark.usefixtures("packages")
def test_a_file_of_another_network_is_still_refused(tmp_path):
    with pytest.raises(RunError, match=r"lacks tensor|has an unknown tensor"):
        loaded_as_saved(tmp_path / "old.safetensors", "timm:first", (16, 24), Pooled(), Pooled().stages)


@pytest.mark.parametrize(
    "name", ["test_resnet", "test_efficientnet", "test_convnext", "test_vit", "test_maxvit", "test_mambaout"]
)
def test_networks_of_timm(name, tmp_path):
    timm = pytest.importorskip("timm", reason="needs timm", exc_type=ImportError)
    options = {"pretrained": False, "features_only": True, "out_indices": (-1,)}
    size = tuple(timm.create_model(name, pretrained=False).pretrained_cfg["input_size"][1:])
    network = random_statistics(timm.create_model(name, **options))

    def last(images):
        map_ = network(images)[-1]
        return map_ if map_.shape[1] == network.feature_info.channels()[-1] else map_.permute(0, 3, 1, 2)

    loaded_as_saved(tmp_path / "old.safetensors", f"timm:{name}", size, network, last)


def stem(net, images):
    """A ResNet up to its last stage."""
    return net.layer3(net.layer2(net.layer1(net.maxpool(net.relu(net.bn1(net.conv1(images)))))))


@pytest.mark.parametrize(
    ("name", "side", "last"),
    [
        ("resnet18", 32, lambda net, x: stem(net, x)),
        ("resnet18", 64, lambda net, x: net.layer4(stem(net, x))),
        # The convolution that makes the map smaller is inside of a block.
        ("mobilenet_v3_small", 32, lambda net, x: net.features[9].block[0](net.features[:9](x))),
        pytest.param("vit_b_32", 64, None, marks=pytest.mark.slow),  # has 88 million weights
    ],
    ids=["resnet-one", "resnet", "mobilenet-one", "vit"],
)
def test_networks_of_torchvision(name, side, last, tmp_path):
    vision = pytest.importorskip("torchvision", reason="needs torchvision", exc_type=ImportError).models
    options = {"image_size": side} if last is None else {}
    network = random_statistics(vision.get_model(name, weights=None, **options))

    def patches(images):
        tokens = network._process_input(images)
        tokens = network.encoder(torch.cat([network.class_token.expand(2, -1, -1), tokens], 1))[:, 1:]
        return tokens.transpose(1, 2).reshape(2, -1, 2, 2)

    for head in ("fc", "classifier", "heads"):
        if hasattr(network, head):
            setattr(network, head, nn.Identity())
    loaded_as_saved(
        tmp_path / "old.safetensors", f"torchvision:{name}", (side, side), network,
        patches if last is None else lambda x: last(network, x),
    )  # fmt: skip
