"""Every module owns its parts: no module object stands in two instances, nor twice in one."""

import copy

import pytest
import torch
from torch import nn as torch_nn

import module_cases
from regard import masks, nn, normalizers, positions, scores


def parts(module: torch_nn.Module) -> list[tuple[str, torch_nn.Module]]:
    """All modules by all of their names."""
    return list(module.named_modules(remove_duplicate=False))


@pytest.mark.parametrize("name", module_cases.MODULES)
def test_two_instances_share_no_module(name):
    first, second = module_cases.MODULES[name](), module_cases.MODULES[name]()
    shared = {id(part): part_name for part_name, part in parts(first)}
    assert not [shared[id(part)] for _, part in parts(second) if id(part) in shared]


@pytest.mark.parametrize("name", module_cases.MODULES)
def test_no_module_stands_twice_in_one(name):
    module = module_cases.MODULES[name]()
    once = {id(part): part_name for part_name, part in parts(module)}
    twice = [f"{part_name} is {once[id(part)]}" for part_name, part in parts(module) if once[id(part)] != part_name]
    assert all("embedding" in names for names in twice), twice


VALUES = {
    "softmax": {"normalizer": normalizers.softmax},
    "sparsemax": {"normalizer": normalizers.sparsemax},
    "sigmoid": {"normalizer": normalizers.sigmoid},
    "entmax": {"normalizer": normalizers.entmax(1.3)},
    "local": {"normalizer": normalizers.local_gaussian("softmax", torch.zeros(1), 1.0)},
    "function": {"normalizer": normalizers.Custom(torch_nn.Softmax(-1))},
    "score": {"score": scores.SoftCap("dot", 5.0)},
    "modified": {"score": scores.Modified(scores.Cosine(), lambda score, *where: score)},
    "position": {"position": positions.alibi(2)},
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_is_passed_to_two_layers_is_two_parts(name):
    given = VALUES[name]
    first, second = (nn.MultiheadAttention(6, 2, batch_first=True, **given) for _ in range(2))
    mine = {id(part) for _, part in parts(first)} | {id(part) for value in given.values() for _, part in parts(value)}
    shared = [part_name for part_name, part in parts(second) if id(part) in mine]
    # A local window has a tensor, and a function may have a state: these are the user's.
    assert shared == {"local": ["normalizer", "normalizer.normalizer"], "function": ["normalizer.function"]}.get(
        name, []
    )


def test_mode_hooks_and_tags_stay_with_their_layer():
    first, second = nn.MultiheadAttention(6, 2), nn.MultiheadAttention(6, 2, normalizer=normalizers.softmax)
    third = nn.MultiheadAttention(6, 2, normalizer=normalizers.softmax)
    first.eval()
    for part in first.modules():
        part.register_forward_hook(lambda *_: None)
        part.qconfig = "first"
    for part in (*second.modules(), *third.modules(), normalizers.softmax):
        assert part.training
        assert not part._forward_hooks
        assert not hasattr(part, "qconfig")


class Tempered(torch_nn.Module):
    """A normalizer of the user with a parameter and a generator."""

    def __init__(self, generator):
        super().__init__()
        self.logit, self.generator = torch_nn.Parameter(torch.zeros(1)), generator

    def forward(self, scores):
        return (scores * self.logit.exp()).softmax(-1)


NORMALIZERS = {
    "module": lambda generator: Tempered(generator),
    "custom": lambda generator: normalizers.Custom(Tempered(generator)),
    "temperature": lambda generator: normalizers.hard("sample", torch_nn.Parameter(torch.ones(1)), generator),
}


@pytest.mark.parametrize("name", NORMALIZERS)
def test_the_attentions_of_a_layer_share_no_parameter_of_a_normalizer(name):
    generator = torch.Generator()
    normalizer = NORMALIZERS[name](generator)
    layer = nn.TransformerDecoderLayer(6, 2, 5, batch_first=True, normalizer=normalizer)
    mine, other = (list(part.normalizer.parameters()) for part in (layer.self_attn, layer.multihead_attn))
    assert len(mine) == len(other) == 1
    assert mine[0] is not other[0]
    assert torch.equal(mine[0], other[0])
    generators = [value for part in layer.multihead_attn.normalizer.modules() for value in vars(part).values()
                  if isinstance(value, torch.Generator)]  # fmt: skip
    assert all(value is generator for value in generators)


@pytest.mark.parametrize("position", ["rotary", "alibi", "t5", "shaw"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_named_position_has_the_device_and_dtype_of_its_layer(position, dtype):
    for device in ("cpu", "meta"):
        attention = nn.MultiheadAttention(8, 2, position=position, device=device, dtype=dtype)
        layer = nn.TransformerEncoderLayer(8, 2, 5, position=position, device=device, dtype=dtype)
        for module in (attention, layer):
            tensors = [*module.parameters(), *module.buffers()]
            assert {(tensor.device.type, tensor.dtype) for tensor in tensors} == {(device, dtype)}


def test_a_layer_with_another_first_layer_of_the_feedforward_network_has_a_text():
    layer = nn.TransformerEncoderLayer(6, 2, 5)
    assert "dim_feedforward=5" in repr(layer)
    layer.linear1 = torch_nn.Sequential(torch_nn.Linear(6, 5))
    assert "d_model=6, nhead=2, batch_first=False" in repr(layer)


def test_parts_that_a_user_shares_are_not_copied():
    score = scores.Additive.create(3, 3, 4)
    first, second = (nn.MultiheadAttention(6, 2, score=score) for _ in range(2))
    assert first.score is second.score is score
    generator = torch.Generator()
    drawn = normalizers.hard("sample", generator=generator)
    assert nn.MultiheadAttention(6, 2, normalizer=drawn).normalizer.generator is generator


def test_a_named_wrapper_holds_a_score_of_its_own():
    first, second = scores.SoftCap("dot", 5.0), scores.SoftCap("dot", 5.0)
    assert first.score is not second.score


def test_a_copied_layer_shares_nothing_with_its_original():
    layer = nn.LayerConfig(dim=6, heads=2, feedforward=5).encoder_layer()
    copied = copy.deepcopy(layer)
    assert not {id(part) for part in layer.modules()} & {id(part) for part in copied.modules()}
    x, mask = torch.randn(2, 5, 6), masks.causal()
    assert torch.equal(layer.eval()(x, mask=mask), copied.eval()(x, mask=mask))
