"""Networks of torchvision and timm by name, as grids of annotations; nothing is downloaded."""

import importlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, DataError, MissingPartError, UnknownNameError
from regard.models.vision.configs import backbone_name
from regard.module_calls import Module
from regard.regular_file import LARGEST_DATA, require_regular


class Backbone(Module):
    """Computes the last feature map of a network of another package, before its pooling.

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
        MissingPartError: the package is not installed.

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
        self.name = name
        self.frozen = False
        create = _from_torchvision if package == "torchvision" else _from_timm
        self.network = create(_imported(package), model, size)
        try:
            with torch.no_grad():
                training = self.network.training
                features = self.network.eval()(torch.zeros(1, 3, *size))
                self.network.train(training)
        except (RuntimeError, ValueError, AssertionError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ArgumentError(f"the backbone {name} takes no images of {size[0]} × {size[1]} ({reason})") from error
        if features.dim() != 4:
            raise ArgumentError(f"the backbone {name} has no feature map [batch, features, rows, columns]")
        _, self.dim, self.rows, self.columns = features.shape

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
        expected = self.network.state_dict()
        saved = _tensors(Path(path))
        # Training wrappers and the wrapper of this module prefix the names of the network's tensors.
        prefixes = ("", "network.", "model.", "module.", "backbone.")
        best = max(prefixes, key=lambda prefix: sum(_renamed(prefix, name, self.network) in saved for name in expected))
        tensors = {name: saved.get(_renamed(best, name, self.network)) for name in expected}
        for name, tensor in tensors.items():
            if tensor is None:
                if name.endswith("num_batches_tracked"):
                    continue
                raise DataError(f"{path}: has no tensor {_renamed(best, name, self.network)!r} of {self.name}")
            if tensor.shape != expected[name].shape:
                raise DataError(
                    f"{path}: {name} must have shape {list(expected[name].shape)} for {self.name}; it has "
                    f"{list(tensor.shape)}"
                )
        self.network.load_state_dict({name: tensor for name, tensor in tensors.items() if tensor is not None}, False)


class _LastMap(nn.Module):
    """Returns the last feature map that a network of torchvision computes before its pooling."""

    prefix = "network."

    def __init__(self, network: nn.Module, size: tuple[int, int]):
        super().__init__()
        self.network = network
        maps: list[str] = []

        def record(name: str) -> Any:
            def hook(module: nn.Module, inputs: Any, output: Any) -> None:
                if isinstance(output, Tensor) and output.dim() == 4 and output.shape[2] * output.shape[3] > 1:
                    maps.append(name)

            return hook

        # The output of an adaptive pooling has a fixed size, and no finer positions than its input.
        modules = [
            (name, module)
            for name, module in network.named_modules()
            if name and not isinstance(module, nn.AdaptiveAvgPool2d)
        ]
        handles = [module.register_forward_hook(record(name)) for name, module in modules]
        training = network.training
        try:
            with torch.no_grad():
                network.eval()(torch.zeros(1, 3, *size))
        finally:
            network.train(training)
            for handle in handles:
                handle.remove()
        if not maps:
            raise ValueError("no module returns a feature map of more than one position")
        self.last = maps[-1]
        self._outputs: list[Tensor] = []
        network.get_submodule(self.last).register_forward_hook(self._append_output)

    def _append_output(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        self._outputs.append(output)

    def forward(self, images: Tensor) -> Tensor:
        self._outputs.clear()
        self.network(images)
        last = self._outputs[-1]
        self._outputs.clear()
        return last


class _Tokens(nn.Module):
    """Returns the encoded patches of torchvision's Vision Transformer as a feature map."""

    prefix = "network."

    def __init__(self, network: Any):
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        network = self.network
        side = network.patch_size
        tokens = network._process_input(images)
        tokens = torch.cat([network.class_token.expand(tokens.shape[0], -1, -1), tokens], dim=1)
        patches = network.encoder(tokens)[:, 1:]
        return patches.transpose(1, 2).unflatten(2, (images.shape[2] // side, images.shape[3] // side))


class _Features(nn.Module):
    """Returns the last feature map of a network of timm."""

    prefix = "network."

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        features = self.network(images)[-1]
        info = getattr(self.network, "feature_info", None)
        if info is None or features.dim() != 4:
            return features
        # The channels of some Transformers are on the last axis.
        channels_last = features.shape[3] == info.channels()[-1] != features.shape[1]
        return features.permute(0, 3, 1, 2) if channels_last else features


def _from_torchvision(package: Any, name: str, size: tuple[int, int]) -> nn.Module:
    models = package.models
    known = models.list_models(module=models)
    if name not in known:
        raise UnknownNameError("network of torchvision", name, known)
    options: dict[str, Any] = {"weights": None}
    if name in ("googlenet", "inception_v3"):
        options |= {"aux_logits": False, "init_weights": True}
    if name.startswith("vit_"):
        return _Tokens(_headless(models.get_model(name, image_size=size[0], **options)))
    try:
        return _LastMap(_headless(models.get_model(name, **options)), size)
    except (RuntimeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ArgumentError(
            f"the backbone torchvision:{name} takes no images of {size[0]} × {size[1]} ({reason})"
        ) from error


def _headless(network: nn.Module) -> nn.Module:
    # The classifier is unused, so its weights need not be trained and saved.
    for head in ("fc", "classifier", "head", "heads"):
        if isinstance(getattr(network, head, None), nn.Module):
            setattr(network, head, nn.Identity())
    return network


def _from_timm(package: Any, name: str, size: tuple[int, int]) -> nn.Module:
    if name.split(".")[0] not in package.list_models():
        raise UnknownNameError("network of timm", name, package.list_models())
    options: dict[str, Any] = {"pretrained": False, "features_only": True}
    for sizes in ({"out_indices": (-1,), "img_size": size}, {"out_indices": (-1,)}):
        try:
            return _Features(package.create_model(name, **options, **sizes))
        except TypeError:  # Only Transformers have the argument `img_size`.
            continue
        except (RuntimeError, ValueError, AssertionError, AttributeError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ArgumentError(f"the backbone timm:{name} has no feature map ({reason})") from error
    raise ArgumentError(f"the backbone timm:{name} has no feature map")


def _renamed(prefix: str, name: str, network: nn.Module) -> str:
    return prefix + name.removeprefix(str(getattr(network, "prefix", "")))


def _imported(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingPartError(package, "backbones") from error


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
