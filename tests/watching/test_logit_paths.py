"""Direct contributions to logits: their sum over all that a model adds to its residual stream is the logits.

The oracle takes the statistics of a final normalization from its own input and output: with these held fixed, logits
are linear in everything that the model adds up. transformers 5.24 is the version that the tables are for.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import regard
from regard import models
from regard.errors import ArgumentError, ShapeError
from regard.watching import ablate, logit_contributions, value_logits
from watching.models import HAND_WRITTEN, Heads

IDS = torch.tensor([[3, 14, 15, 9, 26, 5, 8], [3, 5, 9, 7, 9, 3, 2]])

SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 20, "vocab_size": 31,
    "max_position_embeddings": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 4}
OPT = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 20, "vocab_size": 31,
    "max_position_embeddings": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT2 = {
    "vocab_size": 31, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 40, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

FAMILIES = {
    # name: configuration, its values, the final normalization, its projections, and what is after each of them
    "GPT2": (GPT2, "transformer.ln_f", "attn.c_proj", None),
    "Llama": (GROUPED, "model.norm", "self_attn.o_proj", None),
    "Gemma": (GROUPED, "model.norm", "self_attn.o_proj", None),  # RMSNorm with 1 + weight
    "Gemma3": (GROUPED, "model.norm", "self_attn.o_proj", "post_attention_layernorm"),
    "Olmo2": (GROUPED, "model.norm", "self_attn.o_proj", "post_attention_layernorm"),
    "Phi": (SMALL, "model.final_layernorm", "self_attn.dense", None),  # attention and feedforward side by side
    "GPTNeoX": (SMALL, "gpt_neox.final_layer_norm", "attention.dense", None),
    "OPT": ({**OPT, "word_embed_proj_dim": 16}, "model.decoder.final_layer_norm", "self_attn.out_proj", None),
    "OPT-projected": ({**OPT, "word_embed_proj_dim": 12}, "model.decoder.final_layer_norm", "self_attn.out_proj", None),
    "Cohere": (GROUPED, "model.norm", "self_attn.o_proj", None),  # logits times a scale
    "Granite": (
        {**GROUPED, "logits_scaling": 3.0, "residual_multiplier": 0.5}, "model.norm", "self_attn.o_proj", None,
    ),
}  # fmt: skip


def built(name, **changes):
    transformers = pytest.importorskip("transformers")
    kind, _, _ = name.partition("-")
    values = {**FAMILIES[name][0], **changes} if name in FAMILIES else changes
    config = {"Gemma3": "Gemma3TextConfig"}.get(kind, f"{kind}Config")
    head = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
    torch.manual_seed(7)
    model = getattr(transformers, kind + head)(getattr(transformers, config)(**values)).eval()
    for parameter in model.parameters():  # gains and biases other than 1 and 0
        parameter.data.add_(torch.randn_like(parameter) * 0.2)
    return model


class Run:
    """A run of a model, with the inputs and outputs of some of its modules."""

    def __init__(self, model, wanted, call):
        self.of = {}
        hooks = [
            module.register_forward_hook(
                lambda _, args, output, name=name: self.of.__setitem__(name, (args[0].double(), output.double()))
            )
            for name, module in model.named_modules()
            if wanted(name)
        ]
        with torch.no_grad():
            self.logits = call(model).double()
        for hook in hooks:
            hook.remove()


@pytest.mark.parametrize("name", FAMILIES)
def test_all_contributions_add_up_to_the_logits(name):
    _, norm, projection, after = FAMILIES[name]
    model = built(name)
    ends = (projection, after or projection)
    run = Run(model, lambda each: each == norm or each.endswith(ends), lambda model: model(IDS).logits)
    with torch.no_grad(), regard.watch(model, outputs=True) as seen:
        assert torch.equal(model(IDS).logits.double(), run.logits)
    stream, normalized = run.of[norm]
    final = model.get_submodule(norm)
    constant = final.bias.detach().double() if isinstance(final, nn.LayerNorm) else torch.zeros(16).double()
    has_mean = isinstance(final, nn.LayerNorm) or name == "Cohere"

    def to_logits(part, features=True):
        """What a part of the residual stream adds to the logits, with the statistics of the run."""
        if features:
            mean = stream.mean(-1, keepdim=True) if has_mean else 0.0
            own = part.mean(-1, keepdim=True) if has_mean else 0.0
            part = (part - own) * (normalized - constant) / (stream - mean)
        if name == "OPT-projected":
            part = part @ model.model.decoder.project_out.weight.detach().double().T
        factor = {"Cohere": getattr(model.config, "logit_scale", 1), "Granite": 1 / 3}.get(name, 1)
        return part @ model.get_output_embeddings().weight.detach().double().T * factor

    rest, total = stream.clone(), torch.zeros_like(run.logits)
    assert len(seen.calls) == 2
    for layer, call in enumerate(seen.calls):
        (own,) = (each for each in run.of if f".{layer}." in each and each.endswith(projection))
        added = run.of[own][1]
        bias = getattr(model.get_submodule(own), "bias", None)
        added = added if bias is None else added - bias.detach().double()
        if after is not None:
            (own,) = (each for each in run.of if f".{layer}." in each and each.endswith(after))
            added = run.of[own][1]
        added = added * (0.5 if name == "Granite" else 1)
        found = logit_contributions(model, call, range(31)).double()
        assert found.shape == (2, 4, 7, 31)
        torch.testing.assert_close(found.sum(1), to_logits(added), rtol=1e-3, atol=2e-4)
        rest, total = rest - added, total + found.sum(1)
        one = value_logits(model, call, 5)
        assert one.shape == (2, 4, 7, 7)
    last_bias = getattr(model.get_output_embeddings(), "bias", None)
    ends = to_logits(constant, features=False) + (0 if last_bias is None else last_bias.detach().double())
    torch.testing.assert_close(total + to_logits(rest) + ends, run.logits, rtol=1e-3, atol=5e-4)


def test_values_of_a_head_add_up_to_its_contribution():
    model = built("Llama")
    with torch.no_grad(), regard.watch(model, read=regard.Readings(weights=True), outputs=True) as seen:
        model(IDS)
    for call in seen.calls:
        pairs = call.weights * value_logits(model, call, 9)
        torch.testing.assert_close(pairs.sum(-1), logit_contributions(model, call, [9])[..., 0])


def test_a_decoder_of_t5_scales_its_output():
    """T5 normalizes without a mean, and multiplies by dim^-1/2 before its tied output layer."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    config = transformers.T5Config(
        vocab_size=31, d_model=16, d_kv=4, d_ff=20, num_layers=1, num_heads=4, decoder_start_token_id=0
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    norm, of = "decoder.final_layer_norm", "decoder.block.0.layer."
    ends = {"SelfAttention": f"{of}0.SelfAttention.o", "EncDecAttention": f"{of}1.EncDecAttention.o"}
    target = IDS[:, :5]
    run = Run(
        model, lambda name: name in (norm, *ends.values()),
        lambda model: model(input_ids=IDS, decoder_input_ids=target).logits,
    )  # fmt: skip
    with torch.no_grad(), regard.watch(model, outputs=True) as seen:
        model(input_ids=IDS, decoder_input_ids=target)
    stream, normalized = run.of[norm]
    encoder, *decoder = seen.calls
    for call in decoder:
        added = run.of[ends[call.name.rpartition(".")[2]]][1] * normalized / stream
        expected = added * (16**-0.5 if config.tie_word_embeddings else 1) @ model.lm_head.weight.detach().double().T
        found = logit_contributions(model, call, range(31)).double().sum(1)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)
    with pytest.raises(ArgumentError, match="nothing that follows the projection"):
        logit_contributions(model, encoder, [1])


def test_the_last_layers_contribution_is_the_effect_of_ablation_up_to_the_statistics():
    """With RMS that hardly changes, to switch off a head of the last layer takes off its contribution."""
    model = built("GPT2")
    model.transformer.h[1].mlp.c_proj.weight.data.zero_()  # so that nothing else reads the head
    model.transformer.h[1].attn.c_proj.weight.data.mul_(1e-3)
    with torch.no_grad(), regard.watch(model, outputs=True) as seen:
        logits = model(IDS).logits
    found = logit_contributions(model, seen.calls[1], range(31))[:, 2]
    with torch.no_grad(), ablate(model, layer=1, head=2):
        effect = logits - model(IDS).logits
    # The effect has the change of the statistics too, which is in the direction of the normalized stream.
    assert float(torch.corrcoef(torch.stack([found.flatten(), effect.flatten()]))[0, 1]) > 0.9


REFUSED = {
    "Bert": ("ForMaskedLM", SMALL, r"'bert\.encoder\.layer\.\d\.attention\.output\.LayerNorm'.*post-norm"),
    "Roberta": ("ForMaskedLM", SMALL, "post-norm"),
    "OpenAIGPT": ("LMHeadModel", {key: GPT2[key] for key in GPT2 if "token" not in key}, "post-norm"),
    "OPT": ("ForCausalLM", {**OPT, "word_embed_proj_dim": 12, "do_layer_norm_before": False}, "post-norm"),
    "ModernBert": ("ForMaskedLM", {**SMALL, "cls_token_id": 1, "sep_token_id": 2}, r"'head\.act'.* is not linear"),
    "Gemma2": ("ForCausalLM", GROUPED, r"after 'lm_head' \(Linear\), the model applies the function 'tanh'"),
    "DiffLlama": ("ForCausalLM", {**SMALL, "num_key_value_heads": 2}, "no output projection was found"),
}
"""By family: the class, its configuration, and why no head adds anything to its logits directly."""


@pytest.mark.parametrize("name", REFUSED)
def test_logit_contributions_refuse_heads_that_are_not_linear(name):
    transformers = pytest.importorskip("transformers")
    head, values, message = REFUSED[name]
    torch.manual_seed(2)
    model = getattr(transformers, name + head)(getattr(transformers, f"{name}Config")(**values)).eval()
    with torch.no_grad(), regard.watch(model, outputs=True) as seen:
        model(IDS)
    for call in seen.calls:
        with pytest.raises(ArgumentError, match=message):
            logit_contributions(model, call, [1])
    if name != "DiffLlama":
        unembedding = model.get_output_embeddings().weight
        alone = torch.ones(1)  # whoever gives the scale says what is between
        if unembedding.shape[1] == 16:
            assert logit_contributions(model, seen.calls[0], [1], scale=alone, unembedding=unembedding).numel() == 56


def test_logits_before_a_cap():
    """An unembedding of one's own takes the place of the output layer and of what follows it."""
    transformers = pytest.importorskip("transformers")
    capped, plain = (built("Gemma2", **GROUPED, final_logit_softcapping=cap) for cap in (5.0, None))
    found = []
    for model, options in ((capped, {"unembedding": capped.lm_head.weight}), (plain, {})):
        with torch.no_grad(), regard.watch(model, outputs=True) as seen:
            model(IDS)
        found.append(logit_contributions(model, seen.calls[0], range(31), **options))
    assert transformers.__version__
    torch.testing.assert_close(*found)


def test_steps_over_a_cache_are_those_of_the_whole():
    model = built("GPT2")
    with torch.no_grad():
        with regard.watch(model, outputs=True) as seen:
            whole = model.generate(IDS, max_new_tokens=4, do_sample=False, pad_token_id=0)
        with regard.watch(model, outputs=True) as again:
            model(whole[:, :-1])
    for steps, call in zip(seen.stitched(), again.calls, strict=True):
        found, expected = (logit_contributions(model, each, [3, 4]) for each in (steps, call))
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_half_precision_rounds_and_no_more(dtype):
    model = built("Llama").to(dtype)
    with torch.no_grad(), regard.watch(model, outputs=True) as seen:
        model(IDS)
    found = logit_contributions(model, seen.calls[1], range(31))
    exact = built("Llama").double()
    exact.load_state_dict(model.state_dict())
    with torch.no_grad(), regard.watch(exact, outputs=True) as seen:
        exact(IDS)
    expected = logit_contributions(exact, seen.calls[1], range(31))
    assert float((found - expected).norm() / expected.norm()) < (1e-5 if dtype == torch.float32 else 0.05)


def test_autocast_is_that_of_the_run():
    model = built("GPT2")
    with torch.no_grad(), regard.watch(model, outputs=True, norms=True) as exact:
        model(IDS)
    with torch.autocast("cpu", torch.bfloat16), regard.watch(model, outputs=True, norms=True) as seen:
        loss = model(IDS, labels=IDS).loss
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    found, expected = (logit_contributions(model, each.calls[1], range(31)) for each in (seen, exact))
    assert float((found - expected).norm() / expected.norm()) < 0.05


# Models by hand: what is on the way, whatever it is called.


class Block(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.first, self.second = norm(10), norm(10)
        self.mix, self.up, self.down = Heads(HAND_WRITTEN["sdpa-causal"][0]), nn.Linear(10, 12), nn.Linear(12, 10)

    def forward(self, x):
        x = x + self.mix(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Rms(nn.Module):
    """A normalization by the root of the mean square, of functions alone."""

    def __init__(self, features):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.gain)


class Adapter(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.down = layer, nn.Linear(layer.in_features, 2, bias=False)
        self.up = nn.Linear(2, layer.out_features, bias=False)

    def forward(self, x):
        return self.layer(x) + 3 * self.up(self.down(x))


class Model(nn.Module):
    def __init__(self, norm=nn.LayerNorm, end=lambda model, x: model.output(model.norm(x)), adapt=lambda layer: layer):
        super().__init__()
        torch.manual_seed(4)
        self.table, self.blocks = nn.Embedding(31, 10), nn.ModuleList([Block(norm), Block(norm)])
        self.norm, self.output, self.end = norm(10), adapt(nn.Linear(10, 31)), end
        for parameter in self.norm.parameters():
            nn.init.normal_(parameter, 1.0, 0.3)

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.end(self, x)


def halves(model, x):
    """Two output layers that read one tensor, of which none is a residual connection."""
    x = model.norm(x)
    return model.output(x) + F.linear(F.linear(x, torch.ones(3, 10)), torch.ones(31, 3))


HEADS = {
    "norm and linear": {},
    "rms of functions": {"norm": Rms},
    "a function": {"end": lambda model, x: model.output(F.layer_norm(x, (10,), model.norm.weight, model.norm.bias))},
    "no norm": {"end": lambda model, x: model.output(x)},
    "product": {"end": lambda model, x: model.norm(x) @ model.table.weight.T},
    "scaled": {"end": lambda model, x: model.output(model.norm(x * 2.0) / 3.0) * 5.0},
    "moved": {"end": lambda model, x: model.output(model.norm(x.transpose(0, 1)).float().contiguous()).transpose(0, 1)},
    "flat": {"end": lambda model, x: model.output(model.norm(x.reshape(-1, 10))).view(*x.shape[:2], 31)},
    "adapted output": {"adapt": Adapter},
    "in a row": {"end": lambda model, x: nn.Sequential(model.norm, nn.Dropout(0.1), model.output).eval()(x)},
    "named": {"end": lambda model, x: {"loss": None, "logits": model.output(model.norm(x))}},
    "tuple": {"end": lambda model, x: (model.output(model.norm(x)), x)},
}


@pytest.mark.parametrize("name", HEADS)
def test_models_by_hand(name):
    """With the statistics of the run, what a head adds is the change of logits when its output is not added."""
    model = Model(**HEADS[name]).eval()
    with torch.no_grad(), regard.watch(model, outputs=True) as seen:
        model(IDS)

    def logits(x, statistics):
        """The end of the model, linear in x: its normalization has the statistics of another stream."""
        if name != "no norm":
            factor = 2.0 if name == "scaled" else 1.0
            eps = 1e-6 if model.norm.__class__ is Rms else 1e-5
            mean = 0 if model.norm.__class__ is Rms else 1
            centered = statistics * factor - mean * (statistics * factor).mean(-1, keepdim=True)
            scale = (centered.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
            gain = 1 + model.norm.gain if model.norm.__class__ is Rms else model.norm.weight
            x = (x * factor - mean * (x * factor).mean(-1, keepdim=True)) * scale * gain
        if name == "product":
            return x @ model.table.weight.T
        x = model.output(x) - model.output(torch.zeros(10))
        return x * 5 / 3 if name == "scaled" else x

    stream, mixed = model.table(IDS), []
    for block in model.blocks:
        mixed.append(block.mix(block.first(stream)) - block.mix.out_proj.bias)
        stream = block(stream)
    for call, added in zip(seen.calls, mixed, strict=True):
        found = logit_contributions(model, call, range(31)).sum(1)
        torch.testing.assert_close(found, logits(added, stream), rtol=1e-3, atol=1e-5)


UNFOLLOWED = {
    "capped": (lambda model, x: torch.tanh(model.output(model.norm(x))), "after 'output' .* function 'tanh'"),
    "transform": (lambda model, x: model.output(nn.GELU()(model.norm(x))), "is not linear|not known"),
    "two ways": (halves, "several ways"),
    "some positions": (lambda model, x: model.output(model.norm(x[:, -1:])), "normalizes some positions only"),
    "mean": (lambda model, x: model.output(model.norm(x).mean(1)), "'mean'|not followed"),
    "gated": (lambda model, x: model.output(model.norm(x) * torch.sigmoid(x)), "'mul'|not followed"),
    "normalized between": (lambda model, x: model.output(model.norm(x) + model.table.weight[:7]), "post-norm"),
}


@pytest.mark.parametrize("name", UNFOLLOWED)
def test_ends_that_are_not_linear_are_refused(name):
    end, message = UNFOLLOWED[name]
    model = Model(end=end).eval()
    with torch.no_grad(), regard.watch(model, outputs=True) as seen:
        model(IDS)
    for call in seen.calls:
        with pytest.raises(ArgumentError, match=message):
            logit_contributions(model, call, [1])
        given = logit_contributions(model, call, [1], unembedding=model.output.weight, scale=torch.ones(10))
        assert given.shape == (2, 2, 7, 1)


def test_ours_is_a_sum():
    for position in ("learned", "rotary"):
        config = models.LanguageModelConfig(31, context=8, hidden=12, layers=2, heads=2, position=position)
        model = models.LanguageModel(config).eval()
        with torch.no_grad(), regard.watch(model, outputs=True, norms=True) as seen:
            model(IDS)
        stream = Run(model, lambda name: name == "stack.norm", lambda model: model(IDS)).of["stack.norm"]
        mean = stream[0].mean(-1, keepdim=True)
        factor = (stream[1] - model.stack.norm.bias.double()) / (stream[0] - mean)
        for call in seen.calls:
            layer = model.stack.layers[call.layer].self_attn.out_proj.weight.detach()
            added = torch.einsum("bhqd,ohd->bqo", call.head_output, layer.unflatten(1, (2, 6))).double()
            added = (added - added.mean(-1, keepdim=True)) * factor @ model.output.weight.detach().double().T
            found = logit_contributions(model, call, range(31)).sum(1)
            torch.testing.assert_close(found.double(), added, rtol=1e-3, atol=1e-6)


def test_kernels_that_run_a_whole_layer_are_refused():
    layer = nn.TransformerEncoderLayer(10, 2, 12, batch_first=True, norm_first=True).eval()
    x = torch.randn(2, 5, 10)
    with torch.no_grad(), regard.watch(layer, outputs=True, norms=True) as seen:
        layer(x)
    with pytest.raises(ArgumentError, match="set_fastpath_enabled"):
        logit_contributions(layer, seen.calls[0], [1], unembedding=torch.eye(10))
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), regard.watch(layer, outputs=True, norms=True) as slow:
            layer(x)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    found = logit_contributions(layer, slow.calls[0], range(10), unembedding=torch.eye(10)).sum(1)
    assert found.shape == (2, 5, 10)
    torch.testing.assert_close(seen.calls[0].value_norms, slow.calls[0].value_norms)


def test_an_unembedding_must_fit_the_stream():
    model = Model().eval()
    with torch.no_grad(), regard.watch(model, outputs=True) as seen:
        model(IDS)
    with pytest.raises(ShapeError, match=r"unembedding must be \[vocabulary, 10\]"):
        logit_contributions(model, seen.calls[0], [1], unembedding=torch.zeros(31, 9))
    own = logit_contributions(model, seen.calls[0], [4])
    given = logit_contributions(model, seen.calls[0], [4], unembedding=model.output.weight)
    torch.testing.assert_close(own, given)


def test_inner_models_and_single_layers_need_an_unembedding():
    model = Model().eval()
    inner = model.blocks
    del inner
    with torch.no_grad(), regard.watch(model.blocks[1], outputs=True) as seen:
        model(IDS)
    with pytest.raises(ArgumentError, match="unembedding must be given"):
        logit_contributions(model.blocks[1], seen.calls[0], [1])
    given = logit_contributions(model.blocks[1], seen.calls[0], [1], unembedding=model.output.weight)
    assert given.shape == (2, 2, 7, 1)


def test_a_pickled_record_says_that_it_has_no_modules():
    import pickle

    model = Model().eval()
    with torch.no_grad(), regard.watch(model, outputs=True) as seen:
        model(IDS)
    call = pickle.loads(pickle.dumps(seen.calls[0]))
    with pytest.raises(ArgumentError, match="pickled"):
        logit_contributions(model, call, [1])
