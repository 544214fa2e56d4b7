"""Networks of other packages (made up here): the feature map that they pool, weights of a file, frozen weights.

`test_real_backbones.py` runs those of timm and torchvision.
"""

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
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(7, 11)

    def forward(self, images):
        return self.fc(self.avgpool(self.second(self.norm(self.first(images)).relu()).relu()).flatten(1))


class Features(nn.Module):
    """As the networks of timm are; ``form`` says how the features are given."""

    num_features = 5
    feature_info = ({"reduction": 4}, {"reduction": 8})

    def __init__(self, form):
        super().__init__()
        self.map = nn.Conv2d(3, 5, 8, 8)
        self.norm = nn.LayerNorm(5)
        self.head = nn.Conv2d(5, 7, 1)
        self.form = form
        if form == "classed":
            self.cls_token = nn.Parameter(torch.full((1, 1, 5), 3.0))
        if form == "registers":
            self.num_prefix_tokens = 3

    def forward_features(self, images):
        last = self.norm(self.map(images).permute(0, 2, 3, 1))
        tokens = last.flatten(1, 2)
        return {
            "first": lambda: last.permute(0, 3, 1, 2),
            "last": lambda: last,
            "tokens": lambda: tokens,
            "classed": lambda: torch.cat([self.cls_token.expand(len(images), -1, -1), tokens], 1),
            "registers": lambda: torch.cat([tokens.new_zeros(len(images), 3, 5), tokens], 1),
            "wrong": lambda: tokens[:, 1:],
            "list": lambda: [last, last],
        }[self.form]()

    def forward(self, images):
        return self.head(self.forward_features(images)).mean((2, 3))


FORMS = ("first", "last", "tokens", "classed", "registers")


@pytest.fixture(autouse=True)
def packages(monkeypatch):
    """torchvision and timm as far as they are used."""
    models = types.ModuleType("torchvision.models")
    models.list_models = lambda module=None: ["net"]
    models.get_model = lambda name, weights=None: Net()
    torchvision = types.ModuleType("torchvision")
    torchvision.models = models
    timm = types.ModuleType("timm")
    timm.list_models = lambda: [*FORMS, "wrong", "list"]

    def create_model(name, pretrained, num_classes):
        assert not pretrained
        assert not num_classes
        return Features(name)

    timm.create_model = create_model
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    monkeypatch.setitem(sys.modules, "timm", timm)


def test_the_last_feature_map_before_the_pooling():
    backbone = Backbone("torchvision:net", (24, 40))
    assert (backbone.dim, backbone.rows, backbone.columns) == (7, 3, 5)
    images = torch.rand(2, 3, 24, 40)
    net = backbone.network.network
    backbone.eval()
    assert torch.equal(backbone(images), net.second(net.norm(net.first(images)).relu()).relu())
    assert not any("fc" in name for name in backbone.state_dict())


@pytest.mark.parametrize("form", FORMS)
def test_the_features_of_timm_are_a_map_in_any_form(form, tmp_path):
    backbone = Backbone(f"timm:{form}", (16, 24))
    assert (backbone.dim, backbone.rows, backbone.columns) == (5, 2, 3)
    assert not any("head" in name for name in backbone.state_dict())
    net, images = Features(form).eval(), torch.rand(2, 3, 16, 24)
    torch.save({"epoch": 3, "state_dict": {f"module._orig_mod.{k}": v for k, v in net.state_dict().items()}},
               tmp_path / "a.pth")  # fmt: skip
    backbone.load(tmp_path / "a.pth")
    expected = net.norm(net.map(images).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    torch.testing.assert_close(backbone.eval()(images), expected, rtol=0, atol=0)


def test_backbones_without_a_feature_map_are_refused():
    with pytest.raises(ArgumentError, match=r"timm:list has no feature map of images of 16 × 24 .*gives a list"):
        Backbone("timm:list", (16, 24))
    with pytest.raises(ArgumentError, match="its 5 tokens are no grid of patches of 8 × 8 pixels"):
        Backbone("timm:wrong", (16, 24))


def test_a_map_of_one_position_is_still_the_last_one():
    """Below 16 pixels, the map in front of the pooling has one position, and the one before it has more."""
    backbone = Backbone("torchvision:net", (8, 8))
    assert (backbone.dim, backbone.rows, backbone.columns) == (7, 1, 1)


def test_a_package_that_was_built_for_another_pytorch(tmp_path, monkeypatch):
    """As torchvision says it, whose compiled operators are not found."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision/__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.delitem(sys.modules, "torchvision")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        MissingPartError, match=r"torchvision cannot be imported \(with PyTorch .*nms does not exist"
    ) as seen:
        Backbone("torchvision:net", (24, 40))
    assert str(seen.value).endswith(MissingPartError.SAME_BUILD)
    assert "pip install" not in str(seen.value), "the extra has it already"


@pytest.mark.parametrize(
    ("version", "ends"), [("2.13.0+cpu", f"{MissingPartError.SAME_BUILD}, then: "), ("2.13.0+cu130", "with: ")]
)
def test_the_advised_installation_of_timm_fits_the_build_of_pytorch(version, ends, monkeypatch):
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingPartError) as seen:
        Backbone("timm:net", (24, 40))
    assert str(seen.value).endswith(f"{ends}pip install 'regard[backbones]'")


def test_weights_of_a_file_are_loaded_under_any_wrapper(tmp_path):
    trained = Net()
    images = torch.rand(2, 3, 24, 40)
    expected = trained.eval().second(trained.norm(trained.first(images)).relu()).relu()
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
    with pytest.raises(ArgumentError, match="no feature map of images of 3 × 3"):
        Backbone("torchvision:net", (3, 3))
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingPartError, match=r"regard\[backbones\]"):
        Backbone("timm:first", (16, 24))
