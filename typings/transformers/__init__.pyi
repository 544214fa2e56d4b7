# All names are `Any` to pyright: the package of transformers imports each of its hundreds of models, and reading them
# takes longer than checking all of regard.

from typing import Any

def __getattr__(name: str) -> Any: ...
