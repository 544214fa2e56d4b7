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

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from regard.data.images.reading import Fit
from regard.exports.formats import UnexportableError
from regard.exports.hugging_face.bert import check_text_classifier, export_text_classifier
from regard.exports.hugging_face.folder import Folder
from regard.exports.hugging_face.gpt2 import check_language_model, export_language_model
from regard.exports.hugging_face.layers import OTHER_FORMATS
from regard.exports.hugging_face.marian import check_translator, export_translator
from regard.exports.hugging_face.vit import check_vision_transformer, export_vision_transformer
from regard.models.language_model import LanguageModel
from regard.models.pointer_generator import PointerGenerator
from regard.models.recurrent_translator import RecurrentTranslator
from regard.models.text_classifier import TextClassifier
from regard.models.transformer_translator import TransformerTranslator
from regard.models.vision.image_classifier import ImageClassifier

__all__ = ["Folder", "check", "save"]

TRANSFORMER_OPTIONS = {"architecture": "transformer"}


def save(model: nn.Module, files: Mapping[str, Any], path: Path, fit: Fit = "stretch") -> Folder:
    """Writes an existing folder that transformers loads, and compares the loaded model with ours, on the CPU in
    evaluation mode.

    ``files`` are the tokenizers and labels of the run; ``fit`` is as in `regard.data.images.reading.fit_image`. Raises
    UnexportableError if no class of transformers computes this model: the message names the difference and the options
    of the training to change; MissingPartError if transformers is not installed; and RunError for other numbers.
    """
    model, check, export = _computed(model)
    check(model)
    return export(model, files, path, *((fit,) if isinstance(model, ImageClassifier) else ()))


def check(model: nn.Module) -> None:
    """Raises UnexportableError, as `save`, if no class of transformers computes what a model does."""
    model, check, _ = _computed(model)
    check(model)


def _computed(model: nn.Module) -> tuple[Any, Callable[[Any], None], Callable[..., Folder]]:
    """Returns the model that a class of transformers computes, the check whether one does, and the export."""
    if isinstance(model, PointerGenerator) and model.gate is None and not model.config.coverage:
        model = model.translator
    for kind, check, export in KINDS:
        if isinstance(model, kind):
            return model, check, export
    name = type(model).__name__
    if isinstance(model, PointerGenerator):
        options = {"copy": False, **({"coverage": False} if model.config.coverage else {}), **TRANSFORMER_OPTIONS}
        raise UnexportableError("no class of transformers copies words of the source", options, OTHER_FORMATS)
    if isinstance(model, RecurrentTranslator):
        raise UnexportableError(f"no class of transformers computes a {name}", TRANSFORMER_OPTIONS, OTHER_FORMATS)
    raise UnexportableError(f"no class of transformers computes a {name}", {}, OTHER_FORMATS)


KINDS: tuple[tuple[type[nn.Module], Callable[[Any], None], Callable[..., Folder]], ...] = (
    (LanguageModel, check_language_model, export_language_model),
    (TransformerTranslator, check_translator, export_translator),
    (TextClassifier, check_text_classifier, export_text_classifier),
    (ImageClassifier, check_vision_transformer, export_vision_transformer),
)
"""Class of a model, the check whether a class of transformers computes it, and its export."""
