"""The defaults that follow from the data and the machine: kinds of rules, whose tables are in `regard.tasks.rules`.

A rule gives the value of an option that the user has not set, and the reason. What it may look at is a `Case`: the size
of the data, the machine, and the options that the user or an earlier rule has set. The rules of a task are applied in
their order. An option that has no meaning with the others is left out.

The first column of a table is for fewer than 1,000 training examples, the second for fewer than 10,000, the third for
fewer than 100,000, and the fourth for more. Running text has steps of 30 KB, 300 KB and 3 MB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

from regard.configuration import HEADS, Configuration
from regard.configuration.options import option_fields
from regard.errors import ArgumentError
from regard.models.configs import RECURRENT_CELLS
from regard.training.task import Choice

ROWS, BYTES = (1_000, 10_000, 100_000), (30_000, 300_000, 3_000_000)
"""The number of examples, or of bytes of running text, at which the next column of a table begins."""

MOST_STAGES = 8
"""The most stages of a convolutional network."""

FEW_IMAGES = 20_000
"""With fewer images a convolutional network learns more than a Transformer, which must learn which pixels are near."""

BOUNDARY_TOKENS = 2
"""The number of tokens that begin and end a text to write."""

FEWEST_VALIDATIONS, MOST_VALIDATIONS = 4, 25
"""The least and the largest number of validations in a training."""

UNSPACED_SHARE = 0.02
"""If more of the letters are of scripts written without spaces, the words between spaces make no useful tokens.
The share is small because even a short clause of such a script would be one unknown token."""

Side = Literal["source", "target"]
SIDES: tuple[Side, ...] = ("source", "target")

MOST_CHARACTERS = 100
"""Mean number of characters of a side of a pair up to which its tokens are characters. Where texts are few, sub-words
of a clause without spaces would be whole phrases that no other sentence contains."""

FEW_UPDATES = 1_000
"""A training of fewer updates, in few epochs, is validated after each of them."""


@dataclass(frozen=True)
class DataSize:
    """How much there is to learn from, and where."""

    rows: int
    """Training examples; of running text, its bytes."""
    unit: str = "examples"
    """The noun for the examples, in the plural."""
    length: float = 0.0
    """Mean length of an input, in bytes of text or in frames; 0 if no rule depends on it."""
    target: float = 0.0
    """Mean length of a text to write, in bytes; 0 if no rule depends on it."""
    validation: int = 0
    """Examples of each validation; 0: a tenth of the training examples."""
    cpu: bool = True
    """Whether the model is trained on a CPU."""
    processes: int = 1
    """Processes that share the batches."""
    unspaced: tuple[float, float] = (0.0, 0.0)
    """Share of the letters of the inputs, and of the texts to write, that belong to scripts written without spaces."""


class Case:
    """The facts from which rules choose: the size of the data, and the machine; the options by name, as the user or a
    rule has set them, else the fixed default; and the names of the options that the user has set."""

    def __init__(self, size: DataSize, kinds: Sequence[type[Any]], typed: Mapping[str, Any]):
        self.size, self.typed = size, typed
        self._fields = {field.name: (kind, field) for kind in kinds for field in option_fields(kind)}
        # The architecture of a task that has only one is no option.
        architecture = next((kind.architecture for kind in kinds if hasattr(kind, "architecture")), None)
        self.options = SimpleNamespace(architecture=architecture, attention=None)
        for name, (_, field) in self._fields.items():
            setattr(self.options, name, typed.get(name, field.default))
        self._fill()

    def _fill(self) -> None:
        for name, (kind, field) in self._fields.items():
            if "defaults" in field.metadata and getattr(self.options, name) is None:
                setattr(self.options, name, kind.usual(self.options, field))

    def has_meaning(self, name: str) -> bool:
        """Whether the task has an option, and it has a meaning with the others."""
        if name not in self._fields:
            return False
        kind, field = self._fields[name]
        return not issubclass(kind, Configuration) or kind.unmet_need(self.options, field) is None  # pyright: ignore

    def set(self, name: str, value: Any) -> None:
        """Sets an option, and the defaults that follow from it."""
        for other, (_, field) in self._fields.items():
            if "defaults" in field.metadata and other not in self.typed and name in ("architecture", "attention"):
                setattr(self.options, other, None)
        setattr(self.options, name, value)
        self._fill()

    def needing(self, name: str, value: Any) -> set[str]:
        """Returns the names of the options that have a meaning only if another option has this value."""
        return {
            one
            for one, (_, field) in self._fields.items()
            if name in field.metadata.get("needs", {}) and value in _several(field.metadata["needs"][name])
        }

    def column(self, steps: Sequence[int]) -> int:
        """Returns the column of a table that the size of the data selects."""
        return sum(self.size.rows >= step for step in steps)

    @property
    def counted(self) -> str:
        """The size of the data, as a reason: ``"6,920 texts"``."""
        return f"{self.size.rows:,} {self.size.unit}"

    @property
    def per_process(self) -> int:
        """Examples that each process sees in an epoch."""
        return max(1, -(-self.size.rows // self.size.processes))

    @property
    def tokens(self) -> int:
        """Tokens of running text, estimated."""
        return max(1, int(self.size.rows / self.bytes_per_token("source")))

    def kind(self, side: Side) -> str:
        """Returns the tokenizer of a side; "char" for an input that is not a text."""
        return getattr(self.options, f"{side}_tokenizer", None) or getattr(self.options, "tokenizer", "char")

    def bytes_per_token(self, side: Side) -> float:
        """Returns the bytes of a side's token, as estimated for a European text; 1 for an input that is not a text."""
        kind = self.kind(side)
        if kind == "bpe":  # more sub-words are longer ones
            return min(5.0, max(1.0, 2.0 + 0.5 * math.log2(self.options.vocabulary / 350)))
        return 5.0 if kind == "word" else _character_bytes(self.size.unspaced[SIDES.index(side)])

    @property
    def length(self) -> float:
        """Mean length of an input in tokens or frames, estimated; 0: it does not count."""
        if self.size.unit == "sounds":
            return self.size.length
        return min(self.size.length / self.bytes_per_token("source"), getattr(self.options, "max_length", math.inf))

    @property
    def target(self) -> float:
        """Mean length of a text to write in tokens, estimated, with those that begin and end it."""
        return self.size.target / self.bytes_per_token("target") + BOUNDARY_TOKENS

    @property
    def batches(self) -> int:
        """Batches of an epoch in each process, estimated."""
        options, size = self.options, self.size
        if size.unit == "bytes":
            windows = self.tokens // max(1, options.context * options.batch_size * size.processes)
            return options.steps_per_epoch or max(1, windows)
        if hasattr(options, "batch_size"):
            return -(-self.per_process // options.batch_size)
        length = self.target if hasattr(options, "validation_pairs") else max(1.0, self.length)
        return max(1, math.ceil(self.per_process * length / options.tokens_per_batch))

    @property
    def updates(self) -> int:
        """Updates of the weights in the whole training, estimated."""
        return self.options.epochs * self.batches


Rule = Callable[[Case], "Choice | None"]
Rules = Mapping[str, Rule]
"""Option → its rule; the rules are applied in this order."""


def fit(rules: Rules, size: DataSize, kinds: Sequence[type[Any]], typed: Mapping[str, Any]) -> dict[str, Choice]:
    """Returns the options that the data decide: option → its value, and why."""
    case, chosen = Case(size, kinds, typed), {}
    for name, rule in rules.items():
        choice = None if name in typed or not case.has_meaning(name) else rule(case)
        if choice is not None:
            chosen[name] = choice
            case.set(name, choice.value)
    return chosen


# The kinds of rules


def table(*values: Any, accelerator: Sequence[Any] = (), steps: Sequence[int] = ROWS) -> Rule:
    """Returns a rule that gives the value of the data's column; an accelerator may have a row of its own."""

    def rule(case: Case) -> Choice:
        row = accelerator if accelerator and not case.size.cpu else values
        machine = "" if not accelerator else " on a CPU" if case.size.cpu else " on an accelerator"
        return Choice(row[case.column(steps)], case.counted + machine)

    return rule


def for_architecture(**rules: Rule) -> Rule:
    """Returns a rule that applies that of the architecture; ``recurrent`` is for lstm, gru and none."""

    def rule(case: Case) -> Choice | None:
        architecture = str(case.options.architecture)
        own = rules.get("recurrent" if architecture in (*RECURRENT_CELLS, "none") else architecture)
        return None if own is None else own(case)

    return rule


def even(rule: Rule) -> Rule:
    """Returns the rule with its features rounded up to a multiple of the heads, or of the directions of an RNN."""

    def rounded(case: Case) -> Choice | None:
        choice, options = rule(case), case.options
        parts, why = 1, ""
        number = case.typed.get("heads") or case.typed.get("kv_heads") or 0
        if 0 < number <= HEADS.high and case.has_meaning("heads"):
            parts, why = number * _pair(options), f", shared by {number} heads"
        elif options.architecture in RECURRENT_CELLS:
            parts = 2
        return None if choice is None else _multiple(choice, parts, why)

    return rounded


def staged(rule: Rule) -> Rule:
    """Returns the rule with its features rounded up so that each stage of a convolutional network can halve them."""

    def rounded(case: Case) -> Choice | None:
        choice, stages = rule(case), case.options.stages
        if choice is None or not 1 <= stages <= MOST_STAGES:
            return choice
        return _multiple(choice, 2 ** (stages - 1), f", halved by {stages} stages")

    return rounded


def _pair(options: Any) -> int:
    """Returns 2 if rotary positions rotate pairs of a head's features, which must then be even in number; else 1."""
    return 2 if getattr(options, "position", None) == "rotary" else 1


def _multiple(choice: Choice, parts: int, why: str) -> Choice:
    value = -(-choice.value // max(1, parts)) * max(1, parts)
    return choice if value == choice.value else Choice(value, choice.reason + why)


def heads(case: Case) -> Choice:
    """Chooses heads of 32 features, or of 64 where there are many, so that the heads divide the features."""
    hidden, groups = case.options.hidden, getattr(case.options, "kv_heads", None) or 1
    most = range(1, min(hidden, int(HEADS.high)) + 1)
    possible = [one for one in most if hidden % (one * _pair(case.options)) == 0 and one % groups == 0]
    usual = max(1, hidden / (32 if hidden < 256 else 64))
    best = min(possible or [groups], key=lambda one: abs(math.log(one / usual)))
    return Choice(best, f"{hidden} features in heads of {hidden // best}")


def same_as(name: str) -> Rule:
    """Returns a rule that gives the value of another option."""

    def rule(case: Case) -> Choice:
        return Choice(getattr(case.options, name), f"as {name}")

    return rule


def image_architecture(case: Case) -> Choice:
    """Chooses a convolutional network for few images, unless the user has set options of the other network; raises
    ArgumentError for options of both."""
    vit, cnn = case.needing("architecture", "vit"), case.needing("architecture", "cnn")
    of_vit, of_cnn = sorted((vit - cnn) & case.typed.keys()), sorted((cnn - vit) & case.typed.keys())
    if case.typed.get("pooling") == "cls":
        of_vit = ["pooling cls", *of_vit]
    if of_vit and of_cnn:
        raise ArgumentError(f"{of_vit[0]} is of architecture 'vit', and {of_cnn[0]} is of 'cnn'; leave one of them out")
    if of_vit or of_cnn:
        return Choice("vit" if of_vit else "cnn", f"for {(of_vit or of_cnn)[0]}")
    few = case.size.rows < FEW_IMAGES
    reason = f"{case.counted}, {'fewer' if few else 'no fewer'} than {FEW_IMAGES:,}"
    return Choice("cnn" if few else "vit", reason)


def image_pooling(case: Case) -> Choice:
    """Chooses attention over the grid of a convolutional network, and the class token of a Vision Transformer."""
    if case.options.architecture == "vit" and "pooling_heads" not in case.typed:
        return Choice("cls", "architecture vit")
    return Choice("attention", f"architecture {case.options.architecture}")


def examples_of_a_batch(*values: int, accelerator: Sequence[int], most: int = 0) -> Rule:
    """Returns the rule of the batch size: few examples need small batches for more updates, and long inputs too:
    ``most`` tokens or frames on a CPU, four times as many on an accelerator; 0: any number."""
    rule = table(*values, accelerator=accelerator)

    def bounded(case: Case) -> Choice | None:
        choice = rule(case)
        assert choice is not None
        value, reason = choice
        if case.per_process < value:
            value, reason = case.per_process, case.counted
        limit, length = (most if case.size.cpu else 4 * most), case.length
        if most and length and value * length > limit:
            unit = "frames" if case.size.unit == "sounds" else "tokens"
            value, reason = max(min(4, value), int(limit / length)), f"inputs of {length:,.0f} {unit}"
        return Choice(value, reason)

    return bounded


def tokens_of_a_batch(*values: int, accelerator: Sequence[int], side: str, most: int) -> Rule:
    """Returns the rule of the tokens of a batch: those of a number of examples of mean length (of the text ``side``),
    at most ``most`` on a CPU, and four times as many on an accelerator."""
    rule = table(*values, accelerator=accelerator)

    def tokens(case: Case) -> Choice | None:
        choice = rule(case)
        assert choice is not None
        number, length = min(choice.value, case.per_process), max(1.0, getattr(case, side))
        value = min(most if case.size.cpu else 4 * most, max(64, math.ceil(number * length)))
        return Choice(value, f"{value / length:,.0f} {case.size.unit} of {length:,.0f} tokens")

    return tokens


def epochs(*updates: int, most: int = 300, accelerator: Sequence[int] = (), steps: Sequence[int] = ROWS) -> Rule:
    """Returns the rule of the epochs: enough for a number of updates, at least one and at most ``most``. Early stopping
    ends most trainings before (`patience`)."""
    rule = table(*updates, accelerator=accelerator, steps=steps)

    def enough(case: Case) -> Choice | None:
        choice, number = rule(case), case.batches
        assert choice is not None
        value = min(most, max(1, math.ceil(choice.value / number)))
        return Choice(value, f"about {value * number:,} updates")

    return enough


def validate_every(cost: float) -> Rule:
    """Returns the rule of the steps between validations, which take about a quarter of the training's time; ``cost`` is
    that of a validation example, in those of a training batch."""

    def rule(case: Case) -> Choice:
        size, options, updates = case.size, case.options, case.updates
        limit = getattr(options, "validation_pairs", 0) or getattr(options, "validation_articles", 0)
        validated = size.validation or max(1, size.rows // 10)
        validated = min(validated, limit) if limit else validated
        if options.epochs <= FEWEST_VALIDATIONS and updates < FEW_UPDATES:
            return Choice(0, f"after each of {options.epochs} epochs")
        trained = size.rows * options.epochs
        if size.unit == "bytes":
            trained = updates * options.batch_size * options.context * case.bytes_per_token("source")
        number = max(FEWEST_VALIDATIONS, min(MOST_VALIDATIONS, round(0.25 * trained / (cost * validated))))
        value = math.ceil(updates / number)
        return Choice(value, f"about {math.ceil(updates / value)} validations")

    return rule


def patience(case: Case) -> Choice:
    """Chooses a third of the validations; after so many without an improvement the training ends."""
    validations = case.updates / (case.options.validate_every or case.batches)
    return Choice(max(3, round(validations / 3)), "a third of the validations")


def patience_after(case: Case) -> Choice:
    """Chooses a quarter of the updates, within which the training never ends early."""
    return Choice(case.updates // 4, "a quarter of the updates")


def warmup(case: Case) -> Choice:
    """Chooses a twentieth of the updates for a Transformer; a recurrent network needs no warmup."""
    if case.options.architecture not in ("transformer", "vit"):
        return Choice(0, f"architecture {case.options.architecture}")
    return Choice(min(1000, case.updates // 20), "a twentieth of the updates")


def learning_rate(case: Case) -> Choice:
    """Chooses a larger rate for few features, which still learn steadily, and a smaller one for a wide Transformer."""
    options = case.options
    transformer = options.architecture in ("transformer", "vit")
    features = getattr(options, "hidden" if case.has_meaning("hidden") else "grid", None) or options.embedding
    reason = f"{features} features" + (" of a Transformer" if transformer else "")
    if case.size.unit == "bytes":
        return Choice(3e-3 if features <= 128 else 2e-3 if features <= 256 else 1e-3, reason)
    if transformer:
        return Choice(1e-3 if features <= 256 else 5e-4, reason)
    return Choice(2e-3 if features <= 192 else 1e-3, reason)


def tokenizer(*sides: Side, most: float = 0.0) -> Rule:
    """Returns the rule of a tokenizer: words; for scripts without spaces, sub-words, or characters of texts of a mean
    length of at most ``most``. Characters are the easiest tokens to learn, but make the longest texts. Words are chosen
    if the user has set an option that applies to words only."""

    def rule(case: Case) -> Choice:
        size = case.size
        for name in ("word_vectors", "min_count"):
            if case.typed.get(name) is not None:
                return Choice("word", f"for {name}")
        share, side = max((size.unspaced[SIDES.index(side)], side) for side in sides)
        reason = _unspaced_reason(share, f" of the {side}s" if len(sides) > 1 else "")
        if share <= UNSPACED_SHARE:
            return Choice("word", reason)
        if not most:
            return Choice("bpe", reason)
        characters = size.length / _character_bytes(share)
        if characters <= most:
            return Choice("char", reason)
        return Choice("bpe", f"{reason}, inputs of {characters:,.0f} characters")

    return rule


def side_tokenizer(side: Side) -> Rule:
    """Returns the rule of a side: characters for short texts of scripts without spaces, unless a tokenizer is set."""

    def rule(case: Case) -> Choice | None:
        size, share = case.size, case.size.unspaced[SIDES.index(side)]
        mean = (size.length, size.target)[SIDES.index(side)] / _character_bytes(share)
        is_set = any(case.typed.get(name) is not None for name in ("tokenizer", "vocabulary", "word_vectors"))
        if is_set or share <= UNSPACED_SHARE or mean > MOST_CHARACTERS:
            return None
        return Choice("char", _unspaced_reason(share, f" of the {side}s"))

    return rule


def pair_length(case: Case) -> Choice | None:
    """Chooses a larger limit where tokens are characters, so that the same pairs are short enough."""
    if "char" not in (case.options.source_tokenizer, case.options.target_tokenizer):
        return None
    return Choice(4 * MOST_CHARACTERS, "tokens of a side are characters")


def _unspaced_reason(share: float, of: str) -> str:
    return f"{_percent(share)} of the letters{of} are of scripts without spaces between words"


def _character_bytes(share: float) -> float:
    # The mean over all characters: those of scripts without spaces have 3 bytes in UTF-8, the others about 1.
    return 1.0 + 2.0 * share


def _percent(share: float) -> str:
    return f"{share:.0%}" if not share or share >= 0.1 else f"{max(share, 0.001):.1%}"


def vocabulary(*values: int) -> Rule:
    """Returns the rule of the number of sub-words; the data decide the number of words and of characters."""
    rule = table(*values)

    def sub_words(case: Case) -> Choice | None:
        return rule(case) if "bpe" in map(case.kind, SIDES) else None

    return sub_words


def language_vocabulary(case: Case) -> Choice | None:
    """Chooses the 256 bytes and the square root of the text's length in further sub-words."""
    if case.options.tokenizer != "bpe":
        return None
    return Choice(min(8_000, 256 + math.isqrt(case.size.rows)), case.counted)


def context(case: Case) -> Choice:
    """Chooses the tokens of a window, so few that a short text has several windows."""
    rule = table(64, 128, 128, 128, accelerator=(64, 128, 256, 256), steps=BYTES)
    choice = rule(case)
    assert choice is not None
    most = max(4, case.tokens // 8)
    return choice if choice.value <= most else Choice(most, case.counted)


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def training_length(updates: Rule, cost: float) -> dict[str, Rule]:
    """Returns the rules of the length and the pace of a training."""
    return {
        "epochs": updates,
        "validate_every": validate_every(cost),
        "patience": patience,
        "patience_after": patience_after,
        "warmup": warmup,
        "learning_rate": learning_rate,
    }
