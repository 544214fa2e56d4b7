"""Vision Transformers as ViT, with the image processor that prepares images as regard does."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.images.reading import Fit, fit_image
from regard.data.labels import Labels
from regard.exports.formats import UnexportableError
from regard.exports.hugging_face.folder import Folder, fill, loaded_model, transformers_package, write
from regard.exports.hugging_face.layers import OTHER_FORMATS, activation_name, attention_weights, check_layers, linear
from regard.exports.torch_programs import difference, quiet
from regard.files.atomic import write_atomically
from regard.models.vision.image_classifier import ImageClassifier, VisionTransformer
from regard.models.vision.pixels import DEVIATION, MEAN


def check_vision_transformer(model: ImageClassifier) -> None:
    """Raises UnexportableError unless the class computes this model."""
    encoder: Any = model.encoder
    if not isinstance(encoder, VisionTransformer):
        options = {"architecture": "vit", "pooling": "cls"}
        reason = "no class of transformers computes this network for images, but a Vision Transformer"
        raise UnexportableError(reason, options, OTHER_FORMATS)
    holds = encoder.class_token is not None
    check_layers(encoder.encoder.layers, more=[(holds, "it has no class token", {"pooling": "cls"})])


def export_vision_transformer(model: ImageClassifier, files: Mapping[str, Any], path: Path, fit: Fit) -> Folder:
    """Writes a Vision Transformer and an image processor."""
    encoder: Any = model.encoder
    layers = list(encoder.encoder.layers)
    transformers = transformers_package()
    height, width = encoder.size
    dropout = layers[0].dropout.p
    labels = next((one.names for one in files.values() if isinstance(one, Labels)), ())
    config = transformers.ViTConfig(
        hidden_size=encoder.dim, num_hidden_layers=len(layers), num_attention_heads=layers[0].self_attn.num_heads,
        intermediate_size=layers[0].linear1.out_features, hidden_act=activation_name(layers[0]),
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout, layer_norm_eps=layers[0].norm1.eps, image_size=(height, width),
        patch_size=encoder.patch, id2label=dict(enumerate(labels)),
        label2id={name: number for number, name in enumerate(labels)},
    )  # fmt: skip
    side = encoder.patch
    tensors = {
        "vit.embeddings.cls_token": encoder.class_token[None, None],
        "vit.embeddings.position_embeddings": encoder.position[None],
        "vit.embeddings.patch_embeddings.projection.weight": encoder.embedding.weight.unflatten(1, (3, side, side)),
        "vit.embeddings.patch_embeddings.projection.bias": encoder.embedding.bias,
        **linear("vit.layernorm", encoder.encoder.norm),
        **linear("classifier", model.output),
    }
    for number, layer in enumerate(layers):
        name = f"vit.layers.{number}"
        tensors |= attention_weights(f"{name}.attention", layer.self_attn, "o_proj")
        tensors |= linear(f"{name}.layernorm_before", layer.norm1) | linear(f"{name}.layernorm_after", layer.norm2)
        tensors |= linear(f"{name}.mlp.fc1", layer.linear1) | linear(f"{name}.mlp.fc2", layer.linear2)
    exported = fill(transformers.ViTForImageClassification(config), tensors)
    write(exported, path)
    _write_image_processor(path, height, width, fit)
    loaded = loaded_model(transformers.AutoModelForImageClassification, path)
    notes = []
    if fit != "stretch":
        notes.append(
            f"the images of this model are cut to the middle before they are resized ({fit}), which no image processor "
            f"of transformers does: give the folder images of {width} × {height} pixels; it refuses others"
        )
    # Images of another size, where the processor resizes them.
    larger = (0, 0) if fit != "stretch" else (height // 2 + 5, 3)
    random = torch.Generator().manual_seed(3)
    shape = (3, height + larger[0], width + larger[1], 3)
    images = torch.randint(256, shape, generator=random, dtype=torch.uint8).numpy()
    fitted = torch.from_numpy(np.stack([fit_image(one, (height, width), fit).pixels for one in images]))
    pixels = _processed(path, images)
    if pixels is None:
        notes.append("the image processor of transformers could not be loaded here, so images were not compared")
        with torch.no_grad():
            pixels = encoder.pixels(fitted)
    with torch.no_grad():
        gap = difference([loaded(pixel_values=pixels).logits], [model(fitted).logits], type(exported).__name__)
    return Folder(type(exported).__name__, "AutoModelForImageClassification", gap, "; ".join(notes))


def _processed(path: Path, images: Any) -> Tensor | None:
    """Processes images by the image processor of the folder; returns None if a package for it is not installed."""
    try:
        with quiet():
            processor = transformers_package().AutoImageProcessor.from_pretrained(
                str(path), local_files_only=True, trust_remote_code=False, backend="pil"
            )
    except (ImportError, OSError, ValueError):
        return None
    return processor(images=list(images), return_tensors="pt").pixel_values


def _write_image_processor(path: Path, height: int, width: int, fit: Fit) -> None:
    """Writes the image processor, which resizes images only if it can do so as regard does."""
    content = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": fit == "stretch", "size": {"height": height, "width": width},
        "resample": 3,  # Pillow's number of the cubic filter
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
        "image_mean": list(MEAN), "image_std": list(DEVIATION),
    }  # fmt: skip
    write_atomically(path / "preprocessor_config.json", (json.dumps(content, indent=2) + "\n").encode())
