"""What `tests/distributed` calls in each process of a group: layers and models on parts of sequences, and on the whole.

A case is a module, the whole inputs that have positions, and a function that calls the one with the others.
"""

import contextlib
import copy

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import regard
from regard import distributed, masks, models, nn
from regard.watching.attention_call import POSTPONED_ATTRIBUTES

BATCH, DIM, HEADS, SOURCE, TARGET = 2, 12, 2, 7, 13
ORDERS = ("contiguous", "balanced")
NAMED = (
    "multihead", "differential", "latent", "gated", "qk_norm", "talking_heads", "forgetting", "linear", "retention",
    "gated_linear", "delta", "gated_delta", "kimi_delta", "mamba2",
)  # fmt: skip


def _attention(position=None, kv_heads=None, mask="causal", cross=False, **options):
    module = nn.MultiheadAttention(DIM, HEADS, batch_first=True, position=position, kv_heads=kv_heads, **options)

    def call(module, target, source=None):
        memory = target if source is None else source
        output, weights = module(target, memory, memory, mask=mask, need_weights=True, average_attn_weights=False)
        return torch.cat((output, weights.transpose(1, 2).flatten(2)), -1)

    return module, ["target", "source"] if cross else ["target"], call


def _padded_attention():
    """A padding mask of own keys, and a mask in PyTorch's convention of all pairs."""
    hidden = torch.arange(TARGET) >= torch.tensor([TARGET, TARGET - 4])[:, None]
    added = torch.linspace(-1, 1, TARGET * TARGET).double().view(TARGET, TARGET)

    def call(module, target, own):
        padding = own[..., 0] > 0
        return module(target, target, target, key_padding_mask=padding, attn_mask=added, need_weights=False)[0]

    return nn.MultiheadAttention(DIM, HEADS, batch_first=True), ["target", hidden[..., None].double()], call


def _encoder(checkpointed=False, **options):
    """A stack with lengths, whose outputs of padding are 0."""
    config = nn.LayerConfig(DIM, HEADS, 8, dropout=0.0, activation_checkpointing=checkpointed, **options)
    stack = nn.TransformerEncoder.create(2, config, bidirectional=False)
    lengths = torch.tensor([TARGET, TARGET - 4])
    return stack, ["target"], lambda stack, target: stack(target, mask=masks.causal(), lengths=lengths)


def _padded_encoder():
    """The padding mask of PyTorch, of this process's tokens."""
    hidden = (torch.arange(TARGET) >= torch.tensor([TARGET, TARGET - 4])[:, None])[..., None].double()
    stack = nn.TransformerEncoder.create(2, nn.LayerConfig(DIM, HEADS, 8, dropout=0.0, position="alibi"))
    return stack, ["target", hidden], lambda stack, target, own: stack(target, src_key_padding_mask=own[..., 0] > 0)


def _transformer():
    model = nn.Transformer(DIM, HEADS, 2, 2, 8, dropout=0.0, batch_first=True)
    return model, ["source", "target"], lambda model, source, target: model(source, target, tgt_mask="causal")


def _decoder():
    """Lengths of the memory, and rotary positions of the target."""
    config = nn.LayerConfig(DIM, HEADS, 8, dropout=0.0, position="rotary", norm_first=True)
    lengths = torch.tensor([SOURCE - 3, SOURCE])

    def call(stack, target, source):
        return stack(target, source, mask=masks.causal(), memory_lengths=lengths)

    return nn.TransformerDecoder.create(2, config), ["target", "source"], call


def _memory_attention(score):
    """The attention of recurrent decoders, with all its queries at once."""
    lengths = torch.tensor([SOURCE - 3, SOURCE])

    def call(module, target, source):
        context, weights = module(target, module.remember(source, lengths))
        return torch.cat((context, weights), -1)

    return nn.Attention.create(score, DIM, DIM), ["target", "source"], call


def _language(**options):
    config = models.LanguageModelConfig(19, context=TARGET, hidden=DIM, layers=2, heads=HEADS, dropout=0.0, **options)
    tokens = torch.arange(BATCH * TARGET).view(BATCH, TARGET, 1).double() * 7 % 19
    return models.LanguageModel(config), [tokens], lambda model, tokens: model(tokens[..., 0].long())


def _translator(**options):
    """A translator of sources and targets with padding, whose predictions of padding are 0."""
    config = models.TranslatorConfig(
        19, 19, architecture="transformer", hidden=DIM, heads=HEADS, encoder_layers=1, decoder_layers=2, dropout=0.0,
        **options,
    )  # fmt: skip
    source, target = (
        torch.arange(BATCH * length).view(BATCH, length, 1).double() * 7 % 19 for length in (SOURCE, TARGET)
    )
    lengths, known = torch.tensor([SOURCE - 3, SOURCE]), torch.tensor([TARGET, TARGET - 4])

    def call(model, target, source):
        encoded = model.encode(source[..., 0].long(), lengths)
        return model.decode_tokens(encoded, target[..., 0].long(), known, need_weights=False).readout

    return models.TransformerTranslator(config), [target, source], call


def _named(attention):
    layer = nn.TransformerEncoderLayer(DIM, HEADS, 8, 0.0, batch_first=True, attention=attention, bidirectional=False)
    lengths = torch.tensor([TARGET, TARGET - 4])
    return layer, ["target"], lambda layer, target: layer(target, mask="causal", lengths=lengths)


CASES = {
    "attention": _attention,
    "attention_grouped": lambda: _attention("rotary", kv_heads=1),
    "attention_cross": lambda: _attention("rotary", mask=None, cross=True),
    "attention_t5": lambda: _attention("t5", normalizer="entmax15"),
    "attention_shaw": lambda: _attention("shaw"),
    "attention_padded": _padded_attention,
    "encoder": lambda: _encoder(position="rotary"),
    "encoder_recomputed": lambda: _encoder(checkpointed=True, position="rotary", norm="rms"),
    "encoder_padded": _padded_encoder,
    "transformer": _transformer,
    "decoder": _decoder,
    "memory_additive": lambda: _memory_attention("additive"),
    "memory_general": lambda: _memory_attention("general"),
    "language_sinusoidal": lambda: _language(position="sinusoidal"),
    "language_learned": lambda: _language(position="learned"),
    "language_rotary": lambda: _language(position="rotary", feedforward_chunk=5),
    "translator_sinusoidal": lambda: _translator(position="sinusoidal"),
    "translator_t5": lambda: _translator(position="t5", self_attention="qk_norm", normalizer="entmax15"),
    "translator_linear": lambda: _translator(self_attention="linear"),
    **{f"layer_{name}": lambda name=name: _named(name) for name in NAMED},
}

REFUSED = {
    "appended keys": lambda x: nn.MultiheadAttention(DIM, HEADS, batch_first=True, add_zero_attn=True)(x, x, x),
    "replaced": lambda x: _replaced()(x),
    "cache": lambda x: nn.TransformerEncoder.create(1, nn.LayerConfig(DIM, HEADS, 8)).step(x),
    "cache of a state": lambda x: nn.Retention(DIM, HEADS)(x, mask="causal", cache=nn.LinearState()),
    "single query": lambda x: nn.Attention()(x[:, 0], x),
    "plan": lambda x: nn.Attention().plan(x, x),
    "native_sparse": lambda x: nn.NativeSparseAttention(DIM, HEADS)(x),
    "indexed": lambda x: nn.IndexedAttention(DIM, HEADS)(x),
    "compressed": lambda x: nn.CompressedAttention(DIM, HEADS)(x),
    "pooling": lambda x: nn.AttentionPooling(DIM)(x),
    "monotonic": lambda x: nn.MonotonicAttention.create("dot", DIM, DIM)(x, None),
    "gaussian": lambda x: nn.GaussianWindow(DIM)(x, x),
    "slots": lambda x: nn.SlotAttention(DIM, 2)(x),
    "inducing points": lambda x: nn.ISAB(DIM, HEADS, 2)(x),
    "pooling of sets": lambda x: nn.PMA(DIM, HEADS, 2)(x),
    "co-attention": lambda x: nn.CoAttention(DIM)(x, x),
    "axial": lambda x: nn.AxialAttention(DIM, HEADS, axis=0)(x[..., None, :]),
    "non-local": lambda x: nn.NonLocal(DIM)(x.mT[..., None]),
    "channel gate": lambda x: nn.ChannelGate(DIM)(x.mT[..., None]),
    "squeeze": lambda x: nn.SqueezeExcitation(DIM)(x.mT[..., None]),
    "branches": lambda x: nn.SelectiveKernel(DIM)(x.mT[..., None]),
    "global context": lambda x: nn.GlobalContext(DIM)(x.mT[..., None]),
    "cross-covariance": lambda x: nn.XCA(DIM)(x.mT[..., None]),
    "recurrent": lambda x: models.RecurrentEncoder(torch.nn.Embedding(9, 4), 6)(x[..., 0].long(), _lengths(x)),
    "classifier": lambda x: models.TextClassifier(models.TextClassifierConfig(9, 2))(x[..., 0].long(), _lengths(x)),
    "language model": lambda x: _language()[0].loss(x[..., 0].long()),
    "translator": lambda x: _translator()[0](*[x[..., 0].long(), _lengths(x)] * 2),
}  # fmt: skip


def _lengths(x):
    return torch.full((x.shape[0],), x.shape[1])


def _replaced():
    layer = nn.TransformerEncoderLayer(DIM, HEADS, 8, batch_first=True)
    layer.self_attn = torch.nn.MultiheadAttention(DIM, HEADS, batch_first=True)
    return layer


def refused(rank, processes):
    """What needs whole sequences, and what it raised."""
    shards = distributed.Shards.contiguous(TARGET, mesh_of(processes))
    found = {}
    with distributed.sequence(shards):
        for name, call in REFUSED.items():
            try:
                call(torch.zeros(BATCH, shards.count(), DIM))
                found[name] = "nothing"
            except Exception as error:
                found[name] = f"{type(error).__name__}: {error}"
    return found


def mesh_of(processes):
    return init_device_mesh("cpu", (processes,))


def shards_of(order, length, mesh):
    if order == "contiguous":
        return distributed.Shards.contiguous(length, mesh)
    return distributed.Shards.balanced(range(length, 0, -1), mesh)


def layer(rank, processes, name, order):
    """The largest differences of the output, the gradients of the inputs, and those of the parameters."""
    torch.manual_seed(0)
    module, inputs, call = CASES[name]()
    module = module.double()
    mesh = mesh_of(processes)
    lengths = {"target": TARGET, "source": SOURCE}
    shards = {side: shards_of(order, length, mesh) for side, length in lengths.items()}
    tensors, sides = [], []
    for one in inputs:
        sides.append(one if isinstance(one, str) else "source" if one.shape[1] == SOURCE else "target")
        random = torch.randn(BATCH, lengths[sides[-1]], DIM, dtype=torch.float64)
        tensors.append(one if isinstance(one, torch.Tensor) else random.requires_grad_())
    whole = call(module, *tensors)
    factors = torch.randn_like(whole)
    (whole * factors).sum().backward()
    gradients, parts = [tensor.grad for tensor in tensors], []
    other = copy.deepcopy(module)
    other.zero_grad()
    for tensor, side in zip(tensors, sides, strict=True):
        part = shards[side].cut(tensor.detach(), 1)
        parts.append(part.requires_grad_(tensor.requires_grad))
    with distributed.sequence(*{side: shards[side] for side in sides}.values()):
        output = call(other, *parts)
    (output * shards["target"].cut(factors, 1)).sum().backward()
    of_output = _difference(distributed.gather(output.detach(), shards["target"], 1), whole)
    of_inputs = [
        _difference(distributed.gather(part.grad, shards[side], 1), gradient)
        for part, side, gradient in zip(parts, sides, gradients, strict=True)
        if gradient is not None
    ]
    of_parameters = []
    for own, same in zip(module.parameters(), other.parameters(), strict=True):
        total = torch.zeros_like(own) if same.grad is None else same.grad.clone()
        dist.all_reduce(total)
        of_parameters.append(_difference(total, torch.zeros_like(own) if own.grad is None else own.grad))
    return of_output, max(of_inputs, default=0.0), max(of_parameters)


def _difference(one, other):
    assert one.shape == other.shape
    return float((one - other).abs().max())


def watched(rank, processes, order):
    """The largest difference of each reading of a model that is watched on parts, and on the whole."""
    torch.manual_seed(0)
    read = regard.Readings(
        entropy=True, peak=True, top_k=2, received=True, distance=True, pooled=(2, 2), rows=[1, -1],
        tile=((1, 4), (2, 6)), weights=True, shares=[masks.prefix(1)],
    )  # fmt: skip
    model = _language(position="rotary")[0].double().eval()
    tokens = torch.arange(BATCH * TARGET).view(BATCH, TARGET) * 7 % 19
    shards = shards_of(order, TARGET, mesh_of(processes))
    calls = []
    for own in (tokens, shards.cut(tokens, 1)):
        with contextlib.ExitStack() as stack, torch.no_grad():
            if own is not tokens:
                stack.enter_context(distributed.sequence(shards))
            seen = stack.enter_context(regard.watch(model, read=read, norms=True, outputs=True))
            model(own)
        calls.append(seen.calls)
    found = {}
    for whole, part in zip(*calls, strict=True):
        assert (part.name, part.kind, part.mask, part.shape) == (whole.name, whole.kind, whole.mask, whole.shape)
        assert part.entropy.shape[2] == part.received.shape[2] == shards.count()
        joined = part.gathered()
        for name in POSTPONED_ATTRIBUTES:
            one, other = getattr(whole, name), getattr(joined, name)
            if isinstance(one, torch.Tensor):
                found[name] = max(found.get(name, 0.0), _difference(one.double(), other.double()))
    return found


def surveyed(rank, processes):
    """The largest difference of a statistic of a survey whose texts lie in parts, and one of whole texts."""
    torch.manual_seed(0)
    model = _language(position="learned")[0].double()
    texts = [[2, 5, 6, 5, 6, 7, 8, 5], [2, 9, 5, 6, 9, 5], [3, 2, 4, 8, 4, 8, 2, 1]]
    whole = regard.survey(model, texts, special=[2])
    parts = regard.survey(model, texts, special=[2], mesh=mesh_of(processes))
    assert (whole.texts, whole.tokens) == (parts.texts, parts.tokens)
    differences = [
        abs(one.values[name] - other.values[name])
        for one, other in zip(whole.heads, parts.heads, strict=True)
        for name in one.values
        if one.values[name] == one.values[name]
    ]
    assert len(differences) > 20
    return max(differences)
