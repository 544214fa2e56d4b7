"""The text of a run: opened, split and encoded according to its configuration."""

import glob
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from regard.data.text.running_text import TokenTable, encode_text, names_of, read_text, text_files
from regard.data.text.tokenizers import TextTokenizer
from regard.errors import DataError, RunError
from regard.tasks.language.config import DataConfig
from regard.tasks.language.task import SUFFIX, LanguageRun
from regard.tasks.run_data import held_out_size
from regard.tasks.run_files import bundled_path, tokenizer_path
from regard.training.run_folder import RunFolder

log = logging.getLogger("regard")

BUNDLED_SEED = 1
BUNDLED_VALIDATION, BUNDLED_TEST = 1000, 1000


@dataclass(frozen=True, slots=True)
class Corpus:
    """The training and validation text of a run, as ids."""

    train: TokenTable
    validation: TokenTable
    """Its first id is only read; the others are predicted."""
    tokenizer: TextTokenizer


def open_corpus(run: LanguageRun, folder: RunFolder) -> Corpus:
    """Open, split and encode the text of a run.

    The tokenizer is learned from the training text and saved in the run folder; a saved tokenizer is loaded instead. A
    run that starts from the model of another run takes its tokenizer. The bundled text is written into the run folder
    as ``corpus/*.txt``.

    Args:
        run: the configuration of the run.
        folder: the run folder.

    Raises:
        DataError: a file cannot be used, or there is too little text to validate on.
        RunError: the tokenizer of ``init_from`` does not fit.
    """
    config = run.data
    if config.bundled:
        _write_bundled(folder, config.bundled)
    files = _files(config, folder, "train")
    for part in ("validation", "test"):
        if config.train is not None and getattr(config, part) == config.train:
            log.warning("the %s text is the training text: its metrics say nothing about other texts", part)
    # The other files are looked for now, so that a mistake does not wait until the training text is read.
    others = {
        part: _files(config, folder, part)
        for part in ("validation", "test")
        if config.bundled or getattr(config, part) is not None
    }
    tokenizer = _tokenizer(run, folder, files)
    train = encode_text(files, tokenizer)
    if "test" in others:
        encode_text(others["test"], tokenizer)
    if "validation" in others:
        validation = encode_text(others["validation"], tokenizer)
    else:
        held_out = held_out_size(len(train), config.held_out, f"{config.train} has {len(train)} tokens", "text")
        cut = len(train) - held_out
        train, validation = train.part(0, cut), train.part(cut - 1, len(train))
    return Corpus(train, validation, tokenizer)


def located_text(folder: RunFolder, source: str) -> tuple[Path, ...]:
    """The files of a source of text, found from any working directory."""
    began_in = folder.manifest.read().began_in

    def found(part: str) -> str:
        place = os.path.join(began_in, part)  # an absolute part stays as it is
        return place if os.path.exists(place) or glob.has_magic(part) else part

    whole = found(source)
    parts = [whole] if os.path.exists(whole) else [found(part.strip()) for part in source.split(",")]
    return text_files(parts)


@contextmanager
def bundled_test() -> Iterator[Path]:
    """The file of the test part of the bundled text, while the context lasts."""
    from regard.data.text.generated import write_text

    # The test part does not depend on the number of training sentences, so a run on other text makes it again.
    with tempfile.TemporaryDirectory(prefix="regard-") as temporary:
        sizes = {"validation": BUNDLED_VALIDATION, "test": BUNDLED_TEST}
        yield write_text(temporary, sizes, BUNDLED_SEED)["test"]


def _files(config: DataConfig, folder: RunFolder, part: str) -> tuple[Path, ...]:
    source = getattr(config, part)
    return (bundled_path(folder, part, SUFFIX),) if source is None else located_text(folder, source)


def _write_bundled(folder: RunFolder, sentences: int) -> None:
    from regard.data.text.generated import write_text

    if not bundled_path(folder, "train", SUFFIX).is_file():
        sizes = {"train": sentences, "validation": BUNDLED_VALIDATION, "test": BUNDLED_TEST}
        write_text(folder.tree("corpus"), sizes, BUNDLED_SEED)


def _tokenizer(run: LanguageRun, folder: RunFolder, files: tuple[Path, ...]) -> TextTokenizer:
    path, config = tokenizer_path(folder), run.data
    if not path.is_file():
        initial = run.training.init_from
        if initial is None:
            if not any(file.stat().st_size for file in files):
                raise DataError(f"{names_of(files)}: empty; it should hold text")
            learned = TextTokenizer.train(read_text(files), config.tokenizer, config.vocabulary)
        else:
            learned = TextTokenizer.load(tokenizer_path(RunFolder(initial)))
            if learned.kind != config.tokenizer:
                raise RunError(
                    f"--init-from: --tokenizer is {learned.kind!r} in {initial}, and {config.tokenizer!r} here; a run "
                    "takes the tokenizer of the run that it starts from, so give the same"
                )
        learned.save(path)
    return TextTokenizer.load(path)
