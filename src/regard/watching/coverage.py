"""Which modules of a watched model ran and which gave records, and the warnings about the others."""

import warnings
from collections.abc import Iterable, Sequence

from torch import nn

from regard.errors import ArgumentError, UnseenError
from regard.watching.families import looks_like_attention, mixes_tokens
from regard.watching.owners import ModuleNames, without_ancestors

NAMES_LIMIT = 8
"""The most modules that a message names; it counts the others."""


class UnseenAttentionWarning(UserWarning):
    """Some modules of a watched model look like attention, or mix tokens in a stack with attention, and gave no record.

    Example:
        >>> import warnings
        >>> import torch
        >>> import regard
        >>> class ReluAttention(torch.nn.Module):
        ...     def forward(self, x):
        ...         return (x @ x.mT).relu() @ x
        >>> model = torch.nn.Sequential(torch.nn.TransformerEncoderLayer(8, 2, batch_first=True), ReluAttention())
        >>> with warnings.catch_warnings(record=True, action="always") as caught, regard.watch(model):
        ...     _ = model(torch.randn(1, 3, 8))
        >>> print(caught[0].message)
        '1' (ReluAttention) in Sequential looks like attention and ran, but gave no record
    """


class Coverage:
    """The names of the modules of a watched model that ran, and of those that gave records."""

    def __init__(self, names: ModuleNames):
        self._names = names
        self.ran: set[str] = set()
        self._seen: set[str] = set()
        self._layers: set[int] = set()
        self._unreadable: dict[str, str] = {}
        self._silent: set[str | None] = set()
        self._silent_runs: dict[str, int] = {}
        self._unread: dict[str, int] = {}
        self._outermost: dict[str, str | None] = {}
        self._with_state: dict[str, int] = {}

    def runs(self, name: str) -> None:
        """Records that a module runs."""
        self.ran.add(name)
        around = self._outermost[name] if name in self._outermost else self._attention_around(name)
        if around == name:
            if name in self._silent:
                self._silent_runs[name] = self._silent_runs.get(name, 0) + 1
            self._silent.add(name)

    def seen(self, name: str, layer: int) -> None:
        """Records that a module of a layer made an attention call."""
        self._seen.add(name)
        self._layers.add(layer)
        self._silent.discard(self._attention_around(name))

    def _attention_around(self, name: str) -> str | None:
        """Returns the outermost of this module and its ancestors that looks like attention; None if none does."""
        if name not in self._outermost:
            modules, parts = self._names.modules, name.split(".") if name else []
            around = (".".join(parts[:count]) for count in range(len(parts) + 1))
            alike = (each for each in around if each in modules and looks_like_attention(modules[each]))
            self._outermost[name] = next(alike, None)
        return self._outermost[name]

    def made_weights(self, name: str, count: int) -> None:
        """Counts weights that a module made (1), or a sum that they weigh (−1)."""
        self._unread[name] = self._unread.get(name, 0) + count

    def cannot_read(self, name: str, reason: str) -> None:
        """Records that the attention call of a module cannot be read, and why."""
        self._seen.add(name)
        self._unreadable[name] = reason
        self._silent.discard(self._attention_around(name))

    def began_with_state(self, name: str) -> None:
        """Counts a call that began with a recurrent state of tokens that were not watched."""
        self._with_state[name] = self._with_state.get(name, 0) + 1

    def _unread_mixers(self) -> list[str]:
        """Returns the modules that seem to mix tokens in the layers without a record, beside layers that have one."""
        modules = self._names.modules
        parts = [name.split(".") for name in self._seen if name]
        with_record = {".".join(each[:count]) for each in parts for count in range(len(each) + 1)}
        mixers: list[str] = []
        for name in with_record & modules.keys():
            stack = modules[name]
            layers = {f"{name}.{child}".strip("."): layer for child, layer in stack._modules.items()}
            if isinstance(stack, nn.Sequential):
                kinds = {type(layer) for each, layer in layers.items() if each in with_record}
                layers = {each: layer for each, layer in layers.items() if type(layer) in kinds}
            elif not isinstance(stack, nn.ModuleList | nn.ModuleDict):
                continue
            for each in layers.keys() & self.ran - with_record:
                mixers += self._mixers_in(each)
        return sorted(set(mixers))

    def _mixers_in(self, layer: str) -> list[str]:
        """Returns the outermost modules in a layer that seem to mix tokens; or the layer, if it has simple parts."""
        modules = self._names.modules
        inside = sorted(name for name in self.ran if name.startswith(f"{layer}.") and mixes_tokens(modules[name]))
        outermost = [name for name in inside if not any(name.startswith(f"{other}.") for other in inside)]
        own = modules[layer]
        is_simple = not any(child is not None and child._modules for child in own._modules.values())
        return [layer] if is_simple and mixes_tokens(own) else outermost

    def tell(self, layers: Iterable[int] | None, has_calls: bool) -> None:
        """Raises an error at the end of a context if no call was seen, and warns about modules without a record.

        Only the chosen ``layers`` are expected; None: all. The context ``has_calls`` if there is a record.
        """
        modules = self._names.modules
        looks = {name: modules[name] for name in self.ran if looks_like_attention(modules[name])}
        kind = type(self._names.model).__name__
        if not self._seen:
            if not self.ran:
                raise UnseenError(f"no module of {kind} was called in this context, in the thread that opened it")
            names = [kind] if "" in self.ran and not looks else without_ancestors(sorted(looks or self.ran))
            raise UnseenError(
                f"no attention call of {kind} was seen: {_listed(names, modules)} ran, but computes attention in a way "
                "that regard.watch does not see (it sees scaled_dot_product_attention, torch.nn's modules, "
                "FlexAttention, a softmax whose result weighs a sum, functions of linear recurrences by their names, "
                "and regard's own)"
            )
        if not has_calls and self._unreadable and len(self._unreadable) == len(self._seen):
            name, reason = next(iter(self._unreadable.items()))
            raise UnseenError(f"no attention call of {kind} can be read; that of {name!r}: {reason}")
        messages = [
            f"the attention of {name!r} in {kind} cannot be read: {reason}" for name, reason in self._unreadable.items()
        ]
        leaves = without_ancestors(sorted(looks))
        silent = [name for name in leaves if not self._is_covered(name, looks)]
        if silent:
            messages.append(f"{_listed(silent, looks)} in {kind} looks like attention and ran, but gave no record")
        mixers = [name for name in self._unread_mixers() if name not in silent]
        if mixers:
            messages.append(
                f"{_listed(mixers, modules)} in {kind} seems to mix tokens, and gave no record, as other layers of its "
                "stack did: what regard.watch cannot read of it is not in the records"
            )
        if self._with_state:
            messages.append(
                f"{_listed(list(self._with_state), modules)} in {kind} began with a state of tokens that were not "
                "watched: the records have the weights of the calls' own tokens alone; open the context before the "
                "first tokens"
            )
        partly = [name for name, count in self._unread.items() if count > 0 and name not in silent]
        if partly:
            messages.append(
                f"{_listed(partly, looks)} in {kind} gave records of a part of its attention: it made other weights "
                "too, and no sum that they weigh was seen"
            )
        # A run that has not ended in a record is silent too.
        idle = {name for name, count in self._silent_runs.items() if count} | self._silent
        idle = sorted(name for name in idle if name is not None and self._is_covered(name, looks))
        if idle:
            messages.append(f"{_listed(idle, looks)} in {kind} gave records in some of its runs, and none in others")
        for message in messages:
            warnings.warn(message, UnseenAttentionWarning, stacklevel=4)
        if not has_calls and layers is not None and not self._unreadable:
            raise ArgumentError(
                f"layers {sorted(layers)} made no attention call; those that did are {sorted(self._layers)}"
            )

    def _is_covered(self, name: str, looks: dict[str, nn.Module]) -> bool:
        """Whether this module gave a record, or one inside of it, or an attention that it is a part of."""
        around = [other for other in looks if other == name or name.startswith(f"{other}.")]
        if any(seen == other or seen.startswith(f"{other}.") for other in around for seen in self._seen):
            return True
        return any(name.startswith(f"{seen}.") for seen in self._seen if seen)


def _listed(names: Sequence[str], modules: dict[str, nn.Module]) -> str:
    shown = [f"{name!r} ({type(modules[name]).__name__})" if name in modules else name for name in names[:NAMES_LIMIT]]
    more = f" and {len(names) - NAMES_LIMIT} more" if len(names) > NAMES_LIMIT else ""
    return ", ".join(shown) + more
