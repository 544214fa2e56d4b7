"""Models: encoders, decoders, search, and model files."""

from regard.models.bahdanau_decoder import BahdanauDecoder
from regard.models.checkpoint import load_model, load_weights, save_model, save_weights
from regard.models.copying import CopyGate, copy_log_probabilities, copy_loss
from regard.models.coverage import coverage_loss
from regard.models.encoders import Encoded, RecurrentEncoder
from regard.models.hard_attention import HardChoice
from regard.models.language_model import LanguageModel, LanguageModelConfig
from regard.models.luong_decoder import LuongDecoder
from regard.models.pointer_generator import PointerGenerator
from regard.models.recurrent_decoder import BottleneckDecoder, RecurrentDecoder
from regard.models.recurrent_pointer_generator import RecurrentPointerConfig, RecurrentPointerGenerator
from regard.models.recurrent_translator import RecurrentTranslator, TranslatorConfig
from regard.models.search import Hypothesis, SearchableDecoder, beam, greedy, replace_unknown, sample
from regard.models.text_classifier import Classified, TextClassifier, TextClassifierConfig
from regard.models.text_predictor import Loss, TextPredictor, TranslatorOutput
from regard.models.transformer_pointer_generator import TransformerPointerConfig, TransformerPointerGenerator
from regard.models.transformer_translator import TransformerConfig, TransformerTranslator
from regard.models.translator import Translator
from regard.models.vision.backbones import Backbone
from regard.models.vision.captioner import Captioner, CaptionerConfig
from regard.models.vision.convolutional_grid import ConvolutionalGrid
from regard.models.vision.grid_encoder import GridConfig, GridEncoder
from regard.models.vision.image_classifier import (
    ClassifiedImages,
    ImageClassifier,
    ImageClassifierConfig,
    VisionTransformer,
)
from regard.models.vision.recurrent_captioner import (
    RecurrentCaptioner,
    RecurrentCaptionerConfig,
    doubly_stochastic_loss,
)
from regard.models.vision.transformer_captioner import TransformerCaptioner, TransformerCaptionerConfig
from regard.models.vocabulary_loss import vocabulary_loss

__all__ = [
    "TextPredictor",
    "Translator",
    "TransformerTranslator",
    "TransformerConfig",
    "RecurrentTranslator",
    "TranslatorConfig",
    "TranslatorOutput",
    "PointerGenerator",
    "RecurrentPointerGenerator",
    "RecurrentPointerConfig",
    "TransformerPointerGenerator",
    "TransformerPointerConfig",
    "CopyGate",
    "copy_log_probabilities",
    "copy_loss",
    "coverage_loss",
    "Loss",
    "LanguageModel",
    "LanguageModelConfig",
    "TextClassifier",
    "TextClassifierConfig",
    "Classified",
    "Captioner",
    "CaptionerConfig",
    "RecurrentCaptioner",
    "RecurrentCaptionerConfig",
    "TransformerCaptioner",
    "TransformerCaptionerConfig",
    "doubly_stochastic_loss",
    "ImageClassifier",
    "ImageClassifierConfig",
    "ClassifiedImages",
    "VisionTransformer",
    "ConvolutionalGrid",
    "GridEncoder",
    "GridConfig",
    "Backbone",
    "RecurrentEncoder",
    "Encoded",
    "RecurrentDecoder",
    "BottleneckDecoder",
    "BahdanauDecoder",
    "LuongDecoder",
    "HardChoice",
    "greedy",
    "sample",
    "beam",
    "replace_unknown",
    "Hypothesis",
    "SearchableDecoder",
    "vocabulary_loss",
    "save_model",
    "load_model",
    "save_weights",
    "load_weights",
]
