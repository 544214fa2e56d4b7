"""Rotary positions over several axes: grids, and sections as in Qwen's models of images."""

import math

import pytest
import torch

from regard.errors import ArgumentError, KindError, ShapeError
from regard.positions import Axial, PositionInterpolation, Rotary, Sections, YaRN

DOUBLE = torch.float64


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_each_axis_of_a_grid_turns_its_own_features(interleaved, scaled):
    sizes, positions = (4, 6, 2), torch.tensor([[0, 1, 4, 2, 7], [3, 0, 2, 9, 1], [5, 5, 0, 1, 2]])
    x, scaling = torch.randn(5, 13, dtype=DOUBLE), PositionInterpolation(2.0) if scaled else None
    turned = Rotary(12, 100.0, interleaved, scaling=scaling, axes=Axial(sizes))(x, positions=positions)
    angles = [(axis, 100.0 ** (-2 * i / size)) for axis, size in enumerate(sizes) for i in range(size // 2)]
    for row in range(5):
        for pair, (axis, theta) in enumerate(angles):
            a, b = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + 6)
            angle = int(positions[axis, row]) * theta / (2 if scaled else 1)
            number = complex(x[row, a], x[row, b]) * complex(math.cos(angle), math.sin(angle))
            assert abs(complex(turned[row, a], turned[row, b]) - number) < 1e-12
    assert torch.equal(turned[:, 12], x[:, 12])


def test_a_grid_numbers_its_positions_row_by_row():
    rotary, x = Rotary(12, axes=Axial((4, 2, 6), grid=(2, 3, 5))), torch.randn(2, 30, 12)
    grid = torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(5)).T
    torch.testing.assert_close(rotary(x), rotary(x, positions=grid))
    torch.testing.assert_close(rotary(x[:, 7:19], 7), rotary(x)[:, 7:19])
    shifted = torch.stack([rotary(x[:1, :3], 4)[0], rotary(x[1:, :3], 11)[0]])
    torch.testing.assert_close(rotary(x[:, :3], torch.tensor([4, 11])), shifted)
    scores = rotary(x) @ rotary(x).mT  # depend on the difference of the positions
    moved = rotary(x, positions=grid + torch.tensor([[3], [-2], [7]]))
    torch.testing.assert_close(moved @ moved.mT, scores, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("interleaved", [False, True])
def test_sections_of_one_position_are_a_plain_rotary(interleaved):
    x, scaling = torch.randn(3, 2, 5, 14), YaRN(4.0, 16)
    rotary = Rotary(14, scaling=scaling, axes=Sections((3, 2, 2), interleaved))
    torch.testing.assert_close(rotary(x, 4), Rotary(14, scaling=scaling)(x, 4))
    positions = torch.randint(9, (3, 5))
    plain = Rotary(14, scaling=scaling)(x, positions=positions)
    torch.testing.assert_close(rotary(x, positions=positions.expand(3, 3, 5)), plain)
    torch.testing.assert_close(plain[1], Rotary(14, scaling=scaling)(x[1], positions=positions[1].double()))


@pytest.mark.parametrize(("family", "sizes"), [("qwen2_vl", [3, 4, 4]), ("qwen3_vl", [5, 3, 3])])
@pytest.mark.parametrize("scaling", [None, {"rope_type": "yarn", "factor": 4.0}])
def test_sections_are_those_of_qwens_models(family, sizes, scaling):
    transformers = pytest.importorskip("transformers")
    from transformers.models.qwen2_vl import modeling_qwen2_vl
    from transformers.models.qwen3_vl import modeling_qwen3_vl

    peer, name = (modeling_qwen2_vl, "Qwen2VL") if family == "qwen2_vl" else (modeling_qwen3_vl, "Qwen3VLText")
    parameters = {"rope_type": "default", "rope_theta": 1e4, **(scaling or {}), "mrope_section": sizes}
    config = getattr(transformers, f"{name}TextConfig".replace("TextText", "Text"))(
        hidden_size=66, head_dim=22, num_attention_heads=3, num_key_value_heads=3, max_position_embeddings=64,
        rope_parameters=parameters,
    )  # fmt: skip
    query, positions = torch.randn(2, 3, 7, 22), torch.randint(19, (3, 2, 7))
    rotated = getattr(peer, f"{name}RotaryEmbedding")(config)(query, positions)
    expected, _ = peer.apply_rotary_pos_emb(query, query, *rotated)
    rotary = Rotary.from_config(config)
    assert rotary.waves.axes == Sections(tuple(sizes), family == "qwen3_vl")
    torch.testing.assert_close(rotary(query, positions=positions), expected, atol=1e-6, rtol=1e-6)


def test_axial_positions_are_those_of_vision_towers():
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama4 import modeling_llama4
    from transformers.models.qwen2_vl import modeling_qwen2_vl

    x, grid = torch.randn(15, 3, 20), torch.cartesian_prod(torch.arange(3), torch.arange(5))
    config = transformers.models.qwen2_vl.configuration_qwen2_vl.Qwen2VLVisionConfig(embed_dim=60, num_heads=3)
    config.head_dim = 20
    rotated = modeling_qwen2_vl.Qwen2VLVisionRotaryEmbedding(config)(x, grid)
    expected, _ = modeling_qwen2_vl.apply_rotary_pos_emb_vision(x, x, *rotated)
    rotary = Rotary(20, axes=Axial((10, 10), grid=(3, 5)))
    torch.testing.assert_close(rotary(x.transpose(0, 1)).transpose(0, 1), expected, atol=1e-6, rtol=1e-6)

    config = transformers.Llama4VisionConfig(hidden_size=60, num_attention_heads=3, image_size=28, patch_size=7)
    frequencies = modeling_llama4.Llama4VisionRotaryEmbedding(config)(x)
    query = torch.randn(2, 17, 3, 20)
    expected, _ = modeling_llama4.vision_apply_rotary_emb(query, query, frequencies)
    columns_and_rows = torch.cartesian_prod(torch.arange(4), torch.arange(4)).T.flip(0) + 1
    positions = torch.cat([columns_and_rows, torch.zeros(2, 1, dtype=torch.int64)], dim=1)  # the class token is last
    rotary = Rotary(20, interleaved=True, axes=Axial((10, 10)))
    actual = rotary(query.transpose(1, 2), positions=positions).transpose(1, 2)
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Rotary(8, axes=Axial((4, 2))), ArgumentError, "with the sum dim, 8; they are (4, 2)"),
        (lambda: Rotary(8, axes=Axial((5, 3))), ArgumentError, "even"),
        (lambda: Rotary(8, axes=Axial((4, 4), grid=(2, 3, 4))), ArgumentError, "grid must have 2 axes"),
        (lambda: Rotary(8, axes=Sections((2, 1))), ArgumentError, "the sum dim / 2, 4"),
        (lambda: Rotary(12, axes=Sections((1, 4, 1), True)), ArgumentError, "nearly equal"),
        (lambda: Rotary(8, axes=(4, 4)), KindError, "axes must be"),
        (lambda: Rotary(8, axes=Axial((8, 0))), ArgumentError, "each of sizes must be at least 1"),
        (lambda: Rotary(8, axes=Sections((2.0, 2.0))), KindError, "each of sizes must be an integer"),
        (lambda: Rotary(8, axes=Axial((4, 4)))(torch.zeros(5, 8)), ArgumentError, "positions="),
        (
            lambda: Rotary(8, axes=Axial((4, 4)))(torch.zeros(2, 5, 8), positions=torch.zeros(2, 5)[:1]),
            ShapeError,
            "[axes, length] or [axes, batch, length] = [2, 2, 5]; it has shape [1, 5]",
        ),
    ],
)
def test_axes_name_wrong_arguments(make, error, says):
    with pytest.raises(error) as caught:
        make()
    assert says in str(caught.value)


def test_positions_that_are_no_numbers_of_the_input_are_refused():
    rotary = Rotary(4)
    with pytest.raises(KindError, match=r"positions must hold real numbers; they hold torch.bool"):
        rotary(torch.zeros(5, 4), positions=torch.ones(5, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"positions must be \[length\] = \[5\]; it has shape \[7\]"):
        rotary(torch.zeros(5, 4), positions=torch.arange(7))
