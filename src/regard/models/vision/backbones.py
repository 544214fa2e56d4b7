"""Networks of torchvision and timm by name, as grids of annotations; nothing is downloaded."""

import importlib
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, DataError, MissingPartError, RegardError, UnknownNameError
from regard.files.regular import LARGEST_DATA, require_regular
from regard.models.vision.configs import backbone_name
from regard.tracing.module_calls import Module


class Backbone(Module):
    """Computes the feature map that a network of another package pools.

    Of timm it is what ``forward_features`` gives, without the tokens of the class and of registers; of torchvision it
    is the input of the last pooling, or the patches of a Vision Transformer. A normalization in front of the pooling
    belongs to it in both. The parts behind it are left out.

    Weights are random; `load` reads them from a file. In a network with 3 × 3 windows and stride 2, annotations are up
    to half a cell to the upper left of the cell where an overlay shows them; this is not so in regard's own networks.

    Args:
        name: ``"torchvision:NAME"`` or ``"timm:NAME"``.
        size: height and width of the images in pixels.

    Attributes:
        dim: features of an annotation.
        rows: rows of the grid.
        columns: columns of the grid.

    Raises:
        ArgumentError: the network has no feature map for images of this size.
        UnknownNameError: the package has no such network.
        MissingPartError: the package is not installed, or was built for another PyTorch.

    Example:
        >>> import torch
        >>> from regard import models
        >>> backbone = models.Backbone("torchvision:resnet18", (64, 96))
        >>> backbone.dim, backbone.rows, backbone.columns
        (512, 2, 3)
        >>> backbone.eval()(torch.rand(2, 3, 64, 96)).shape
        torch.Size([2, 512, 2, 3])
    """

    def __init__(self, name: str, size: tuple[int, int]):
        super().__init__()
        package, model = backbone_name(name)
        self.name, self.size = name, size
        self.frozen = False
        images = torch.zeros(1, 3, *size)
        try:
            with torch.no_grad():
                self.network = self._create(package, model, images)
                features = self.network(images)
        except RegardError:
            raise
        # Networks of other packages raise many kinds of errors for images that are too small for them.
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ArgumentError(
                f"the backbone {name} has no feature map of images of {size[0]} × {size[1]} pixels ({reason})"
            ) from error
        self.network.train()
        _, self.dim, self.rows, self.columns = features.shape

    def _create(self, package: str, name: str, images: Tensor) -> "MappedNetwork":
        """Creates the network in evaluation mode; it reads images like these."""
        mapped: MappedNetwork
        if package == "timm":
            mapped = _TimmFeatures(timm_network(name, images, num_classes=0))
        elif name.startswith("vit_"):
            mapped = EncodedPatches(torchvision_network(name, images))
        else:
            mapped = _pooled(torchvision_network(name, images), images)
        mapped.leave_out_unused(images)
        return mapped

    def forward(self, images: Tensor) -> Tensor:
        """Maps normalized images ``[batch, 3, height, width]`` to ``[batch, dim, rows, columns]``."""
        return self.network(images)

    def freeze(self) -> None:
        """Freezes the weights, and the running statistics of normalizations."""
        self.frozen = True
        self.requires_grad_(False)
        self.network.eval()

    def train(self, mode: bool = True) -> "Backbone":
        """Sets the mode as PyTorch does, but a frozen network stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.network.eval()
        return self

    def load(self, path: str | Path) -> None:
        """Loads pretrained weights, except those of the classifier on top of the network.

        Args:
            path: a ``.safetensors`` file, or a file of `torch.save` with a dictionary of tensors, which is read without
                executing code.

        Raises:
            DataError: the file cannot be read, or a tensor of the network is missing or has another shape.
        """
        network = self.network.network
        expected = network.state_dict()
        saved = _tensors(Path(path))
        # Wrappers of networks, as those of training programs, put their own names in front of those of the tensors.
        longest = max(expected, key=len)
        prefixes = ["", *(name.removesuffix(longest) for name in saved if name.endswith(f".{longest}"))]
        best = max(prefixes, key=lambda prefix: sum(prefix + name in saved for name in expected))
        tensors = {name: saved.get(best + name) for name in expected}
        for name, tensor in tensors.items():
            if tensor is None:
                if name.endswith("num_batches_tracked"):
                    continue
                raise DataError(f"{path}: has no tensor {best + name!r} of {self.name}")
            if tensor.shape != expected[name].shape:
                raise DataError(
                    f"{path}: {name} must have shape {list(expected[name].shape)} for {self.name} and images of "
                    f"{self.size[0]} × {self.size[1]}; it has {list(tensor.shape)}"
                )
        state = OrderedDict((name, tensor) for name, tensor in tensors.items() if tensor is not None)
        # Modules read their versions from it, such as those of torchvision's MNASNet.
        versions: Any = getattr(saved, "_metadata", None) if not best else None
        state._metadata = versions or expected._metadata  # pyright: ignore[reportAttributeAccessIssue]
        network.load_state_dict(state, strict=False)


class MappedNetwork(nn.Module, ABC):
    """Computes the feature map of a network of another package, without the parts that do not belong to it."""

    def __init__(self, network: Any):
        super().__init__()
        self.network = network

    @abstractmethod
    def features(self, images: Tensor) -> Any:
        """Computes the feature map in front of the pooling."""

    def forward(self, images: Tensor) -> Any:
        return self.features(images)

    def leave_out_unused(self, images: Tensor) -> None:
        """Takes away the parts that are not called for these images: a classifier need not be trained and saved."""
        called: set[str] = set()
        handles = [
            module.register_forward_pre_hook(lambda *_, name=name: called.add(name))
            for name, part in self.network.named_children()
            for module in part.modules()
        ]
        try:
            self.features(images)
        finally:
            for handle in handles:
                handle.remove()
        for name, part in list(self.network.named_children()):
            if name in called or next(part.parameters(), None) is None:
                continue
            setattr(self.network, name, nn.Identity())
            try:
                self.features(images)
            except Exception:  # the network uses it in another way than by a call
                setattr(self.network, name, part)


class LastMap(MappedNetwork):
    """A feature map inside of a network of torchvision.

    Args:
        network: the network, without its classifier.
        part: the module of it that returns the map, or pools it.
        pools: whether it pools the map.
    """

    def __init__(self, network: nn.Module, part: nn.Module, pools: bool = False):
        super().__init__(network)
        self._maps: list[Tensor] = []
        if pools:
            part.register_forward_pre_hook(self._append_input)
        else:
            part.register_forward_hook(self._append_output)

    def _append_input(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._maps.append(inputs[0])

    def _append_output(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        self._maps.append(output)

    def features(self, images: Tensor) -> Tensor:
        self._maps.clear()
        self.network(images)
        last = self._maps[-1]
        self._maps.clear()
        return last


def last_map(network: nn.Module, images: Tensor, counts: Callable[[nn.Module, Tensor], bool]) -> nn.Module:
    """Returns the last module whose output is a feature map that counts, for such images.

    Raises:
        ValueError: there is none.
    """
    parts: list[nn.Module] = []

    def record(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.dim() == 4 and counts(module, output):
            parts.append(module)

    handles = [module.register_forward_hook(record) for name, module in network.named_modules() if name]
    try:
        network(images)
    finally:
        for handle in handles:
            handle.remove()
    if not parts:
        raise ValueError("no module returns a feature map")
    return parts[-1]


def _pooled(network: nn.Module, images: Tensor) -> LastMap:
    """Returns the feature map that a network of torchvision pools: the input of ``avgpool``, or the last map."""
    pooling = getattr(network, "avgpool", None)
    if isinstance(pooling, nn.Module):
        return LastMap(network, pooling, pools=True)
    # The classifier that was taken away is an identity.
    return LastMap(network, last_map(network, images, lambda module, _: not isinstance(module, nn.Identity)))


class EncodedPatches(MappedNetwork):
    """The encoded patches of torchvision's Vision Transformer as a feature map, behind its last normalization."""

    def features(self, images: Tensor) -> Tensor:
        network = self.network
        side = network.patch_size
        tokens = network._process_input(images)
        tokens = torch.cat([network.class_token.expand(tokens.shape[0], -1, -1), tokens], dim=1)
        patches = network.encoder(tokens)[:, 1:]
        return patches.transpose(1, 2).unflatten(2, (images.shape[2] // side, images.shape[3] // side))


class _TimmFeatures(MappedNetwork):
    """The result of ``forward_features`` of a network of timm, as a feature map."""

    def features(self, images: Tensor) -> Any:
        features = self.network.forward_features(images)
        height, width = images.shape[2:]
        if not isinstance(features, Tensor):
            raise ValueError(f"forward_features gives a {type(features).__name__}, not one feature map")
        dim = self.network.num_features
        if features.dim() == 4:
            # Some Transformers have their channels on the last axis.
            return features.permute(0, 3, 1, 2) if features.shape[3] == dim != features.shape[1] else features
        if features.dim() != 3:
            raise ValueError(f"forward_features gives a tensor of {features.dim()} axes, not a feature map")
        # In front of the tokens of the grid are those that belong to no place: of the class, of registers.
        classes = sum(isinstance(getattr(self.network, name, None), Tensor) for name in ("cls_token", "dist_token"))
        others = getattr(self.network, "num_prefix_tokens", classes)
        side = self.network.feature_info[-1]["reduction"]
        for rows, columns in ((height // side, width // side), (-(-height // side), -(-width // side))):
            if features.shape[1] == others + rows * columns and features.shape[2] == dim:
                return features[:, others:].transpose(1, 2).unflatten(2, (rows, columns))
        raise ValueError(f"its {features.shape[1]} tokens are no grid of patches of {side} × {side} pixels")


def torchvision_network(name: str, images: Tensor) -> nn.Module:
    """Returns a network of torchvision in evaluation mode, without its classifier, for images of this size."""
    models = _imported("torchvision").models
    known = models.list_models(module=models)
    if name not in known:
        raise UnknownNameError("network of torchvision", name, known)
    options: dict[str, Any] = {"weights": None}
    if name in ("googlenet", "inception_v3"):
        options |= {"aux_logits": False, "init_weights": True}
    if name.startswith("vit_"):
        options["image_size"] = images.shape[2]
    if name.startswith("maxvit"):
        options["input_size"] = tuple(images.shape[2:])
    return _headless(models.get_model(name, **options)).eval()


def _headless(network: nn.Module) -> nn.Module:
    """Removes the classifier, which is unused, so that its weights need not be trained and saved."""
    for head in ("fc", "classifier", "head", "heads"):
        if isinstance(getattr(network, head, None), nn.Module):
            setattr(network, head, nn.Identity())
    return network


def timm_network(name: str, images: Tensor, **options: Any) -> nn.Module:
    """Returns a network of timm in evaluation mode, for images of this size."""
    package = _imported("timm")
    if name.split(".")[0] not in package.list_models():
        raise UnknownNameError("network of timm", name, package.list_models())
    options["pretrained"] = False
    try:
        return package.create_model(name, img_size=tuple(images.shape[2:]), **options).eval()
    except TypeError:  # only Transformers have the argument `img_size`
        return package.create_model(name, **options).eval()


def _imported(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        # timm needs torchvision too, of which pip finds another build than that of a PyTorch for the CPU alone.
        remedy = (
            f"{MissingPartError.SAME_BUILD}, then: pip install 'regard[backbones]'"
            if torch.__version__.endswith("+cpu")
            else None
        )
        raise MissingPartError(error.name or package, "backbones", remedy=remedy) from error
    # A compiled package that was built for another PyTorch raises errors of many kinds.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        said = f"with PyTorch {torch.__version__}, for which it may not have been built: {reason}"
        raise MissingPartError(package, "backbones", said, MissingPartError.SAME_BUILD) from error


def _tensors(path: Path) -> dict[str, Tensor]:
    if not path.exists():
        raise DataError(f"{path}: no such file of weights; check the path")
    try:
        require_regular(path, LARGEST_DATA)
        if path.suffix == ".safetensors":
            import safetensors.torch

            return dict(safetensors.torch.load_file(path))
        content = torch.load(path, map_location="cpu", weights_only=True)
    # Both libraries raise many kinds of errors for damaged files.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{path}: is not a file of weights, or is damaged ({reason})") from error
    for key in ("state_dict", "model", "state_dict_ema"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise DataError(f"{path}: must hold a dictionary of tensors")
    return content


class FormerBackbone(Backbone):
    """Computes the feature map of the last stage of a network, as versions before 0.3 did, for models of these.

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
