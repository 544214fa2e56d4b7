"""The rotary positions of models of Hugging Face, from their configurations."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from regard.errors import ArgumentError, KindError
from regard.positions import scaling as scalings
from regard.positions.axes import Sections
from regard.shapes.checks import known_name, type_text

KINDS: dict[str, type[scalings.RotaryScaling]] = {
    "default": scalings.RotaryScaling, "linear": scalings.PositionInterpolation, "dynamic": scalings.DynamicNTK,
    "yarn": scalings.YaRN, "longrope": scalings.LongRoPE, "llama3": scalings.Llama3,
    "proportional": scalings.Proportional,
}  # fmt: skip
FORMER_KINDS = {"mrope": "default", "su": "longrope"}
INTERLEAVED = (
    "bailing_hybrid", "blt", "codegen", "cohere", "cohere2", "cohere2_moe", "deepseek_v2", "deepseek_v32", "ernie4_5",
    "ernie4_5_moe", "glm", "glm4", "glm4v_text", "glm_moe_dsa", "glm_ocr_text", "gptj", "helium", "llama4_text",
    "longcat_flash", "mistral_large4", "moonshine", "moonshine_streaming",
)  # fmt: skip
"""``model_type`` of the models whose pairs are neighbours; others say so by ``rope_interleave``."""
OTHER_ORDERS = ("deepseek_v4", "ernie4_5_vl", "hunyuan_vl", "hy_v4_vl")
"""Beginnings of ``model_type`` of the models that rotate other features, or have another order of axes."""


def rotary_arguments(config: Any, layer_type: str | None, dim: int | None) -> dict[str, Any]:
    """Returns the arguments of `Rotary` for a configuration; arguments as for `Rotary.from_config`."""

    if config is None or isinstance(config, str):
        raise KindError(f"config must be a model's configuration or a mapping; it is {type_text(config)}")

    def of_model(name: str) -> Any:
        return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)

    model_type = str(of_model("model_type"))
    parameters = of_model("rope_parameters") or of_model("rope_scaling")
    if parameters is None and of_model("text_config") is not None:
        return rotary_arguments(of_model("text_config"), layer_type, dim)
    if model_type.startswith(OTHER_ORDERS) or of_model("patch_size"):
        raise ArgumentError(
            f"the positions of {model_type} have axes that the configuration does not tell: write axes="
        )
    if parameters is None:
        parameters = config if isinstance(config, Mapping) else {}
    if parameters and all(each is None or isinstance(each, Mapping) for each in parameters.values()):
        parameters = parameters[known_name("layer_type", layer_type, parameters)]
        if parameters is None:
            raise ArgumentError(f"layers of type {layer_type!r} have no rotary positions: write position='none'")
        if of_model("is_heterogeneous"):
            config = of_model("per_layer_config")[layer_type]
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    scaling = KINDS[known_name("rope_type", FORMER_KINDS.get(kind, kind), KINDS)]
    share = parameters.get("partial_rotary_factor") or of_model("partial_rotary_factor") or 1.0
    features: int = dim or of_model("head_dim") or of_model("qk_rope_head_dim") or 0
    if not features and not of_model("hidden_size"):
        raise ArgumentError("dim is missing, the features of a head, which rope_parameters do not say: write dim=")
    features = features or of_model("hidden_size") // of_model("num_attention_heads")
    longest = of_model("max_position_embeddings")
    original = of_model("original_max_position_embeddings") or parameters.get("original_max_position_embeddings")
    numbers = dict(parameters) | {
        "original_length": longest if kind == "dynamic" else original or longest,
        "partial_rotary_factor": share,
        "factor": parameters.get("factor") or (longest and original and longest / original),
    }
    options = {
        field.name: numbers[field.name]
        for field in fields(scaling)
        if numbers.get(field.name) or numbers.get(field.name) is False
    }
    missing = [field.name for field in fields(scaling) if field.default is MISSING and field.name not in options]
    if missing:
        raise ArgumentError(f"rope_parameters of type {kind!r} need {missing[0]}; they have {', '.join(parameters)}")
    base = parameters.get("rope_theta") or of_model("rope_theta") or 10000.0
    if kind == "dynamic" and parameters.get("alpha"):  # HunYuan's base has its final value at once
        scaling, options, base = KINDS["default"], {}, base * parameters["alpha"] ** (features / (features - 2))
    sizes, interleaved = parameters.get("mrope_section"), of_model("rope_interleave")
    return {
        "dim": features if kind == "proportional" else int(features * share),
        "base": base,
        "interleaved": model_type in INTERLEAVED if interleaved is None else bool(interleaved),
        "scaling": scaling(**options),
        "axes": Sections(tuple(sizes), bool(parameters.get("mrope_interleaved") or model_type.startswith("qwen3")))
        if sizes
        else None,
    }
