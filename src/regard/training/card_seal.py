"""The seal of a model card: its last line has the SHA-256 sum of the others.

A card that somebody has edited is recognized by it, and is never replaced or deleted.
"""

import hashlib
import re
from pathlib import Path

from regard.files.regular import LARGEST_RECORD, read_bytes

CARD = "README.md"

_SEAL = re.compile(rb"<!-- regard renews this card until somebody edits it: ([0-9a-f]{64}) -->\n\Z")


def sealed(content: bytes) -> bytes:
    """Returns the content of a card with its seal."""
    seal = f"<!-- regard renews this card until somebody edits it: {hashlib.sha256(content).hexdigest()} -->\n"
    return content + seal.encode()


def is_own_card(path: Path) -> bool:
    """Whether a file is a card that regard wrote and that has not been edited."""
    return _has_right_seal(path) is True


def is_edited_card(path: Path) -> bool:
    """Whether a file is a card that regard wrote and that has been edited."""
    return _has_right_seal(path) is False


def _has_right_seal(path: Path) -> bool | None:
    """Whether the checksum of a card is right; None: the file has none, or cannot be read."""
    try:
        content = read_bytes(path, LARGEST_RECORD)
    except OSError:
        return None
    seal = _SEAL.search(content)
    return None if seal is None else hashlib.sha256(content[: seal.start()]).hexdigest().encode() == seal[1]
