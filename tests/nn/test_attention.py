"""`Attention`: what was remembered once gives what the score itself gives at each step."""

import pytest
import torch
from torch import Tensor

from regard import masks, normalizers, scores
from regard.attention import attend
from regard.errors import ArgumentError, BackendError, KindError, ShapeError
from regard.nn import Attention, EarlierWeights, Memory, TransformerDecoder, TransformerDecoderLayer
from regard.scores.names import OPTIONAL_ARGUMENTS

BATCH, QUERIES, KEYS, DIM, VALUE_DIM = 3, 5, 11, 7, 13

CREATED = [
    "dot",
    "scaled_dot",
    "cosine",
    "distance",
    "general",
    "additive",
    "concat",
    "mlp",
    "location",
    "location_aware",
    "coverage",
]


def make(name: str = "additive", **options: object) -> Attention:
    torch.manual_seed(17)
    key_dim = query_dim = DIM
    if name in ("general", "additive", "concat", "mlp", "location", "location_aware", "coverage"):
        query_dim = 2
    sizes = {"dim": 3, "max_keys": KEYS, "channels": 2, "kernel_size": 3}
    sizes = {size: sizes[size] for size in OPTIONAL_ARGUMENTS.get(name, ()) if size in sizes}
    made = Attention.create(name, query_dim, key_dim, **sizes, **options)  # type: ignore[arg-type]
    return made.double()


def inputs(name: str = "additive") -> tuple[Tensor, Tensor, Tensor]:
    """One query, many queries and annotations."""
    query_dim = DIM if name in ("dot", "scaled_dot", "cosine", "distance") else 2
    queries = torch.randn(BATCH, QUERIES, query_dim, dtype=torch.float64)
    return queries[:, 2].clone(), queries, torch.randn(BATCH, KEYS, DIM, dtype=torch.float64)


@pytest.mark.parametrize("name", CREATED)
def test_a_memory_gives_what_the_score_gives(name):
    attention = make(name)
    query, queries, annotations = inputs(name)
    value = torch.randn(BATCH, KEYS, VALUE_DIM, dtype=torch.float64)
    visible = torch.rand(BATCH, KEYS) < 0.6
    memory = attention.remember(annotations, mask=visible, value=value)
    raw = attention.score(queries[:, None], annotations[:, None])[:, 0]
    expected = torch.softmax(raw.masked_fill(~visible[:, None], -torch.inf), -1).nan_to_num(0.0)
    many, one = attention(queries, memory), attention(query, memory)
    torch.testing.assert_close(many.weights, expected)
    torch.testing.assert_close(many.context, expected @ value)
    torch.testing.assert_close(one.weights, expected[:, 2])
    torch.testing.assert_close(one.context, many.context[:, 2])
    for given, wanted in ((queries, many), (query, one)):
        unseen = attention(given, memory, need_weights=False)
        assert unseen.weights is None
        torch.testing.assert_close(unseen.context, wanted.context)
    torch.testing.assert_close(attention(query, annotations), attention(query, attention.remember(annotations)))


def test_annotations_are_projected_once_and_a_query_once_a_step():
    attention = make("additive")
    query, _, annotations = inputs()
    calls = {"query": 0, "key": 0}

    def counted(name):
        project = getattr(attention.score, f"project_{name}")

        def counting(tensor):
            calls[name] += 1
            return project(tensor)

        return counting

    for name in calls:
        setattr(attention.score, f"project_{name}", counted(name))
    memory = attention.remember(annotations)
    for step in range(1, 4):
        attention(query, memory)
        assert calls == {"query": step, "key": 1}


@pytest.mark.parametrize("need_weights", [True, False])
def test_lengths_are_shorter_inputs_and_an_empty_row_has_context_zero(need_weights):
    attention = make()
    query, _, annotations = inputs()
    query.requires_grad_()
    lengths = torch.tensor([4, 0, KEYS])
    memory = attention.remember(annotations, lengths)
    assert memory.lengths.tolist() == [4, 0, KEYS]
    context, weights = attention(query, memory, need_weights=need_weights)
    short = attention(query[:1], annotations[:1, :4], need_weights=need_weights)
    torch.testing.assert_close(context[:1], short.context)
    assert (context[1] == 0).all()
    if weights is not None:
        torch.testing.assert_close(weights[:1, :4], short.weights)
        assert (weights[0, 4:] == 0).all()
        assert (weights[1] == 0).all()
    (grad,) = torch.autograd.grad(context.square().sum(), query)
    assert grad.isfinite().all()
    assert (grad[1] == 0).all()


def test_lengths_and_mask_of_a_memory_are_both_kept_and_so_is_the_call_s():
    attention = make()
    query, queries, annotations = inputs()
    visible, seen = torch.rand(BATCH, KEYS) < 0.7, torch.rand(BATCH, KEYS) < 0.7
    lengths = torch.tensor([9, 2, 5])
    memory = attention.remember(annotations, lengths, mask=visible)
    assert memory.mask is not None
    assert torch.equal(memory.mask, visible & (torch.arange(KEYS) < lengths[:, None]))
    plain = attention.remember(annotations, mask=memory.mask & seen)
    for given, mask in ((query, seen), (queries, seen[:, None]), (query, masks.keep(seen[:, None, None]))):
        torch.testing.assert_close(attention(given, memory, mask=mask), attention(given, plain))


def test_a_bias_is_added_to_the_scores():
    attention = make()
    query, queries, annotations = inputs()
    bias = torch.randn(BATCH, QUERIES, KEYS, dtype=torch.float64)
    raw = attention.score(queries[:, None], annotations[:, None])[:, 0]
    expected = torch.softmax(raw + bias, -1)
    torch.testing.assert_close(attention(queries, annotations, bias=bias).weights, expected)
    torch.testing.assert_close(attention(query, annotations, bias=bias[:, 2]).weights, expected[:, 2])
    torch.testing.assert_close(
        attention(query, annotations, bias=bias[0, 2]).weights, torch.softmax(raw[:, 2] + bias[0, 2], -1)
    )
    torch.testing.assert_close(attention(queries, annotations, bias=bias[0]).weights, torch.softmax(raw + bias[0], -1))


def test_location_aware_scores_see_the_weights_of_the_step_before():
    attention = make("location_aware")
    query, _, annotations = inputs()
    memory = attention.remember(annotations, torch.tensor([9, 4, KEYS]))
    _, first = attention(query, memory)
    assert first is not None
    context, second = attention(query, memory, earlier=EarlierWeights(first))
    assert not torch.allclose(first, second)
    direct = attend(
        query[:, None, None],
        annotations[:, None],
        annotations[:, None],
        score=attention.score.given(first),
        mask=masks.lengths(torch.tensor([9, 4, KEYS])),
    )
    torch.testing.assert_close(context, direct[:, 0, 0])
    # The gradient goes back through the weights to the step before.
    early = query.clone().requires_grad_()
    _, weights = attention(early, memory)
    loss = attention(query, memory, earlier=EarlierWeights(weights)).context.square().sum()
    assert torch.autograd.grad(loss, early)[0].abs().sum() > 0
    with pytest.raises(ArgumentError, match="such as LocationAware; this attention has General and Softmax"):
        make("general")(query, annotations, earlier=EarlierWeights(first))


def test_beams_select_and_repeat_rows_of_a_memory():
    attention = make()
    query, _, annotations = inputs()
    memory = attention.remember(annotations, torch.tensor([4, 0, KEYS]))
    whole = attention(query, memory)
    for chosen, index in ((memory.repeat(2), [0, 0, 1, 1, 2, 2]), (memory.select(torch.tensor([2, 2, 0])), [2, 2, 0])):
        assert isinstance(chosen, Memory)
        came = attention(query[index], chosen)
        torch.testing.assert_close(came.weights, whole.weights[index])
        torch.testing.assert_close(came.context, whole.context[index])
        assert chosen.lengths.tolist() == memory.lengths[index].tolist()
    assert attention.remember(annotations).repeat(2).lengths.tolist() == [KEYS] * 6


def test_attention_layers_report_the_weights_before_dropout():
    attention, plain = make(dropout=0.5), make()
    query, _, annotations = inputs()
    expected = plain(query, annotations)
    torch.testing.assert_close(attention.eval()(query, annotations), expected)
    came = attention.train()(query, annotations)
    torch.testing.assert_close(came.weights, expected.weights)
    assert not torch.allclose(came.context, expected.context)


def test_a_step_may_bring_its_own_normalizer():
    attention = make("general")
    query, _, annotations = inputs()
    center = torch.rand(BATCH, 1, 1, dtype=torch.float64) * KEYS
    local = normalizers.local_gaussian(normalizers.softmax, center, sigma=2.0)
    _, weights = attention(query, annotations, normalizer=local)
    plain = attention(query, annotations).weights
    expected = plain * torch.exp(-((torch.arange(KEYS) - center[:, 0]) ** 2) / 8)
    torch.testing.assert_close(weights, expected)


@pytest.mark.parametrize("name", ["general", "additive", "location_aware"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_gradients_of_attention_layers_are_exact(name, need_weights):
    attention = make(name)
    query, _, annotations = inputs(name)
    names, parameters = zip(*attention.named_parameters(), strict=True)

    def function(query, annotations, *parameters):
        memory_of = torch.func.functional_call
        weights = dict(zip(names, parameters, strict=True))
        attended = memory_of(attention, weights, (query, annotations), {"need_weights": need_weights})
        return tuple(part for part in attended if part is not None)

    given = [tensor[:2].detach().requires_grad_() for tensor in (query, annotations[:, :3])]
    assert torch.autograd.gradcheck(function, (*given, *parameters))


@pytest.mark.parametrize("name", CREATED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_attention_layers_score_half_precision_in_float32(name, dtype):
    attention = make(name).to(dtype)
    query, _, annotations = (tensor.to(dtype) for tensor in inputs(name))
    context, weights = attention(query, attention.remember(annotations, torch.tensor([4, 0, KEYS])))
    assert context.dtype == dtype
    assert weights.dtype == torch.float32
    exact = attention.double()
    expected = exact(query.double(), exact.remember(annotations.double(), torch.tensor([4, 0, KEYS])))
    torch.testing.assert_close(weights.double(), expected.weights, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(context.double(), expected.context, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("name", CREATED)
def test_attention_layers_run_under_autocast(name):
    attention = make(name).float()
    query, _, annotations = (tensor.float().requires_grad_() for tensor in inputs(name))
    expected = attention(query, annotations)
    for need_weights in (True, False):
        with torch.autocast("cpu", torch.bfloat16):
            came = attention(query, annotations, need_weights=need_weights)
        torch.testing.assert_close(came.context, expected.context, atol=5e-2, rtol=5e-2)
        came.context.sum().backward()


def test_attention_layers_take_empty_batches_and_lengths():
    attention = make()
    for batch, keys in ((0, KEYS), (BATCH, 0), (1, 1)):
        annotations = torch.randn(batch, keys, DIM, dtype=torch.float64)
        query = torch.randn(batch, 2, dtype=torch.float64)
        for need_weights in (True, False):
            context, weights = attention(query, attention.remember(annotations), need_weights=need_weights)
            assert context.shape == (batch, DIM)
            assert weights is None or weights.shape == (batch, keys)
            assert context.isfinite().all()


def test_attention_layers_run_a_named_backend_or_raise():
    query, _, annotations = inputs()
    tiled = make(backend="tiled")
    torch.testing.assert_close(tiled(query, annotations), make()(query, annotations))
    for need_weights in (True, False):
        with pytest.raises(BackendError, match="TanhSum"):
            make(backend="sdpa")(query, annotations, need_weights=need_weights)


def test_a_score_that_was_made_elsewhere():
    score = scores.SoftCap(scores.General(torch.randn(2, DIM, dtype=torch.float64)), 2.0)
    _, queries, annotations = inputs()
    expected = torch.softmax(score(queries[:, None], annotations[:, None])[:, 0], -1)
    torch.testing.assert_close(Attention(score)(queries, annotations).weights, expected)


ANNOTATIONS = torch.zeros(BATCH, KEYS, DIM, dtype=torch.float64)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"annotations": ANNOTATIONS[0]}, ShapeError, r"annotations must be \[batch, keys, features\].*\[11, 7\]"),
        ({"annotations": ANNOTATIONS.long()}, KindError, "annotations"),
        (
            {"annotations": ANNOTATIONS[..., :5]},
            ShapeError,
            "key must have dim 7, as key_projection takes it; it has dim 5",
        ),
        ({"value": ANNOTATIONS[:, :5]}, ShapeError, r"value must be .*\[3, 5, 7\]"),
        ({"lengths": torch.tensor([4, 12, 1])}, ArgumentError, "12"),
        (
            {"mask": torch.ones(BATCH, 5, dtype=torch.bool)},
            ShapeError,
            r"mask must be .*\[3, 11\]; it has shape \[3, 5\]",
        ),
        ({"mask": torch.ones(BATCH, KEYS)}, KindError, "bool"),
        ({"mask": "left"}, KindError, "mask must be a bool tensor .* str"),
    ],
)
def test_remember_refuses_wrong_annotations(arguments, error, message):
    with pytest.raises(error, match=message):
        make().remember(**{"annotations": ANNOTATIONS, **arguments})


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        (torch.zeros(BATCH), ShapeError, r"query must be \[batch, query_dim\].* 3; it has shape \[3\]"),
        (torch.zeros(2, 2), ShapeError, r"query must .* memory's batch, 3; it has shape \[2, 2\]"),
        (torch.zeros(BATCH, 2, dtype=torch.int64), KindError, "query"),
        (torch.zeros(BATCH, 5, dtype=torch.float64), ShapeError, "query must have dim 2"),
    ],
)
@pytest.mark.parametrize("name", ["additive", "general", "mlp"])
def test_attention_layers_refuse_wrong_queries(query, error, message, name):
    if name == "mlp" and "dim 2" in message:
        message = "query"
    with pytest.raises(error, match=message):
        make(name)(query, ANNOTATIONS)


@pytest.mark.parametrize("name", ["dot", "general", "additive"])
def test_attention_layers_name_the_dtypes_that_differ(name):
    attention = make(name)
    query_dim = 2 if name != "dot" else DIM
    memory = attention.remember(torch.randn(2, KEYS, DIM).double())
    with pytest.raises(KindError, match=r"must have one dtype; they have torch\.float32, torch\.float64 and"):
        attention(torch.randn(2, query_dim), memory)


@pytest.mark.parametrize(
    ("memory", "error", "message"),
    [
        (torch.randn(2, 5, 15), ShapeError, r"memory must be \[batch, length, 16\].*\[2, 5, 15\]"),
        (torch.randn(2, 5, 16).double(), KindError, "memory must have the parameters' dtype, torch.float32; it has "),
        (torch.randn(2, 5, 16, device="meta"), KindError, "memory must be on the parameters' device, cpu; it is on me"),
        ([[1.0]], KindError, "memory must be a tensor; it is a list"),
    ],
)
def test_a_decoder_refuses_memory_that_it_cannot_project(memory, error, message):
    decoder = TransformerDecoder(TransformerDecoderLayer(16, 2), 1)
    with pytest.raises(error, match=message):
        decoder.remember(memory)


def test_a_named_reference_is_the_specification(monkeypatch):
    """Contract 5: asking for weights does not bring another backend in, however large the memory is."""
    for method in ("run", "run_with_weights"):
        monkeypatch.setattr(f"regard.attention.backends.cpu.backend.Fused.{method}", lambda *_: pytest.fail("they ran"))
    attention = Attention.create("additive", 64, 64, 64, backend="reference")
    memory = attention.remember(torch.randn(8, 400, 64), torch.randint(1, 401, (8,)))
    assert attention(torch.randn(8, 64), memory).weights is not None
