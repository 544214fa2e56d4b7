"""Models: encoders, decoders, search, and model files.

Each name is imported when it is first used (`regard.names.lazy_names`).
"""

from typing import TYPE_CHECKING

from regard.names.lazy_names import lazy_names

if TYPE_CHECKING:
    from regard.models import search, speech, vision
    from regard.models.bahdanau_decoder import BahdanauDecoder
    from regard.models.checkpoint import load_model, load_weights, save_model, save_weights
    from regard.models.chunked_loss import vocabulary_loss
    from regard.models.configs import LanguageModelConfig, PointerConfig, TextClassifierConfig, TranslatorConfig
    from regard.models.copying import CopyGate, copy_log_probabilities, copy_loss, coverage_loss
    from regard.models.encoders import Encoded, RecurrentEncoder
    from regard.models.hard_attention import HardChoice
    from regard.models.language_model import LanguageModel
    from regard.models.luong_decoder import LuongDecoder
    from regard.models.pointer_generator import PointerGenerator, RecurrentPointerGenerator, TransformerPointerGenerator
    from regard.models.pointer_network import Pointed, PointerNetwork, PointerNetworkConfig
    from regard.models.recurrent_decoder import BottleneckDecoder, RecurrentDecoder
    from regard.models.recurrent_translator import RecurrentTranslator
    from regard.models.search import (
        Hypothesis,
        MinimumRisk,
        SearchableDecoder,
        beam,
        greedy,
        minimum_risk,
        replace_unknown,
        sample,
    )
    from regard.models.text_classifier import Classified, TextClassifier
    from regard.models.text_predictor import Loss, TextPredictor, TranslatorOutput
    from regard.models.transformer_translator import TransformerTranslator
    from regard.models.translator import Translator
    from regard.models.vision.backbones import Backbone
    from regard.models.vision.captioner import Captioner
    from regard.models.vision.configs import CaptionerConfig, GridConfig, ImageClassifierConfig
    from regard.models.vision.convolutional_grid import ConvolutionalGrid
    from regard.models.vision.grid_encoder import GridEncoder
    from regard.models.vision.image_classifier import ClassifiedImages, ImageClassifier, VisionTransformer
    from regard.models.vision.recurrent_captioner import RecurrentCaptioner, doubly_stochastic_loss
    from regard.models.vision.transformer_captioner import TransformerCaptioner

__all__ = [
    "Backbone",
    "BahdanauDecoder",
    "BottleneckDecoder",
    "Captioner",
    "CaptionerConfig",
    "Classified",
    "ClassifiedImages",
    "ConvolutionalGrid",
    "CopyGate",
    "Encoded",
    "GridConfig",
    "GridEncoder",
    "HardChoice",
    "Hypothesis",
    "ImageClassifier",
    "ImageClassifierConfig",
    "LanguageModel",
    "LanguageModelConfig",
    "Loss",
    "LuongDecoder",
    "MinimumRisk",
    "Pointed",
    "PointerConfig",
    "PointerGenerator",
    "PointerNetwork",
    "PointerNetworkConfig",
    "RecurrentCaptioner",
    "RecurrentDecoder",
    "RecurrentEncoder",
    "RecurrentPointerGenerator",
    "RecurrentTranslator",
    "SearchableDecoder",
    "TextClassifier",
    "TextClassifierConfig",
    "TextPredictor",
    "TransformerCaptioner",
    "TransformerPointerGenerator",
    "TransformerTranslator",
    "Translator",
    "TranslatorConfig",
    "TranslatorOutput",
    "VisionTransformer",
    "beam",
    "copy_log_probabilities",
    "copy_loss",
    "coverage_loss",
    "doubly_stochastic_loss",
    "greedy",
    "load_model",
    "load_weights",
    "minimum_risk",
    "replace_unknown",
    "sample",
    "save_model",
    "save_weights",
    "search",
    "speech",
    "vision",
    "vocabulary_loss",
]

if not TYPE_CHECKING:  # so that type checkers report names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
