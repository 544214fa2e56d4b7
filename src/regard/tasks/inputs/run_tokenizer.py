"""The tokenizer of a run: the saved one, that of the run it starts from, or one learnt from the training texts."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from regard.data import text as text_data
from regard.data.text.words import unspaced_share
from regard.errors import RunError
from regard.training.run_folder import RunFolder

if TYPE_CHECKING:
    from regard.data.text.tokenizers import Tokenizer

log = logging.getLogger("regard")


def tokenizer_path(folder: RunFolder, side: str | None = None) -> Path:
    """Returns the tokenizer in a run folder, or that of a side: a ``tokenizer.json`` of Hugging Face."""
    return folder.file("tokenizer.json" if side is None else f"tokenizer-{side}.json")


def text_tokenizer(path: Path, run: Any, texts: Any, min_count: int = 1, option: str = "tokenizer") -> Tokenizer:
    """Returns the tokenizer of a run: the saved one, that of the run it starts from, or one learnt from the texts, in
    which a word that occurs fewer than ``min_count`` times is unknown.

    ``option`` names its kind; where it is not set, it is that of both sides. Raises RunError if the tokenizer of the
    run it starts from (``--init-from``) is missing, damaged, or of another kind.
    """
    tokenizers, data, initial = text_data.tokenizers.Tokenizer, run.data, run.training.init_from
    kind = getattr(data, option) or data.tokenizer
    if path.is_file():
        return tokenizers.load(path)
    if initial is not None:
        named = SimpleNamespace(tokenizer=kind, lowercase=data.lowercase)
        tokenizer = initial_tokenizer(tokenizers, initial, path.name, named)
    else:
        tokenizer = tokenizers.train(texts, kind, data.vocabulary, data.lowercase, min_count)
        share = unspaced_share([tokenizer.decode(list(range(len(tokenizer))))]) if kind == "word" else 0.0
        if share > 0.5:
            log.warning(
                "%.0f %% of the letters of the vocabulary are of scripts without spaces between words, where the "
                "tokenizer 'word' makes one token of a clause; 'char' and 'bpe' make smaller ones",
                100 * share,
            )
    tokenizer.save(path)
    return tokenizers.load(path)


def initial_tokenizer(kind: type[Any], run: str, file_name: str, data: Any) -> Any:
    """Returns the tokenizer of another run, whose options must be those of this one."""
    tokenizer = kind.load(RunFolder.open(run).file(file_name))
    for option, attribute in (("tokenizer", "kind"), ("lowercase", "lowercase")):
        own, has = getattr(data, option, None), getattr(tokenizer, attribute, None)
        if own != has:
            raise RunError(
                f"--init-from: --{option} is {has!r} in {run}, and {own!r} here; a run takes the tokenizers of the "
                "run that it starts from, so give the same"
            )
    return tokenizer
