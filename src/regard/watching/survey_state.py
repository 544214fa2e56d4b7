"""The sums of a survey: in memory, in a file that is written after each batch, and added up over processes."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from torch import distributed, nn

from regard.errors import ArgumentError, DataError, KindError
from regard.files.atomic import AtomicFile
from regard.files.regular import LARGEST_TEXT, path_inside, read_text
from regard.shapes.checks import type_text
from regard.watching.corpus import CorpusBatch
from regard.watching.head_statistics import DIGEST_COUNT, HeadSums, statistic_names

_Value = TypeVar("_Value")

STATE_VERSION = 2
"""The version of the files; those of version 1 have no groups of texts."""


@dataclass
class SurveyPart:
    """The sums of one process in one run, over batches ``rank, rank + processes, ...`` below ``end``.

    Attributes:
        end: the process, or an earlier run, read all of its batches below this number.
        texts, tokens, cut: the numbers of texts, of counted tokens, and of texts that were cut.
        digest: the sum of the digests of its batches.
        first: the digest of the first batch of the corpus, if it read that one.
        corpus: the sum of the digests of its tokens, which does not depend on batches and processes.
        heads: the sums of each module's heads, by its name.
        ignored: the difference of calls without statistics from others, by the name of the module.
    """

    rank: int = 0
    processes: int = 1
    end: int = 0
    texts: int = 0
    tokens: int = 0
    cut: int = 0
    digest: int = 0
    first: int | None = None
    corpus: int = 0
    heads: dict[str, HeadSums] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)

    def covers(self, batch: CorpusBatch) -> bool:
        return batch.number < self.end and batch.number % self.processes == self.rank

    def add(self, name: str, sums: HeadSums) -> None:
        """Adds the sums of one call."""
        if name in self.heads:
            self.heads[name].add(sums)
        else:
            self.heads[name] = sums

    def merge(self, other: "SurveyPart") -> None:
        """Adds the sums of other texts."""
        for name, sums in other.heads.items():
            self.add(name, sums.copy())
        self.ignored |= other.ignored
        self.texts += other.texts
        self.tokens += other.tokens
        self.cut += other.cut
        self.corpus = (self.corpus + other.corpus) % DIGEST_COUNT

    def finish(self, batch: CorpusBatch) -> None:
        """Counts a batch as read."""
        self.end = batch.number + 1
        self.texts += len(batch.texts)
        self.digest = (self.digest + batch.digest()) % DIGEST_COUNT
        if batch.number == 0:
            self.first = batch.digest()

    def to_json(self) -> dict[str, Any]:
        heads = {name: sums.to_json() for name, sums in self.heads.items()}
        digests = {"digest": hex(self.digest), "first": self.first and hex(self.first), "corpus": hex(self.corpus)}
        return vars(self) | digests | {"heads": heads}

    @classmethod
    def from_json(cls, fields: dict[str, Any], offsets: int) -> "SurveyPart":
        statistics = len(statistic_names(offsets))
        heads = {name: HeadSums.from_json(sums, statistics) for name, sums in fields["heads"].items()}
        first = None if fields["first"] is None else int(fields["first"], 16)
        digests: dict[str, Any] = {name: int(fields[name], 16) for name in ("digest", "corpus")}
        return cls(**fields | digests | {"heads": heads, "first": first})


def merged_parts(parts: list[SurveyPart]) -> SurveyPart:
    """Adds up all parts in their order."""
    whole = SurveyPart()
    for part in parts:
        whole.merge(part)
    return whole


class SurveyState:
    """The folder of a survey: a file for each process of each run, written whole after each batch.

    Args:
        folder: the folder; None: nothing is written.
        options: the settings on which the sums depend, besides the texts.

    Attributes:
        earlier: the parts of earlier runs.

    Raises:
        DataError: files of another model or other options; files that are damaged; a folder that another process uses.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, options: dict[str, str]):
        if folder is not None and not isinstance(folder, (str, os.PathLike)):
            raise KindError(f"state must be the path of a folder; it is {type_text(folder)}")
        self._folder = None if folder is None else Path(folder)
        self._options = options
        self.earlier: list[SurveyPart] = []
        self._run = 0
        if self._folder is not None:
            self._read(self._folder)

    def _read(self, folder: Path) -> None:
        for path in sorted(folder.glob("run-*.json")):
            try:
                fields = json.loads(read_text(path_inside(folder, path.name), LARGEST_TEXT))
                options, version = fields.pop("made_of"), fields.pop("version")
                number = int(path.stem.split("-")[1])
                another = [name for name, value in self._options.items() if options.get(name) != value]
                if version == STATE_VERSION and not another:
                    self.earlier.append(SurveyPart.from_json(fields, int(options["offsets"])))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise DataError(f"{path} is no state of a survey, or is damaged: {error!r}; move it away") from error
            if version != STATE_VERSION:
                raise DataError(f"{path} was written by another version of regard; use another folder")
            if another:
                raise DataError(f"{path} is the state of a survey with another {another[0]}; use another folder")
            self._run = max(self._run, number + 1)

    def save(self, part: SurveyPart) -> None:
        """Writes the part that this process read in this run; if that fails, the former file is unchanged."""
        if self._folder is None:
            return
        path = path_inside(self._folder, f"run-{self._run:04d}-process-{part.rank}-of-{part.processes}.json")
        with AtomicFile(path) as temporary:
            fields = {"version": STATE_VERSION, "made_of": self._options, **part.to_json()}
            temporary.write_text(json.dumps(fields), encoding="utf-8")

    def is_done(self, batch: CorpusBatch) -> bool:
        """Whether an earlier run read the batch; raises DataError if the corpus begins with other texts than it did."""
        done = any(part.covers(batch) for part in self.earlier)
        if done and batch.number == 0 and batch.digest() not in {part.first for part in self.earlier}:
            raise DataError(f"the texts are not those of the survey in {self._folder}: the first batch differs")
        return done

    def check(self, digest: int) -> None:
        """Raises DataError unless the skipped batches, whose digests sum to ``digest``, are those of earlier runs."""
        if sum(part.digest for part in self.earlier) % DIGEST_COUNT != digest % DIGEST_COUNT:
            raise DataError(
                f"the texts are not those of the survey in {self._folder}: some changed, or there are fewer than before"
            )

    @contextlib.contextmanager
    def locked(self, rank: int) -> Iterator[None]:
        """Locks the folder against other runs, within a context; the first process holds the lock."""
        if self._folder is None or rank:
            yield
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with path_inside(self._folder, ".lock").open("a") as file:
            try:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # on Windows, users keep a folder to one run themselves
                pass
            except OSError as error:
                raise DataError(f"{self._folder} is in use by another survey; wait, or use another folder") from error
            yield


def model_digest(model: nn.Module) -> str:
    """Returns a text that differs between models: a hash of class and of parameters' names, shapes and sums."""
    hashed = hashlib.sha256(f"{type(model).__module__}.{type(model).__qualname__}".encode())
    for name, parameter in model.named_parameters():
        try:
            total = parameter.detach().double().sum().item()
        except (RuntimeError, NotImplementedError, TypeError) as error:  # offloaded, or of a special class
            raise ArgumentError(
                f"state tells models apart by their weights, and those of {name!r}, a {type(parameter).__name__} on "
                f"{parameter.device}, cannot be added up: survey without state"
            ) from error
        hashed.update(f"{name} {list(parameter.shape)} {parameter.dtype} {total!r}".encode())
    return hashed.hexdigest()


@contextlib.contextmanager
def processes() -> Iterator[tuple[int, int]]:
    """Yields the rank of this process, and the number of all: in the group that exists, or the one of ``torchrun``."""
    if not distributed.is_available():
        yield 0, 1
        return
    own = not distributed.is_initialized() and distributed.is_torchelastic_launched()
    if own:
        distributed.init_process_group("gloo")
    try:
        yield (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
    finally:
        if own:
            distributed.destroy_process_group()


@contextlib.contextmanager
def agreement(count: int) -> Iterator[None]:
    """Makes all processes leave a context together: with an error in all of them if one failed."""
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
    messages = gathered_values(None if failure is None else f"{type(failure).__name__}: {failure}", count)
    if failure is not None:
        raise failure
    for rank, message in enumerate(messages):
        if message is not None:
            raise DataError(f"process {rank} of the survey failed: {message}")


def gathered_values(value: _Value, count: int) -> list[_Value]:
    """Returns the values of all processes, in the order of ranks, in every process."""
    if count == 1:
        return [value]
    values: list[Any] = [None] * count
    distributed.all_gather_object(values, value)
    return values
