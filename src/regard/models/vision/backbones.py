"""Networks of torchvision and timm as grids of annotations."""

from torch import nn


def backbone_name(name): ...


class Backbone(nn.Module):
    def __init__(self, name, size):
        super().__init__()
