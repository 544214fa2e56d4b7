"""Networks of other packages: their last feature map, weights of a file, frozen weights. The packages are made up."""

import sys
import types

import pytest
import torch
from torch import nn

from regard.errors import ArgumentError, DataError, MissingPartError, UnknownNameError
from regard.models.vision.backbones import Backbone
from regard.models.vision.grid_encoder import GridConfig, GridEncoder


class Net(nn.Module):
    """As the networks of torchvision are: maps, pooling, a classifier."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 4, 4)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 7, 2, 2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(7, 11)

    def forward(self, images):
        return self.fc(self.pool(self.second(self.norm(self.first(images)).relu()).relu()).flatten(1))


class Features(nn.Module):
    """As the networks of timm are with ``features_only``."""

    def __init__(self):
        super().__init__()
        self.map = nn.Conv2d(3, 5, 8, 8)

    def forward(self, images):
        return [self.map(images)]


@pytest.fixture(autouse=True)
def packages(monkeypatch):
    """torchvision and timm as far as they are used."""
    models = types.ModuleType("torchvision.models")
    models.list_models = lambda module=None: ["net"]
    models.get_model = lambda name, weights=None: Net()
    torchvision = types.ModuleType("torchvision")
    torchvision.models = models
    timm = types.ModuleType("timm")
    timm.list_models = lambda: ["features"]

    def create_model(name, pretrained, features_only, out_indices):
        assert not pretrained
        assert features_only
        return Features()

    timm.create_model = create_model
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    monkeypatch.setitem(sys.modules, "timm", timm)


def test_the_last_feature_map_before_the_pooling():
    backbone = Backbone("torchvision:net", (24, 40))
    assert (backbone.dim, backbone.rows, backbone.columns) == (7, 3, 5)
    images = torch.rand(2, 3, 24, 40)
    net = backbone.network.network
    backbone.eval()
    assert torch.equal(backbone(images), net.second(net.norm(net.first(images)).relu()))
    assert not any("fc" in name for name in backbone.state_dict())
    assert (Backbone("timm:features", (16, 24)).dim, Backbone("timm:features", (16, 24)).columns) == (5, 3)


def test_weights_of_a_file_are_loaded_under_any_wrapper(tmp_path):
    trained = Net()
    images = torch.rand(2, 3, 24, 40)
    expected = trained.eval().second(trained.norm(trained.first(images)).relu())
    for number, content in enumerate(
        (trained.state_dict(), {"state_dict": {f"module.{name}": one for name, one in trained.state_dict().items()}})
    ):
        torch.save(content, tmp_path / f"{number}.pth")
        encoder = GridEncoder(GridConfig(image_height=24, image_width=40, backbone="torchvision:net"))
        encoder.load_backbone(tmp_path / f"{number}.pth")
        assert torch.equal(encoder.network.eval()(images), expected)


def test_weights_that_do_not_fit_are_refused(tmp_path):
    backbone = Backbone("torchvision:net", (24, 40))
    with pytest.raises(DataError, match="no such file of weights"):
        backbone.load(tmp_path / "none.pth")
    (tmp_path / "text.pth").write_text("x")
    with pytest.raises(DataError, match="is not a file of weights"):
        backbone.load(tmp_path / "text.pth")
    torch.save({"first.weight": torch.zeros(1)}, tmp_path / "short.pth")
    with pytest.raises(DataError, match=r"first\.weight must have shape \[4, 3, 4, 4\]|has no tensor"):
        backbone.load(tmp_path / "short.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(DataError, match="must hold a dictionary of tensors"):
        backbone.load(tmp_path / "list.pth")


def test_a_frozen_network_stays_as_it_is():
    encoder = GridEncoder(GridConfig(image_height=24, image_width=40, backbone="torchvision:net"))
    encoder.freeze_backbone()
    encoder.train()
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    found = encoder(torch.randint(0, 256, (2, 24, 40, 3), dtype=torch.uint8))
    assert not found.annotations.requires_grad
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.state_dict().items())


def test_unknown_names_and_sizes(monkeypatch):
    with pytest.raises(UnknownNameError, match="network of torchvision 'nett'; did you mean 'net'"):
        Backbone("torchvision:nett", (24, 40))
    with pytest.raises(UnknownNameError, match="network of timm"):
        Backbone("timm:net", (24, 40))
    with pytest.raises(ArgumentError, match="takes no images of 3 × 3"):
        Backbone("torchvision:net", (3, 3))
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingPartError, match=r"regard\[backbones\]"):
        Backbone("timm:features", (16, 24))
