"""Rotary positions, which rotate queries and keys by angles proportional to their position."""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import torch
from torch import Tensor

from regard.errors import ArgumentError, KindError
from regard.names.answered import answered
from regard.positions import scaling as scalings
from regard.positions.axes import Axial, Sections
from regard.positions.index import check_features
from regard.positions.scaling import RotaryScaling
from regard.positions.waves import Waves
from regard.shapes.checks import flag, known_name, type_text, whole_number
from regard.shapes.grid import upcast
from regard.tracing.module_calls import Module


@answered
class Rotary(Module):
    """Rotates pairs of features by ``position · θ_i``, so that an inner product depends on relative position only.

    .. math::

        (a, b) at position p  →  m (a cos pθ_i − b sin pθ_i,  a sin pθ_i + b cos pθ_i),    θ_i = base^(−2i / dim)

    Su et al. 2021 (RoFormer), §3.2.2, eq. 15 and 34; their index i counts from 1, here it counts from 0, their position
    m is p here, and m is 1 but for some kinds of ``scaling``. Apply it to queries and keys, not to values. If their
    lengths differ, pass the position of the first query: with a cache, queries get ``offset = keys − queries``.

    Args:
        dim: number of rotated features, even. In wider inputs the first ``dim`` are rotated, and the rest is unchanged
            (partial rotary, GPT-NeoX).
        base: approximately 1 / θ of the slowest pair.
        interleaved: which features form pairs: ``(2i, 2i + 1)`` as in the paper if True, ``(i, i + dim / 2)`` as in
            GPT-NeoX and Llama checkpoints if False. They differ by a fixed permutation of features.
        scaling: other frequencies, for longer sequences: `PositionInterpolation`, `DynamicNTK`, `YaRN`, `LongRoPE`,
            `Llama3` or `Proportional`.
        axes: several axes of positions: `Axial` for images and video, `Sections` for texts with images (M-RoPE).

    Numerics: angles are computed in float64, the rotation in float32 for half-precision inputs.

    Example:
        >>> import torch
        >>> from regard import positions
        >>> positions.Rotary(2)(torch.tensor([[[1.0, 0.0], [1.0, 0.0]]]))
        tensor([[[1.0000, 0.0000],
                 [0.5403, 0.8415]]])
        >>> positions.Rotary(64, scaling=positions.YaRN(factor=4.0, original_length=4096))(torch.randn(3, 5, 64)).shape
        torch.Size([3, 5, 64])
    """

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        interleaved: bool = False,
        *,
        scaling: RotaryScaling | None = None,
        axes: Axial | Sections | None = None,
    ):
        super().__init__()
        self.dim = whole_number("dim", dim, low=2)
        if self.dim % 2:
            raise ArgumentError(f"dim must be even (features are rotated in pairs); it is {dim}")
        self.interleaved = flag("interleaved", interleaved)
        self.waves = Waves(self.dim, base, scaling, axes)

    @classmethod
    def from_config(cls, config: Any, layer_type: str | None = None, *, dim: int | None = None) -> "Rotary":
        """Creates the rotary positions of a model of Hugging Face; raises an error that lists the known kinds and layer
        types if it has another.

        Args:
            config: the model's configuration, the mapping in its ``config.json``, or ``rope_parameters`` alone.
            layer_type: which of ``layer_types``, for models whose types differ, as Gemma 3's ``sliding_attention``.
            dim: features of a head; None: as the configuration says.

        Example:
            >>> from regard import positions
            >>> positions.Rotary.from_config({"rope_type": "linear", "factor": 4.0}, dim=64).waves.scaling
            PositionInterpolation(factor=4.0)
        """
        return cls(**rotary_arguments(config, layer_type, dim))

    def forward(
        self,
        input: Tensor,
        offset: int | Tensor = 0,
        *,
        positions: Tensor | None = None,
        length: int | Tensor | None = None,
    ) -> Tensor:
        """Rotates the input.

        Args:
            input: queries or keys ``[..., length, features]``, ``features >= dim``.
            offset: the position of the first vector; an integer (it may be negative), or integers ``[batch]`` with
                ``batch`` the input's first axis.
            positions: in place of an offset, numbers ``[length]`` or ``[batch, length]``; with ``axes``
                ``[axes, length]`` or ``[axes, batch, length]``.
            length: number of positions of the whole sequence, an integer or integers ``[batch]``, for scalings that
                depend on it; None: up to the input's last position.

        Returns:
            A tensor of the shape and dtype of ``input``.
        """
        check_features(input, self.dim, at_least=True)
        features = upcast(input[..., : self.dim])
        waves = self.waves.encodings(input, offset, features.dtype, positions, length)
        sin, cos = waves[..., 0::2], waves[..., 1::2]
        if self.interleaved:
            a, b = features[..., 0::2], features[..., 1::2]
            rotated = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
        else:
            a, b = features.chunk(2, dim=-1)
            rotated = torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)
        rotated = rotated.to(input.dtype)
        if input.shape[-1] == self.dim:
            return rotated
        return torch.cat((rotated, input[..., self.dim :]), dim=-1)

    def extra_repr(self) -> str:
        waves = self.waves
        parts = "" if type(waves.scaling) is RotaryScaling else f", scaling={waves.scaling}"
        parts += "" if waves.axes is None else f", axes={waves.axes}"
        return f"{self.dim}, base={waves.base:g}, interleaved={self.interleaved}{parts}"


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
