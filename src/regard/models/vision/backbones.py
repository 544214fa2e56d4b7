"""Networks of torchvision and timm, by their names, as grids of annotations; nothing is downloaded."""

import importlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import ArgumentError, DataError, MissingPartError, UnknownNameError
from regard.regular_file import LARGEST_DATA, require_regular

PACKAGES = ("torchvision", "timm")


def backbone_name(text: str) -> tuple[str, str]:
    """The package and the name of a network: ``("timm", "resnet18")`` for ``"timm:resnet18"``.

    Raises:
        ArgumentError: it is not of this form.
    """
    package, _, name = text.partition(":")
    if package not in PACKAGES or not name:
        raise ArgumentError(f"backbone must be torchvision:NAME or timm:NAME; it is {text!r}")
    return package, name


class Backbone(nn.Module):
    """The last feature map of a network of another package, before it is pooled.

    Weights are random; `load` reads those of a file. A network whose windows of 3 × 3 move by 2 pixels has its
    annotations up to half a cell to the upper left of the cell in which an overlay shows them; the networks of regard
    do not.

    Args:
        name: ``"torchvision:NAME"`` or ``"timm:NAME"``.
        size: height and width of the images.

    Attributes:
        dim: features of an annotation.
        rows: of the grid.
        columns: of the grid.

    Raises:
        ArgumentError: the network has no feature map for images of this size.
        UnknownNameError: the package has no such network.
        MissingPartError: the package is not installed.
    """

    def __init__(self, name: str, size: tuple[int, int]):
        super().__init__()
        package, model = backbone_name(name)
        self.name = name
        self.frozen = False
        make = _from_torchvision if package == "torchvision" else _from_timm
        self.network = make(_imported(package), model, size)
        try:
            with torch.no_grad():
                training = self.network.training
                found = self.network.eval()(torch.zeros(1, 3, *size))
                self.network.train(training)
        except (RuntimeError, ValueError, AssertionError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ArgumentError(f"the backbone {name} takes no images of {size[0]} × {size[1]} ({reason})") from error
        if found.dim() != 4:
            raise ArgumentError(f"the backbone {name} has no feature map [batch, features, rows, columns]")
        _, self.dim, self.rows, self.columns = found.shape

    def forward(self, images: Tensor) -> Tensor:
        """``[batch, dim, rows, columns]`` of normalized images ``[batch, 3, height, width]``."""
        return self.network(images)

    def freeze(self) -> None:
        """Keep the weights, and the running statistics of normalizations, as they are."""
        self.frozen = True
        self.requires_grad_(False)
        self.network.eval()

    def train(self, mode: bool = True) -> "Backbone":
        """As in PyTorch; a frozen network stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.network.eval()
        return self

    def load(self, path: str | Path) -> None:
        """Load weights that were trained elsewhere. Those of the classifier on top of the network are not used.

        Args:
            path: a ``.safetensors`` file, or one of `torch.save` with a dictionary of tensors, which is read without
                executing anything.

        Raises:
            DataError: the file cannot be read, or a tensor of the network is missing or has another shape.
        """
        own = self.network.state_dict()
        given = _tensors(Path(path))
        # Wrappers of training and the wrapper of this module put names before those of the network.
        prefixes = ("", "network.", "model.", "module.", "backbone.")
        best = max(prefixes, key=lambda prefix: sum(_renamed(prefix, name, self.network) in given for name in own))
        found = {name: given.get(_renamed(best, name, self.network)) for name in own}
        for name, tensor in found.items():
            if tensor is None:
                if name.endswith("num_batches_tracked"):
                    continue
                raise DataError(f"{path}: has no tensor {_renamed(best, name, self.network)!r} of {self.name}")
            if tensor.shape != own[name].shape:
                raise DataError(
                    f"{path}: {name} must have shape {list(own[name].shape)} for {self.name}; it has "
                    f"{list(tensor.shape)}"
                )
        self.network.load_state_dict({name: tensor for name, tensor in found.items() if tensor is not None}, False)


class _LastMap(nn.Module):
    """The last feature map that a network of torchvision computes before it pools."""

    prefix = "network."

    def __init__(self, network: nn.Module, size: tuple[int, int]):
        super().__init__()
        self.network = network
        maps: list[str] = []

        def note(name: str) -> Any:
            def hook(module: nn.Module, inputs: Any, output: Any) -> None:
                if isinstance(output, Tensor) and output.dim() == 4 and output.shape[2] * output.shape[3] > 1:
                    maps.append(name)

            return hook

        # An adaptive pooling makes a map of a fixed size, which has no finer positions than its input.
        named = [
            (name, module)
            for name, module in network.named_modules()
            if name and not isinstance(module, nn.AdaptiveAvgPool2d)
        ]
        handles = [module.register_forward_hook(note(name)) for name, module in named]
        training = network.training
        try:
            with torch.no_grad():
                network.eval()(torch.zeros(1, 3, *size))
        finally:
            network.train(training)
            for handle in handles:
                handle.remove()
        if not maps:
            raise ValueError("no module gives a feature map of more than one position")
        self.last = maps[-1]
        self._found: list[Tensor] = []
        network.get_submodule(self.last).register_forward_hook(self._keep)

    def _keep(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        self._found.append(output)

    def forward(self, images: Tensor) -> Tensor:
        self._found.clear()
        self.network(images)
        found = self._found[-1]
        self._found.clear()
        return found


class _Tokens(nn.Module):
    """The patches of torchvision's Vision Transformer after its encoder, as a feature map."""

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
    """The last feature map of a network of timm."""

    prefix = "network."

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        found = self.network(images)[-1]
        features = getattr(self.network, "feature_info", None)
        # Some Transformers give their features at the end.
        last = features is not None and found.dim() == 4 and found.shape[3] == features.channels()[-1] != found.shape[1]
        return found.permute(0, 3, 1, 2) if last else found


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
    # The classifier, whose weights would be trained and saved for nothing.
    for head in ("fc", "classifier", "head", "heads"):
        if isinstance(getattr(network, head, None), nn.Module):
            setattr(network, head, nn.Identity())
    return network


def _from_timm(package: Any, name: str, size: tuple[int, int]) -> nn.Module:
    if name.split(".")[0] not in package.list_models():
        raise UnknownNameError("network of timm", name, package.list_models())
    options: dict[str, Any] = {"pretrained": False, "features_only": True}
    for more in ({"out_indices": (-1,), "img_size": size}, {"out_indices": (-1,)}):
        try:
            return _Features(package.create_model(name, **options, **more))
        except TypeError:  # only Transformers are told the size
            continue
        except (RuntimeError, ValueError, AssertionError, AttributeError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ArgumentError(f"the backbone timm:{name} gives no feature map ({reason})") from error
    raise ArgumentError(f"the backbone timm:{name} gives no feature map")


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
    # Both libraries raise many kinds of errors on damaged files; each means that there are no weights.
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{path}: is not a file of weights, or is damaged ({reason})") from error
    for key in ("state_dict", "model", "state_dict_ema"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(tensor, Tensor) for tensor in content.values()):
        raise DataError(f"{path}: must hold a dictionary of tensors")
    return content
