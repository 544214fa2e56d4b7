"""Where attention calls stand in a watched model: their layer, their kind, and the forward pass that they belong to."""

from regard.watching.attention_call import Kind
from regard.watching.intercepted import Intercepted
from regard.watching.owners import Owner


class CallPlaces:
    """What tells where a call stands from the calls before it, for one context."""

    def __init__(self) -> None:
        self._forwards = 0
        self._in_forward: dict[str, int] = {}
        self._causal: set[str] = set()

    def begin_forward(self) -> None:
        """Note that the model itself was called."""
        self._forwards += 1
        self._in_forward.clear()

    @property
    def forward(self) -> int:
        """The forward pass of the model that runs, from 0."""
        return max(self._forwards - 1, 0)

    def layer(self, name: str, layer: int, is_square: bool) -> int:
        """The layer of a module's next call.

        Args:
            name: of the module.
            layer: the module's.
            is_square: whether the call has as many keys as queries, and several.
        """
        if not is_square or not self._forwards:
            return layer
        # How often this module attended in this forward pass of the model before: layers may share one module.
        before = self._in_forward[name] = self._in_forward.get(name, -1) + 1
        return before or layer

    def kind(self, owner: Owner, found: Intercepted, name: str) -> Kind:
        """The kind of a call.

        Args:
            owner: whose it is.
            found: what it computes.
            name: of the module, or of the part of it that attends.
        """
        if owner.cross if found.cross is None else found.cross or owner.cross:
            return "cross"
        causal = found.causal
        if not causal and found.grid.queries == 1:
            # A single query sees all tokens before it: its mask does not tell what its module is.
            is_causal = getattr(owner.module, "is_causal", None) is True
            causal = name in self._causal or is_causal or (found.grid.keys == 1 and _is_in_decoder(name))
        if causal:
            self._causal.add(name)
        return "causal" if causal else "self"


def _is_in_decoder(name: str) -> bool:
    return "decoder" in name.lower()
