"""Options that the tasks on sounds share: where sounds come from, how they become features, and the encoder."""

from dataclasses import dataclass
from typing import Any, Literal

from regard.errors import ArgumentError
from regard.training.sections import check_at_least, check_between, check_choices, check_probabilities

MOST_BUNDLED = 100_000
"""Largest number of sounds that are generated."""

MOST_FEATURES, MOST_LAYERS, MOST_BATCH = 65_536, 100, 100_000
"""Beyond these a model, a batch or a search would not fit into any memory, or never end."""


@dataclass(frozen=True, slots=True)
class SoundDataConfig:
    """The sounds of a run, and their features."""

    train: str | None = None
    """Training sounds: a .tsv, .csv, .jsonl or .parquet file with a column of paths (relative to it) and one of texts,
    or 'bundled' for generated speech. A path is a sound (.wav, .flac, ...) or a .npy file of features [frames,
    features]."""
    validation: str | None = None
    """Validation sounds, in the same form. Default: random training sounds, as many as held_out says."""
    test: str | None = None
    """Test sounds, evaluated when training is over. Default: none."""
    sound_column: str | None = None
    """Column of the paths. Default: the first of a table with two columns."""
    text_column: str | None = None
    """Column of the texts. Default: the second of a table with two columns."""
    bundled: int = 0
    """Number of generated sounds to train on, instead of train."""
    held_out: int = 200
    """Training sounds that are used for validation when there are no validation sounds; at most a tenth of them."""
    rate: int = 16000
    """Samples a second; sounds of another rate are resampled."""
    bands: int = 40
    """Mel bands of the features of sounds."""
    window_seconds: float = 0.025
    """Length of the windows of the spectrum, in seconds."""
    hop_seconds: float = 0.010
    """Time between two frames in seconds, in feature files too."""
    lowest: float = 20.0
    """Lower limit of the first mel band, in Hz."""
    highest: float = 0.0
    """Upper limit of the last mel band, in Hz; 0: half the rate."""
    max_seconds: float = 30.0
    """Longer training sounds are left out."""

    def __post_init__(self) -> None:
        if self.train == "bundled":
            object.__setattr__(self, "train", None)
            object.__setattr__(self, "bundled", self.bundled or self.default_bundled())
        check_choices(self)
        check_between(self, 0, MOST_BUNDLED, "bundled")
        if self.train is not None and self.bundled:
            raise ArgumentError("--train and --bundled exclude each other; give one of them")
        if self.train is None and not self.bundled:
            raise ArgumentError(
                f"there is nothing to train on; give --train FILE, or --train bundled for {self.default_bundled():,} "
                "generated sounds (--bundled says how many)"
            )
        for name in ("train", "validation", "test", "sound_column", "text_column"):
            if getattr(self, name) == "":
                raise ArgumentError(f"{name} is empty; give a name, or leave it out")
        if self.sound_column is not None and self.sound_column == self.text_column:
            raise ArgumentError(f"sound_column must not be the column of the texts; both are {self.sound_column!r}")
        check_at_least(self, 1, "held_out")
        check_between(self, 1_000, 768_000, "rate")
        check_between(self, 1, 1024, "bands")
        check_between(self, 0.001, 1.0, "window_seconds", "hop_seconds")
        check_between(self, 0.01, 3600, "max_seconds")
        check_between(self, 0, 384_000, "lowest", "highest")
        self.front_end  # noqa: B018 (checks that the bands fit the rate)

    @property
    def front_end(self) -> Any:
        """The `regard.data.speech.log_mel.LogMel` of these options."""
        from regard.data.speech.log_mel import LogMel

        return LogMel(self.rate, self.bands, self.window_seconds, self.hop_seconds, self.lowest, self.highest)

    @staticmethod
    def default_bundled() -> int:
        """Generated sounds when no number is given."""
        return 1000


@dataclass(frozen=True, slots=True)
class SoundModelConfig:
    """The encoder of sounds of a run, without the sizes that the data decide."""

    encoder: Literal["lstm", "gru", "transformer"] = "lstm"
    """lstm, gru (both bidirectional, with a pyramid) or transformer."""
    convolutions: int = 2
    """Convolutional layers before it, each of which halves the number of frames."""
    channels: int = 32
    """Channels of a convolutional layer."""
    hidden: int = 256
    """Features of an annotation; even."""
    encoder_layers: int | None = None
    """Recurrent layers before the pyramid (default 1), or layers of a transformer (default 4)."""
    pyramid_layers: int | None = None
    """Recurrent layers that each halve the number of frames. Default: 1; transformer: 0."""
    heads: int = 4
    """transformer: heads; a divisor of hidden."""
    feedforward: int = 1024
    """transformer: units of the hidden layer of the feedforward networks."""
    position: Literal["sinusoidal", "rotary", "alibi", "t5", "shaw", "none"] = "sinusoidal"
    """transformer: sinusoidal, rotary, alibi, t5, shaw or none."""
    deltas: int = 0
    """Derivatives in time that are added to the features: 0, 1 or 2."""
    normalization: Literal["utterance", "corpus", "none"] = "utterance"
    """Mean 0 and variance 1 of each feature: over each utterance, over the training corpus, or none."""
    dropout: float | None = None
    """Dropout rate, 0 to below 1. Default: 0.3; transformer: 0.1."""
    time_masks: int = 2
    """Blocks of time of each training sound that are masked (SpecAugment); 0: none."""
    longest_mask: int = 40
    """Frames of the longest of them; at most a fifth of the sound."""
    feature_masks: int = 2
    """Blocks of features that are masked; 0: none."""
    widest_mask: int = 8
    """Features of the widest of them."""

    def __post_init__(self) -> None:
        check_choices(self)
        transformer = self.encoder == "transformer"
        defaults = {
            "encoder_layers": 4 if transformer else 1,
            "pyramid_layers": 0 if transformer else 1,
            "dropout": 0.1 if transformer else 0.3,
        }
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        check_between(self, 1, MOST_FEATURES, "channels", "hidden", "heads", "feedforward")
        check_between(self, 0, MOST_LAYERS, "convolutions", "encoder_layers", "pyramid_layers")
        check_between(self, 0, 2, "deltas")
        check_between(self, 0, 1_000_000, "time_masks", "longest_mask", "feature_masks", "widest_mask")
        check_probabilities(self, "dropout")
        if self.hidden % 2:
            raise ArgumentError(f"hidden must be even, half for each direction; it is {self.hidden}")
        assert self.encoder_layers is not None
        assert self.pyramid_layers is not None
        if transformer and self.pyramid_layers:
            raise ArgumentError(f"pyramid_layers must be 0 with encoder 'transformer'; it is {self.pyramid_layers}")
        if not self.encoder_layers + self.pyramid_layers:
            raise ArgumentError("encoder_layers and pyramid_layers must not both be 0")
        if self.convolutions + self.pyramid_layers > 10:
            raise ArgumentError("convolutions and pyramid_layers together must be at most 10: each halves the time")
        if transformer and self.hidden % self.heads:
            raise ArgumentError(f"heads must divide hidden, which is {self.hidden}; it is {self.heads}")
        if transformer and self.position == "rotary" and self.hidden // self.heads % 2:
            raise ArgumentError(
                f"position 'rotary' needs an even number of features a head; hidden / heads is "
                f"{self.hidden // self.heads}"
            )

    def encoder_fields(self, width: int) -> dict[str, Any]:
        """The fields of a `regard.models.speech.encoders.SpeechEncoderConfig`.

        Args:
            width: features of a frame.
        """
        same = ("encoder", "convolutions", "channels", "encoder_layers", "pyramid_layers", "heads", "feedforward",
                "position", "deltas", "normalization", "dropout", "time_masks", "longest_mask", "feature_masks",
                "widest_mask")  # fmt: skip
        return {"width": width, "hidden_dim": self.hidden, **{name: getattr(self, name) for name in same}}
