"""Show, Attend and Tell (Xu et al. 2015): an LSTM that attends to the grid of an image, softly or hard."""

from torch import Tensor

from regard.models.bahdanau_decoder import BahdanauDecoder
from regard.models.configs import RECURRENT_CELLS
from regard.models.hard_attention import HardChoice, ReinforceBaseline
from regard.models.recurrent_decoder import BottleneckDecoder, RecurrentDecoder
from regard.models.recurrent_decoding import RecurrentPredictor
from regard.models.text_predictor import TranslatorOutput
from regard.models.translator import output_matrix, token_embedding
from regard.models.vision.captioner import Captioner
from regard.models.vision.configs import CaptionerConfig
from regard.models.vision.grid_encoder import GridEncoder
from regard.nn import Attention


class RecurrentCaptioner(RecurrentPredictor, Captioner):
    """Captions images by a recurrent decoder that attends to a convolutional grid before each word (Xu et al. 2015).

    .. math::

        a_i = grid(image)_i    (annotation of cell i)
        c_0, h_0 = tanh(W mean_i a_i)    (§3.1.2)
        α_t = softmax_i(score([h_{t−1}; E y_{t−1}], a_i))    (eq. 4 and 5, where the query is h_{t−1} alone)
        z_t = β_t Σ_i α_{ti} a_i,    β_t = σ(f · h_{t−1})    (eq. 13 and §4.2.1)
        h_t = LSTM([E y_{t−1}; z_t], h_{t−1})    (eq. 1 to 3)
        p(y_t) = softmax(L tanh(W [h_t; E y_{t−1}; z_t]))    (eq. 7, with a hidden layer)

    Without ``query_token`` the query is that of the paper. The state h_{t−1} does not depend on the word y_{t−1}, so
    after "red" the paper's attention can turn to the red object only one word later.

    With hard attention, one cell is drawn from α_t while training (eq. 8), and the one with the largest weight is taken
    afterwards; the gradient is REINFORCE with a moving baseline and an entropy bonus (eq. 11 and 12).

    Args:
        config: the configuration.

    Raises:
        ArgumentError: the architecture is neither ``"lstm"`` nor ``"gru"``, or a size or the vocabulary is missing; or
            as `Backbone`.
        UnknownNameError, MissingPartError: as `Backbone`.

    Example:
        >>> import torch
        >>> from regard import models
        >>> sizes = {"image_height": 32, "image_width": 32, "grid": 16, "stages": 2, "patch": 4, "hidden": 8}
        >>> model = models.RecurrentCaptioner(models.CaptionerConfig(target_vocabulary=30, **sizes))
        >>> output = model(torch.rand(1, 32, 32, 3), torch.tensor([0]), torch.tensor([[1, 7, 8, 2]]))
        >>> output.logits.shape, output.weights.unflatten(-1, model.grid).shape
        (torch.Size([1, 3, 30]), torch.Size([1, 3, 4, 4]))
    """

    config: CaptionerConfig

    def __init__(self, config: CaptionerConfig):
        super().__init__()
        self.config = config = config.complete(*RECURRENT_CELLS)
        self.encoder = GridEncoder(config, config.dropout)
        self.decoder = _decoder(config, self.encoder.dim)
        reinforced = config.attention == "hard" and config.hard_estimator == "reinforce"
        self.baseline = ReinforceBaseline() if reinforced else None

    def _extra_loss(self, predicted: TranslatorOutput, nll: Tensor, is_token: Tensor) -> Tensor | None:
        """Computes REINFORCE's part of the loss, or the doubly stochastic term, summed over the captions."""
        reinforced = super()._extra_loss(predicted, nll, is_token)
        if reinforced is not None or not self.config.doubly_stochastic:
            return reinforced
        assert predicted.weights is not None
        return self.config.doubly_stochastic * doubly_stochastic_loss(predicted.weights, is_token)


def doubly_stochastic_loss(weights: Tensor, is_token: Tensor) -> Tensor:
    """Computes ``Σ_i (1 − Σ_t α_ti)²``, summed over the captions of a batch (Xu et al. 2015, eq. 14).

    Args:
        weights: ``[captions, steps, cells]``, which sum to 1 over the cells.
        is_token: bool ``[captions, steps]``: False for steps after the end of a caption, which do not count.

    Returns:
        A scalar.

    Example:
        >>> import torch
        >>> from regard import models
        >>> weights = torch.tensor([[[0.8, 0.2], [0.8, 0.2]]])  # the cells receive 1.6 and 0.4
        >>> models.doubly_stochastic_loss(weights, torch.tensor([[True, True]]))
        tensor(0.7200)
    """
    total = (weights * is_token[..., None]).sum(1)  # captions cells
    return (1 - total).square().sum()


def _decoder(config: CaptionerConfig, annotation_dim: int) -> RecurrentDecoder:
    """Creates the decoder that ``config.attention`` names."""
    embedding = token_embedding(config.target_vocabulary, config.embedding)
    output = output_matrix(embedding, config.tied == "target")
    sizes = config.hidden, config.layers, config.architecture, config.readout, config.dropout
    if config.attention == "none":
        return BottleneckDecoder(embedding, output, annotation_dim, *sizes)
    query_dim = config.hidden + (config.embedding if config.query_token else 0)
    attention = Attention.create(config.score, query_dim, annotation_dim)
    choice = HardChoice(config.hard_estimator) if config.attention == "hard" else None
    options = {"gated": config.gated, "query_token": config.query_token}
    return BahdanauDecoder(embedding, output, attention, annotation_dim, annotation_dim, *sizes, choice, **options)
