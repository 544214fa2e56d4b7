"""Scores, normalizers, masks and biases declare their fields once: what follows from them, for every class."""

import copy
import inspect
from importlib import import_module
from pkgutil import iter_modules

import pytest
import torch
from torch import nn

import regard
from regard import biases, masks, normalizers, scores
from regard.attention.encoding import Parts, decode, encode
from regard.attention.kinds import kind_of
from regard.errors import KindError
from regard.fields import FIELDS
from regard.masks.mask import Mask
from regard.tracing.versions import tensors_of

FAMILIES = {"score": scores, "normalizer": normalizers, "mask": masks, "bias": biases}
BASES = scores.Score, normalizers.Normalizer, masks.Mask, biases.Bias

UNDECLARED = {scores.Custom, normalizers.Custom, normalizers.Monotonic, normalizers.Stepwise}
"""They are a user's function; the noise of `Monotonic` depends on the training mode."""

MESSAGES = {"name"}
"""Parameters of constructors that only serve messages."""

DIM, HEADS, LENGTH = 4, 2, 5


def number(*shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape))) + 0.5


def linear(*sizes):
    torch.manual_seed(0)
    return nn.Linear(*sizes)


def square(threshold):
    return number(LENGTH, LENGTH) > threshold


# Objects of each class, which differ in what is in a kind; in each field, one of them differs from the first.
MADE = {
    scores.Dot: lambda: [scores.Dot()],
    scores.ScaledDot: lambda: [scores.ScaledDot(each) for each in (None, 0.3, 0.5, number(HEADS, 1, 1))],
    scores.Cosine: lambda: [scores.Cosine(each) for each in (1.0, 0.3, number(HEADS, 1, 1))],
    scores.Distance: lambda: [scores.Distance(each) for each in (True, False)],
    scores.General: lambda: [scores.General(number(DIM, DIM)), scores.General(number(HEADS, DIM, DIM))],
    scores.Additive: lambda: [
        scores.Additive(number(3), linear(DIM, 3), linear(DIM, 3)),
        scores.Additive(number(HEADS, 3), linear(DIM, 3), linear(DIM, 3)),
        scores.Additive(number(3), nn.Linear(DIM, 3, bias=False), linear(DIM, 3)),
        scores.Additive(number(3), linear(DIM, 3), nn.Linear(DIM, 3, bias=False)),
    ],
    scores.MLP: lambda: [scores.MLP(nn.Sequential(linear(2 * DIM, 3), nn.Tanh(), linear(3, 1)))],
    scores.Location: lambda: [scores.Location(number(LENGTH, DIM)), scores.Location(number(LENGTH + 1, DIM))],
    scores.LocationAware: lambda: [
        scores.LocationAware(
            number(*heads, 3), nn.Conv1d(1, 2, width, padding="same"), linear(2, 3, location), linear(DIM, 3, query),
            linear(DIM, 3, key), sees, earlier,
        )
        for heads, width, location, query, key, sees, earlier in (
            ((), 3, True, True, True, "previous", None),
            ((HEADS,), 3, True, True, True, "previous", None),
            ((), 5, True, True, True, "previous", None),
            ((), 3, False, True, True, "previous", None),
            ((), 3, True, False, True, "previous", None),
            ((), 3, True, True, False, "previous", None),
            ((), 3, True, True, True, "total", None),
            ((), 3, True, True, True, "previous", number(2, 1, LENGTH)),
        )
    ],
    scores.DynamicConvolution: lambda: [
        scores.DynamicConvolution(
            number(dim), nn.Conv1d(1, 2, width, padding="same"), linear(2, dim, location), linear(DIM, 3, hidden),
            linear(3, 2 * reach, filters), linear(2, dim, dynamic), number(prior), earlier,
        )
        for dim, width, location, hidden, reach, filters, dynamic, prior, earlier in (
            (3, 3, True, True, 3, False, False, 4, None),
            (5, 3, True, True, 3, False, False, 4, None),
            (3, 5, True, True, 3, False, False, 4, None),
            (3, 3, False, True, 3, False, False, 4, None),
            (3, 3, True, False, 3, False, False, 4, None),
            (3, 3, True, True, 5, False, False, 4, None),
            (3, 3, True, True, 3, True, False, 4, None),
            (3, 3, True, True, 3, False, True, 4, None),
            (3, 3, True, True, 3, False, False, 6, None),
            (3, 3, True, True, 3, False, False, 4, number(2, 1, LENGTH)),
        )
    ],
    scores.GaussianMixture: lambda: [scores.GaussianMixture(linear(DIM, 3)), scores.GaussianMixture(linear(DIM, 6))],
    scores.Trilinear: lambda: [scores.Trilinear(number(3 * DIM)), scores.Trilinear(number(3 * DIM).requires_grad_())],
    scores.Features: lambda: [
        *(scores.Features(each) for each in ("elu", "relu")),
        *(scores.Features(scores.RandomFeatures(number(size, DIM))) for size in (3, 5)),
    ],
    scores.Decayed: lambda: [
        scores.Decayed("dot", -number(HEADS)),
        scores.Decayed("scaled_dot", -number(HEADS)),
        scores.Decayed("dot", -number(1, HEADS, LENGTH)),
    ],
    scores.ForgetGate: lambda: [
        scores.ForgetGate("dot", -number(HEADS)),
        scores.ForgetGate("scaled_dot", -number(HEADS)),
        scores.ForgetGate("dot", -number(1, HEADS, LENGTH)),
    ],
    scores.DeltaRule: lambda: [
        scores.DeltaRule("dot", number(1, 1, LENGTH)),
        scores.DeltaRule("cosine", number(1, 1, LENGTH)),
        scores.DeltaRule("dot", number(1, HEADS, LENGTH)),
    ],
    scores.SoftCap: lambda: [scores.SoftCap("dot", 2.0), scores.SoftCap("dot", 3.0), scores.SoftCap("scaled_dot", 2.0)],
    scores.Modified: lambda: [scores.Modified(each, lambda *numbers: numbers[0]) for each in ("dot", "cosine")],
    normalizers.Softmax: lambda: [normalizers.Softmax(each) for each in (1.0, 0.5, number(), number(HEADS))],
    normalizers.SoftmaxWithSink: lambda: [normalizers.SoftmaxWithSink(each) for each in (0.0, -0.0, number(HEADS))],
    normalizers.Entmax: lambda: [normalizers.Entmax(each) for each in (1.5, 1.7, 1.0 + number(HEADS))],
    normalizers.Sparsemax: lambda: [normalizers.Sparsemax()],
    normalizers.Sigmoid: lambda: [normalizers.Sigmoid(each) for each in (0.0, 1.0, number(HEADS))],
    normalizers.SquaredReLU: lambda: [normalizers.SquaredReLU(mean) for mean in (False, True)],
    normalizers.Softpick: lambda: [normalizers.Softpick(each) for each in (1e-8, 1e-3)],
    normalizers.SignedSoftmax: lambda: [normalizers.SignedSoftmax()],
    normalizers.ScalableSoftmax: lambda: [normalizers.ScalableSoftmax(each) for each in (1.0, 0.5, number(HEADS))],
    normalizers.StickBreaking: lambda: [normalizers.StickBreaking()],
    normalizers.Identity: lambda: [normalizers.Identity()],
    normalizers.Ratio: lambda: [normalizers.Ratio()],
    normalizers.Hard: lambda: [
        normalizers.Hard(),
        normalizers.Hard("straight_through"),
        normalizers.Hard(temperature=0.5),
        normalizers.Hard("sample", generator=torch.Generator()),
    ],
    normalizers.LocalGaussian: lambda: [
        normalizers.LocalGaussian(normalizers.softmax, number(LENGTH), 1.0),
        normalizers.LocalGaussian(normalizers.sigmoid, number(LENGTH), 1.0),
        normalizers.LocalGaussian(normalizers.softmax, number(HEADS, LENGTH), 1.0),
        normalizers.LocalGaussian(normalizers.softmax, number(LENGTH), number(HEADS, 1)),
    ],
    normalizers.ForwardAlignment: lambda: [
        normalizers.ForwardAlignment(),
        normalizers.ForwardAlignment(0.3),
        normalizers.ForwardAlignment(number(LENGTH) / 2),
        normalizers.ForwardAlignment(previous=number(HEADS, LENGTH)),
    ],
    normalizers.Chunkwise: lambda: [
        normalizers.Chunkwise(number(LENGTH, LENGTH), 2),
        normalizers.Chunkwise(number(LENGTH, LENGTH), 3),
        normalizers.Chunkwise(number(HEADS, LENGTH, LENGTH), 2),
    ],
    normalizers.TopK: lambda: [
        normalizers.TopK(2, normalizers.softmax),
        normalizers.TopK(3, normalizers.softmax),
        normalizers.TopK(2, normalizers.sparsemax),
    ],
    normalizers.TopP: lambda: [
        normalizers.TopP(0.5, normalizers.softmax),
        normalizers.TopP(0.7, normalizers.softmax),
        normalizers.TopP(0.5, normalizers.sparsemax),
    ],
    normalizers.QueryTemperature: lambda: [
        normalizers.QueryTemperature(number(LENGTH), normalizers.softmax),
        normalizers.QueryTemperature(number(HEADS, LENGTH), normalizers.softmax),
        normalizers.QueryTemperature(number(LENGTH), normalizers.sparsemax),
    ],
    normalizers.TalkingHeads: lambda: [
        normalizers.TalkingHeads(number(HEADS, HEADS), None, normalizers.softmax),
        normalizers.TalkingHeads(None, number(HEADS, HEADS), normalizers.softmax),
        normalizers.TalkingHeads(number(HEADS, HEADS), None, normalizers.sparsemax),
    ],
    normalizers.OverQueries: lambda: [normalizers.OverQueries(each) for each in (1e-8, 1e-3)],
    normalizers.Sinkhorn: lambda: [normalizers.Sinkhorn(each) for each in (1, 5)],
    masks.Band: lambda: [
        masks.Band(None, 0),
        masks.Band(2, 0),
        masks.Band(2, 1),
        masks.Band(2, 0, "start"),
        masks.Band(2, 0, offset=1),
        masks.Band(2, 0, offset=[1, 2]),
        masks.Band(2, 0, offset=torch.tensor([1, 2])),
    ],
    masks.BlockDiffusion: lambda: [masks.BlockDiffusion(4, 2), masks.BlockDiffusion(2, 2), masks.BlockDiffusion(2, 1)],
    masks.Chunks: lambda: [
        masks.Chunks(2),
        masks.Chunks(3),
        masks.Chunks(2, 1),
        masks.Chunks(2, 1, None),
        masks.Chunks(2, align="start"),
        masks.Chunks(2, offset=1),
        masks.Chunks(2, offset=torch.tensor([1, 2])),
    ],
    masks.Prefix: lambda: [masks.Prefix(each) for each in (2, 3, [2, 3], torch.tensor([2, 3]))],
    masks.Dilated: lambda: [masks.Dilated(each) for each in (2, 3)],
    masks.Lengths: lambda: [masks.Lengths(*each) for each in ((3,), (4,), ([2, 3],), (3, 4), (torch.tensor([2, 3]),))],
    masks.Documents: lambda: [
        masks.Documents(torch.arange(LENGTH) // 2),
        masks.Documents(torch.arange(LENGTH).expand(2, -1) // 2),
        masks.Documents(torch.arange(LENGTH) // 2, torch.arange(LENGTH) // 3),
    ],
    masks.Where: lambda: [masks.Where(lambda b, h, i, j, step=step: j <= i + step) for step in (1, 2)],
    masks.Keep: lambda: [masks.Keep(square(0.7)), masks.Keep(square(0.7)[None])],
    masks.Neighborhood: lambda: [
        masks.Neighborhood(*each) for each in ((2,), (3,), (2, [LENGTH]), (2, None, 2))
    ],
    masks.ShiftedWindows: lambda: [
        masks.ShiftedWindows(*each) for each in ((2,), (3,), (2, 1), (2, 0, [LENGTH]))
    ],
    masks.Blocks: lambda: [
        masks.Blocks(square(0.7)[:rows, :columns], *sizes)
        for rows, columns, *sizes in ((LENGTH, 3, 2), (LENGTH, 2, 3), (3, 3, 2, 2))
    ],
    masks.Columns: lambda: [
        masks.Columns(torch.arange(rows * 3).view(rows, 3) % 3, *sizes)
        for rows, *sizes in ((LENGTH, 1), (LENGTH, 2), (3, 1, 2))
    ],
    masks.Compressed: lambda: [
        masks.Compressed(masks.causal(), 10, 2, 2),
        masks.Compressed(masks.keep(number(LENGTH, 10) > 0.7), 10, 2, 2),
        masks.Compressed(masks.causal(), 9, 2, 2),
        masks.Compressed(masks.causal(), 10, 3, 2),
        masks.Compressed(masks.causal(), 5, 2, 1),
    ],
    masks.AppendedMask: lambda: [
        masks.AppendedMask(masks.causal(), 1),
        masks.AppendedMask(masks.causal(), 2),
        masks.AppendedMask(masks.keep(square(0.7)[:, 1:]), 1),
    ],
    masks.And: lambda: [masks.And(masks.causal(), masks.prefix(each)) for each in (2, 3)],
    masks.Or: lambda: [masks.causal() | masks.prefix(2), masks.prefix(2) | masks.keep(square(0.7))],
    masks.Not: lambda: [masks.Not(masks.prefix(2)), masks.Not(masks.keep(square(0.7)))],
    biases.TensorBias: lambda: [biases.TensorBias(number(*each)) for each in ((LENGTH, LENGTH), (HEADS, 1, 1))],
    biases.Alibi: lambda: [
        biases.Alibi(HEADS), biases.Alibi(3), biases.Alibi(HEADS, [0.5, 0.3]), biases.Alibi(HEADS, number(HEADS)),
    ],
    biases.Kerple: lambda: [
        biases.Kerple(HEADS),
        biases.Kerple(3),
        biases.Kerple(HEADS, "power"),
        biases.Kerple(HEADS, amplitude=number(HEADS)),
        biases.Kerple(HEADS, rate=number(HEADS)),
    ],
    biases.Sandwich: lambda: [biases.Sandwich(HEADS), biases.Sandwich(3), biases.Sandwich(HEADS, 6)],
    biases.Fire: lambda: [
        biases.Fire(HEADS),
        biases.Fire(3),
        biases.Fire(HEADS, 5),
        biases.Fire(HEADS, rate=number()),
        biases.Fire(HEADS, threshold=number()),
        biases.Fire(HEADS, inner=number(32, 2)),
        biases.Fire(HEADS, outer=number(HEADS, 33)),
    ],
    biases.RelativeBias: lambda: [
        biases.RelativeBias(HEADS, 8),
        biases.RelativeBias(3, 8),
        biases.RelativeBias(HEADS, 6),
        biases.RelativeBias(HEADS, 8, 16),
        biases.RelativeBias(HEADS, 8, bidirectional=False),
        biases.RelativeBias(HEADS, 8, weight=number(8, HEADS)),
    ],
    biases.WindowTable: lambda: [
        biases.WindowTable(HEADS, (LENGTH,)),
        biases.WindowTable(3, (LENGTH,)),
        biases.WindowTable(HEADS, (3,), (LENGTH,)),
        biases.WindowTable(HEADS, (LENGTH,), weight=number(9, HEADS)),
    ],
    biases.LogSpacedTable: lambda: [
        biases.LogSpacedTable(HEADS, (LENGTH,)),
        biases.LogSpacedTable(3, (LENGTH,)),
        biases.LogSpacedTable(HEADS, (3,), (LENGTH,)),
        biases.LogSpacedTable(HEADS, (LENGTH,), hidden=3),
        biases.LogSpacedTable(HEADS, (LENGTH,), pretrained=(3,)),
        biases.LogSpacedTable(HEADS, (LENGTH,), inner=number(512, 2)),
        biases.LogSpacedTable(HEADS, (LENGTH,), outer=number(HEADS, 512)),
    ],
    biases.DecomposedPosition: lambda: [
        biases.DecomposedPosition(DIM, (LENGTH,)),
        biases.DecomposedPosition(3, (LENGTH,)),
        biases.DecomposedPosition(DIM, (3,)),
        biases.DecomposedPosition(DIM, (LENGTH,), (3,)),
        biases.DecomposedPosition(DIM, (LENGTH,), trained=(3,)),
        biases.DecomposedPosition(DIM, (LENGTH,), heads=HEADS),
        biases.DecomposedPosition(DIM, (LENGTH,), scale=0.5),
        biases.DecomposedPosition(DIM, (LENGTH,), weight=number(9, DIM)),
    ],
    biases.TransformerXL: lambda: [
        biases.TransformerXL(HEADS, DIM),
        biases.TransformerXL(3, DIM),
        biases.TransformerXL(HEADS, 3),
        biases.TransformerXL(HEADS, DIM, 6),
        biases.TransformerXL(HEADS, DIM, scale=0.3),
        biases.TransformerXL(HEADS, DIM, weight=number(HEADS, DIM, HEADS * DIM)),
        biases.TransformerXL(HEADS, DIM, content_bias=number(HEADS, DIM)),
        biases.TransformerXL(HEADS, DIM, position_bias=number(HEADS, DIM)),
    ],
    biases.Disentangled: lambda: [
        biases.Disentangled(HEADS, DIM, 4),
        biases.Disentangled(3, DIM, 4),
        biases.Disentangled(HEADS, 3, 4),
        biases.Disentangled(HEADS, DIM, 5),
        biases.Disentangled(HEADS, DIM, 4, 6),
        biases.Disentangled(HEADS, DIM, 4, scale=0.3),
        biases.Disentangled(HEADS, DIM, 4, key_weight=number(HEADS, 8, DIM)),
        biases.Disentangled(HEADS, DIM, 4, query_weight=number(HEADS, 8, DIM)),
    ],
    biases.BoundBias: lambda: [
        biases.BoundBias(biases.Disentangled(HEADS, DIM, 4), number(2, HEADS, LENGTH, DIM)),
        biases.BoundBias(biases.TransformerXL(HEADS, DIM), number(2, HEADS, LENGTH, DIM)),
        biases.BoundBias(biases.Disentangled(HEADS, DIM, 4), number(2, 1, LENGTH, DIM)),
    ],
    biases.RelativePosition: lambda: [
        biases.RelativePosition(DIM, 2),
        biases.RelativePosition(3, 2),
        biases.RelativePosition(DIM, 3),
        biases.RelativePosition(DIM, 2, HEADS),
        biases.RelativePosition(DIM, 2, scale=0.3),
        biases.RelativePosition(DIM, 2, weight=number(5, DIM)),
    ],
    biases.SummedBias: lambda: [biases.alibi(HEADS) + number(*each) for each in ((LENGTH, LENGTH), (HEADS, 1, 1))],
    biases.AppendedBias: lambda: [
        biases.AppendedBias(biases.alibi(HEADS), 1),
        biases.AppendedBias(biases.alibi(HEADS), 2),
        biases.AppendedBias(biases.TensorBias(number(LENGTH, LENGTH - 1)), 1),
    ],
}  # fmt: skip
BY_NAME = {kind.__name__: kind for kind in MADE}


def concrete_classes():
    """Every class of the four families that has objects, found in their modules."""
    modules = [
        import_module(f"{family.__name__}.{module.name}")
        for family in FAMILIES.values()
        for module in iter_modules(family.__path__)
    ]
    found = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    return {kind for kind in found if issubclass(kind, BASES) and not inspect.isabstract(kind)}


def family_of(part):
    return next(name for name, base in zip(FAMILIES, BASES, strict=True) if isinstance(part, base))


def call(part, **options):
    """The arguments of a call with a part."""
    torch.manual_seed(0)
    inputs = [torch.randn(2, HEADS, LENGTH, DIM) for _ in range(3)]
    return inputs, {family_of(part): part, **options}


def output(part):
    inputs, options = call(part)
    if isinstance(part, scores.DeltaRule):
        options["mask"] = "causal"
    torch.manual_seed(1)
    try:
        return regard.attend(*inputs, **options, backend="reference")
    except regard.errors.RegardError as error:
        return str(error)


def mapped(part, function):
    """The part with a function of each of its tensors."""
    parts = Parts()
    text = encode(part, parts)
    assert text is not None
    return decode(text, Parts([function(tensor) for tensor in parts.tensors], parts.numbers, parts.integers))


def has_text(part):
    return encode(part, Parts()) is not None


def test_every_class_declares_its_fields():
    declared = concrete_classes() - UNDECLARED
    assert len(declared) == len(concrete_classes()) - len(UNDECLARED)
    assert not UNDECLARED & FIELDS.keys()
    assert declared == MADE.keys()
    for kind in declared:
        parameters = inspect.signature(kind).parameters.values()
        taken = [
            each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD and each.name not in MESSAGES
        ]
        if issubclass(kind, masks.And | masks.Or):
            assert taken == ["first"]  # and others
        elif issubclass(kind, masks.GridMask):
            assert len(taken) == len(FIELDS[kind])
        else:
            assert tuple(taken) == FIELDS[kind]


@pytest.mark.parametrize("name", BY_NAME)
def test_declared_fields_give_repr_copies_and_moves(name):
    for part in MADE[BY_NAME[name]]():
        tensors = tensors_of(part)
        if not has_text(part):
            continue
        assert repr(copy.deepcopy(part)) == repr(part)
        parts = Parts()
        encode(part, parts)
        assert {id(tensor) for tensor in parts.tensors} <= {id(tensor) for tensor in tensors}
        assert len(parts.tensors) == len(tensors)
        same = mapped(part, lambda tensor: tensor)
        assert type(same) is type(part)
        assert repr(same) == repr(part)
        left, right = output(part), output(same)
        assert left == right if isinstance(left, str) else torch.equal(left, right)
        moved = mapped(part, lambda tensor: tensor.to("meta"))
        assert all(tensor.is_meta for tensor in tensors_of(moved))
        assert len(tensors_of(moved)) == len(tensors)
        if isinstance(part, nn.Module):
            assert all(tensor.is_meta for tensor in tensors_of(copy.deepcopy(part).to("meta")))


def test_only_what_has_no_data_of_its_own_has_no_text():
    without = {type(part) for make in MADE.values() for part in make() if not has_text(part)}
    assert without == {normalizers.Hard, scores.Modified, masks.Where}  # a generator, and functions


@pytest.mark.parametrize("name", BY_NAME)
def test_kinds_differ_in_every_field(name):
    kinds, made = [], MADE[BY_NAME[name]]()
    for field in FIELDS[BY_NAME[name]]:
        assert len({repr(getattr(part, field)) for part in made}) > 1 or name == "MLP"
    for part in made:
        inputs, options = call(part)
        rest = {"score": "scaled_dot", "normalizer": "softmax", "mask": None, "bias": None, **options}
        kinds.append(kind_of(*inputs, *rest.values(), 0.0, "auto"))
    known = [kind for kind in kinds if kind is not None]
    assert len(set(known)) == len(known)
    assert bool(known) == (name not in ("MLP", "Modified", "Where"))  # of modules and functions of a user


@pytest.mark.parametrize("name", [kind.__name__ for kind in MADE if issubclass(kind, Mask)])
def test_masks_of_equal_fields_are_equal(name):
    made = MADE[BY_NAME[name]]()
    for mask in made:
        assert mask == copy.copy(mask) or isinstance(mask, masks.And | masks.Or)
        assert sum(mask == other for other in made) == 1


def test_a_class_of_a_user_has_no_fields():
    class Sharper(scores.ScaledDot):
        def __init__(self, table):
            super().__init__(0.5)
            self.table = table

        def prepare(self, query, key):
            return super().prepare(query * self.table, key)

    part = Sharper(number(DIM))
    inputs, _ = call(scores.Dot())
    assert type(part) not in FIELDS
    assert encode(part, Parts()) is None
    assert kind_of(*inputs, part, "softmax", None, None, 0.0, "auto") is None
    assert [id(tensor) for tensor in tensors_of(part)] == [id(part.table)]
    assert "scale=0.5" in repr(part)
    with pytest.raises(KindError, match="only classes of regard declare fields"):

        class Declaring(scores.Score, fields=()):
            pass


def test_a_method_of_an_object_is_searched():
    table, part = number(DIM), scores.ScaledDot(number(HEADS, 1, 1))
    own = part.prepare
    part.prepare = lambda query, key: own(query * table, key)
    assert {id(table), id(part.scale)} <= {id(tensor) for tensor in tensors_of(part)}
