"""Show, Attend and Tell (Xu et al. 2015): an LSTM that attends to the grid of an image, softly or hard."""

from dataclasses import dataclass

from torch import Tensor

from regard.errors import ArgumentError, UnknownNameError
from regard.models.bahdanau_decoder import BahdanauDecoder
from regard.models.encoders import Encoded
from regard.models.hard_attention import ESTIMATORS, HardChoice, ReinforceBaseline
from regard.models.recurrence import CELLS
from regard.models.recurrent_decoder import READOUTS, BottleneckDecoder, DecoderState, RecurrentDecoder, Step
from regard.models.text_predictor import TranslatorOutput
from regard.models.translator import output_matrix, token_embedding
from regard.models.vision.captioner import Captioner, CaptionerConfig
from regard.models.vision.grid_encoder import GridEncoder
from regard.nn import Attention

ATTENTIONS = ("none", "soft", "hard")
SCORES = ("additive", "concat", "dot", "general", "scaled_dot")


@dataclass(frozen=True)
class RecurrentCaptionerConfig(CaptionerConfig):
    """The configuration of a `RecurrentCaptioner`."""

    attention: str = "soft"
    """``soft``, ``hard`` (one annotation a step) or ``none`` (the decoder only gets the mean annotation)."""
    embedding_dim: int = 256
    """Features of an embedded token and of the readout."""
    hidden_dim: int = 512
    """Features of a decoder state."""
    layers: int = 1
    """Layers of the decoder."""
    cell: str = "lstm"
    """``lstm`` or ``gru``."""
    readout: str = "tanh"
    """``tanh`` or ``maxout``."""
    score: str = "additive"
    """``additive`` (as in the paper; ``concat`` is the same), ``dot``, ``scaled_dot`` or ``general``."""
    gated: bool = True
    """Whether a gate in (0, 1) multiplies the context of each step (§4.2.1)."""
    query_token: bool = True
    """Whether the attention also depends on the last word; in the paper it depends on the state before that word."""
    doubly_stochastic: float = 0.0
    """soft: λ of ``λ Σ_i (1 − Σ_t α_ti)²``, which makes the decoder attend to every part of the image (eq. 14)."""
    hard_estimator: str = "reinforce"
    """hard: ``reinforce`` or ``straight_through``."""
    entropy_weight: float = 0.01
    """hard with reinforce: weight of the entropy bonus (λ_e of eq. 12)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (
            ("attention", ATTENTIONS), ("cell", CELLS), ("readout", READOUTS), ("hard_estimator", ESTIMATORS),
            ("score", SCORES),
        ):  # fmt: skip
            if getattr(self, name) not in known:
                raise UnknownNameError(name, getattr(self, name), known)
        for name in ("embedding_dim", "hidden_dim", "layers"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1; it is {getattr(self, name)}")
        for name in ("doubly_stochastic", "entropy_weight"):
            if not getattr(self, name) >= 0:
                raise ArgumentError(f"{name} must be at least 0; it is {getattr(self, name)}")
        if self.doubly_stochastic and self.attention != "soft":
            raise ArgumentError(f"doubly_stochastic goes with soft attention; attention is {self.attention!r}")


class RecurrentCaptioner(Captioner):
    """Captions images by a recurrent decoder that attends to a convolutional grid before each word (Xu et al. 2015).

    ::

        a_i = grid(image)_i                              annotation of cell i
        c_0, h_0 = tanh(W mean_i a_i)                    §3.1.2
        α_t = softmax_i(score([h_{t−1}; E y_{t−1}], a_i))   eq. 4 and 5, where the query is h_{t−1} alone
        z_t = β_t Σ_i α_ti a_i,  β_t = σ(f · h_{t−1})     eq. 13 and §4.2.1
        h_t = LSTM([E y_{t−1}; z_t], h_{t−1})            eq. 1 to 3
        p(y_t) = softmax(L tanh(W [h_t; E y_{t−1}; z_t]))   eq. 7, with a hidden layer

    Without ``query_token`` the query is that of the paper. The state h_{t−1} does not depend on the word y_{t−1}, so
    after "red" the paper's attention can turn to the red object only one word later.

    With hard attention, one cell is drawn from α_t while training (eq. 8), and the one with the largest weight is taken
    afterwards; the gradient is REINFORCE with a moving baseline and an entropy bonus (eq. 11 and 12).

    Args:
        config: the configuration.
    """

    config: RecurrentCaptionerConfig

    def __init__(self, config: RecurrentCaptionerConfig):
        super().__init__()
        self.config = config
        self.encoder = GridEncoder(config, config.dropout)
        self.decoder = _decoder(config, self.encoder.dim)
        reinforced = config.attention == "hard" and config.hard_estimator == "reinforce"
        self.baseline = ReinforceBaseline() if reinforced else None

    @property
    def attends(self) -> bool:
        return self.config.attention != "none"

    def start(self, encoded: Encoded) -> DecoderState:
        return self.decoder.start(encoded)

    def step(self, tokens: Tensor, state: DecoderState) -> Step:
        return self.decoder.step(tokens, state)

    def decode(self, encoded: Encoded, target: Tensor, target_lengths: Tensor | None = None) -> TranslatorOutput:
        decoded = self.decoder(target[:, :-1], self.start(encoded))
        return TranslatorOutput(decoded.readout, decoded.weights, decoded.choices, self.decoder.output)

    def _extra_loss(self, predicted: TranslatorOutput, nll: Tensor, is_token: Tensor) -> Tensor | None:
        """Returns REINFORCE's part of the loss, or the doubly stochastic term, summed over the captions."""
        if predicted.choices is not None and self.baseline is not None:
            return self.baseline.loss(predicted.choices, nll, is_token, self.config.entropy_weight)
        if not self.config.doubly_stochastic:
            return None
        assert predicted.weights is not None
        return self.config.doubly_stochastic * doubly_stochastic_loss(predicted.weights, is_token)


def doubly_stochastic_loss(weights: Tensor, is_token: Tensor) -> Tensor:
    """Computes ``Σ_i (1 − Σ_t α_ti)²``, summed over the captions of a batch (Xu et al. 2015, eq. 14).

    Args:
        weights: ``[captions, steps, cells]``, which sum to 1 over the cells.
        is_token: bool ``[captions, steps]``: False for steps after the end of a caption, which do not count.
    """
    total = (weights * is_token[..., None]).sum(1)  # captions cells
    return (1 - total).square().sum()


def _decoder(config: RecurrentCaptionerConfig, annotation_dim: int) -> RecurrentDecoder:
    embedding = token_embedding(config.target_vocabulary, config.embedding_dim)
    output = output_matrix(embedding, config.tied_embeddings)
    sizes = config.hidden_dim, config.layers, config.cell, config.readout, config.dropout
    if config.attention == "none":
        return BottleneckDecoder(embedding, output, annotation_dim, *sizes)
    query_dim = config.hidden_dim + (config.embedding_dim if config.query_token else 0)
    attention = Attention.create(config.score, query_dim, annotation_dim)
    choice = HardChoice(config.hard_estimator) if config.attention == "hard" else None
    return BahdanauDecoder(
        embedding,
        output,
        attention,
        annotation_dim,
        annotation_dim,
        *sizes,
        choice,
        gated=config.gated,
        query_token=config.query_token,
    )
