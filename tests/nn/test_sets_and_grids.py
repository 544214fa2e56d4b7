"""Attention over sets and grids, and to selected blocks: each layer against its paper's equations in plain loops."""

import copy
import math

import pytest
import torch

import regard
from regard import masks, nn
from regard.errors import ArgumentError, ShapeError
from regard.shapes.grid import Grid


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(4)


def doubles(*sizes):
    return torch.randn(*sizes, dtype=torch.float64)


def softmax(row):
    powers = [number.exp() for number in row]
    return [power / sum(powers) for power in powers]


def layer_norm(row, norm):
    centered = row - row.mean()
    return centered / (centered.square().mean() + 1e-5).sqrt() * norm.weight + norm.bias


def literal_block(block, queries, elements):
    """Lee et al. 2019, eq. 6 and 7, for one set: the output, and the weights of each head."""
    attention, dim = block.attention, block.dim
    width = dim // attention.num_heads
    q, k, v = (
        rows @ weight.T + bias
        for rows, weight, bias in zip(
            (queries, elements, elements),
            attention.in_proj_weight.chunk(3),
            attention.in_proj_bias.chunk(3),
            strict=True,
        )
    )
    outputs, weights = [], torch.zeros(attention.num_heads, len(queries), len(elements), dtype=torch.float64)
    for i in range(len(queries)):
        joined = []
        for h in range(attention.num_heads):
            part = slice(h * width, (h + 1) * width)
            row = softmax([q[i, part] @ key[part] / math.sqrt(width) for key in k])
            weights[h, i] = torch.stack(row)
            joined.append(sum(w * value[part] for w, value in zip(row, v, strict=True)))
        attended = attention.out_proj(torch.cat(joined))
        hidden = layer_norm(queries[i] + attended, block.norm1)
        outputs.append(layer_norm(hidden + block.feedforward(hidden).clamp(min=0), block.norm2))
    return torch.stack(outputs), weights


def test_sets_are_attended_to_as_in_the_set_transformer():
    elements, ends = doubles(2, 6, 8), torch.tensor([6, 4])
    elements[1, 4:] = torch.nan
    elements.requires_grad_()
    induced, pool = nn.ISAB(8, 2, points=3).double(), nn.PMA(8, 2, seeds=3).double()
    for layer in (induced, pool):
        attended = layer(elements, ends, need_weights=True)
        assert torch.equal(layer(elements, ends).output, attended.output)
        for b, end in enumerate(ends):
            own = elements[b, :end]
            if layer is induced:
                points, first = literal_block(layer.gather, layer.points, own)
                expected, second = literal_block(layer.spread, own, points)
                weights = torch.einsum("hnm,hmk->hnk", second, first)
            else:
                expected, weights = literal_block(layer.block, layer.seeds, layer.feedforward(own).clamp(min=0))
            torch.testing.assert_close(attended.output[b, : len(expected)], expected)
            torch.testing.assert_close(attended.weights[b, :, : len(expected), :end], weights)
            assert not attended.weights[b, :, :, end:].any()
        (attended.output[0].sum() + attended.output[1, :3].square().sum()).backward()
        for name, parameter in layer.named_parameters():
            assert parameter.grad.isfinite().all(), name
    assert not elements.grad[1, 4:].any()
    order, own = torch.randperm(6), elements[:1].detach()
    torch.testing.assert_close(induced(own[:, order]).output, induced(own).output[:, order])
    torch.testing.assert_close(pool(own[:, order]).output, pool(own).output)
    assert torch.autograd.gradcheck(lambda x: induced(x)[0], doubles(1, 2, 8).requires_grad_())


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_axial_attention_is_attention_of_each_line(axis):
    layer, x = nn.AxialAttention(8, 2, axis).double(), doubles(2, 3, 5, 8)
    line = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    line.load_state_dict(layer.attention.state_dict())
    attended = layer(x, mask="causal", need_weights=True)
    assert torch.equal(layer(x, mask="causal").output, attended.output)
    for b in range(2):
        for n in range(3 if axis else 5):
            tokens = (x[b, n] if axis else x[b, :, n])[None]
            later = torch.ones(tokens.shape[1], tokens.shape[1]).triu(1).bool()
            expected, weights = line(tokens, tokens, tokens, attn_mask=later, average_attn_weights=False)
            torch.testing.assert_close(attended.output[b, n] if axis else attended.output[b, :, n], expected[0])
            torch.testing.assert_close(attended.weights[b, n], weights[0])


def bilinear(image, x, y):
    """The image [channels, height, width] at a point from 0 to 1; elements are at the middles of their squares."""
    channels, height, width = image.shape
    column, row = x * width - 0.5, y * height - 0.5
    total = torch.zeros(channels, dtype=image.dtype)
    for j in (math.floor(column), math.floor(column) + 1):
        for i in (math.floor(row), math.floor(row) + 1):
            if 0 <= i < height and 0 <= j < width:
                total = total + (1 - abs(row - i)) * (1 - abs(column - j)) * image[:, i, j]
    return total


@pytest.mark.parametrize("levels", [1, 2])
def test_deformable_attention_is_that_of_zhu_et_al(levels):
    heads, points, dim = 2, 3, 8
    layer = nn.DeformableAttention(dim, heads, points, levels).double()
    for linear in (layer.offset, layer.weight):
        torch.nn.init.normal_(linear.weight, std=0.5)
    query, maps = doubles(2, 4, dim), [doubles(2, dim, 5, 7), doubles(2, dim, 3, 2)][:levels]
    reference = torch.rand(2, 4, levels, 2, dtype=torch.float64)
    seen = layer(query, reference, maps, need_weights=True)
    assert torch.equal(layer(query, reference, maps).output, seen.output)
    if levels == 1:
        torch.testing.assert_close(layer(query, reference[:, :, 0], maps[0]).output, seen.output)
    for b in range(2):
        projected = [torch.einsum("oc,chw->ohw", layer.value_proj.weight, each[b]) for each in maps]
        projected = [each + layer.value_proj.bias[:, None, None] for each in projected]
        for q in range(4):
            offsets = layer.offset(query[b, q]).view(heads, levels, points, 2)
            joined = []
            for m in range(heads):
                row = softmax(layer.weight(query[b, q]).view(heads, -1)[m])
                torch.testing.assert_close(seen.weights[b, m, q].flatten(), torch.stack(row))
                total = 0
                for n, image in enumerate(projected):
                    own = image[m * dim // heads : (m + 1) * dim // heads]
                    for k in range(points):
                        x = reference[b, q, n, 0] + offsets[m, n, k, 0] / image.shape[2]
                        y = reference[b, q, n, 1] + offsets[m, n, k, 1] / image.shape[1]
                        torch.testing.assert_close(seen.positions[b, m, q, n, k], torch.stack((x, y)))
                        total = total + row[n * points + k] * bilinear(own, x.item(), y.item())
                joined.append(total)
            torch.testing.assert_close(seen.output[b, q], layer.out_proj(torch.cat(joined)))
    small = nn.DeformableAttention(2, 1, 2).double()
    torch.nn.init.normal_(small.offset.weight)
    assert torch.autograd.gradcheck(
        lambda query, reference, image: small(query, reference, image, need_weights=True),
        (doubles(1, 2, 2).requires_grad_(), torch.full((1, 2, 2), 0.43).double().requires_grad_(),
         doubles(1, 2, 3, 4).requires_grad_()),
    )  # fmt: skip
    with regard.watch(layer, read=regard.Readings(weights=True)) as record:
        layer(query, reference, maps)
    assert record.calls[0].weights.shape == (8, heads, 1, levels * points)


SIZES = {"compressed": 4, "stride": 2, "block": 3, "selected": 4, "near": 3}


def literal_sparse(layer, x, visible):
    """Yuan et al. 2025, eq. 5 to 12, one token, head and branch after the other."""
    heads, groups, dim = layer.num_heads, layer.num_heads // layer.kv_heads, layer.head_dim
    length, step, size = SIZES["compressed"], SIZES["stride"], SIZES["block"]
    batch, tokens, _ = x.shape
    projected = layer.in_proj(x).split(dim, dim=-1)
    q, rest = projected[:heads], projected[heads:]
    keys, values = rest[: 3 * layer.kv_heads], rest[3 * layer.kv_heads :]
    joined, weights = [], torch.zeros(batch, heads, tokens, tokens, dtype=x.dtype)

    def compress(part, mlp):
        rows = [(part[n : n + length] + mlp.position).flatten() for n in range(0, tokens - length + 1, step)]
        hidden = [mlp.first(row) for row in rows]
        return [mlp.second(row * (1 + torch.erf(row / math.sqrt(2))) / 2) for row in hidden]

    def attended(query, rows, columns):
        row = softmax([query @ key / math.sqrt(dim) for key in rows])
        return row, sum((w * value for w, value in zip(row, columns, strict=True)), torch.zeros(dim, dtype=x.dtype))

    for b in range(batch):
        coarse = [compress(keys[g][b], layer.compress_key) for g in range(layer.kv_heads)]
        coarse_values = [compress(values[g][b], layer.compress_value) for g in range(layer.kv_heads)]
        for t in range(tokens):
            seen = [j for j in range(tokens) if visible[b, t, j]]
            whole = [n for n in range(len(coarse[0])) if set(range(n * step, n * step + length)) <= set(seen)]
            parts, rows = [], []
            for h in range(heads):
                row, output = attended(
                    q[h][b, t], [coarse[h // groups][n] for n in whole], [coarse_values[h // groups][n] for n in whole]
                )
                rows.append(dict(zip(whole, row, strict=True)))
                parts.append([output])
            gates = torch.sigmoid(layer.gates(x[b, t]))
            for g in range(layer.kv_heads):
                scores = {}
                for block in {j // size for j in seen}:
                    inside = range(block * size, (block + 1) * size)
                    scores[block] = sum(
                        row[n].item() * sum(j in inside for j in range(n * step, n * step + length))
                        for row in rows[g * groups : (g + 1) * groups]
                        for n in whole
                    )
                always = {0, t // size - 1, t // size}
                order = sorted(scores, key=lambda block: (block not in always, -scores[block]))
                chosen = order[: SIZES["selected"]]
                for h in range(g * groups, (g + 1) * groups):
                    for branch, columns in (
                        (1, [j for j in seen if j // size in chosen]),
                        (2, [j for j in seen if abs(j - t) < SIZES["near"]]),
                    ):
                        head = branch * layer.kv_heads + g
                        row, output = attended(
                            q[h][b, t], [keys[head][b, j] for j in columns], [values[head][b, j] for j in columns]
                        )
                        parts[h].append(output)
                        for j, w in zip(columns, row, strict=True):
                            weights[b, h, t, j] += (gates[branch * heads + h] * w).item()
            for h in range(heads):
                for n, w in rows[h].items():
                    weights[b, h, t, n * step : n * step + length] += (gates[h] * w).item() / length
            joined += [sum(gates[c * heads + h] * parts[h][c] for c in range(3)) for h in range(heads)]
    return layer.out_proj(torch.stack(joined).view(batch, tokens, -1)), weights


@pytest.mark.parametrize("kind", ["causal", "padded", "documents"])
def test_native_sparse_attention_is_the_equation(kind):
    layer, x = nn.NativeSparseAttention(8, 4, kv_heads=2, **SIZES).double(), doubles(2, 17, 8).requires_grad_()
    mask = masks.causal()
    if kind == "padded":
        mask = mask & masks.lengths([17, 9])
    if kind == "documents":
        mask = masks.documents(torch.tensor([0] * 9 + [1] * 8))
    visible = mask.dense(Grid.whole(2, 1, 17, 17))[:, 0]
    expected, weights = literal_sparse(layer, x, visible)
    attended = layer(x, mask=mask, need_weights=True)
    torch.testing.assert_close(attended.output, expected)
    torch.testing.assert_close(attended.weights, weights)
    factor = doubles(2, 17, 8)
    inputs = [x, *layer.parameters()]
    gradients = [torch.autograd.grad((output * factor).sum(), inputs) for output in (attended.output, expected)]
    for found, truth in zip(*gradients, strict=True):  # those of the literal loop have none of the selection
        torch.testing.assert_close(found, truth)


def test_native_sparse_attention_in_steps_and_on_kernels():
    layer, x = nn.NativeSparseAttention(16, 4, kv_heads=2, position="rotary", **SIZES), torch.randn(2, 40, 16)
    layers = {}
    for backend in ("reference", "tiled", "cpu"):
        layers[backend] = copy.deepcopy(layer)
        layers[backend].backend = backend
    expected = layers["reference"](x, mask="causal").output
    for backend in ("tiled", "cpu"):
        torch.testing.assert_close(layers[backend](x, mask="causal").output, expected, rtol=1e-4, atol=1e-5)
    cache, rows = layer.new_cache(), []
    for part in x.split([1, 16, 1, 22], dim=1):
        attended = layers["reference"](part, mask="causal", cache=cache)
        cache = attended.cache
        rows.append(attended.output)
    torch.testing.assert_close(torch.cat(rows, dim=1), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.MAB(8, 2)(torch.ones(1, 3, 8), torch.ones(1, 3, 7)), ShapeError, r"elements must be \[batch"),
        (lambda: nn.PMA(8, 2)(torch.ones(3, 8)), ShapeError, r"elements must be \[batch, length, 8\]"),
        (lambda: nn.AxialAttention(8, 2, 2)(torch.ones(1, 3, 4, 8)), ShapeError, "must have an axis 2"),
        (lambda: nn.DeformableAttention(8, 3), ArgumentError, "num_heads must divide embed_dim"),
        (
            lambda: nn.DeformableAttention(8, 2, levels=2)(*map(torch.ones, ((1, 3, 8), (1, 3, 2), (1, 8, 4, 4)))),
            ArgumentError,
            "one feature map for each level, 2; there are 1",
        ),
        (
            lambda: nn.DeformableAttention(8, 2)(*map(torch.ones, ((1, 3, 8), (1, 3, 3), (1, 8, 4, 4)))),
            ShapeError,
            r"reference must be .*it has shape \[1, 3, 3\]",
        ),
        (
            lambda: nn.NativeSparseAttention(8, 2)(torch.ones(1, 3, 8), bias="alibi"),
            ArgumentError,
            "leave it out, or use position=",
        ),
        (lambda: nn.NativeSparseAttention(8, 2, stride=33), ArgumentError, "stride must be at most compressed, 32"),
    ],
)
def test_layers_of_sets_and_grids_refuse_wrong_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()
