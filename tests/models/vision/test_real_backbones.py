"""Networks of timm and torchvision with their own checkpoints: the feature map is the one that they pool.

timm 1.0.31: what ``forward_features`` gives (its documentation: unpooled features, behind the last normalization).
torchvision 0.29.1: the input of the last pooling, which is caught where it is called.
"""

import pytest
import torch
from torch import nn

from regard.models.vision.backbones import Backbone

TESTED = (
    "test_byobnet", "test_coatnet", "test_convnext", "test_efficientnet", "test_mambaout", "test_maxvit", "test_nfnet",
    "test_resnet", "test_vit", "test_vit3", "test_vit_relpos",
)  # fmt: skip
"""Networks that timm has for tests."""

FAMILIES = (
    "caformer_s18", "cait_xxs24_224", "convit_tiny", "convmixer_1024_20_ks9_p14", "convnext_atto", "cpubone_nano",
    "cs3darknet_s", "csatv2", "cspnext_tiny", "davit_tiny", "deit_tiny_distilled_patch16_224",
    "deit_tiny_patch16_224", "densenet121", "dla102", "dpn68", "edgenext_small", "efficientformer_l1",
    "efficientformerv2_s0", "efficientnet_b0", "efficientvit_b0", "efficientvit_m0", "eva02_tiny_patch14_224",
    "fasternet_t0", "fastvit_t8", "focalnet_tiny_lrf", "gcvit_xxtiny", "ghostnet_100", "gmlp_ti16_224",
    "haloregnetz_b", "hardcorenas_b", "hgnet_tiny", "hiera_tiny_224", "hrnet_w18", "iformer_t",
    "inception_next_atto", "inception_resnet_v2", "inception_v3", "inception_v4", "lcnet_100", "lcnetv2_small",
    "legacy_seresnet18", "levit_384_s8", "lowformer_b0", "maxvit_rmlp_pico_rw_256", "mobilenetv2_100",
    "mobilevit_xxs", "mvitv2_tiny", "nest_tiny", "nextvit_small", "pvt_v2_b0", "rdnet_tiny", "regnetx_004_tv",
    "repghostnet_100", "repvit_m0_9", "res2net101d", "resnest101e", "resnetv2_18", "rexnet_100", "sam2_hiera_tiny",
    "selecsls42", "swin_tiny_patch4_window7_224", "vit_tiny_patch16_224",
)  # fmt: skip
"""A small network of every other family of timm 1.0.31 that gives one feature map. CoaT, CrossViT and EfficientViM give
several, PiT the tokens of the class alone."""


def checkpoint(network, path):
    """A checkpoint as the package saves it, with random statistics of its normalizations."""
    torch.manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.8, 1.2)
    torch.save(network.state_dict(), path)


def same_as_timm(name, path):
    timm = pytest.importorskip("timm", reason="needs timm", exc_type=ImportError)
    network = timm.create_model(name, pretrained=False).eval()
    size = tuple(network.pretrained_cfg["input_size"][1:])
    checkpoint(network, path)
    backbone = Backbone(f"timm:{name}", size)
    backbone.load(path)
    images = torch.rand(2, 3, *size)
    with torch.no_grad():
        expected, found = network.forward_features(images), backbone.eval()(images)
    assert found.shape == (2, backbone.dim, backbone.rows, backbone.columns)
    if expected.dim() == 3:  # the tokens of the grid are the last ones
        expected = expected[:, -backbone.rows * backbone.columns :].transpose(1, 2).reshape(found.shape)
    elif expected.shape[1] != network.num_features:
        expected = expected.permute(0, 3, 1, 2)
    assert torch.equal(found, expected)
    assert sum(one.numel() for one in backbone.parameters()) < sum(one.numel() for one in network.parameters())
    (backbone.train()(images) ** 2).sum().backward()
    return [name for name, one in backbone.named_parameters() if one.grad is None]


@pytest.mark.parametrize("name", TESTED)
def test_backbones_of_timm_give_its_features(name, tmp_path):
    assert not same_as_timm(name, tmp_path / "a.pth")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_of_timm(name, tmp_path):
    assert not same_as_timm(name, tmp_path / "a.pth")


class _LastPooled(torch.overrides.TorchFunctionMode):
    """Keeps the input of the last mean over the positions of a map."""

    pooled = torch.empty(0)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        is_mean = func is torch.Tensor.mean and list(args[1:2]) == [[2, 3]]
        if func is nn.functional.adaptive_avg_pool2d or is_mean:
            self.pooled = args[0].clone()
        return func(*args, **(kwargs or {}))


VISION = {
    "alexnet": (64, 96), "convnext_tiny": (64, 96), "densenet121": (64, 96), "efficientnet_b0": (64, 96),
    "efficientnet_v2_s": (64, 96), "googlenet": (64, 96), "inception_v3": (96, 128), "maxvit_t": (224, 224),
    "mnasnet0_5": (64, 96), "mobilenet_v2": (64, 96), "mobilenet_v3_small": (64, 96), "regnet_x_400mf": (64, 96),
    "regnet_y_400mf": (64, 96), "resnet18": (32, 32), "resnext50_32x4d": (64, 96), "shufflenet_v2_x0_5": (64, 96),
    "squeezenet1_1": (64, 96), "swin_t": (64, 96), "swin_v2_t": (64, 96), "vgg11": (64, 96), "vit_b_32": (64, 64),
    "wide_resnet50_2": (64, 96),
}  # fmt: skip
"""Families of torchvision, and images that they read."""


def same_as_torchvision(name, size, path):
    models = pytest.importorskip("torchvision", reason="needs torchvision", exc_type=ImportError).models
    options = {"image_size": size[0]} if name.startswith("vit") else {}
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = True
    network = models.get_model(name, weights=None, **options).eval()
    checkpoint(network, path)
    backbone = Backbone(f"torchvision:{name}", size)
    backbone.load(path)
    images = torch.rand(2, 3, *size)
    with torch.no_grad(), _LastPooled() as mode:
        network(images)
        expected = mode.pooled
        if name.startswith("squeezenet"):  # its classifier is in front of the pooling
            expected = network.features(images)
        if name.startswith("vit"):
            tokens = network._process_input(images)
            tokens = torch.cat([network.class_token.expand(2, -1, -1), tokens], 1)
            expected = network.encoder(tokens)[:, 1:].transpose(1, 2).reshape(2, -1, backbone.rows, backbone.columns)
        found = backbone.eval()(images)
    assert torch.equal(found, expected)
    (backbone.train()(images) ** 2).sum().backward()
    return [name for name, one in backbone.named_parameters() if one.grad is None]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(VISION))
def test_every_family_of_torchvision(name, tmp_path):
    assert not same_as_torchvision(name, VISION[name], tmp_path / "a.pth")
