"""Scalings of rotary positions: the papers' equations, transformers' numbers, and sequences that grow."""

import copy
import importlib
import math

import pytest
import torch

from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError
from regard.positions import DynamicNTK, Llama3, LongRoPE, PositionInterpolation, Proportional, Rotary, YaRN

DOUBLE = torch.float64
DIM, BASE = 14, 5000.0
SHORT, LONG = tuple(1 + i / 10 for i in range(7)), tuple(2.0 + i for i in range(7))

SCALINGS = {
    "linear": PositionInterpolation(3.0),
    "dynamic": DynamicNTK(2.5, 11),
    "yarn": YaRN(4.0, 1000, beta_fast=17.0, beta_slow=2.0),
    "yarn exact": YaRN(4.0, 1000, truncate=False),
    "longrope": LongRoPE(SHORT, LONG, 11, 5.0),
    "llama3": Llama3(6.0, 1.5, 5.0, 300),
    "proportional": Proportional(0.4, 2.0),
}
GROWING = ("dynamic", "longrope")
every_scaling = pytest.mark.parametrize("name", SCALINGS)


def thetas_of_papers(name, length):
    """θ′ and m of each kind as the papers write them, number by number."""
    plain = [BASE ** (-2 * i / DIM) for i in range(DIM // 2)]
    if name == "linear":
        return [theta / 3 for theta in plain], 1.0
    if name == "dynamic":
        scale = 2.5 * max(length, 11) / 11 - 1.5
        base = BASE * scale ** (DIM / (DIM - 2))
        return [base ** (-2 * i / DIM) for i in range(DIM // 2)], 1.0
    if name.startswith("yarn"):
        fast, slow = (17, 2) if name == "yarn" else (32, 1)
        # The index of the pair that turns so often: θ = 2π · turns / L, solved for i.
        low, high = (-math.log(2 * math.pi * turns / 1000, BASE) * DIM / 2 for turns in (fast, slow))
        low, high = (math.floor(low), math.ceil(high)) if name == "yarn" else (low, high)
        kept = [1 - min(max((i - low) / (high - low), 0), 1) for i in range(DIM // 2)]
        return [(1 - k) * theta / 4 + k * theta for k, theta in zip(kept, plain, strict=True)], 0.1 * math.log(4) + 1
    if name == "longrope":
        factors = LONG if length > 11 else SHORT
        return [theta / f for theta, f in zip(plain, factors, strict=True)], math.sqrt(1 + math.log(5) / math.log(11))
    if name == "proportional":
        return [theta / 2 if i < 2 else 0.0 for i, theta in enumerate(plain)], 1.0
    mixed = []
    for theta in plain:
        wavelength = 2 * math.pi / theta
        if wavelength < 300 / 5:
            mixed.append(theta)
        elif wavelength > 300 / 1.5:
            mixed.append(theta / 6)
        else:
            smooth = (300 / wavelength - 1.5) / (5 - 1.5)
            mixed.append((1 - smooth) * theta / 6 + smooth * theta)
    return mixed, 1.0


@every_scaling
@pytest.mark.parametrize("length", [7, 11, 12, 41])
def test_scaled_frequencies_are_those_of_the_papers(name, length):
    expected, magnitude = thetas_of_papers(name, length)
    scaling = SCALINGS[name]
    theta = scaling.frequencies(DIM, BASE, length)
    torch.testing.assert_close(theta, torch.tensor(expected, dtype=DOUBLE), rtol=1e-13, atol=0)
    assert math.isclose(scaling.magnitude, magnitude, rel_tol=1e-14)
    rows = scaling.frequencies(DIM, BASE, torch.tensor([[length], [5]]))
    torch.testing.assert_close(rows.expand(2, -1)[0], theta)
    torch.testing.assert_close(rows.expand(2, -1)[1], scaling.frequencies(DIM, BASE, 5))


@every_scaling
@pytest.mark.parametrize("interleaved", [False, True])
def test_a_scaled_rotary_turns_each_pair_by_its_angle(name, interleaved):
    x, first, length = torch.randn(5, DIM, dtype=DOUBLE), 9, 14
    theta, magnitude = thetas_of_papers(name, length)
    turned = Rotary(DIM, BASE, interleaved, scaling=SCALINGS[name])(x, first)
    pairs = torch.arange(DIM).view(-1, 2) if interleaved else torch.arange(DIM).view(2, -1).T
    for row in range(5):
        for (a, b), angle in zip(pairs.tolist(), ((first + row) * t for t in theta), strict=True):
            number = complex(x[row, a], x[row, b]) * complex(math.cos(angle), math.sin(angle)) * magnitude
            assert abs(complex(turned[row, a], turned[row, b]) - number) < 1e-12


@pytest.mark.parametrize(
    ("options", "magnitude"),
    [
        ({"attention_factor": 1.7}, 1.7),
        ({"mscale": 0.707, "mscale_all_dim": 1.3}, (0.0707 * math.log(8) + 1) / (0.13 * math.log(8) + 1)),
        ({"mscale": 0.707}, 0.1 * math.log(8) + 1),
        ({}, 0.1 * math.log(8) + 1),
    ],
)
def test_a_magnitude_enters_scores_squared(options, magnitude):
    scaling = YaRN(8.0, 100, **options)
    query, key = torch.randn(5, 6, dtype=DOUBLE), torch.randn(7, 6, dtype=DOUBLE)
    plain = Rotary(6, scaling=YaRN(8.0, 100, attention_factor=1.0))
    own = Rotary(6, scaling=scaling)
    torch.testing.assert_close(own(query) @ own(key).mT, magnitude**2 * (plain(query) @ plain(key).mT))
    assert YaRN(0.5, 100).magnitude == LongRoPE((1.0,), (1.0,), 100, 0.5).magnitude == 1


@every_scaling
@pytest.mark.parametrize("length", [None, 13])
def test_a_table_that_served_other_lengths_serves_each(name, length):
    used = Rotary(DIM, BASE, scaling=SCALINGS[name])
    for first, count in ((0, 5), (0, 30), (3, 2), (29, 1), (30, 1), (0, 12), (-4, 3), (0, 30), (7, 1), (5, 0)):
        x = torch.randn(2, count, DIM)
        fresh = Rotary(DIM, BASE, scaling=SCALINGS[name])
        expected = fresh(x, positions=torch.arange(first, first + count), length=length or max(first + count, 0))
        torch.testing.assert_close(used(x, first, length=length), expected)


@pytest.mark.parametrize("name", GROWING)
def test_each_batch_row_has_the_frequencies_of_its_length(name):
    rotary, x = Rotary(DIM, BASE, scaling=SCALINGS[name]), torch.randn(3, 2, 5, DIM)
    lengths, offset = torch.tensor([5, 23, 17]), torch.tensor([0, 20, 3])
    rows = torch.stack([rotary(x[i], int(offset[i]), length=int(lengths[i])) for i in range(3)])
    torch.testing.assert_close(rotary(x, offset, length=lengths), rows)
    torch.testing.assert_close(rotary(x, 0, length=lengths)[1], rotary(x[1], length=23))
    torch.testing.assert_close(rotary(x, offset)[1], rotary(x[1], 20))
    positions = torch.tensor([[3, 1, 2, 0, 4], [30, 5, 6, 1, 0], [7, 8, 8, 9, 2]])
    own = torch.stack([rotary(x[i], positions=positions[i], length=int(positions[i].max()) + 1) for i in range(3)])
    torch.testing.assert_close(rotary(x, positions=positions), own)


@pytest.mark.parametrize("name", GROWING)
def test_other_lengths_change_only_sequences_beyond_the_training(name):
    rotary, x = Rotary(DIM, BASE, scaling=SCALINGS[name]), torch.randn(3, 5, DIM)
    torch.testing.assert_close(rotary(x, length=7), rotary(x))
    assert not torch.allclose(rotary(x, length=12), rotary(x), atol=1e-3)


@every_scaling
def test_scalings_are_values_that_can_be_compared_and_read(name):
    scaling = SCALINGS[name]
    assert copy.deepcopy(scaling) == scaling == eval(repr(scaling))
    assert repr(scaling) in repr(Rotary(DIM, scaling=scaling))
    assert len({scaling, copy.deepcopy(scaling)}) == 1
    assert not Rotary(DIM, scaling=scaling).state_dict()


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: PositionInterpolation(0), ArgumentError, "factor must be positive"),
        (lambda: PositionInterpolation("2"), KindError, "factor must be a number"),
        (lambda: DynamicNTK(2.0, 8.5), KindError, "original_length must be an integer"),
        (lambda: DynamicNTK(2.0), KindError, "original_length"),
        (lambda: Rotary(2, scaling=DynamicNTK(2.0, 8)), ArgumentError, "dim must be at least 4"),
        (lambda: YaRN(2.0, 8, truncate=1), KindError, "truncate must be True or False"),
        (lambda: YaRN(2.0, 1), ArgumentError, "original_length must be at least 2"),
        (lambda: Rotary(8, base=1.0, scaling=YaRN(2.0, 8)), ArgumentError, "base must be greater than 1"),
        (lambda: LongRoPE([1.0, -1.0], [1.0, 1.0], 8, 2.0), ArgumentError, "a number of short_factor must be positive"),
        (
            lambda: Rotary(6, scaling=LongRoPE((1, 1, 1), (1, 1), 8, 2.0)),
            ShapeError,
            "long_factor must hold dim / 2 = 3 numbers",
        ),
        (lambda: Rotary(6, scaling=Llama3(8.0, 4.0, 1.0)), ArgumentError, "high_freq_factor must be greater"),
        (lambda: Rotary(6, scaling="yarn"), KindError, "scaling must be"),
        (
            lambda: Rotary(6, scaling=DynamicNTK(2.0, 8))(torch.zeros(2, 5, 6), length=torch.tensor([1.0, 2])),
            KindError,
            "length must hold integers",
        ),
        (
            lambda: Rotary(6)(torch.zeros(5, 6), 1, positions=torch.arange(5)),
            ArgumentError,
            "either offset or positions",
        ),
        (lambda: Rotary(6)(torch.zeros(2, 5, 6), positions=torch.arange(4)), ShapeError, "[2, 5]; it has shape [4]"),
    ],
)
def test_scalings_name_wrong_arguments(make, error, says):
    with pytest.raises(error) as caught:
        make()
    assert says in str(caught.value)


class TestConfigurations:
    """`Rotary.from_config` has transformers' frequencies and magnitudes."""

    SIZES = {"hidden_size": 28 * 3, "num_attention_heads": 3, "max_position_embeddings": 64, "num_hidden_layers": 4}  # noqa: RUF012
    LONGROPE = {"rope_type": "longrope", "short_factor": [1 + i / 10 for i in range(14)], "long_factor": [2.0] * 14}  # noqa: RUF012

    @pytest.mark.parametrize(
        "parameters",
        [
            {"rope_type": "default", "rope_theta": 321.0},
            {"rope_type": "linear", "factor": 4.0},
            {"rope_type": "linear", "factor": 0.5, "rope_theta": 500.0, "partial_rotary_factor": 0.5},
            {"rope_type": "dynamic", "factor": 3.0, "original_max_position_embeddings": 16},
            {"rope_type": "dynamic", "factor": 0.25, "partial_rotary_factor": 0.5},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
            {"rope_type": "yarn", "factor": 0.5, "original_max_position_embeddings": 300},
            {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 16},
            {"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.8, "beta_fast": 9, "beta_slow": 3},
            {"rope_type": "yarn", "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 1.0, "truncate": False},
            {"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0, "beta_fast": 1, "beta_slow": 1},
            {**LONGROPE, "original_max_position_embeddings": 16},
            {**LONGROPE, "original_max_position_embeddings": 16, "factor": 32.0},
            {**LONGROPE, "original_max_position_embeddings": 64, "attention_factor": 1.19},
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 32, "rope_theta": 5e5},
            {"rope_type": "llama3", "factor": 0.5, "low_freq_factor": 0.1, "high_freq_factor": 9.0,
             "original_max_position_embeddings": 500, "rope_theta": 100.0},
            {"rope_type": "proportional", "partial_rotary_factor": 0.3, "rope_theta": 1e4},
            {"rope_type": "proportional", "factor": 8.0, "rope_theta": 1e6},
        ],
        ids=lambda parameters: f"{parameters['rope_type']} {parameters.get('factor')}",
    )  # fmt: skip
    @pytest.mark.filterwarnings("ignore")
    def test_frequencies_are_those_of_transformers(self, parameters):
        transformers = pytest.importorskip("transformers")
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        config = transformers.LlamaConfig(**self.SIZES, rope_parameters=dict(parameters))
        init = ROPE_INIT_FUNCTIONS.get(parameters["rope_type"], LlamaRotaryEmbedding.compute_default_rope_parameters)
        in_json = {**self.SIZES, "rope_scaling": {**parameters, "type": parameters["rope_type"]}}
        del in_json["rope_scaling"]["rope_type"]
        for source in (config, in_json, config.to_dict()):
            waves = Rotary.from_config(source).waves
            for length in (5, 16, 17, 64, 65, 401):
                theirs, magnitude = init(config, device="cpu", seq_len=length)
                torch.testing.assert_close(waves.frequencies(length, "cpu").float(), theirs, rtol=1e-6, atol=0)
                assert math.isclose(waves.scaling.magnitude, magnitude, rel_tol=1e-12)

    HUNYUAN = {"rope_type": "dynamic", "alpha": 7.0, "factor": 1.0, "rope_theta": 1e4}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("family", "name", "options", "interleaved"),
        [
            ("gemma3", "Gemma3Text", {}, False),
            ("gemma4", "Gemma4Text", {}, False),  # heads of two sizes
            ("glm", "Glm", {}, True),
            ("deepseek_v3", "DeepseekV3", {}, True),
            ("hunyuan_v1_dense", "HunYuanDenseV1", {"rope_parameters": HUNYUAN, "head_dim": 16}, False),
        ],
    )
    @pytest.mark.filterwarnings("ignore")
    def test_positions_are_those_of_whole_models(self, family, name, options, interleaved):
        transformers = pytest.importorskip("transformers")
        peer = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        config = getattr(transformers, f"{name}Config")(**options)
        module = getattr(peer, f"{name.replace('3Text', '3')}RotaryEmbedding")(config)
        types = list(module.rope_type) if isinstance(module.rope_type, dict) else [None]
        for layer_type in types:
            rotary = Rotary.from_config(config, layer_type)
            theirs = getattr(module, f"{layer_type}_inv_freq" if layer_type else "inv_freq")
            torch.testing.assert_close(rotary.waves.frequencies(0, "cpu").float(), theirs, rtol=1e-6, atol=0)
            assert rotary.interleaved == interleaved

    def test_layer_types_have_their_own_positions(self):
        parameters = {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "nope_attention": None,
        }
        config = {"head_dim": 6, "rope_parameters": parameters}
        full, sliding = (Rotary.from_config(config, kind) for kind in ("full_attention", "sliding_attention"))
        assert (full.waves.base, full.waves.scaling) == (1e6, PositionInterpolation(8.0))
        assert repr(sliding) == repr(Rotary(6))
        with pytest.raises(ArgumentError, match="no rotary positions"):
            Rotary.from_config(config, "nope_attention")
        with pytest.raises(UnknownNameError, match="full_attention, nope_attention, sliding_attention"):
            Rotary.from_config(config, "local_attention")
        with pytest.raises(KindError, match="layer_type must be one of full_attention"):
            Rotary.from_config(config)

    def test_pairs_are_neighbours_where_the_model_has_them_so(self):
        cohere, llama, deepseek = (
            Rotary.from_config({"head_dim": 6, "rope_theta": 10.0, **fields})
            for fields in ({"model_type": "cohere"}, {"model_type": "llama"}, {"rope_interleave": True})
        )
        assert [rotary.interleaved for rotary in (cohere, llama, deepseek)] == [True, False, True]

    @pytest.mark.parametrize(
        ("config", "error", "says"),
        [
            (
                {"rope_type": "spiral"},
                UnknownNameError,
                "default, dynamic, linear, llama3, longrope, proportional, yarn",
            ),
            ({"rope_type": "linear", "head_dim": 6}, ArgumentError, "'linear' need factor; they have rope_type"),
            ({"rope_type": "linear", "factor": 2.0}, ArgumentError, "write dim="),
            ({"model_type": "ernie4_5_vl_moe", "head_dim": 6}, ArgumentError, "ernie4_5_vl_moe"),
        ],
    )
    def test_configurations_that_say_too_little_are_named(self, config, error, says):
        with pytest.raises(error) as caught:
            Rotary.from_config(config)
        assert says in str(caught.value)


@pytest.mark.parametrize("config", [None, "a-model"])
def test_a_value_that_is_no_configuration_is_refused(config):
    with pytest.raises(KindError, match="config must be a model's configuration or a mapping"):
        Rotary.from_config(config, dim=4)
