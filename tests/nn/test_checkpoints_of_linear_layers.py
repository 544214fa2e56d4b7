"""Layers in linear time load the layers of transformers, and compute the same: whole, padded, and step by step."""

import pytest
import torch

from regard import masks, nn
from regard.errors import ShapeError

transformers = pytest.importorskip("transformers")
WIDTH, BATCH = 20, 2


def random(layer):
    """Returns a layer with parameters that differ, none of them as a checkpoint would leave it out."""
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.15)
    return layer.eval()


def gated_delta(module, config, name, **options):
    def made():
        settings = getattr(transformers, config)(
            hidden_size=WIDTH, linear_num_value_heads=6, linear_num_key_heads=3, linear_key_head_dim=5,
            linear_value_head_dim=7, linear_conv_kernel_dim=4, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, layer_types=["linear_attention", "full_attention"], vocab_size=11, **options,
        )  # fmt: skip
        eps = 1e-5 if "Olmo" in name else settings.rms_norm_eps
        largest = 2.0 if options.get("linear_allow_neg_eigval") else 1.0
        own = nn.GatedDeltaNet(
            WIDTH, 6, key_heads=3, head_dim=5, value_dim=7, kernel_size=4, eps=eps, largest_beta=largest, bias=False
        )
        return settings, getattr(peer(module), name)(settings, 0), own

    return made


def kimi():
    settings = transformers.KimiLinearConfig(
        hidden_size=WIDTH, linear_head_dim=5, linear_num_heads=3, linear_conv_kernel_dim=4, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, layer_types=["linear_attention"], mlp_layer_types=["dense"],
    )  # fmt: skip
    own = nn.KimiDeltaAttention(WIDTH, 3, head_dim=5, eps=settings.rms_norm_eps)
    return settings, peer("kimi_linear").KimiLinearDeltaAttention(settings, 0), own


def mamba2(bias=False):
    settings = transformers.Mamba2Config(
        hidden_size=WIDTH, num_heads=4, head_dim=10, state_size=7, n_groups=2, expand=2, conv_kernel=4, chunk_size=8,
        use_bias=bias, num_hidden_layers=1, layer_norm_epsilon=1e-5,
    )  # fmt: skip
    own = nn.Mamba2(WIDTH, 4, key_heads=2, head_dim=7, value_dim=10, bias=bias)
    return settings, peer("mamba2").Mamba2Mixer(settings, 0), own


def bamba():
    settings = transformers.BambaConfig(
        hidden_size=WIDTH, mamba_n_heads=4, mamba_d_head=10, mamba_d_state=7, mamba_n_groups=1, mamba_expand=2,
        mamba_chunk_size=8, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, attn_layer_indices=[],
    )  # fmt: skip
    own = nn.Mamba2(WIDTH, 4, head_dim=7, eps=settings.rms_norm_eps)
    return settings, peer("bamba").BambaMixer(settings, 0), own


def zamba2():
    settings = transformers.Zamba2Config(
        hidden_size=WIDTH, n_mamba_heads=4, mamba_headdim=10, mamba_d_state=7, mamba_ngroups=2, mamba_expand=2,
        chunk_size=8, num_hidden_layers=1, num_attention_heads=2, layers_block_type=["mamba"], time_step_min=0.3,
    )  # fmt: skip
    own = nn.Mamba2(WIDTH, 4, key_heads=2, head_dim=7, step_limits=(0.3, float("inf")))
    return settings, peer("zamba2").Zamba2MambaMixer(settings, 0), own


def peer(module):
    return pytest.importorskip(f"transformers.models.{module}.modeling_{module}")


PEERS = {
    "qwen3_next": gated_delta("qwen3_next", "Qwen3NextConfig", "Qwen3NextGatedDeltaNet"),
    "qwen3_5": gated_delta("qwen3_5", "Qwen3_5TextConfig", "Qwen3_5GatedDeltaNet"),
    "olmo_hybrid": gated_delta(
        "olmo_hybrid", "OlmoHybridConfig", "OlmoHybridGatedDeltaNet", linear_allow_neg_eigval=True
    ),
    "kimi_linear": kimi,
    "mamba2": mamba2,
    "mamba2_biased": lambda: mamba2(bias=True),
    "bamba": bamba,
    "zamba2": zamba2,
}
peers = pytest.mark.parametrize("name", PEERS)


def loaded(name):
    """Returns the settings, the layer of transformers and ours with its parameters."""
    settings, layer, own = PEERS[name]()
    own.load_state_dict(random(layer).state_dict())
    return settings, layer, own.eval()


def check_close(one, other):
    torch.testing.assert_close(one, other, atol=1e-6, rtol=0)


@peers
@torch.no_grad()
def test_a_loaded_layer_computes_the_output_of_its_origin(name):
    _, layer, own = loaded(name)
    for length in (1, 3, 13, 67):
        x = torch.randn(BATCH, length, WIDTH)
        check_close(own(x, mask="causal").output, layer(x))
        check_close(own(x).output, layer(x))


@peers
@torch.no_grad()
def test_a_loaded_layer_reads_padded_sequences_as_its_origin(name):
    _, layer, own = loaded(name)
    x, lengths = torch.randn(BATCH, 13, WIDTH), torch.tensor([13, 6])
    present = torch.arange(13) < lengths[:, None]
    for visible, mask in ((present, masks.lengths(lengths)), (present.flip(1), present.flip(1)[:, None, None])):
        if name == "mamba2_biased" and mask is not None and not visible[1, 0]:
            continue  # its convolution reads the biases of padding before a sequence
        expected = layer(x, attention_mask=visible.to(x.dtype))
        mask = mask if not isinstance(mask, torch.Tensor) else masks.keep(mask)
        check_close(own(x, mask=masks.causal() & mask).output[visible], expected[visible])


@peers
@torch.no_grad()
def test_a_loaded_layer_decodes_as_its_origin(name):
    settings, layer, own = loaded(name)
    x, cache, past = torch.randn(BATCH, 11, WIDTH), own.new_cache(), transformers.DynamicCache(config=settings)
    for part in x.split((2, 5, 1, 1, 1, 1), dim=1):
        attended = own(part, mask="causal", cache=cache)
        cache = attended.cache
        if name != "zamba2" or part.shape[1] > 1:  # a step of Zamba2 in transformers does not limit its Δ
            check_close(attended.output, layer(part, cache=past))
    check_close(own(x).output[:, -1:], attended.output)


def test_released_files_with_separate_convolutions_load():
    for name in ("olmo_hybrid", "kimi_linear"):
        _, layer, own = loaded(name)
        state = {key.replace("forget_gate.", ""): value for key, value in layer.state_dict().items()}
        widths = own.widths
        parts = state.pop("conv1d.weight").split(widths)
        state |= {f"{kind}_conv1d.weight": part for kind, part in zip("qkv", parts, strict=True)}
        _, _, other = PEERS[name]()
        other.load_state_dict(state)
        for key, value in own.state_dict().items():
            assert torch.equal(other.state_dict()[key], value)


def test_sizes_that_differ_from_those_of_the_checkpoint_are_named():
    _, layer, _ = PEERS["qwen3_next"]()
    own = nn.GatedDeltaNet(WIDTH, 6, key_heads=2, head_dim=5, value_dim=7, kernel_size=4, bias=False)
    with pytest.raises(ShapeError, match="must have 104 rows for this GatedDeltaNet; it has 114"):
        own.load_state_dict(layer.state_dict())
