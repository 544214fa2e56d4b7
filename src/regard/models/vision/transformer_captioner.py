"""A Transformer decoder on the grid of an image."""

from torch import Tensor, nn

from regard.models.encoders import Encoded
from regard.models.token_input import TokenInput, ended, layer_config
from regard.models.transformer_decoding import TransformerPredictor
from regard.models.translator import output_matrix, token_embedding
from regard.models.vision.captioner import Captioner
from regard.models.vision.configs import CaptionerConfig
from regard.models.vision.grid_encoder import GridEncoder
from regard.nn import TransformerDecoder


class TransformerCaptioner(TransformerPredictor, Captioner):
    """Captions images by a Transformer decoder that attends to a convolutional grid (Vaswani et al. 2017, section 3.1).

    Annotations are projected to the features of a token and normalized. The returned weights over the grid are the mean
    over the heads of the second-last layer, or of the only one.

    Args:
        config: the configuration.

    Raises:
        ArgumentError: the architecture is not ``"transformer"``, or a size or the vocabulary is missing; or as
            `Backbone`.
        UnknownNameError, MissingPartError: as `Backbone`.

    Example:
        >>> import torch
        >>> from regard import models
        >>> sizes = {"image_height": 32, "image_width": 32, "grid": 16, "stages": 2, "patch": 4, "hidden": 16}
        >>> config = models.CaptionerConfig(target_vocabulary=30, architecture="transformer", **sizes)
        >>> model = models.TransformerCaptioner(config)
        >>> best = model.caption(torch.rand(1, 32, 32, 3), width=2, max_length=5)[0]
        >>> best.weights.shape == (len(best.tokens), 16)  # a weight for each of 4 × 4 cells
        True
    """

    config: CaptionerConfig

    def __init__(self, config: CaptionerConfig):
        super().__init__()
        self.config = config = config.complete("transformer")
        self.encoder = GridEncoder(config, config.dropout)
        self.memory = nn.Sequential(nn.Linear(self.encoder.dim, config.hidden), nn.LayerNorm(config.hidden))
        embedding = token_embedding(config.target_vocabulary, config.hidden)
        self.target_input = TokenInput(embedding, config.position, config.max_length, config.dropout)
        layer = layer_config(config, score=config.score, normalizer=config.normalizer)
        self.decoder = ended(TransformerDecoder.create(config.layers, layer), config)
        self.output = output_matrix(embedding, config.tied == "target")
        self.max_length = config.max_length if config.position == "learned" else None
        self.aligned_layer = max(0, config.layers - 2)

    def encode(self, images: Tensor) -> Encoded:
        encoded = self.encoder(images)
        return Encoded(self.memory(encoded.annotations), encoded.lengths)
