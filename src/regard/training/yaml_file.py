"""Configurations as YAML: read by the safe loader, which builds plain values only, and written in their order."""

from pathlib import Path
from typing import Any

from regard.errors import MissingPartError, RunError
from regard.regular_file import read_text

LARGEST = 1 << 18
"""Bytes of a configuration; the reader of YAML takes seconds for a megabyte."""


def read_yaml(path: Path) -> Any:
    """The plain values in a file.

    Raises:
        RunError: the file cannot be read, or is not YAML.
    """
    yaml = _yaml()
    try:
        return yaml.safe_load(read_text(path, LARGEST))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise RunError(f"{path} is not UTF-8 text (byte {error.start})") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date or a number that is none
        raise RunError(f"{path} is not valid YAML: {str(error).splitlines()[0]}") from error


def yaml_text(content: dict[str, Any]) -> str:
    """Plain values as YAML."""
    return _yaml().safe_dump(content, sort_keys=False, allow_unicode=True)


def _yaml() -> Any:
    try:
        import yaml
    except ImportError as error:
        raise MissingPartError("pyyaml", "train") from error
    return yaml
