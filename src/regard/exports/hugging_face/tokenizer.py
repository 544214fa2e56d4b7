"""Tokenizers that transformers loads."""

import json
from pathlib import Path
from typing import Any

from regard.data.text.tokenizers import TextTokenizer, Tokenizer
from regard.errors import WriteError
from regard.exports.hugging_face.folder import transformers_package
from regard.exports.torch_programs import quiet
from regard.files.atomic import write_atomically
from regard.files.regular import LARGEST_RECORD, read_text

CLASS_PIECE = "<cls>"


def save_tokenizer(
    tokenizer: Tokenizer | TextTokenizer, path: Path, *, class_token: bool = False, longest: int | None = None
) -> None:
    """Writes a tokenizer that `transformers.AutoTokenizer` loads, and that encodes every text as ours; ``class_token``
    adds one, with the next id, and ``longest`` are the tokens after which a text is cut where that is asked for."""
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Backend
    from tokenizers.processors import TemplateProcessing

    transformers = transformers_package()
    names = type(tokenizer).SPECIAL
    if isinstance(tokenizer, Tokenizer):
        pad, bos, eos, unknown = names
        special: dict[str, Any] = {"pad_token": pad, "bos_token": bos, "eos_token": eos, "unk_token": unknown}
    else:
        end, unknown = names
        special = {"pad_token": end, "bos_token": end, "eos_token": end, "unk_token": unknown}
    path.mkdir(parents=True, exist_ok=True)
    tokenizer.save(path / "tokenizer.json")
    backend = Backend.from_file(str(path / "tokenizer.json"))
    if class_token:
        backend.add_special_tokens([AddedToken(CLASS_PIECE, normalized=False)])
        pieces = [(CLASS_PIECE, len(tokenizer))]
        backend.post_processor = TemplateProcessing(
            single=f"{CLASS_PIECE} $A", pair=f"{CLASS_PIECE} $A $B", special_tokens=pieces
        )
        special["cls_token"] = CLASS_PIECE
    if longest is not None:
        special["model_max_length"] = longest
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        split_special_tokens=True,  # the name of a special piece in a text is text
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
        **special,
    )
    with quiet():
        try:
            fast.save_pretrained(path)
        except Exception as error:  # tokenizers raises a plain one when the disk is full
            if "os error" not in str(error):
                raise
            raise WriteError(f"cannot write into {path}: {str(error).splitlines()[0]}; free some disk space") from error
    # transformers 5 writes "TokenizersBackend", and reads the name by which transformers 4 knows this class as well.
    file = path / "tokenizer_config.json"
    settings = {**json.loads(read_text(file, LARGEST_RECORD)), "tokenizer_class": "PreTrainedTokenizerFast"}
    write_atomically(file, json.dumps(settings, indent=2, ensure_ascii=False).encode())
