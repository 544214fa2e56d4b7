"""What a view may be made of: weights in every form, with what is missing named in the error."""

import numpy as np
import pytest
import torch

import regard
from regard.attention import Attended
from regard.errors import ArgumentError, KindError, ShapeError
from regard.records import AttentionRecord, Document, TokenAxis
from regard.viewer import View
from regard.viewer.view import views_of

LAYERS, BATCH, HEADS, LENGTH, KEYS = 2, 3, 5, 7, 11
TOKENS = [f"t{number}" for number in range(LENGTH)]
SOURCE = [f"s{number}" for number in range(KEYS)]


def weights_of(*shape):
    """Rows of weights ``[..., queries, keys]`` that differ everywhere."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).softmax(-1)


WEIGHTS = weights_of(LAYERS, BATCH, HEADS, LENGTH, LENGTH)
CROSS = weights_of(HEADS, LENGTH, KEYS)


def shown(*arguments, **options):
    return View(*arguments, **options).document.records


def as_lists(tensor):
    return tensor.tolist()


FORMS = {
    "tensor": lambda tensor: tensor,
    "gradient": lambda tensor: tensor.clone().requires_grad_(),
    "double": lambda tensor: tensor.double(),
    "bfloat16": lambda tensor: tensor.bfloat16(),
    "array": lambda tensor: tensor.numpy(),
    "lists": as_lists,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("axes", [2, 3, 4])
def test_axes_of_weights(form, axes):
    weights = {2: WEIGHTS[0, 0, 0], 3: WEIGHTS[0, 0], 4: WEIGHTS[0, :1]}[axes]
    (record,) = shown(FORMS[form](weights), TOKENS)
    expected = weights.reshape(-1, LENGTH, LENGTH).numpy()
    np.testing.assert_allclose(record.weights, expected, rtol=1e-2 if form == "bfloat16" else 1e-6)
    assert record.queries.labels == record.keys.labels == tuple(TOKENS)
    assert record.kind == "self"


@pytest.mark.parametrize("container", [tuple, list])
@pytest.mark.parametrize("form", ["tensor", "array"])
def test_a_sequence_has_one_for_each_layer(container, form):
    """As ``outputs.attentions``: ``[batch, heads, queries, keys]`` for each layer."""
    attentions = container(FORMS[form](layer) for layer in WEIGHTS)
    for example in range(BATCH):
        records = shown(attentions, TOKENS, example=example)
        assert [record.layer for record in records] == list(range(LAYERS))
        for record, layer in zip(records, WEIGHTS, strict=True):
            assert np.array_equal(record.weights, layer[example].numpy())
    with pytest.raises(ArgumentError, match=r"3 examples in the batch.*View\(weights, tokens, example=0\)"):
        View(attentions, TOKENS)
    assert np.array_equal(shown(container(attentions[0]), TOKENS)[2].weights, WEIGHTS[0, 2].numpy())


def test_stacked_layers_have_five_axes():
    assert np.array_equal(shown(WEIGHTS, TOKENS, example=1)[1].weights, WEIGHTS[1, 1].numpy())


def test_four_axes_are_a_batch_and_a_list_of_them_are_layers():
    layers = WEIGHTS[:, 0]
    with pytest.raises(ArgumentError, match=r"example=0\), or View\(list\(weights\), tokens\)"):
        View(layers, TOKENS)
    assert len(shown(list(layers), TOKENS)) == LAYERS
    assert np.array_equal(shown(layers, TOKENS, example=1)[0].weights, layers[1].numpy())


def test_a_matrix_of_two_sequences_has_both_axes():
    (record,) = shown(CROSS, rows=TOKENS, columns=SOURCE)
    assert (record.queries.labels, record.keys.labels, record.kind) == (tuple(TOKENS), tuple(SOURCE), "cross")
    assert shown(WEIGHTS[0, 0], rows=TOKENS, columns=TOKENS)[0].kind == "self"
    assert shown(torch.eye(LENGTH), TOKENS)[0].kind == "causal"
    assert shown(CROSS, rows=TokenAxis(tuple(TOKENS)), columns=range(KEYS))[0].keys.labels[-1] == str(KEYS - 1)


def test_words_are_read_off_the_tokens():
    assert shown(torch.eye(3), ["un", "##like", "ly"])[0].queries.words == (range(2), range(2, 3))


PROBLEM = [torch.randn(1, 2, 5, 4, generator=torch.Generator().manual_seed(1)) for _ in range(3)]


def test_results_of_the_verbs():
    read = regard.Readings(weights=True)
    tokens = list("abcde")
    observed, attended = regard.observe(*PROBLEM, read=read), regard.attend_with_weights(*PROBLEM)
    for result in (observed, attended):
        assert np.array_equal(shown(result, tokens)[0].weights, result.weights[0].numpy())
    with pytest.raises(ArgumentError, match=r'read="view"\); then View\(observed, tokens\)'):
        View(regard.observe(*PROBLEM), tokens)
    with pytest.raises(ArgumentError, match="attend_with_weights"):
        View(Attended(PROBLEM[0], None), tokens)
    # Three axes of a result are a batch of one head each.
    batch = Attended(PROBLEM[0][0], attended.weights[0])
    assert np.array_equal(shown(batch, tokens, example=1)[0].weights, attended.weights[0, 1:].numpy())
    with pytest.raises(ArgumentError, match="2 examples"):
        View(batch, tokens)


@pytest.mark.parametrize("example", [0, 1, 4])
@pytest.mark.parametrize("layers", [False, True])
def test_heads_are_not_read_as_examples(example, layers):
    """The line of the error shows the row of a batch without heads."""
    weights = list(WEIGHTS[:, 0]) if layers else WEIGHTS[0, 0]
    with pytest.raises(ArgumentError, match=r"is read as \[heads, queries, keys\]") as error:
        View(weights, TOKENS, example=example)
    line = str(error.value).split("write ")[1]
    records = eval(line, {"View": View, "weights": weights, "tokens": TOKENS}).document.records
    for record, expected in zip(records, WEIGHTS[:, 0], strict=False):
        assert np.array_equal(record.weights[0], expected[example].numpy())
    with pytest.raises(ArgumentError, match=r"\[7, 7\] is \[queries, keys\]; leave example out"):
        View(WEIGHTS[0, 0, 0], TOKENS, example=example)


@pytest.mark.parametrize("heads", [None, 3])
def test_a_batch_of_a_result_is_named_by_the_line_that_shows_it(heads):
    shape = (2, 5, 4) if heads is None else (2, heads, 5, 4)
    tensors, tokens = [torch.randn(shape) for _ in range(3)], list("abcde")
    results = {
        "observed": regard.observe(*tensors, read=regard.Readings(weights=True)),
        "attended": regard.attend_with_weights(*tensors),
    }
    for name, result in results.items():
        with pytest.raises(ArgumentError, match="2 examples in the batch") as error:
            View(result, tokens)
        line = str(error.value).split("which one: ")[1]
        (record,) = eval(line, {"View": View, "tokens": tokens, **results}).document.records
        assert name in line
        assert np.array_equal(record.weights, result.weights[0].reshape(-1, 5, 5).numpy())


def test_an_explanation_with_and_without_tokens():
    explanation = regard.explain(*PROBLEM)
    assert View(explanation).document.steps[1].query_labels == ("q0", "q1", "q2", "q3", "q4")
    assert View(explanation, list("abcde")).document.steps[0].key_labels == tuple("abcde")
    with pytest.raises(ArgumentError, match="example"):
        View(explanation, example=0)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 2, enable_nested_tensor=False
    ).eval()


@pytest.mark.parametrize("options", [{"read": regard.Readings(weights=True)}, {"keep": True}])
def test_a_watch_is_viewed_by_its_calls(model, options):
    with torch.no_grad(), regard.watch(model, **options) as watched:
        model(torch.randn(1, 5, 8))
    assert [record.queries.labels for record in shown(watched)] == [tuple("01234")] * 2
    assert [record.keys.labels for record in shown(watched, list("abcde"))] == [tuple("abcde")] * 2
    assert shown(watched.calls[1], list("abcde"))[0].layer == 1
    with pytest.raises(ShapeError, match="5 queries and 5 keys; there are 4 tokens for its queries: give 5 tokens"):
        View(watched, list("abcd"))
    with pytest.raises(ArgumentError, match="example must be from 0 to 0"):
        View(watched, example=1)


def test_the_header_says_which_of_several_sequences_is_shown(model):
    with torch.no_grad(), regard.watch(model, keep=True) as watched:
        model(torch.randn(1, 5, 8))
        assert View(watched).document.texts == ()
        model(torch.randn(1, 7, 8))
    for view in (View(watched), View(watched, list("abcdefg"))):
        (told,) = view.document.texts
        assert told[1].startswith("the last of 2; ")
        assert view.document.title == "TransformerEncoder"
        assert len(view.document.records[0].queries) == 7
    assert View(watched, title="mine").document.title == "mine"
    assert len(View(watched.document(list("abcde"), sequence=0)).document.records[0].queries) == 5


def test_kept_weights_of_a_short_text_are_shown_as_those_read(model, monkeypatch):
    x = torch.randn(1, 5, 8)
    with torch.no_grad(), regard.watch(model, keep=True) as kept:
        model(x)
    with torch.no_grad(), regard.watch(model, read="view") as read:
        model(x)
    for one, other in ((kept, read), (kept.calls[1], read.calls[1])):
        for record, expected in zip(View(one).document.records, View(other).document.records, strict=True):
            assert record.weights is not None
            np.testing.assert_allclose(record.weights, expected.weights, rtol=0, atol=2e-7)
    walking = View(kept, steps=[(1, 0)]).document
    assert views_of(walking)[0] == "pattern"
    assert {*views_of(View(read).document)} | {"walk"} == {*views_of(walking)}
    monkeypatch.setattr("regard.viewer.contents.MOST_READ", sum(record.weights.size for record in walking.records) - 1)
    assert views_of(View(kept).document)[0] == "long"


def test_a_watch_without_weights_names_the_reading_to_ask_for(model):
    with torch.no_grad(), regard.watch(model) as watched:
        with pytest.raises(ArgumentError, match="no attention call was watched yet"):
            View(watched)
        model(torch.randn(2, 5, 8))
    for content in (watched, watched.calls[0]):
        with pytest.raises(ArgumentError, match=r'read="view"\) as watched: model\(\*\*inputs'):
            View(content)
    with torch.no_grad(), regard.watch(model, read=regard.Readings(weights=True)) as watched:
        model(torch.randn(2, 5, 8))
    with pytest.raises(ArgumentError, match=r"2 examples in the batch.*View\(watched, tokens, example=0\)"):
        View(watched)
    assert np.array_equal(shown(watched, example=1)[0].weights, watched.calls[0].weights[1].numpy())


class Output:
    """A model's output as that of transformers."""

    def __init__(self, **fields):
        vars(self).update({"attentions": None, "cross_attentions": None} | fields)


SQUARE = WEIGHTS[0, 0]


@pytest.mark.parametrize(
    ("content", "tokens", "labels", "error", "message"),
    [
        (SQUARE, None, {}, ArgumentError, r"tokens are missing.*View\(weights, tokens\) with 7 tokens.*range\(7\)"),
        (CROSS, None, {}, ArgumentError, r"tokens are missing.*rows=\[7 tokens of the queries\], columns=\[11"),
        (CROSS, TOKENS, {}, ShapeError, r"7 queries and 11 keys.*View\(weights, rows=\[7 tokens"),
        (SQUARE, TOKENS[1:], {}, ShapeError, "tokens must be 7, .* there are 6"),
        (SQUARE, None, {"rows": TOKENS}, ArgumentError, "columns is missing, the 7 tokens of the keys"),
        (SQUARE, None, {"columns": TOKENS}, ArgumentError, "rows is missing, the 7 tokens of the queries"),
        (CROSS, None, {"rows": TOKENS, "columns": TOKENS}, ShapeError, "columns must be 11 tokens.*there are 7"),
        (SQUARE, TOKENS, {"rows": TOKENS}, ArgumentError, "for both sides, or rows and columns"),
        (SQUARE, "a b c", {}, KindError, "tokens must be a list of texts"),
        (SQUARE, torch.arange(7), {}, KindError, "convert_ids_to_tokens"),
        (SQUARE, [1.5] * 7, {}, KindError, "tokens must hold texts"),
        (SQUARE, TOKENS, {"example": 1}, ArgumentError, "weights has no batch"),
        (WEIGHTS[0], TOKENS, {"example": 3}, ArgumentError, "example must be from 0 to 2"),
        (SQUARE[0, 0], TOKENS, {}, ShapeError, r"weights must be \[queries, keys\].*View\(weights\[None\]"),
        ([[0.5, 0.5], [1.0]], ["a", "b"], {}, ShapeError, "different lengths"),
        ([["a"]], ["a"], {}, ArgumentError, "weights must hold real numbers"),
        (SQUARE.log(), TOKENS, {}, ArgumentError, r"View\(scores.softmax\(-1\), tokens\)"),
        ((), TOKENS, {}, ArgumentError, 'set_attn_implementation.*read="view"'),
        ((None, None), TOKENS, {}, ArgumentError, "'sdpa'"),
        (None, TOKENS, {}, ArgumentError, "output_attentions=True"),
        (Output(), TOKENS, {}, ArgumentError, "output_attentions=True"),
        (Output(attentions=(SQUARE,)), TOKENS, {}, ArgumentError, r"View\(outputs.attentions, tokens\)"),
        (Output(cross_attentions=(CROSS,)), TOKENS, {}, ArgumentError, r"View\(outputs.cross_attentions, rows=target"),
        (((WEIGHTS[0],), (WEIGHTS[1],)), TOKENS, {}, ArgumentError, "generate"),
        (3, None, {}, KindError, "View shows weights"),
        ("text", None, {}, KindError, "View shows weights"),
        (torch.nn.Linear(1, 1), None, {}, KindError, "View shows weights"),
        (Document("x", (AttentionRecord("x", 0, "self", TokenAxis(("a",)), TokenAxis(("a",)), np.ones((1, 1, 1))),)),
         ["b"], {}, ArgumentError, "a Document has its tokens"),
    ],
)  # fmt: skip
def test_contents_name_missing_tokens_and_labels(content, tokens, labels, error, message):
    with pytest.raises(error, match=message):
        View(content, tokens, **labels)


def test_the_picture_and_the_page_are_written(tmp_path):
    assert View(CROSS, rows=TOKENS, columns=SOURCE, title="A title").save(tmp_path / "x.svg").stat().st_size > 1000
    assert "A title" in View(CROSS, rows=TOKENS, columns=SOURCE, title="A title").to_html()


SPECIALS = ("[CLS]", "</s>", "<pad>", "<bos>", "<|endoftext|>", "<|im_start|>", "<｜end▁of▁sentence｜>")


@pytest.mark.parametrize("make", [tuple, TokenAxis], ids=["texts", "axis"])
def test_special_tokens_that_nobody_named_are_guessed_from_their_texts(make):
    tokens = (*SPECIALS, "[1]", "s", "<b>", "<||", "||")
    axis = View(np.eye(len(tokens))[None], make(tokens)).payload()["axes"][0]
    assert axis["special"] == list(range(len(SPECIALS)))
    told = TokenAxis(("[CLS]", "a"), (False, True))
    assert View(np.eye(2)[None], told).payload()["axes"][0]["special"] == [1]
