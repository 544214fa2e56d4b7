"""The configuration of a training run: frozen dataclasses, and their YAML form."""

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

from regard.errors import ArgumentError, RunError, UnknownNameError

SCHEDULES = ("constant", "inverse_sqrt", "cosine", "linear", "plateau")
PRECISIONS = ("32", "bf16-mixed", "16-mixed")
TOKENIZERS = ("bpe", "word", "char")


@dataclass(frozen=True, slots=True)
class DataConfig:
    """The data of a run, and how it is split into tokens."""

    train: str | None = None
    """Training pairs: a file, or the name of a data set; None: the bundled corpus."""
    validation: str | None = None
    """Validation pairs, likewise; None: the last ``held_out`` pairs of ``train``."""
    test: str | None = None
    """Test pairs, translated at the end of training; None: no test."""
    source_column: str | None = None
    """Name of the column to translate from; None: the first column of a table with two columns."""
    target_column: str | None = None
    """Name of the column to translate to; None: the second column of a table with two columns."""
    lowercase: bool = False
    """Whether all text is turned into lower case."""
    bundled: int = 0
    """Number of training pairs of the bundled English-Spanish corpus; 0 when ``train`` is given."""
    held_out: int = 500
    """Training pairs that are used for validation when ``validation`` is None; at most a tenth of the pairs."""
    tokenizer: str = "bpe"
    """``bpe``, ``word`` or ``char``."""
    vocabulary: int = 8000
    """Largest size of each vocabulary, in tokens."""
    max_length: int = 100
    """Tokens; training pairs with a longer side are left out."""

    def __post_init__(self) -> None:
        if (self.train is None) == (self.bundled <= 0):
            raise ArgumentError("training data must be either a path (train) or the bundled corpus (bundled > 0)")
        if self.tokenizer not in TOKENIZERS:
            raise UnknownNameError("tokenizer", self.tokenizer, TOKENIZERS)
        _at_least("vocabulary", self.vocabulary, 8)
        _at_least("max_length", self.max_length, 1)
        _at_least("held_out", self.held_out, 1)


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """How a model is trained, and for how long."""

    tokens_per_batch: int = 2000
    """Target tokens of one batch, padding included, on each device."""
    optimizer: str = "adamw"
    """``adam`` or ``adamw``."""
    learning_rate: float = 1e-3
    """Peak learning rate."""
    weight_decay: float = 0.0
    """Decoupled weight decay of ``adamw``, for each unit of learning rate."""
    schedule: str = "constant"
    """``constant``, ``inverse_sqrt``, ``cosine``, ``linear`` or ``plateau``, after a linear warmup."""
    warmup: int = 0
    """Steps of the linear warmup."""
    plateau_patience: int = 2
    """Validations without a better loss before ``plateau`` halves the learning rate."""
    label_smoothing: float = 0.1
    """ε in [0, 1): probability that is distributed evenly over the vocabulary (Szegedy et al. 2016, section 7)."""
    scheduled_sampling: float = 0.0
    """Probability in [0, 1) that a decoder step reads the predicted word, not the true one (Bengio et al. 2015)."""
    clip: float = 1.0
    """Largest norm of the gradient of all parameters; 0: no clipping."""
    epochs: int = 20
    """Epochs after which the run ends."""
    max_minutes: float = 0.0
    """Minutes of training and validation after which the run ends; 0: no limit."""
    patience: int = 5
    """Validations without a better BLEU after which the run ends; 0: never."""
    validate_every: int = 0
    """Steps between validations; 0: at the end of each epoch."""
    validation_pairs: int = 0
    """Pairs that each validation translates: the first of the validation data; 0: all pairs."""
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints. Each validation also writes one."""
    checkpoint_steps: int = 0
    """Steps between checkpoints; 0: ``checkpoint_minutes`` alone decides."""
    precision: str = "32"
    """``32``, ``bf16-mixed`` or ``16-mixed``."""
    seed: int = 1
    """Seed of the initial weights, the order of the batches and dropout."""
    threads: int = 0
    """CPU threads; 0: PyTorch's own number."""
    accelerator: str = "auto"
    """Lightning's name of the accelerator: ``auto``, ``cpu``, ``gpu``, ``mps``, ..."""
    devices: str = "auto"
    """A number of devices, a comma-separated list of their indices, or ``auto``."""
    strategy: str = "auto"
    """Lightning's name of the strategy: ``auto``, ``ddp``, ``fsdp``, ..."""
    tensorboard: bool = False
    """Whether TensorBoard logs are written."""

    def __post_init__(self) -> None:
        for name, known in (("schedule", SCHEDULES), ("precision", PRECISIONS), ("optimizer", ("adam", "adamw"))):
            if getattr(self, name) not in known:
                raise UnknownNameError(name, getattr(self, name), known)
        for name in ("tokens_per_batch", "epochs", "plateau_patience"):
            _at_least(name, getattr(self, name), 1)
        for name in ("warmup", "clip", "max_minutes", "patience", "validate_every", "validation_pairs",
                     "checkpoint_minutes", "checkpoint_steps", "weight_decay", "threads", "seed"):  # fmt: skip
            _at_least(name, getattr(self, name), 0)
        for name in ("label_smoothing", "scheduled_sampling"):
            if not 0 <= getattr(self, name) < 1:
                raise ArgumentError(f"{name} must be in [0, 1); it is {getattr(self, name)}")
        if not self.learning_rate > 0:
            raise ArgumentError(f"learning_rate must be above 0; it is {self.learning_rate}")


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The whole configuration of a run: the content of ``config.yaml`` in its run folder."""

    data: DataConfig
    training: TrainingConfig
    model: dict[str, Any]
    """The fields of the model's configuration, without the sizes of the vocabularies, which the data decide."""
    task: str = "translate"
    """Name of the task."""

    def to_dict(self) -> dict[str, Any]:
        """The configuration as plain values, for YAML and JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, content: object, origin: str) -> "RunConfig":
        """The configuration that ``to_dict`` returned.

        Args:
            content: the content of the file.
            origin: name of the file, for messages.

        Raises:
            RunError: a field is missing, unknown or of a wrong type.
        """
        if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
            raise RunError(f"{origin} is not the configuration of a run: it must have data, training and model")
        try:
            return cls(
                data=_build(DataConfig, content.get("data"), f"{origin}: data"),
                training=_build(TrainingConfig, content.get("training"), f"{origin}: training"),
                model=dict(content["model"]),
                task=str(content.get("task", "translate")),
            )
        except ArgumentError as error:
            raise RunError(f"{origin}: {error}") from error


T = TypeVar("T", DataConfig, TrainingConfig)


def _build(kind: type[T], content: object, where: str) -> T:
    if not isinstance(content, dict):
        raise RunError(f"{where} must be a mapping; it is {type(content).__name__}")
    known = {field.name: field for field in dataclasses.fields(kind)}
    for name, value in content.items():
        if name not in known:
            raise RunError(f"{where} has a field {name!r} that this version of regard doesn't know")
        if not _fits(value, known[name].type):
            raise RunError(f"{where}.{name} must be {known[name].type}; it is {value!r}")
    return kind(**content)


def _fits(value: object, kind: Any) -> bool:
    """Whether a value from a file has the type of a field; an int is accepted for a float."""
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, (int, float))
    return isinstance(value, kind)


def _at_least(name: str, value: float, least: float) -> None:
    if not value >= least:
        raise ArgumentError(f"{name} must be at least {least}; it is {value}")
