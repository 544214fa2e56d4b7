"""A recurrent encoder-decoder that translates: without attention, or with Bahdanau's, Luong's or hard attention."""

from dataclasses import dataclass

from torch import Tensor, nn

from regard.errors import ArgumentError, UnknownNameError
from regard.models.bahdanau_decoder import BahdanauDecoder
from regard.models.encoders import Encoded, RecurrentEncoder
from regard.models.hard_attention import ESTIMATORS, HardChoice, ReinforceBaseline
from regard.models.luong_decoder import SCOPES, LuongDecoder
from regard.models.recurrence import CELLS
from regard.models.recurrent_decoder import READOUTS, BottleneckDecoder, DecoderState, RecurrentDecoder, Step
from regard.models.text_predictor import TranslatorOutput
from regard.models.translator import (
    TIES,
    Translator,
    check_vocabularies,
    output_matrix,
    token_embedding,
)
from regard.nn import Attention

ATTENTIONS = ("none", "bahdanau", "luong", "hard")
SCORES = ("additive", "concat", "dot", "general", "location", "scaled_dot")


@dataclass(frozen=True)
class TranslatorConfig:
    """The configuration of a `RecurrentTranslator`."""

    source_vocabulary: int
    """Source tokens."""
    target_vocabulary: int
    """Target tokens."""
    embedding_dim: int = 256
    """Features of an embedded token and of the readout."""
    hidden_dim: int = 512
    """Features of an annotation (half for each direction) and of a decoder state; even."""
    encoder_layers: int = 1
    decoder_layers: int = 1
    cell: str = "lstm"
    """``lstm`` or ``gru``."""
    attention: str = "bahdanau"
    """``none``, ``bahdanau`` (before the cell), ``luong`` (after it) or ``hard`` (as bahdanau, of one annotation)."""
    score: str | None = None
    """``additive`` (``concat`` is the same), ``dot``, ``scaled_dot``, ``general`` or ``location``; None: additive for
    bahdanau and hard, general for luong."""
    scope: str = "global"
    """luong: ``global``, ``local-m`` (monotonic) or ``local-p`` (predicted)."""
    window: int = 10
    """luong with a local scope: half-width D, in source tokens."""
    input_feeding: bool = True
    """luong: the attentional vector of the previous step is an input of the cell."""
    readout: str = "tanh"
    """``tanh`` or ``maxout``."""
    hard_estimator: str = "reinforce"
    """hard: ``reinforce`` or ``straight_through``."""
    entropy_weight: float = 0.01
    """hard with reinforce: weight of the entropy bonus."""
    max_source: int = 200
    """Score ``location``: the longest source, in tokens, that the model can attend to."""
    dropout: float = 0.3
    """Rate on embeddings, annotations, between layers and on the readout; in [0, 1)."""
    tied_embeddings: str = "target"
    """``none``; ``target``: output matrix and target embedding are one matrix; ``all``: the source embedding too."""
    pad: int = 0
    """Token that pads the rows of a batch."""
    bos: int = 1
    """Token that begins each target."""
    eos: int = 2
    """Token that ends each target."""

    def __post_init__(self) -> None:
        for name, known in (
            ("cell", CELLS), ("attention", ATTENTIONS), ("scope", SCOPES), ("readout", READOUTS),
            ("hard_estimator", ESTIMATORS), ("tied_embeddings", TIES), ("score", (*SCORES, None)),
        ):  # fmt: skip
            if getattr(self, name) not in known:
                raise UnknownNameError(name, getattr(self, name), [option for option in known if option is not None])
        for name in ("source_vocabulary", "target_vocabulary", "embedding_dim", "hidden_dim", "encoder_layers",
                     "decoder_layers", "window", "max_source"):  # fmt: skip
            if getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be at least 1; it is {getattr(self, name)}")
        if self.hidden_dim % 2:
            raise ArgumentError(f"hidden_dim must be even, half for each direction; it is {self.hidden_dim}")
        if not 0 <= self.dropout < 1:
            raise ArgumentError(f"dropout must be in [0, 1); it is {self.dropout}")
        if self.scope != "global" and self.attention != "luong":
            raise ArgumentError(f"scope {self.scope!r} is luong's; attention is {self.attention!r}")
        check_vocabularies(self)

    @property
    def score_name(self) -> str:
        """The name of the score: ``score``, or the default of this attention."""
        return self.score or ("general" if self.attention == "luong" else "additive")

    @property
    def covers(self) -> bool:
        """Whether the score sees the coverage: the sum of the weights of all earlier steps."""
        return False


class RecurrentTranslator(Translator):
    """A bidirectional recurrent encoder and a recurrent decoder.

    Args:
        config: the configuration.
    """

    def __init__(self, config: TranslatorConfig):
        super().__init__()
        self.config = config
        target_embedding = token_embedding(config.target_vocabulary, config.embedding_dim)
        shared = config.tied_embeddings == "all"
        source_embedding = (
            target_embedding if shared else token_embedding(config.source_vocabulary, config.embedding_dim)
        )
        output = output_matrix(target_embedding, config.tied_embeddings != "none")
        self.encoder = RecurrentEncoder(
            source_embedding, config.hidden_dim, config.encoder_layers, config.cell, config.dropout
        )
        self.decoder = _decoder(config, target_embedding, output, self.encoder.summary_dim)
        reinforced = config.attention == "hard" and config.hard_estimator == "reinforce"
        self.baseline = ReinforceBaseline() if reinforced else None

    def encode(self, source: Tensor, lengths: Tensor) -> Encoded:
        return self.encoder(source, lengths)

    def start(self, encoded: Encoded) -> DecoderState:
        return self.decoder.start(encoded)

    def step(self, tokens: Tensor, state: DecoderState) -> Step:
        return self.decoder.step(tokens, state)

    @property
    def attends(self) -> bool:
        return self.config.attention != "none"

    def forward(
        self,
        source: Tensor,
        source_lengths: Tensor,
        target: Tensor,
        target_lengths: Tensor | None = None,
        *,
        sampling_probability: float = 0.0,
        need_weights: bool = True,
    ) -> TranslatorOutput:
        if not 0 <= sampling_probability <= 1:
            raise ArgumentError(f"sampling_probability must be in [0, 1]; it is {sampling_probability}")
        state = self.start(self.encode(source, source_lengths))
        inputs = target[:, :-1]
        if sampling_probability:
            decoded = self.decoder.decode_sampling(inputs, state, sampling_probability)
        else:
            decoded = self.decoder(inputs, state)
        return TranslatorOutput(decoded.readout, decoded.weights, decoded.choices, self.decoder.output)

    def _extra_loss(self, predicted: TranslatorOutput, nll: Tensor, is_token: Tensor) -> Tensor | None:
        """REINFORCE's part of the loss; the moving baseline is updated when the module is in training mode."""
        if predicted.choices is None or self.baseline is None:
            return None
        return self.baseline.loss(predicted.choices, nll, is_token, self.config.entropy_weight)


def _decoder(
    config: TranslatorConfig, embedding: nn.Embedding, output: nn.Linear, summary_dim: int
) -> RecurrentDecoder:
    hidden = config.hidden_dim
    if config.attention == "none":
        return BottleneckDecoder(
            embedding, output, summary_dim, hidden, config.decoder_layers, config.cell, config.readout, config.dropout
        )
    max_keys = config.max_source if config.score_name == "location" else None
    if config.covers:
        # With a kernel of one key the term of the coverage is w_c · c (See et al. 2017, eq. 11).
        attention = Attention.create("location_aware", hidden, hidden, channels=1, kernel_size=1)
    else:
        attention = Attention.create(config.score_name, hidden, hidden, max_keys=max_keys)
    sizes = hidden, summary_dim, hidden, config.decoder_layers, config.cell, config.readout, config.dropout
    if config.attention == "luong":
        local = config.input_feeding, config.scope, config.window
        return LuongDecoder(embedding, output, attention, *sizes, *local, config.covers)
    choice = HardChoice(config.hard_estimator) if config.attention == "hard" else None
    return BahdanauDecoder(embedding, output, attention, *sizes, choice, config.covers)
