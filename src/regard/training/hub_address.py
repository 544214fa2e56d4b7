"""The address of a run on the Hugging Face hub: ``hf://OWNER/NAME``, or ``hf://OWNER/NAME@REVISION``."""

import os
import re
from typing import NamedTuple

from regard.errors import ArgumentError

_ADDRESS = re.compile(r"hf:/{1,2}([^/@]+)/([^/@]+?)(?:@(.+))?")  # a `Path` has one slash
_NAME = re.compile(r"(?!.*(--|\.\.))[A-Za-z0-9]([\w.-]{0,94}[A-Za-z0-9_])?")
_REVISION = re.compile(r"(?!.*\.\.)\w[\w./-]{0,200}")
_EXAMPLE = "hf://OWNER/NAME or hf://OWNER/NAME@REVISION"


class HubAddress(NamedTuple):
    """Where a run is on the hub."""

    owner: str
    name: str
    revision: str | None = None
    """A branch, a tag or a commit; None: the newest commit."""

    @property
    def repository(self) -> str:
        """``OWNER/NAME``."""
        return f"{self.owner}/{self.name}"

    def __str__(self) -> str:
        return f"hf://{self.repository}{f'@{self.revision}' if self.revision else ''}"

    @classmethod
    def parse(cls, address: str) -> "HubAddress":
        """Returns the parts of ``hf://OWNER/NAME`` or ``hf://OWNER/NAME@REVISION``.

        Raises:
            ArgumentError: it is another text, or a part is no name on the hub.
        """
        match = _ADDRESS.fullmatch(address)
        if not match or not all(map(_NAME.fullmatch, match.groups()[:2])):
            raise ArgumentError(f"a run on the hub is named {_EXAMPLE}; it is {address!r:.200}")
        if match[3] is not None and not _REVISION.fullmatch(match[3]):
            raise ArgumentError(f"the revision must be a branch, a tag or a commit; it is {match[3]!r:.200}")
        return cls(*match.groups())


def is_hub_address(name: str | os.PathLike[str]) -> bool:
    """Whether a run is named by its address on the hub, and not by its folder."""
    return os.fspath(name).startswith("hf:/")
