"""Compressed sparse attention: the equations of DeepSeek-V4, its layers in transformers, steps, padding and weights."""

import pytest
import torch

import regard
from regard import masks, nn, positions
from regard.errors import ArgumentError, KindError

DIM, HEADS, HEAD, RANK, NEAR = 12, 6, 5, 7, 3
KINDS = {
    "compressed_sparse_attention": {"compressed": 3, "selected": 2},
    "heavily_compressed_attention": {"compressed": 4, "selected": None},
    "sliding_attention": {"compressed": None},
}
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(2)


def double_layer(kind, **options):
    options = {
        "near": NEAR, "head_dim": HEAD, "query_rank": RANK, "groups": 3, "group_rank": 2, "index_heads": 5,
        "index_dim": 8, "rotary": positions.Rotary(2, interleaved=True),
    } | KINDS[kind] | options  # fmt: skip
    layer = nn.CompressedAttention(DIM, HEADS, **options).double().eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.6)
    return layer


def tokens(batch=2, length=17):
    return torch.randn(batch, length, DIM, dtype=torch.float64)


def literal_rms(vector, weight=1.0):
    return vector / (vector.square().mean() + 1e-6).sqrt() * weight


def literal_turn(vector, position):
    """The last two features, turned by a position (whose only angle is 1)."""
    sin, cos = torch.tensor(float(position)).double().sin(), torch.tensor(float(position)).double().cos()
    a, b = vector[-2], vector[-1]
    return torch.cat([vector[:-2], torch.stack([a * cos - b * sin, a * sin + b * cos])])


def literal_block(compressor, row, block):
    """One block of a sequence, feature by feature."""
    size, width = compressor.length, compressor.norm.weight.numel()
    values, gates, block_features = row @ compressor.value_proj.weight.T, row @ compressor.gate_proj.weight.T, []
    for feature in range(width):
        terms = []
        for place in range(size):
            if compressor.overlap and block:
                token = (block - 1) * size + place
                terms.append((gates[token, feature] + compressor.position[place, feature], values[token, feature]))
            own, token = feature + width * compressor.overlap, block * size + place
            terms.append((gates[token, own] + compressor.position[place, own], values[token, own]))
        powers = torch.stack([gate.exp() for gate, _ in terms])
        block_features.append((powers / powers.sum()) @ torch.stack([value for _, value in terms]))
    return literal_turn(literal_rms(torch.stack(block_features), compressor.norm.weight), block * size)


def literal_attention(layer, row):
    """Outputs of a sequence, and its weights of tokens and blocks, one head, one query after the other."""
    length, size = len(row), layer.compressed or len(row) + 1
    down = [literal_rms(layer.query_down.weight @ x, layer.query_norm.weight) for x in row]
    keys = [literal_turn(literal_rms(layer.kv_proj.weight @ x, layer.kv_norm.weight), s) for s, x in enumerate(row)]
    blocks = [literal_block(layer.compressor, row, block) for block in range(length // size)]
    outputs, weights = [], torch.zeros(HEADS, length, length + len(blocks), dtype=row.dtype)
    for t in range(length):
        seen = [block for block in range(len(blocks)) if (block + 1) * size <= t + 1]
        if layer.indexer is not None:
            own = layer.indexer
            index = [literal_block(own.compressor, row, block) for block in seen]
            queries = [literal_turn(part, t) for part in (own.query_proj.weight @ down[t]).view(own.num_heads, -1)]
            shares = own.head_weights.weight @ row[t] * own.num_heads**-0.5
            scores = [
                sum(w * (q @ key * own.head_dim**-0.5).clamp(min=0) for w, q in zip(shares, queries, strict=True))
                for key in index
            ]
            seen = sorted(seen, key=lambda block, scores=scores: -scores[block])[: layer.selected]
        columns = [*range(max(0, t - NEAR + 1), t + 1), *(length + block for block in seen)]
        heads = []
        for h, query in enumerate((layer.query_up.weight @ down[t]).view(HEADS, -1)):
            query = literal_turn(literal_rms(query), t)
            powers = torch.stack([((keys + blocks)[column] @ query / HEAD**0.5).exp() for column in columns])
            weights[h, t, columns] = powers / (powers.sum() + layer.normalizer.sink[h].exp())
            mixed = sum(weights[h, t, column] * (keys + blocks)[column] for column in columns)
            heads.append(literal_turn(mixed, -t))
        parts = [torch.cat(heads[2 * group : 2 * group + 2]) for group in range(3)]
        outputs.append(
            layer.out_proj.weight @ torch.cat([layer.out_down[group] @ part for group, part in enumerate(parts)])
        )
    return torch.stack(outputs), weights


@kinds
def test_compressed_attention_is_the_equation_and_its_weights_are_seen(kind):
    layer, x = double_layer(kind), tokens()
    with torch.no_grad(), regard.watch(layer, read=regard.Readings(weights=True)) as seen:
        output, returned, _ = layer(x, mask="causal", need_weights=True)
    assert torch.equal(output, layer(x).output)
    assert len(seen.calls) == 1
    for row, got, of_tokens, recorded in zip(x, output, returned, seen.calls[0].weights, strict=True):
        with torch.no_grad():
            expected, weights = literal_attention(layer, row)
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(recorded, weights.to(recorded.dtype))
        assert (weights.sum(-1) < 1).all()
        spread = weights[..., :17].clone()
        for block in range(weights.shape[-1] - 17):
            size = layer.compressed
            spread[..., block * size : (block + 1) * size] += weights[..., 17 + block, None] / size
        torch.testing.assert_close(of_tokens, spread)


@kinds
def test_compressed_attention_in_steps_is_the_whole(kind):
    layer, x = double_layer(kind), tokens()
    expected = layer(x, need_weights=True)
    for sizes in ([1] * 17, [5, 1, 2, 8, 1]):
        cache, first = layer.new_cache(), 0
        for part in x.split(sizes, dim=1):
            output, weights, cache = layer(part, mask="causal", cache=cache, need_weights=True)
            stop = first + part.shape[1]
            torch.testing.assert_close(output, expected.output[:, first:stop])
            torch.testing.assert_close(weights, expected.weights[:, :, first:stop, :stop])
            first = cache.length
        assert cache.keys.tokens.shape[2] == NEAR - 1
        assert cache.keys.recent.shape[1] <= 2 * (layer.compressed or 0)
    index, more = torch.tensor([1, 1, 0]), tokens(3, 4)
    torch.testing.assert_close(
        layer(more, cache=cache.select(index)).output, layer(torch.cat([x[index], more], dim=1)).output[:, 17:]
    )


@kinds
def test_padding_of_compressed_attention_is_as_if_it_were_left_out(kind):
    layer, x = double_layer(kind), tokens(4)
    seen = torch.ones(4, 17).bool()
    seen[1, 11:] = seen[2, :6] = seen[2, 9] = seen[3] = False
    x = x.masked_fill(~seen[..., None], torch.nan)
    with torch.no_grad():
        output, weights, _ = layer(x, mask=masks.causal() & masks.keep(seen[:, None, None]), need_weights=True)
        for row, own, got, of_row in zip(x, seen, output, weights, strict=True):
            alone = layer(row[None, own], need_weights=True)
            torch.testing.assert_close(got[own], alone.output[0])
            torch.testing.assert_close(of_row[:, own][:, :, own], alone.weights[0])
            assert not of_row[:, :, ~own].any()
        assert torch.equal(output[3], torch.zeros_like(output[3]))
        by_length = layer(x[:2], mask=masks.lengths([17, 11])).output
    torch.testing.assert_close(by_length[1, :11], output[1, :11])


@kinds
def test_gradients_of_compressed_attention_are_exact(kind):
    layer, x = double_layer(kind), tokens(1, 7).requires_grad_()
    layer(x).output.square().sum().backward()
    learned = {name: each for name, each in layer.named_parameters() if not name.startswith("indexer.")}
    assert {name for name, each in layer.named_parameters() if each.grad is not None} == learned.keys()

    def output(x, *parameters):
        return torch.func.functional_call(layer, dict(zip(learned, parameters, strict=True)), (x,)).output

    assert torch.autograd.gradcheck(output, (x, *learned.values()), fast_mode=True)


@kinds
def test_kernels_and_half_precision_compute_compressed_attention(kind):
    layer, x = double_layer(kind).float(), tokens(2, 41).float()
    layer.backend = "reference"
    expected = layer(x).output
    for backend in ("tiled", "auto"):
        layer.backend = backend
        torch.testing.assert_close(layer(x).output, expected, rtol=1e-4, atol=1e-5)
    half = layer.bfloat16()(x.bfloat16()).output
    assert half.dtype == torch.bfloat16
    if kind != "compressed_sparse_attention":  # rounded scores may select other blocks
        torch.testing.assert_close(half.float(), expected, rtol=0.1, atol=0.3)


@kinds
def test_compressed_attention_of_no_sequence_and_of_no_token_is_empty(kind):
    layer = double_layer(kind)
    for sizes in ((0, 17), (2, 0), (0, 0)):
        x = torch.zeros(*sizes, DIM, dtype=torch.float64)
        for mask in (None, "causal", masks.lengths(torch.zeros(sizes[0], dtype=torch.long))):
            attended = layer(x, mask=mask, need_weights=True)
            assert attended.output.shape == x.shape
            assert attended.weights.shape == (sizes[0], HEADS, sizes[1], sizes[1])


@kinds
def test_layers_of_deepseek_v4_load_and_compute_the_same(kind):
    transformers = pytest.importorskip("transformers")
    peer = pytest.importorskip("transformers.models.deepseek_v4.modeling_deepseek_v4")
    config = transformers.DeepseekV4Config(
        hidden_size=24, num_attention_heads=6, head_dim=10, q_lora_rank=14, num_hidden_layers=1, layer_types=[kind],
        compress_rates={name: options["compressed"] for name, options in KINDS.items() if options["compressed"]},
        sliding_window=5, o_groups=3, o_lora_rank=7, index_n_heads=7, index_head_dim=8, index_topk=2,
        partial_rotary_factor=0.4, attn_implementation="eager",
        rope_parameters={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    )  # fmt: skip
    foreign = peer.DeepseekV4Attention(config, 0).eval()
    for parameter in foreign.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    rotary, yarn = peer.DeepseekV4RotaryEmbedding(config), positions.YaRN(4.0, 16, attention_factor=1.0)
    has_blocks = kind != "sliding_attention"
    own = nn.CompressedAttention(
        24, 6, near=5, head_dim=10, query_rank=14, groups=3, group_rank=7, index_heads=7, index_dim=8, **KINDS[kind],
        rotary=positions.Rotary(4, 1.6e5 if has_blocks else 1e4, True, scaling=yarn if has_blocks else None),
    ).eval()  # fmt: skip
    own.load_state_dict(foreign.state_dict())
    past, cache, first = transformers.DynamicCache(config=config), own.new_cache(), 0
    with torch.no_grad():
        for length in (1, 2, 4, 7, 12, 23):
            x, index = torch.randn(2, length, 24), torch.arange(length)
            angles = {name: rotary(x, index[None].expand(2, -1), name) for name in ("main", "compress")}
            distance = index[:, None] - index
            hidden = torch.zeros(2, 1, length, length).masked_fill((distance < 0) | (distance >= 5), -torch.inf)
            expected = foreign(x, angles, index[None].expand(2, -1), hidden)
            torch.testing.assert_close(own(x).output, expected[0], rtol=0, atol=1e-6)
        for part in torch.randn(2, 19, 24).split([4, *[1] * 15], dim=1):  # the released layer's own steps
            index = torch.arange(first, first + part.shape[1])[None].expand(2, -1)
            angles = {name: rotary(part, index, name) for name in ("main", "compress")}
            hidden = torch.zeros(2, 1, part.shape[1], min(first + part.shape[1], 5))
            hidden = hidden if first else hidden.fill_(-torch.inf).triu(1)
            expected = foreign(part, angles, index, hidden, past)[0]
            attended = own(part, cache=cache)
            torch.testing.assert_close(attended.output, expected, rtol=0, atol=1e-6)
            cache, first = attended.cache, first + part.shape[1]


def test_compressed_attention_names_what_it_cannot_do():
    layer, x = double_layer("compressed_sparse_attention"), tokens()
    for call, error, message in (
        (lambda: layer(x, mask=masks.window(3, 0)), ArgumentError, "may be causal and hide padding of all heads"),
        (lambda: layer(x, mask=masks.documents(torch.zeros(17).long())), ArgumentError, "may be causal and hide"),
        (lambda: layer(x, mask=masks.lengths([17, 3], [17, 3])), ArgumentError, "may be causal and hide padding"),
        (lambda: layer(x, bias="alibi"), ArgumentError, "blocks are attended to as well: leave it out"),
        (lambda: layer(x, cache=nn.KeyValueCache()), KindError, "a CompressedCache; it is a KeyValueCache"),
        (
            lambda: layer(x, mask=masks.lengths([17, 3]), cache=layer.new_cache()),
            ArgumentError,
            "hide padding of all heads without a cache",
        ),
        (lambda: nn.CompressedAttention(DIM, 6, groups=4), ArgumentError, "groups must divide num_heads, 6; it is 4"),
        (lambda: nn.CompressedAttention(DIM, 6, compressed=0), ArgumentError, "compressed must be"),
        (lambda: nn.CompressedAttention(DIM, 6, selected=0), ArgumentError, "selected must be"),
        (lambda: nn.CompressedAttention(DIM, 6, index_dim=1), ArgumentError, "positions rotate, 2; they are 2 and 1"),
    ):
        with pytest.raises(error, match=message):
            call()
