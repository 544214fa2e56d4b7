"""The configuration of a training run: frozen dataclasses, and their YAML form, which the safe loader reads."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from regard.configuration import AT_LEAST_0, AT_LEAST_1, SEED, Configuration, Range, check_finite, option
from regard.configuration.options import option_fields
from regard.configuration.upgrades import upgraded_sections, with_former_meaning
from regard.errors import ArgumentError, MissingPartError, RunError
from regard.exports.formats import Format
from regard.files.regular import read_text
from regard.training.sections import build_section, shown

ScheduleName = Literal["constant", "inverse_sqrt", "cosine", "linear", "plateau"]
Precision = Literal["32", "bf16-mixed", "16-mixed"]
LOGGERS = ("csv", "tensorboard", "mlflow", "wandb")

SECTIONS = ("data", "model", "training")

LARGEST_YAML = 1 << 18
"""The most bytes of a configuration; the YAML reader takes seconds for a megabyte."""


@dataclass(frozen=True)
class TrainingConfig(Configuration):
    """How a model is trained, and for how long: the fields that every task has."""

    optimizer: Literal["adam", "adamw"] = "adamw"
    """adam or adamw."""
    learning_rate: float = 1e-3
    """Peak learning rate."""
    weight_decay: float = option(0.0, within=AT_LEAST_0)
    """Decoupled weight decay of adamw, for each unit of learning rate."""
    schedule: ScheduleName = "constant"
    """Learning rate after the warmup: constant, inverse_sqrt, cosine or linear (these two decay to 0 over all epochs),
    or plateau (halves the rate when the loss no longer falls)."""
    warmup: int = option(0, within=AT_LEAST_0)
    """Steps of linear warmup."""
    plateau_patience: int = option(2, within=AT_LEAST_1)
    """Validations in a row without a lower loss after which plateau halves the learning rate."""
    clip: float = option(1.0, within=AT_LEAST_0)
    """Largest norm of the gradient of all parameters; 0: the gradient is not clipped."""
    epochs: int = option(20, within=AT_LEAST_1)
    """Epochs after which training ends, unless patience ends it earlier."""
    max_minutes: float = option(0.0, within=AT_LEAST_0)
    """Minutes of training and validation after which training ends; --resume counts them anew; 0: no limit."""
    patience: int = option(5, within=AT_LEAST_0)
    """Training ends after this many validations in a row without a better metric or a lower loss; a perfect metric ends
    it at the third validation from the first perfect one on. 0: training runs for all epochs."""
    patience_after: int = option(500, within=AT_LEAST_0)
    """Steps after which validations count for patience; those after a perfect metric always count."""
    validate_every: int = option(0, within=AT_LEAST_0)
    """Steps between validations; 0: the model is validated after each epoch."""
    checkpoint_minutes: float = option(5.0, within=AT_LEAST_0)
    """Minutes between checkpoints; each validation also writes one."""
    checkpoint_steps: int = option(0, within=AT_LEAST_0)
    """Steps between checkpoints; 0: only checkpoint_minutes decides."""
    seed: int = option(1, within=SEED)
    """Seed of the initial weights, the order of the batches and dropout."""
    init_from: str | None = None
    """Run folder (or hf://OWNER/NAME) of a trained model, with whose weights and tokenizers this run starts. Default:
    random weights."""
    for_export: Format | None = None
    """The format that regard export --to will write: onnx, torch or hf. A model that can be exported so is chosen; if
    the other options exclude one, the training does not start. Default: none."""
    license: str | None = None
    """Licence of the model, for its model card: an identifier of the Hugging Face hub, such as apache-2.0 or cc-by-4.0,
    or the name of another licence. Default: none is stated."""
    logger: str = ""
    """Loggers besides metrics.csv, separated by commas: csv, tensorboard, mlflow, wandb. Default: none."""
    precision: Precision = "32"
    """32, bf16-mixed or 16-mixed."""
    threads: int = option(0, within=Range(0, 1024))
    """CPU threads; 0: PyTorch's own number."""
    accelerator: str = "auto"
    """Lightning's name of the accelerator: auto, cpu, gpu, mps, ..."""
    devices: str = "auto"
    """A number of devices, a list of their indices '0,1', or auto."""
    nodes: int = option(1, within=AT_LEAST_1)
    """Machines of a distributed training, each with the same devices."""
    strategy: str = "auto"
    """Lightning's name of the strategy for several devices: auto, ddp, fsdp, ..."""

    def check(self) -> None:
        super().check()
        check_finite(self)
        if self.license is not None:
            printable = self.license.strip() and self.license.isprintable() and len(self.license) <= 100
            if not printable:
                shown_license = shown(self.license)
                raise ArgumentError(f"license must be a name of 1 to 100 printable characters; it is {shown_license}")
        if not self.learning_rate > 0:
            raise ArgumentError(f"learning_rate must be above 0; it is {self.learning_rate}")
        for name in self.loggers:
            if name not in LOGGERS:
                raise ArgumentError(f"logger must be of {', '.join(LOGGERS)}, separated by commas; it is {name!r}")

    @property
    def loggers(self) -> list[str]:
        """The names in ``logger``."""
        return [name.strip() for name in self.logger.split(",") if name.strip()]


class SectionTypes(Protocol):
    """A task (`regard.training.task.Task`), as far as its configuration needs it."""

    name: ClassVar[str]
    data_config: ClassVar[type[Any]]
    model_config: ClassVar[type[Any]]
    training_config: ClassVar[type[TrainingConfig]]

    def check_run(self, run: "RunConfig") -> None:
        """Raises ArgumentError if sections of a configuration contradict each other."""
        ...


def section_kinds(task: SectionTypes) -> dict[str, type[Any]]:
    """Returns the dataclass of each section of the configuration of a task's runs."""
    return {"data": task.data_config, "model": task.model_config, "training": task.training_config}


@dataclass(frozen=True)
class RunConfig:
    """The configuration of a run: the content of ``config.yaml`` in its run folder.

    The sections are frozen dataclasses of the task: its ``data_config``, ``model_config`` and ``training_config``.
    """

    task: str
    """Name of the task."""
    data: Any
    model: Any
    """The fields that the data decide, such as the sizes of vocabularies, are left out of the file."""
    training: Any

    def to_dict(self) -> dict[str, Any]:
        """Returns the configuration as plain values for YAML and JSON, without the fields that the data decide."""
        sections = {name: getattr(self, name) for name in SECTIONS}
        return {"task": self.task} | {
            name: {field.name: getattr(section, field.name) for field in option_fields(section)}
            for name, section in sections.items()
        }

    @classmethod
    def from_dict(cls, content: object, origin: str, task: SectionTypes) -> "RunConfig":
        """Returns the configuration that ``to_dict`` wrote, in this version or in an earlier one.

        Args:
            content: the content of the file.
            origin: the name of the file, for messages.
            task: the task of the run.

        Raises:
            RunError: a field is missing, unknown or of a wrong type.
        """
        sections = run_sections(content, origin)
        if sections["task"] != task.name:
            raise RunError(f"{origin} is the configuration of the task {sections['task']!r}, not of {task.name!r}")
        kinds = section_kinds(task)
        sections = upgraded_sections(sections, kinds)
        sections["model"] = with_former_meaning(kinds["model"], sections["model"])
        try:
            parts: dict[str, Any] = {
                name: build_section(kind, sections[name], f"{origin}: {name}") for name, kind in kinds.items()
            }
            return cls(task.name, **parts)
        except ArgumentError as error:
            raise RunError(f"{origin}: {error}") from error


def options_by_section(task: SectionTypes, options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the options of each section of a task's configuration; other options are left out."""
    return {
        section: {field.name: options[field.name] for field in option_fields(kind) if field.name in options}
        for section, kind in section_kinds(task).items()
    }


def make_config(task: SectionTypes, fields: Mapping[str, Mapping[str, Any]]) -> "RunConfig":
    """Returns the configuration of a run.

    Args:
        fields: section → its fields with other values than their defaults.

    Raises:
        ArgumentError: a value is out of range, or values contradict each other.
    """
    config = RunConfig(task.name, **{section: kind(**fields[section]) for section, kind in section_kinds(task).items()})
    task.check_run(config)
    return config


def run_sections(content: object, origin: str) -> dict[str, Any]:
    """Returns the task and the sections of a run's configuration as plain values; their fields are not checked.

    Raises:
        RunError: it is not the configuration of a run.
    """
    if not isinstance(content, dict) or not all(isinstance(content.get(part), dict) for part in SECTIONS):
        raise RunError(f"{origin} is not the configuration of a run: it must have data, training and model")
    task = content.get("task", "translate")
    if not isinstance(task, str):
        raise RunError(f"{origin}: task must be the name of a task; it is {shown(task)}")
    return {"task": task, **{part: content[part] for part in SECTIONS}}


def read_yaml(path: Path) -> Any:
    """Returns the plain values in a YAML file.

    Raises:
        RunError: the file cannot be read, or is not YAML.
    """
    yaml = _yaml()
    try:
        return yaml.safe_load(read_text(path, LARGEST_YAML))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RunError(f"{path} is not UTF-8 text (byte {error.start})") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: an impossible date or number
        raise RunError(f"{path} is not valid YAML: {str(error).splitlines()[0]}") from error


def yaml_text(content: dict[str, Any]) -> str:
    """Returns plain values as YAML, in their order."""
    return _yaml().safe_dump(content, sort_keys=False, allow_unicode=True)


def _yaml() -> Any:
    with MissingPartError.instead("pyyaml", "train"):
        import yaml
    return yaml
