"""The feature maps of torchvision and timm as versions before 0.3 had them, for models that were trained with these."""

from typing import Any

from torch import Tensor, nn

from regard.models.vision.backbones import (
    Backbone,
    EncodedPatches,
    LastMap,
    MappedNetwork,
    last_map,
    timm_network,
    torchvision_network,
)


class FormerBackbone(Backbone):
    """Computes the feature map of the last stage of a network of another package.

    Of timm it is the last map of ``features_only=True``, in front of convolutions and normalizations between the last
    stage and the pooling; of torchvision it is the last map of more than one position, or the patches of a Vision
    Transformer. `Backbone` says the rest.
    """

    def _create(self, package: str, name: str, images: Tensor) -> MappedNetwork:
        if package == "timm":
            return _LastStage(timm_network(name, images, features_only=True, out_indices=(-1,)))
        network = torchvision_network(name, images)
        if name.startswith("vit_"):
            return EncodedPatches(network)
        return LastMap(network, last_map(network, images, _has_positions))


class _LastStage(MappedNetwork):
    """The last feature map of a network of timm that was made with ``features_only=True``."""

    def features(self, images: Tensor) -> Any:
        features = self.network(images)[-1]
        if features.dim() != 4:
            raise ValueError(f"its last stage gives a tensor of {features.dim()} axes, not a feature map")
        # The channels of some Transformers are on the last axis.
        dim = self.network.feature_info.channels()[-1]
        return features.permute(0, 3, 1, 2) if features.shape[3] == dim != features.shape[1] else features


def _has_positions(module: nn.Module, output: Tensor) -> bool:
    # The output of an adaptive pooling has a fixed size, and no finer positions than its input.
    return not isinstance(module, nn.AdaptiveAvgPool2d) and output.shape[2] * output.shape[3] > 1
