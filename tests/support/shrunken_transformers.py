"""Every family of the installed transformers with a small configuration, and what eager and regard compute for it.

A configuration is made small by the names of its fields: widths, heads, layers, experts, vocabulary, images. What a
model takes is read from the signature of its ``forward``. Nothing here names a family, except where its configuration
contradicts itself at these sizes (`OPTIONS`).
"""

import copy
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

LIMIT = 60 * 2**20
"""The most bytes of a model's weights in single precision."""

BATCH, LENGTH, TARGETS, PREFILL = 2, 11, 6, 7

_HEADS = r"(\w+_)?(num_attention|attention|num|n)_heads?|num_\w+_heads|index_n_heads"
_KV_HEADS = r"(num_)?(key_value|kv)_heads|n_head_kv|num_\w*(key_value|kv)_heads"
_HEAD_WIDTH = r"(\w*_)?head_dim|d_kv|d_head|dim_head|(\w+_)?head_size|kv_channels|rotary_dim"
_WIDTH = r"hidden_size|d_model|n_embd|embed_dim|hidden_dim|dim"
_FEED_FORWARD = (
    "intermediate_size|ffn_dim|ffn_hidden_size|d_ff|d_inner|n_inner|mlp_dim|inner_dim|feed_forward_size|ffn_size"
    "|hidden_size_mlp"
)
_COUNTS = [
    (r"vocab(ulary)?_size|n_vocab|\w*vocab\w*_size\w*", 97),
    (r"max_position_embeddings|n_positions|max_\w*_positions|n_ctx|max_seq_len|seq_length|max_sequence_length", 64),
    (r"num_hidden_layers|n_layers?|num_layers|(\w+_)?(encoder|decoder)_layers|num_\w*_layers|depth|\w+_depth", 2),
    (r"\w*interval|attn_layer_period|\w*_every_n_layers|sliding_window_pattern|\w*_layers?_freq", 2),
    (r"first_k_dense_replace|num_dense_layers|attn_layer_offset", 1),
    (r"num_nextn_predict_layers|num_mtp_layers", 0),
    (r"(\w+_)?(num_experts_per_tok|experts_per_token|moe_k|moe_topk|top_k_experts|router_top_k)", 2),
    (r"num_selected_experts", 2),
    (r"n_group|topk_group|moe_n_group", 1),
    (r"(\w+_)?(num_(local_|routed_)?experts|n_routed_experts|moe_num_experts|n_experts)", 4),
    (r"n_shared_experts|num_shared_experts|moe_num_shared_experts", 1),
    (r"sliding_window|attention_window_size|window_size_left|local_attention|attention_chunk_size", 4),
    (r"image_size|img_size", 32),
    (r"patch_size", 8),
    (r"num_frames|window_size", 2),
    (r"num_queries|num_query_tokens|num_latents|num_object_queries", 6),
    (r"index_topk", 3),
]  # fmt: skip
"""Names of fields that count something, and the largest number that they get."""

_SIZES = [
    (_KV_HEADS, 2),
    (_HEADS, 4),
    (_HEAD_WIDTH, 8),
    (r"\w*_rank", 8),
    (rf"(\w*_)?({_FEED_FORWARD})(_\w+)?", 48),
    (rf"({_WIDTH}|embedding_dim|model_dim|width|word_embed_proj_dim|emb_dim|n_embed)", 32),
    (r"\w+_(hidden_size|hidden_dim|embed_dim|d_model|embedding_size|width|embed_size|proj_dim|projection_dim)", 32),
    (r"hidden_size_per_layer_input|embedding_size|proj(ection)?_dim|output_dim|output_proj_dims|out_hidden_size", 32),
]  # fmt: skip
"""Names of fields of widths and heads, and the largest size that they get; or they are divided by one number."""


def families() -> list[str]:
    """The names of all families that transformers has a configuration and a model of."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return sorted(CONFIG_MAPPING_NAMES)


def _smaller(kind: type, level: int = 0, depth: int = 0) -> Any:
    """A configuration with small sizes."""
    default = kind()
    subs = getattr(kind, "sub_configs", {})
    division = _division(vars(default), level)
    chosen: dict[str, Any] = {}
    fields = {name: value for name, value in vars(default).items() if not name.startswith("_") and name not in subs}
    for name, value in fields.items():
        size = _size(name, value, level, division)
        if size is not None:
            chosen[name] = size
    if level == 0 and "rope_parameters" in fields and "mrope_section" in _code(kind):
        given = fields["rope_parameters"]
        if isinstance(given, dict) and "mrope_section" not in given and "rope_type" in given:
            # The code has sections of its own for a width of heads that is not this one.
            chosen["rope_parameters"] = {**given, "mrope_section": [2, 1, 1]}
    _keep_ratios(fields, chosen)
    _choose_layers(fields, chosen)
    for name in subs:
        value = getattr(default, name, None)
        if value is not None and hasattr(value, "to_dict") and depth < 4:
            chosen[name] = _smaller(type(value), level, depth + 1)
    chosen |= OPTIONS.get(default.model_type, {})
    accepted = inspect.signature(kind.__init__).parameters
    try:
        return kind(**chosen)
    except Exception:
        # Fields that a constructor computes, and does not take.
        if not set(chosen) - set(accepted):
            raise
        return kind(**{name: value for name, value in chosen.items() if name in accepted})


def _code(kind: type) -> str:
    """The code of a family's models."""
    path = Path(inspect.getfile(kind))
    return path.with_name(path.name.replace("configuration_", "modeling_")).read_text()


class Division(NamedTuple):
    """By what the sizes of a configuration are divided: widths, numbers of heads, and the widths of heads."""

    width: int
    heads: int
    head_width: int


NO_DIVISION = Division(1, 1, 1)


def _division(fields: dict[str, Any], level: int) -> Division:
    widths = [value for name, value in fields.items() if type(value) is int and re.fullmatch(_WIDTH, name)]
    heads = [value for name, value in fields.items() if type(value) is int and re.fullmatch(_HEADS, name)]
    by_width, by_heads = max(1, (widths or [768])[0] // 64), max(1, (heads or [4])[0] // 4)
    if level == 1:
        return Division(by_width, by_heads, max(1, by_width // by_heads))
    return Division(by_heads, by_heads, 1) if level == 2 else NO_DIVISION


def _keep_ratios(fields: dict[str, Any], chosen: dict[str, Any]) -> None:
    """As many key heads as query heads where it is so by default, and one where it is one."""
    heads = {name for name in chosen if re.fullmatch(_HEADS, name)}
    for name in chosen:
        if re.fullmatch(_KV_HEADS, name):
            if any(fields[name] == fields[each] for each in heads):
                chosen[name] = max(chosen[each] for each in heads)
            elif any(chosen[each] % chosen[name] for each in heads if isinstance(chosen[each], int)):
                chosen[name] = 1


def _choose_layers(fields: dict[str, Any], chosen: dict[str, Any]) -> None:
    """One layer of each kind that the family has by default; each kind twice, where layers share their keys."""
    count = next((n for n in ("num_hidden_layers", "n_layer", "num_layers", "n_layers") if n in chosen), None)
    kinds = fields.get("layer_types")
    if count is None or not isinstance(kinds, (list, tuple)):
        return
    unique = list(dict.fromkeys(kinds))
    layers = unique * 2 if len(unique) == 1 or "num_kv_shared_layers" in fields else unique
    if "num_kv_shared_layers" in fields:
        chosen["num_kv_shared_layers"] = len(layers) // 2
    chosen[count], chosen["layer_types"] = len(layers), layers
    for name, value in fields.items():
        if name != "layer_types" and isinstance(value, (list, tuple)) and len(value) == len(kinds):
            different = list(dict.fromkeys(value)) if all(isinstance(v, str) for v in value) else list(value)
            chosen[name] = [different[index % len(different)] for index in range(len(layers))]


OPTIONS: dict[str, dict[str, Any]] = {
    "bamba": {"attn_layer_indices": [1]},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "cohere_compass_text": {"layer_types": ["sliding_attention", "full_attention"]},
}
"""What the configuration of a family needs at these sizes."""

_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 2, "decoder_start_token_id": 1}
"""Tokens that are numbers of rows of an embedding."""


def _size(name: str, value: Any, level: int, division: Division) -> Any:
    """The size of a field; None: as it is by default."""
    if isinstance(value, dict):
        if "mrope_section" in value:
            section = [max(1, v // division.head_width) for v in value["mrope_section"]]
            return {**value, "mrope_section": section if level else [2, 1, 1]}
        if value and all(type(v) is int for v in value.values()) and "rate" in name:
            return {key: 2 + index for index, key in enumerate(value)}
        return None
    if isinstance(value, (list, tuple)) and value and all(type(v) is int for v in value):
        if re.fullmatch(r"depths?|layers|\w*depths|stage_num_blocks|layer_depths", name):
            return type(value)(1 for _ in value)
        if level == 0 and re.fullmatch(
            r"hidden_sizes|embed_dims?|dims|\w*hidden_sizes|encoder_hidden_channels|channels", name
        ):
            small = min(v for v in value if v)
            return type(value)(max(8, v * 16 // small // 8 * 8) for v in value)
        if re.fullmatch(r"(\w+_)?image_size|img_size", name):
            return type(value)(32 for _ in value)
        if level == 0 and re.fullmatch(_HEADS, name):
            return type(value)(max(1, 2 * v // max(1, min(value))) for v in value)
        if level and "section" in name:
            return type(value)(max(1, v // division.head_width) for v in value)
        if level and min(value) >= 32:
            return type(value)(max(8, v // division.width) for v in value)
        return None
    if type(value) is not int or value <= 0:
        return None
    if name in _TOKENS and value >= 97:
        return _TOKENS[name]
    for pattern, size in _COUNTS:
        if re.fullmatch(pattern, name):
            return min(size, value)
    for pattern, size in _SIZES:
        if re.fullmatch(pattern, name):
            if level == 0:
                return min(size, value)
            is_heads = pattern in (_HEADS, _KV_HEADS)
            divisor = division.heads if is_heads else division.head_width if pattern == _HEAD_WIDTH else division.width
            return max(1 if is_heads else 4, value // divisor) if divisor > 1 else None
    return None


def _candidates(name: str) -> Iterator[type]:
    """Classes of models of a family, those with the most of its parts first; others where there are none of these."""
    import transformers
    from transformers.models.auto import modeling_auto

    first = (
        "CAUSAL_LM",
        "IMAGE_TEXT_TO_TEXT",
        "SEQ_TO_SEQ_CAUSAL_LM",
        "SPEECH_SEQ_2_SEQ",
        "MULTIMODAL_LM",
        "MASKED_LM",
    )
    tables = [*(f"MODEL_FOR_{kind}_MAPPING_NAMES" for kind in first), "MODEL_MAPPING_NAMES"]
    others = [table for table in sorted(vars(modeling_auto)) if re.fullmatch(r"MODEL_.*MAPPING_NAMES", table)]
    kinds = dict.fromkeys(_kinds(name, tables)) or dict.fromkeys(_kinds(name, others))
    for kind in kinds:
        try:
            yield getattr(transformers, kind)
        except (AttributeError, ImportError) as error:
            raise UnbuiltError(_line(error)) from error


def _kinds(name: str, tables: list[str]) -> Iterator[str]:
    from transformers.models.auto import modeling_auto

    for table in tables:
        found = getattr(modeling_auto, table).get(name, ())
        yield from [found] if isinstance(found, str) else found


class UnbuiltError(Exception):
    """Why a family has no model here."""


@dataclass
class Subject:
    """A family's model: how it is made, and what it takes."""

    name: str
    kind: type
    config: Any
    inputs: dict[str, Any]
    dtype: torch.dtype
    parameters: int

    def model(self, implementation: str, **changes: Any) -> Any:
        """The model with random weights, always the same."""
        config = copy.deepcopy(self.config)
        for name, value in changes.items():
            for each in (config, *(getattr(config, sub, None) for sub in config.sub_configs)):
                if each is not None:
                    setattr(each, name, value)
        return _create(self.kind, config, implementation, self.dtype)

    @property
    def decodes(self) -> bool:
        """Whether it has a cache that can be continued."""
        names = inspect.signature(self.kind.forward).parameters
        return ("past_key_values" in names or "cache" in names) and hasattr(self.kind, "generate")

    @property
    def pairs(self) -> bool:
        return "decoder_input_ids" in self.inputs


def _create(kind: Any, config: Any, implementation: str, dtype: torch.dtype) -> Any:
    torch.manual_seed(5)
    model = (
        kind._from_config(config, attn_implementation=implementation, experts_implementation="eager").eval().to(dtype)
    )
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter.dtype) * 0.05)
    return model


def subject(name: str) -> Subject:
    """A family's model that builds below `LIMIT` and runs with ``eager``.

    Raises:
        UnbuiltError: there is none; why.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    reasons: list[str] = []
    try:
        config_kind = CONFIG_MAPPING[name]
    except Exception as error:
        raise UnbuiltError(f"configuration: {_line(error)}") from error
    for level in range(4):
        try:
            config = _smaller(config_kind, level)
        except UnbuiltError:
            raise
        except Exception as error:
            reasons.append(f"configuration: {_line(error)}")
            continue
        for kind in _candidates(name):
            if not hasattr(kind, "_from_config"):
                reasons.append(f"{kind.__name__} is no model of PyTorch")
                continue
            try:
                with torch.device("meta"):
                    size = sum(
                        p.numel()
                        for p in kind._from_config(copy.deepcopy(config), attn_implementation="eager").parameters()
                    )
            except Exception as error:
                reasons.append(f"{kind.__name__}: {_line(error)}")
                continue
            if size * 4 > LIMIT:
                reasons.append(f"{kind.__name__}: {size * 4 / 2**20:.0f} MB")
                continue
            for dtype in (torch.float64, torch.float32):
                try:
                    model = _create(kind, copy.deepcopy(config), "eager", dtype)
                except Exception as error:
                    reasons.append(f"{kind.__name__}: {_line(error)}")
                    break
                for given in _inputs(model, config, dtype):
                    try:
                        with torch.no_grad():
                            found = outputs(model(**given))
                    except Exception as error:
                        reasons.append(f"{kind.__name__} of {', '.join(given)}: {_line(error)}")
                        continue
                    if not found or not all(bool(torch.isfinite(t).all()) for t in found):
                        reasons.append(f"{kind.__name__} of {', '.join(given)}: no finite output")
                        continue
                    return Subject(name, kind, config, given, dtype, size)
    raise UnbuiltError(" | ".join(dict.fromkeys(reasons)) or "no model")


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {' '.join(text)[:200]}"


def _fields(config: Any) -> Iterator[Any]:
    yield config
    for name in config.sub_configs:
        if getattr(config, name, None) is not None:
            yield from _fields(getattr(config, name))


def _of(config: Any, *names: str, default: Any = None) -> Any:
    for each in _fields(config):
        for name in names:
            value = getattr(each, name, None)
            if value is not None:
                return value
    return default


def _inputs(model: Any, config: Any, dtype: torch.dtype) -> Iterator[dict[str, Any]]:
    """Sets of inputs to try."""
    names = inspect.signature(model.forward).parameters
    generator = torch.Generator().manual_seed(3)

    def ids(length: int) -> torch.Tensor:
        vocabulary = min(97, _of(config, "vocab_size", default=97) or 97)
        return torch.randint(min(5, vocabulary - 1), vocabulary, (BATCH, length), generator=generator)

    def real(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    size = _of(config, "image_size", "img_size", default=32)
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    channels = _of(config, "num_channels", "in_channels", "in_chans", default=3)
    mel = _of(config, "num_mel_bins", "feature_size", "input_feat_per_channel", "n_mels", default=80)
    frames = _of(config, "num_frames", default=2)
    texts: dict[str, Any] = {}
    if "input_ids" in names:
        texts["input_ids"] = ids(LENGTH)
        if "decoder_input_ids" in names and getattr(config, "is_encoder_decoder", False):
            texts["decoder_input_ids"] = ids(TARGETS)
        if "bbox" in names:
            texts["bbox"] = torch.randint(0, 30, (BATCH, LENGTH, 4), generator=generator).sort(-1).values
        yield texts
    decoder = {"decoder_input_ids": ids(TARGETS)} if "decoder_input_ids" in names else {}
    images = [real(BATCH, channels, height, width), real(BATCH, frames, channels, height, width)]
    if "pixel_values" in names:
        for image in images:
            yield {"pixel_values": image, **decoder}
            if texts:
                yield {**texts, "pixel_values": image}
    for name in ("hidden_states", "pixel_values"):
        if name in names and "grid_thw" in names:
            patch = _of(config, "patch_size", default=8)
            features = channels * patch**2 * (_of(config, "temporal_patch_size", default=1) or 1)
            yield {name: real(32, features), "grid_thw": torch.tensor([[1, 4, 4]] * BATCH)}
    if "pixel_values_videos" in names:
        yield {"pixel_values_videos": images[1]}
    if "input_features" in names:
        length = 2 * _of(config, "max_source_positions", default=32)
        for shape in ((BATCH, mel, length), (BATCH, length, mel)):
            yield {"input_features": real(*shape), **decoder}
            if "input_features_mask" in names:
                yield {
                    "input_features": real(*shape),
                    "input_features_mask": torch.ones(BATCH, length, dtype=torch.long),
                }
            yield {
                "input_features": real(*shape),
                "attention_mask": torch.ones(BATCH, length, dtype=torch.long),
                **decoder,
            }
    if "input_values" in names:
        for shape in ((BATCH, 4000), (BATCH, 1, 4000), (BATCH, _of(config, "max_length", default=64), mel)):
            yield {"input_values": real(*shape), **decoder}
    if "audio_values" in names:
        yield {"audio_values": real(BATCH, 1, 64, 64)}
    if "inputs_embeds" in names:
        yield {"inputs_embeds": real(BATCH, LENGTH, _of(config, "hidden_size", default=32))}
    if "hidden_states" in names:
        yield {"hidden_states": real(BATCH, LENGTH, _of(config, "hidden_size", default=32))}
    if "past_values" in names:
        length = _of(config, "context_length", default=32)
        past = real(BATCH, length, _of(config, "num_input_channels", "input_size", default=1))
        yield {"past_values": past}
        yield {"past_values": past[..., 0]}


def outputs(result: Any, kept: torch.Tensor | None = None) -> list[torch.Tensor]:
    """All tensors of real numbers that a model returned but its cache; at positions that are kept."""
    found: list[torch.Tensor] = []

    def gather(value: Any, name: str = "") -> None:
        if isinstance(value, torch.Tensor):
            if value.is_floating_point():
                found.append(value)
        elif "past" in name or "cache" in name or "attentions" in name:
            # Some models return the weights of eager although nobody asked for them.
            return
        elif isinstance(value, dict) or hasattr(value, "items"):
            for key, part in value.items():
                gather(part, key)
        elif isinstance(value, (list, tuple)):
            for part in value:
                gather(part)

    gather(result)
    if kept is not None and any(tensor.shape[: kept.dim()] == kept.shape for tensor in found):
        # What was pooled may be that of a padded position.
        found = [tensor for tensor in found if tensor.shape[: kept.dim()] == kept.shape]
    return [t[kept] if kept is not None and t.shape[: kept.dim()] == kept.shape else t for t in found]


def left_padding(length: int, missing: int = 3) -> torch.Tensor:
    mask = torch.ones(BATCH, length, dtype=torch.int64)
    mask[1, :missing] = 0
    return mask


def right_padding(length: int, missing: int = 3) -> torch.Tensor:
    return left_padding(length, missing).flip(-1)


def _whole(model: Any, given: dict[str, Any]) -> list[torch.Tensor]:
    return outputs(model(**given))


def _padded(padding: Callable[[int], torch.Tensor]) -> Callable[[Any, dict[str, Any]], list[torch.Tensor]]:
    def run(model: Any, given: dict[str, Any]) -> list[torch.Tensor]:
        mask = padding(given["input_ids"].shape[1])
        kept = None if "decoder_input_ids" in given else mask.bool()
        return outputs(model(**given, attention_mask=mask), kept)

    return run


def _steps(model: Any, given: dict[str, Any]) -> list[torch.Tensor]:
    """A prefill, single steps, and a step of several tokens, over a cache; with padding."""
    given = dict(given)
    is_pair = "decoder_input_ids" in given
    name = "decoder_input_ids" if is_pair else "input_ids"
    ids, found = given.pop(name), []
    cache_name = "past_key_values" if "past_key_values" in inspect.signature(model.forward).parameters else "cache"
    cache = None
    padding = left_padding(ids.shape[1] if not is_pair else given.get("input_ids", ids).shape[1])
    begin = 0
    total = ids.shape[1]
    ends = (total - 3, total - 2, total - 1, total) if is_pair else (PREFILL, PREFILL + 1, PREFILL + 2, total)
    for end in ends:
        step = {**given, name: ids[:, begin:end], "use_cache": True}
        if is_pair:
            if "input_ids" in given:
                step["attention_mask"] = padding.flip(-1)
            kept = None
        else:
            step["attention_mask"] = padding[:, :end]
            kept = padding[:, begin:end].bool()
        if cache is not None:
            step[cache_name] = cache
        result = model(**step)
        cache = getattr(result, cache_name)
        found += outputs(result, kept)
        begin = end
    return found


def modes(subject: Subject) -> dict[str, tuple[dict[str, Any], Callable[[Any, dict[str, Any]], list[torch.Tensor]]]]:
    """What is run of a model: changes of its configuration, and the run."""
    found: dict[str, Any] = {"whole": ({}, _whole)}
    names = inspect.signature(subject.kind.forward).parameters
    if "input_ids" in subject.inputs and "attention_mask" in names:
        found["left"] = ({}, _padded(left_padding))
        found["right"] = ({}, _padded(right_padding))
    if subject.decodes and ("input_ids" in subject.inputs or subject.pairs):
        is_encoder = getattr(subject.config, "is_decoder", None) is False and not subject.pairs
        found["steps"] = ({"is_decoder": True} if is_encoder else {}, _steps)
        if "input_ids" in subject.inputs and not subject.pairs:
            found["not causal"] = ({"is_causal": False}, _padded(left_padding))
    return found


@contextmanager
def softmax_in_double() -> Iterator[None]:
    """``eager`` of most families rounds weights to single precision; an oracle must not."""
    softmax = torch.nn.functional.softmax

    def of_double(scores: torch.Tensor, dim: Any = None, dtype: Any = None, **options: Any) -> torch.Tensor:
        return softmax(scores, dim=dim, dtype=None if scores.dtype == torch.float64 else dtype, **options)

    torch.nn.functional.softmax = of_double
    try:
        yield
    finally:
        torch.nn.functional.softmax = softmax


@dataclass
class Outcome:
    """What came of a family.

    Attributes:
        name: of the family.
        kind: ``equal``, ``own`` (equal, since it computes attention by itself), ``refused``, ``different``, ``error``,
            or ``unbuilt``.
        modes: by each mode, the largest difference relative to the largest output, or the message of an error.
    """

    name: str
    kind: str
    why: str = ""
    modes: dict[str, Any] = field(default_factory=dict)
    calls: int = 0
    parameters: int = 0
    model: str = ""
    dtype: str = ""


def outcome(name: str, implementation: str = "regard", tolerance: float = 1e-6) -> Outcome:
    """Compares a family with ``eager``."""
    from regard.errors import RegardError
    from regard.watching import hugging_face

    with warnings.catch_warnings(), softmax_in_double(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            made = subject(name)
        except UnbuiltError as reason:
            return Outcome(name, "unbuilt", str(reason))
        result = Outcome(name, "equal", parameters=made.parameters, model=made.kind.__name__, dtype=str(made.dtype))
        allowed = tolerance if made.dtype == torch.float64 else 2e-4
        calls: list[int] = []
        originals = {verb: getattr(hugging_face, verb) for verb in ("attend", "attend_with_weights")}
        for verb, original in originals.items():
            setattr(hugging_face, verb, lambda *a, _run=original, **k: (calls.append(1), _run(*a, **k))[1])
        try:
            for mode, (changes, run) in modes(made).items():
                try:
                    want = run(made.model("eager", **changes), made.inputs)
                except Exception as error:
                    result.modes[mode] = f"eager: {_line(error)}"
                    continue
                try:
                    got = run(made.model(implementation, **changes), made.inputs)
                except RegardError as error:
                    result.modes[mode], result.kind = str(error), "refused"
                    result.why = str(error)
                    continue
                except Exception as error:
                    result.modes[mode] = result.why = _line(error)
                    result.kind = "error"
                    continue
                # A tensor that only one of them returns counts as a difference without bound.
                worst = 0.0 if len(want) == len(got) else float("inf")
                for expected, actual in zip(want, got, strict=False):
                    scale = expected.abs().max().clamp(min=1e-30) if expected.numel() else 1.0
                    finite = torch.isfinite(expected)
                    difference = (actual - expected)[finite].abs().max() / scale if finite.any() else torch.tensor(0.0)
                    worst = max(worst, float("inf") if torch.isnan(difference) else float(difference))
                result.modes[mode] = worst
                if worst > allowed and result.kind == "equal":
                    result.kind = "different"
        finally:
            for verb, original in originals.items():
                setattr(hugging_face, verb, original)
        result.calls = len(calls)
        if not calls and result.kind == "equal":
            result.kind = "own"
    return result
