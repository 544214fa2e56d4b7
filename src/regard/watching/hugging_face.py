"""regard as an attention implementation of Hugging Face transformers: its attention function and its mask function."""

import inspect
import re
import sys
import warnings
from dataclasses import dataclass
from functools import cache, wraps
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor

from regard import masks
from regard.attention import attend, attend_with_weights
from regard.attention.execution import BACKENDS
from regard.biases import Bias, as_bias
from regard.errors import ArgumentError, KindError, MissingPartError, ShapeError, UnknownNameError
from regard.masks import Mask
from regard.normalizers import softmax, softmax_with_sink
from regard.scores import ScaledDot, SoftCap
from regard.shapes.checks import type_text
from regard.shapes.grid import Grid
from regard.tracing.transforms import has_data
from regard.watching.hugging_face_masks import Positions, StructuredMask, as_mask, intersect, numbers_of, padding_mask
from regard.watching.thread_state import STATE

_ACCEPTED_OPTIONS = frozenset({
    # Computed.
    "scaling", "dropout", "is_causal", "position_bias", "softcap", "s_aux", "cu_seq_lens_q", "cu_seq_lens_k",
    "indices",
    # Already part of the mask, or needed beforehand by other implementations.
    "sliding_window", "position_ids", "cache_position", "max_length_q", "max_length_k", "deterministic",
    "kernel_options", "target_dtype", "use_top_left_mask", "implementation",
    # For the model's own use, of the result or around the call.
    "output_attentions", "output_hidden_states", "output_router_logits", "return_dict", "use_cache", "labels",
    "num_items_in_batch", "seq_idx", "logits_to_keep", "layer_idx", "past_key_values", "encoder_hidden_states",
    "encoder_attention_mask", "position_embeddings", "token_type_ids", "input_ids", "inputs_embeds", "seq_len",
    "interpolate_pos_encoding", "output_loading_info", "training", "hidden_states", "cross_attentions",
})  # fmt: skip
"""Arguments that models pass to the attention function; most have no effect on its result."""

_REFUSED_OPTIONS = {
    "cache": "a paged cache; use continuous batching with 'paged|eager'",
    "block_indices": "a sparse choice of blocks that only its own kernel reads; use 'eager'",
    "sinks": "a sink for each query; use 'eager'",
    "head_mask": "weights multiplied by a mask of heads; use 'eager'",
    "layer_head_mask": "weights multiplied by a mask of heads; use 'eager'",
}
"""The reasons why some arguments are refused, and the alternatives."""

_BUILT_IN_NAMES = ("eager", "sdpa", "flex_attention", "flash_attention")


@dataclass(frozen=True)
class Implementation:
    """One registered implementation: two functions that transformers calls, and the backend that they run."""

    backend: str = "auto"

    def __post_init__(self) -> None:
        # Not at import, since it imports PyTorch's compiler.
        torch.compiler.assume_constant_result(_refusal)
        torch.compiler.assume_constant_result(_takes_none)

    def attention(
        self,
        module: torch.nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Computes the attention of one of a model's layers, as transformers calls it.

        Args:
            module: the model's layer; its ``training`` decides whether dropout is active, and its ``is_causal``, while
                a compiler traces, whether a call without a mask is causal.
            attention_mask: the result of `mask`; a bool tensor (True: may attend) or a float one that is added to the
                scores, broadcastable to ``[batch, heads, queries, keys]``; or None.
            options: ``scaling``, ``dropout``, ``is_causal``, ``position_bias``, ``softcap``, ``s_aux`` (the sinks),
                ``cu_seq_lens_q`` and ``cu_seq_lens_k`` (packed sequences), ``indices`` (of the keys that an indexer
                selects, ``[batch, queries, k]``), ``output_attentions``.

        Returns:
            The output ``[batch, queries, heads, value_dim]``; and the weights ``[batch, heads, queries, keys]`` before
            dropout if the model returns its attentions, else None.

        Raises:
            ArgumentError: an option that regard does not know, or does not compute.
        """
        _check_options(module, options)
        query, key, value = _of_one_batch(*_of_one_dtype(query, key, value))
        bias = options.get("position_bias")
        mask, added = _mask_and_bias(attention_mask, query, key)
        if attention_mask is None and query.shape[2] > 1 and _is_causal(module, options, query):
            mask = masks.causal(align="start")
        if options.get("cu_seq_lens_q") is not None:
            mask = intersect(mask, _packed_sequences(options, query, key))
        if (indices := options.get("indices")) is not None:
            mask = intersect(mask, masks.columns(indices[:, None]))
        score = ScaledDot(options.get("scaling"))
        arguments: dict[str, Any] = {
            "score": score if (cap := options.get("softcap")) is None else SoftCap(score, cap),
            "normalizer": softmax if (sinks := options.get("s_aux")) is None else softmax_with_sink(sinks.reshape(-1)),
            "mask": mask,
            "bias": _sum(bias, added),
            "dropout": options.get("dropout", 0.0) if module.training else 0.0,
            "backend": self.backend,
        }
        if not _wants_weights(options):
            return attend(query, key, value, **arguments).transpose(1, 2).contiguous(), None
        attended = attend_with_weights(query, key, value, **arguments)
        return attended.output.transpose(1, 2).contiguous(), attended.weights

    def mask(
        self,
        batch_size: int,
        q_length: int,
        kv_length: int,
        q_offset: int | Tensor = 0,
        kv_offset: int = 0,
        **options: Any,
    ) -> Tensor | None:
        """Returns the mask of a model's layers, as transformers calls it: a `StructuredMask`, whose memory is linear.

        Its numbers are those of ``eager``, 0 and the dtype's lowest, since some families calculate with their masks.
        While a compiler traces, and for single queries of a static cache, it is a plain tensor of these numbers; or
        None where ``sdpa`` gets None, which the attention function then knows as causal.

        Args:
            batch_size, q_length, kv_length: the numbers of batch rows, queries and keys.
            q_offset, kv_offset: the positions of the first query and the first key.
            options: ``mask_function``, ``attention_mask`` (``bool [batch, positions]``, False for padding),
                ``use_vmap``, ``device``, ``dtype``, ``config``, and those that only other implementations need.

        Raises:
            ArgumentError: the model computes attention by itself and calls no implementation.
        """
        from transformers.masking_utils import causal_mask_function, sdpa_mask

        config, dtype = options.get("config"), options.get("dtype") or torch.float32
        if config is not None and (reason := _refusal(type(config))) is not None:
            raise ArgumentError(reason)
        padding = options.get("attention_mask")
        is_traced = _is_traced(padding)
        if is_traced or q_length == 1:
            # A static cache has its offset as a tensor.
            is_plain = is_traced or isinstance(q_offset, Tensor)
            if is_plain and not _takes_none(type(config)):
                options["allow_is_causal_skip"] = False
            allowed = sdpa_mask(batch_size, q_length, kv_length, cast(int, q_offset), kv_offset, **options)
            if is_plain:
                return None if allowed is None else numbers_of(allowed, dtype)
            mask = None if allowed is None else masks.keep(allowed)
        else:
            at = Positions(q_length, kv_length, int(q_offset), kv_offset, options.get("use_vmap", False))
            mask = as_mask(options.get("mask_function", causal_mask_function), at)
            if padding is not None:
                mask = intersect(mask, padding_mask(padding, at))
        device = torch.device(options.get("device", "cpu"))
        grid = Grid.whole(batch_size, 1, q_length, kv_length, device)
        return StructuredMask(mask, grid, dtype)


def register_transformers(name: str = "regard", backend: str = "auto") -> str:
    """Makes regard an attention implementation of Hugging Face transformers.

    ::

        regard.watching.register_transformers()
        model.set_attn_implementation("regard")   # or from_pretrained(..., attn_implementation="regard")

    The outputs and gradients are those of ``eager``, except that a query that sees no key (padding on the left) gets 0.
    Weights are returned for ``output_attentions=True`` in the call; they are those before dropout. Memory is linear in
    the length unless the model returns weights, or has a bias or a mask that is a matrix.

    Args:
        name: the name to register. The same name can be registered again, for another backend.
        backend: the backend of regard that runs the attention: ``auto``, or one by name, which runs or raises.

    Returns:
        The name.

    Raises:
        KindError: the name is no text.
        ArgumentError: a name that transformers uses itself, or understands as something else.
        UnknownNameError: no backend has this name.
        MissingPartError: transformers is not installed (extra ``transformers``).

    Example:
        >>> import torch
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> from regard import watching
        >>> sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        >>> model = LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes)).eval()
        >>> ids = torch.tensor([[3, 4, 5]])
        >>> before = model(ids).logits
        >>> model.set_attn_implementation(watching.register_transformers())
        >>> torch.allclose(model(ids).logits, before, atol=1e-5)
        True
    """
    if not isinstance(name, str):
        raise KindError(f"name must be a text; it is {type_text(name)}")
    if not name or re.search(r"[|/:@\s]", name) or any(reserved in name for reserved in _BUILT_IN_NAMES):
        raise ArgumentError(
            f"name must be a word without '|', '/', ':' and '@', and hold none of {', '.join(_BUILT_IN_NAMES)}; "
            f"it is {name!r}"
        )
    if backend not in (known := (*BACKENDS, "auto")):
        raise UnknownNameError("backend", backend, known)
    try:
        from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedConfig
    except ImportError as error:
        raise MissingPartError("transformers", "transformers") from error
    implementation = Implementation(backend)
    AttentionInterface.register(name, implementation.attention)
    AttentionMaskInterface.register(name, implementation.mask)
    _REGISTERED_NAMES.add(name)
    _refuse_own_classes()
    choice = "_attn_implementation"
    if not isinstance(original := vars(PreTrainedConfig)[choice], ImplementationChoice):
        setattr(PreTrainedConfig, choice, ImplementationChoice(original))
    return name


_REGISTERED_NAMES: set[str] = set()
"""The names of all registered implementations of regard."""


def _makes_a_model() -> bool:
    """Whether the code that assigns to a configuration builds a model, with the implementation that a user chose."""
    setters = (__name__, "transformers.configuration_utils", "huggingface_hub.dataclasses")
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") in setters:
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == "transformers.modeling_utils"


class ImplementationChoice(property):
    """A configuration's property of its implementation, with a warning when code assigns another one.

    A user's `set_attn_implementation` does not assign it. Whisper's `generate` does, for token timestamps: its model
    computes with ``eager`` from then on.
    """

    def __init__(self, original: property):
        super().__init__(original.fget, self._assign)
        self.__wrapped__ = original

    def _assign(self, config: Any, value: Any) -> None:
        before = getattr(config, "_attn_implementation_internal", None)
        self.__wrapped__.__set__(config, value)
        after = config._attn_implementation_internal
        watched = before in _REGISTERED_NAMES or (before is not None and STATE.observers)
        if before != after and watched and not _makes_a_model():
            warnings.warn(
                f"the attention implementation of {_family(type(config))} was set from {before!r} to {after!r}, and "
                "stays so (Whisper's generate does it for token timestamps); set it back by "
                f"model.set_attn_implementation({before!r})",
                stacklevel=3,
            )


def _refuse_own_classes() -> None:
    """Makes models that choose their layers' attention from a table of classes raise a clear error.

    Such tables (``FALCON_ATTENTION_CLASSES``) have a class for each name; a missing one raises a bare ``KeyError``. A
    model's module is imported when its implementation is checked, before its layers are made: here the table gets an
    entry that raises.
    """
    from transformers import PreTrainedModel

    check = PreTrainedModel.get_correct_attn_implementation
    if hasattr(check, "__wrapped__"):
        return

    @wraps(check)
    def checked(self: Any, requested_attention: str | None, *args: Any, **options: Any) -> str:
        implementation = check(self, requested_attention, *args, **options)
        if implementation in _REGISTERED_NAMES:
            for kind in type(self).__mro__:
                for table in _attention_tables(kind.__module__):
                    table.setdefault(implementation, _Refusal(table))
        return implementation

    PreTrainedModel.get_correct_attn_implementation = checked


def _attention_tables(module: str) -> list[dict[str, Any]]:
    """Returns the tables of attention classes in a module of Python, by implementations such as ``eager``."""
    names = vars(sys.modules[module]) if module.startswith("transformers.models.") else {}
    tables = [table for table in names.values() if type(table) is dict and inspect.isclass(table.get("eager"))]
    return [table for table in tables if issubclass(table["eager"], torch.nn.Module)]


@dataclass(frozen=True, eq=False)
class _Refusal:
    """The entry of regard in a family's table of attention classes."""

    table: dict[str, Any]

    def __call__(self, config: Any, *args: Any, **options: Any) -> torch.nn.Module:
        """Raises ArgumentError instead of making a layer."""
        names = [name for name in ("sdpa", "eager") if name in self.table]
        raise ArgumentError(
            f"{_family(type(config))} has its own attention classes and uses no attention implementation: load it "
            f"with attn_implementation={' or '.join(map(repr, names))}; regard.watch sees its attention anyway"
        )


def _check_options(module: torch.nn.Module, options: dict[str, Any]) -> None:
    for name, value in options.items():
        if name in _ACCEPTED_OPTIONS or value is None or value is False:
            continue
        reason = _REFUSED_OPTIONS.get(name, "an unknown option of attention; use 'eager'")
        config = getattr(module, "config", None)
        family = type(module).__name__ if config is None else _family(type(config))
        raise ArgumentError(f"{family}: the attention implementation of regard cannot compute {name}: {reason}")


def _of_one_dtype(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Converts tensors that differ to the dtype of autocast, as PyTorch's products would."""
    kind = tensors[0].device.type
    if len({tensor.dtype for tensor in tensors}) == 1 or not torch.is_autocast_enabled(kind):
        return tensors
    return tuple(tensor.to(torch.get_autocast_dtype(kind)) for tensor in tensors)


def _of_one_batch(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Expands a single batch row, which learned queries may have for all rows."""
    if query.dim() != 4 or query.shape[0] == key.shape[0]:
        return query, key, value
    batch = max(query.shape[0], key.shape[0])
    first, second, third = (x.expand(batch, -1, -1, -1) if x.shape[0] == 1 else x for x in (query, key, value))
    return first, second, third


def _mask_and_bias(attention_mask: Tensor | None, query: Tensor, key: Tensor) -> tuple[Mask | None, Tensor | None]:
    """Returns the mask that a model passes, as a mask or as a bias that is added to the scores."""
    if attention_mask is None:
        return None, None
    if not isinstance(attention_mask, Tensor) or attention_mask.dim() != 4:
        shape = (
            f"shape {list(attention_mask.shape)}" if isinstance(attention_mask, Tensor) else type_text(attention_mask)
        )
        raise KindError(f"attention_mask must be a tensor with four axes; it is {shape}")
    if isinstance(attention_mask, StructuredMask):
        grid = attention_mask.grid
        fits = (grid.batch, grid.queries, grid.keys) == (query.shape[0], query.shape[2], key.shape[2])
        if not attention_mask.was_written:
            return (
                attention_mask.mask if attention_mask.is_whole and fits else masks.keep(attention_mask.allowed())
            ), None
        attention_mask = attention_mask.dense()
    if attention_mask.dtype == torch.bool:
        return masks.keep(attention_mask), None
    if attention_mask.is_floating_point():
        return None, attention_mask
    raise KindError(f"attention_mask must hold bools, or floats to add to the scores; it holds {attention_mask.dtype}")


def _sum(first: Bias | Tensor | None, second: Tensor | None) -> Bias | Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    one, other = as_bias(first), as_bias(second)
    assert one is not None
    assert other is not None
    return one + other


def _is_causal(module: torch.nn.Module, options: dict[str, Any], query: Tensor) -> bool:
    """Whether a call without a mask is causal.

    It is if an argument of the call says so. Otherwise None is no mask, as for ``eager``; but while a compiler traces,
    `Implementation.mask` returns None for a causal mask to the models of a configuration that accept it.
    """
    is_causal = options.get("is_causal")
    if is_causal is None:
        config = getattr(module, "config", None)
        is_causal = _is_traced(query) and _takes_none(type(config)) and getattr(module, "is_causal", True)
    return bool(is_causal)


def _is_traced(tensor: Tensor | None) -> bool:
    """Whether a compiler traces, or the elements of a tensor are unknown."""
    from transformers.utils.import_utils import is_tracing

    return is_tracing(tensor) or (tensor is not None and not has_data(tensor))


def _packed_sequences(options: dict[str, Any], query: Tensor, key: Tensor) -> Mask:
    """Returns the mask of packed sequences, from the cumulative sums of their lengths."""
    ids = []
    for name, tensor in (("cu_seq_lens_q", query), ("cu_seq_lens_k", key)):
        ends = options.get(name)
        if not isinstance(ends, Tensor) or ends.dim() != 1:
            raise KindError(f"{name} must be a tensor with one axis; it is {type_text(ends)}")
        length = tensor.shape[2]
        if has_data(ends) and (tensor.shape[0] != 1 or int(ends[-1]) != length):
            raise ShapeError(
                f"{name} must end with the length of one packed batch row, [1, {length}]; it ends with {int(ends[-1])} "
                f"for {tensor.shape[0]} batch rows of length {length}"
            )
        positions = torch.arange(length, device=ends.device)
        ids.append(torch.searchsorted(ends[1:].contiguous(), positions, right=True))
    return masks.documents(*ids)


def _wants_weights(options: dict[str, Any]) -> bool:
    """Whether the model returns its attentions: by an argument, or because transformers collects them by hooks."""
    if options.get("output_attentions"):
        return True
    from transformers.utils.output_capturing import _active_collector

    collected = _active_collector.get()
    return collected is not None and any("attentions" in key for key in collected)


# PyTorch's compiler can mark only a plain function as constant.
def _refusal(kind: type) -> str | None:
    return _refusal_of(kind)


def _takes_none(kind: type) -> bool:
    return _takes_none_of(kind)


@cache
def _refusal_of(kind: type) -> str | None:
    """Returns why the family of a configuration cannot use an implementation; None if it can."""
    modeling = _modeling(kind)
    if modeling is None or modeling.__name__ == kind.__module__:
        return None
    try:
        code = inspect.getsource(modeling)
    except (OSError, TypeError):
        return None
    if "ALL_ATTENTION_FUNCTIONS" in code or not re.search(r"^class \w*Attention\w*\(nn\.Module\):", code, re.MULTILINE):
        return None
    return (
        f"{_family(kind)} computes its attention by itself and uses no attention implementation: "
        "load it with attn_implementation='eager'"
    )


@cache
def _takes_none_of(kind: type) -> bool:
    """Whether the models of a configuration take None for a causal mask, as they do if they support ``sdpa``."""
    from transformers import PreTrainedModel

    names = vars(_modeling(kind) or object)
    models: list[Any] = [one for one in names.values() if inspect.isclass(one) and issubclass(one, PreTrainedModel)]
    support = [model._supports_sdpa for model in models if model.config_class is kind]
    return bool(support) and all(support)


def _modeling(kind: type) -> ModuleType | None:
    """Returns the module of Python that has the models of a configuration."""
    return sys.modules.get(kind.__module__.replace(".configuration_", ".modeling_"))


def _family(kind: type) -> str:
    """Returns the name of a family, by the class of its configuration."""
    return kind.__name__.removesuffix("Config")
