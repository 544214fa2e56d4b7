"""What the tools of PyTorch do to any module they do to ours: `torch.func`, `torch.fx`, quantization, copies."""

import copy
import pickle

import pytest
import torch
from torch import nn as torch_nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn.utils import prune

from module_cases import BLOCKS, FUSIONS, LAYERS, MODULES, OfTokens, first_output, inputs_of
from regard import nn
from regard.errors import KindError

SEQUENCES = [name for name in LAYERS if name != "Attention"]
CLASSIFIERS = ["TextClassifier lstm", "TextClassifier transformer", "SoundClassifier", "ImageClassifier vit"]


def made(name: str) -> torch_nn.Module:
    torch.manual_seed(1)
    return MODULES[name]().eval()


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize(
    "name", [*SEQUENCES, "CBAM", "NonLocal", "DualAttention", "SplitAttention", "XCA", *CLASSIFIERS]
)
def test_per_sample_gradients(name):
    """As Opacus takes them: `vmap` over samples of the gradient of a functional call, with padding."""
    module = made(name)
    parameters = {key: value.detach() for key, value in module.named_parameters()}
    inputs = inputs_of(name)

    def loss(parameters, *sample):
        output = first_output(functional_call(module, parameters, tuple(part[None] for part in sample)))
        return output.square().sum()

    each = vmap(grad(loss), (None, *[0] * len(inputs)))(parameters, *inputs)
    for row in range(len(inputs[0])):
        module.zero_grad()
        first_output(module(*(part[row : row + 1] for part in inputs))).square().sum().backward()
        for key, parameter in module.named_parameters():
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(each[key][row], expected, rtol=1e-4, atol=1e-4, msg=key)


@pytest.mark.parametrize("name", SEQUENCES)
def test_an_ensemble_has_batched_parameters(name):
    modules = [MODULES[name]().eval() for _ in range(2)]
    parameters, buffers = stack_module_state(modules)
    inputs = inputs_of(name)

    def call(parameters, buffers):
        return first_output(functional_call(modules[0], (parameters, buffers), inputs))

    for one, module in zip(vmap(call)(parameters, buffers), modules, strict=True):
        torch.testing.assert_close(one, first_output(module(*inputs)), rtol=1e-4, atol=1e-5)


class Around(torch_nn.Module):
    """A model around a layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.scale = torch_nn.Parameter(torch.tensor(2.0))


class Around1(Around):
    def forward(self, one):
        return self.layer(one * self.scale)


class Around2(Around):
    def forward(self, one, two):
        return self.layer(one * self.scale, two)


class Around3(Around):
    def forward(self, one, two, three):
        return self.layer(one * self.scale, two, three)


class Around4(Around):
    def forward(self, one, two, three, four):
        return self.layer(one * self.scale, two, three, four)


@pytest.mark.parametrize("name", [*LAYERS, *BLOCKS, *FUSIONS])
def test_layers_are_leaves_of_fx(name):
    inputs = inputs_of(name)
    model = (Around1, Around2, Around3, Around4)[len(inputs) - 1](made(name))
    graph = torch.fx.symbolic_trace(model)
    called = [node.target for node in graph.graph.nodes if node.op == "call_module"]
    assert called == ["layer.layer" if isinstance(model.layer, OfTokens) else "layer"]
    for call in (inputs, inputs_of(name, 1, 7)):
        torch.testing.assert_close(first_output(graph(*call)), first_output(model(*call)), rtol=0, atol=0)


def test_fx_refuses_a_subclass_that_would_run_twice():
    class Doubled(nn.AttentionPooling):
        def forward(self, annotations, lengths=None, *, need_weights=False):
            return super().forward(2 * annotations, lengths, need_weights=need_weights)

    with pytest.raises(KindError, match=r"torch\.fx cannot trace the forward of Doubled"):
        torch.fx.symbolic_trace(Around1(Doubled(12)))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    "name", [*(name for name in SEQUENCES if "Multihead" not in name and name != "CoAttention"), *CLASSIFIERS[:3]]
)
def test_dynamic_quantization_reaches_every_linear_layer(name):
    module, inputs = made(name), inputs_of(name)
    quantized = torch.ao.quantization.quantize_dynamic(module, dtype=torch.qint8)
    assert not [part for part in quantized.modules() if type(part) in (torch_nn.Linear, torch_nn.LSTM)]
    assert [part for part in quantized.modules() if ".quantized.dynamic" in type(part).__module__]
    expected = first_output(module(*inputs))
    torch.testing.assert_close(first_output(quantized(*inputs)), expected, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("name", [*SEQUENCES, *CLASSIFIERS])
def test_copies_files_and_functional_calls(name):
    module, inputs = made(name), inputs_of(name)
    expected = first_output(module(*inputs))
    for copied in (copy.deepcopy(module), *([] if "Modified" in name else [pickle.loads(pickle.dumps(module))])):
        assert torch.equal(first_output(copied(*inputs)), expected)
    module.share_memory()
    assert torch.equal(first_output(module(*inputs)), expected)
    doubled = {key: 2 * value for key, value in module.named_parameters()}
    other = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(2)
    got = first_output(functional_call(module, doubled, inputs))
    torch.testing.assert_close(got, first_output(other(*inputs)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [*SEQUENCES, *BLOCKS, *CLASSIFIERS])
def test_empty_memory_and_other_dtypes(name):
    module, inputs = made(name), inputs_of(name)
    expected = first_output(module(*inputs))
    with torch.device("meta"):
        empty = MODULES[name]()
    empty = empty.to_empty(device="cpu").eval()
    empty.load_state_dict(module.state_dict())
    buffers = dict(module.named_buffers())
    for key, buffer in empty.named_buffers():  # those that no file has
        buffer.copy_(buffers[key])
    torch.testing.assert_close(first_output(empty(*inputs)), expected)
    short = copy.deepcopy(module).to(torch.bfloat16)
    given = (part.bfloat16() if part.is_floating_point() else part for part in inputs)
    got = first_output(short(*given))
    torch.testing.assert_close(got.float(), expected, rtol=0.2, atol=0.2)


@pytest.mark.parametrize("name", ["TransformerEncoder", "TransformerDecoder", "AttentionPooling"])
@torch.no_grad()
def test_pruned_and_swapped_parameters_are_used(name):
    module, inputs = made(name), inputs_of(name)
    before = first_output(module(*inputs))
    for part in [part for part in module.modules() if isinstance(part, torch_nn.Linear)]:
        prune.l1_unstructured(part, "weight", amount=0.9)
    pruned = first_output(module(*inputs))
    assert not torch.allclose(pruned, before)
    for part in [part for part in module.modules() if isinstance(part, torch_nn.Linear)]:
        prune.remove(part, "weight")
    torch.testing.assert_close(first_output(module(*inputs)), pruned)  # padded while hooks prune
    other = MODULES[name]().eval()
    expected = first_output(other(*inputs))
    theirs = dict(other.named_parameters())
    for name, mine in list(module.named_parameters()):  # pruning changed their order
        torch.utils.swap_tensors(mine, theirs[name])
    assert torch.equal(first_output(module(*inputs)), expected)


def test_initialization_may_be_skipped():
    made = torch_nn.utils.skip_init(nn.MultiheadAttention, 6, 2, batch_first=True)
    made.load_state_dict(nn.MultiheadAttention(6, 2).state_dict())
    x = torch.randn(2, 5, 6)
    assert made(x, x, x)[0].isfinite().all()
