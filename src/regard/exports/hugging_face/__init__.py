"""Folders of Hugging Face transformers: for models whose calculation a class of that library has, number for number.

==========================================  ======================================  ===================================
model of regard                             class of transformers                   must have
==========================================  ======================================  ===================================
language model, position learned            ``GPT2LMHeadModel``                     pre-norm, softmax of scaled dot
                                                                                    products, as many key heads as
                                                                                    query heads
language model, position rotary             ``Starcoder2ForCausalLM``               pre-norm, softmax of scaled dot
                                                                                    products
translator, post-norm, position sinusoidal  ``MarianMTModel``                       otherwise as for GPT-2
translator, pre-norm, position sinusoidal   ``PegasusForConditionalGeneration``     as for GPT-2
translator, pre-norm, position learned      ``BlenderbotForConditionalGeneration``  as for GPT-2
classifier of texts, post-norm              ``BertForSequenceClassification``       a class token, an embedding norm
Vision Transformer                          ``ViTForImageClassification``           a class token
==========================================  ======================================  ===================================

A summarizer that neither copies nor covers is a translator.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from regard.data.images.reading import Fit
from regard.errors import ArgumentError
from regard.exports.hugging_face.bert import export_text_classifier
from regard.exports.hugging_face.folder import Folder
from regard.exports.hugging_face.gpt2 import export_language_model
from regard.exports.hugging_face.marian import export_translator
from regard.exports.hugging_face.vit import export_vision_transformer
from regard.models.language_model import LanguageModel
from regard.models.pointer_generator import PointerGenerator
from regard.models.text_classifier import TextClassifier
from regard.models.transformer_translator import TransformerTranslator
from regard.models.vision.image_classifier import ImageClassifier, VisionTransformer

__all__ = ["Folder", "save"]


def save(model: nn.Module, files: Mapping[str, Any], path: Path, fit: Fit = "stretch") -> Folder:
    """Writes a folder that transformers loads, and compares what the loaded model gives.

    Args:
        model: the model, on the CPU and in evaluation mode.
        files: the tokenizers and labels of the run, by name.
        path: the folder, which exists.
        fit: how images are brought to the size of the model, as in `regard.data.images.reading.fit_image`.

    Raises:
        ArgumentError: no class of transformers computes what this model does; the message says what differs, and which
            options of the training to change.
        MissingPartError: transformers is not installed.
        RunError: the loaded model gives other numbers.
    """
    if isinstance(model, PointerGenerator) and model.gate is None and not model.config.coverage:
        model = model.translator
    if isinstance(model, LanguageModel):
        return export_language_model(model, files, path)
    if isinstance(model, TransformerTranslator):
        return export_translator(model, files, path)
    if isinstance(model, TextClassifier):
        return export_text_classifier(model, files, path)
    if isinstance(model, ImageClassifier) and isinstance(model.encoder, VisionTransformer):
        return export_vision_transformer(model, files, path, fit)
    raise ArgumentError(_why_not(model))


def _why_not(model: nn.Module) -> str:
    name = type(model).__name__
    if isinstance(model, PointerGenerator):
        return (
            "no class of transformers copies words of the source; train with --no-copy and a Transformer, or export "
            "to onnx or torch"
        )
    if isinstance(model, ImageClassifier):
        return (
            "no class of transformers computes this network for images; train a Vision Transformer (vit), or export "
            "to onnx or torch"
        )
    return (
        f"no class of transformers computes a {name}: it has Transformers that translate or classify texts, language "
        "models and Vision Transformers; train a Transformer where the task has one, or export to onnx or torch"
    )
