"""Modules of libraries that are more than their weights: peft 0.21, accelerate 1.15, torchao 0.18, PyTorch's own.

`test_projections` has the same kinds made by hand, where none of these is installed.
"""

import pytest
import torch
from torch import nn

import regard
from regard.errors import ArgumentError
from regard.watching import logit_contributions

pytestmark = pytest.mark.filterwarnings("ignore")  # these libraries warn about each other

IDS = torch.tensor([[3, 14, 15, 9, 26, 5, 8]])


@pytest.fixture
def model():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=31, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=20, max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def contributions_of(model, ids=IDS):
    with torch.no_grad():
        output = model(ids).logits
        with regard.watch(model, outputs=True, norms=True) as seen:
            assert torch.equal(model(ids).logits, output)
    return [logit_contributions(model, call, range(31)) for call in seen.calls], [c.value_norms for c in seen.calls]


def end_of(model, ids=IDS):
    """What the heads of each layer add to the logits by the model's own modules, as they run."""
    of, hooks = {}, []
    for name, module in model.named_modules():
        if name.endswith(("self_attn.o_proj", "model.norm", "lm_head")):
            hooks.append(
                module.register_forward_hook(
                    lambda module, args, output, name=name: of.__setitem__(name, (module, args[0], output))
                )
            )
    with torch.no_grad():
        model(ids)
    for hook in hooks:
        hook.remove()
    ((_, stream, normalized),) = (each for name, each in of.items() if name.endswith("model.norm"))
    ((head, _, _),) = (each for name, each in of.items() if name.endswith("lm_head"))
    with torch.no_grad():
        added = [
            output - module(torch.zeros_like(given)) for name, (module, given, output) in of.items() if "o_proj" in name
        ]
        return [head(each * normalized / stream) - head(torch.zeros_like(each)) for each in added]


def check(model):
    found, norms = contributions_of(model)
    for own, expected in zip(found, end_of(model), strict=True):
        torch.testing.assert_close(own.sum(1), expected, rtol=1e-3, atol=1e-4)
    return norms


ADAPTERS = {
    "LoRA": ("LoraConfig", {"r": 3, "target_modules": ["o_proj", "v_proj", "lm_head"]}),
    "LoRA with biases": ("LoraConfig", {"r": 3, "lora_bias": True, "target_modules": ["o_proj", "lm_head"]}),
    "DoRA": ("LoraConfig", {"r": 3, "use_dora": True, "target_modules": ["o_proj", "lm_head"]}),
    "LoHa": ("LoHaConfig", {"r": 3, "target_modules": ["o_proj"]}),
    "VeRA": ("VeraConfig", {"r": 3, "target_modules": ["o_proj"]}),
    "IA3": ("IA3Config", {"target_modules": ["o_proj", "down_proj"], "feedforward_modules": ["down_proj"]}),
}


def adapted(peft, model, name, **changes):
    kind, values = ADAPTERS[name]
    model = peft.get_peft_model(model, getattr(peft, kind)(**{**values, **changes}))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


@pytest.mark.parametrize("name", ADAPTERS)
def test_contributions_of_adapted_models_are_exact(model, name):
    peft = pytest.importorskip("peft")
    check(adapted(peft, model, name))


def test_several_adapters_merged_and_switched_off(model):
    peft = pytest.importorskip("peft")
    _, plain = contributions_of(model)
    model = adapted(peft, model, "LoRA")
    model.add_adapter("other", peft.LoraConfig(r=2, target_modules=["o_proj"]))
    model.base_model.set_adapter(["default", "other"])
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn_like(parameter) * 0.3)
    apart = check(model)
    model.merge_adapter()
    merged = check(model)
    torch.testing.assert_close(apart, merged)
    model.unmerge_adapter()
    with model.disable_adapter():
        torch.testing.assert_close(check(model), plain, rtol=1e-4, atol=1e-5)
        with torch.no_grad(), regard.watch(model, outputs=True) as seen:
            model(IDS)
    with pytest.raises(ArgumentError, match=r"o_proj.* its weights have changed since"):
        logit_contributions(model, seen.calls[0], [1])


def test_training_with_dropout_in_an_adapter_is_the_same(model):
    """The loss, the gradients and the random numbers; norms are those without dropout."""
    peft = pytest.importorskip("peft")
    model = adapted(peft, model, "LoRA", lora_dropout=0.4)
    _, expected = contributions_of(model)
    results = []
    for context in (False, True):
        model.train()
        model.zero_grad()
        torch.manual_seed(3)
        if context:
            with regard.watch(model, norms=True, outputs=True) as seen:
                loss = model(IDS, labels=IDS).loss
        else:
            loss = model(IDS, labels=IDS).loss
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        results.append([loss.detach(), torch.rand(2), *gradients])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
    # Values of the first layer are those of the same input; the adapter of its values drops some of them.
    assert seen.calls[0].value_norms.shape == expected[0].shape


@pytest.mark.parametrize("where", ["cpu", "disk"])
def test_contributions_of_offloaded_weights_are_exact(model, where, tmp_path):
    accelerate = pytest.importorskip("accelerate")
    found, norms = contributions_of(model)
    if where == "cpu":
        accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    else:
        accelerate.disk_offload(model, tmp_path, execution_device=torch.device("cpu"))
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    again, norms_again = contributions_of(model)
    torch.testing.assert_close(again, found)
    torch.testing.assert_close(norms_again, norms)


def test_contributions_of_int8_weights_are_close(model):
    pytest.importorskip("torchao")
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    _, exact = contributions_of(model)
    quantize_(model, Int8WeightOnlyConfig())
    norms = check(model)
    for one, other in zip(norms, exact, strict=True):
        assert 0 < float((one - other).norm() / other.norm()) < 0.02


def test_quantized_activations_are_refused(model):
    """PyTorch's dynamic quantization rounds the input of a layer by its largest element."""
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("this PyTorch has no engine for quantized layers")
    model = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    with (
        torch.no_grad(),
        pytest.raises(ArgumentError, match=r"norms=True is not possible .*o_proj' \(Linear\) is not linear"),
        regard.watch(model, norms=True, outputs=True) as seen,
    ):
        model(IDS)
    with pytest.raises(ArgumentError, match=r"o_proj' \(Linear\) is not linear"):
        logit_contributions(model, seen.calls[0], [1])


def test_sharded_weights_are_gathered_or_refused(model, tmp_path):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    expected, norms = contributions_of(model)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        with torch.no_grad(), regard.watch(model, norms=True, outputs=True) as seen:
            model(IDS)
        torch.testing.assert_close([call.value_norms for call in seen.calls], norms)
        with pytest.raises(ArgumentError, match=r"o_proj'.*sharded: call unshard\(\)"):
            logit_contributions(model, seen.calls[0], [1])
        for layer in model.model.layers:
            layer.unshard()
        model.unshard()
        found = [logit_contributions(model, call, range(31)) for call in seen.calls]
        torch.testing.assert_close(found, expected)
    finally:
        dist.destroy_process_group()
