"""The layers around an attention: each number is that of plain PyTorch, in every form of the inputs."""

import numpy as np
import pytest
import torch
from matplotlib.text import Text

import regard
from cases import B, H
from regard.errors import ArgumentError, KindError, ShapeError, UnknownNameError

QUERIES, KEYS, DIM, KEY_DIM, HEAD_DIM, VALUE_DIM, UNITS = 3, 5, 7, 11, 2, 4, 13


def random(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def heads_of(x, heads):
    """``[batch, heads, length, head_dim]`` of ``[batch, length, features]``."""
    return x.reshape(*x.shape[:2], heads, -1).permute(0, 2, 1, 3)


@pytest.mark.parametrize("heads", [1, H])
@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("form", [torch.Tensor, np.ndarray, list])
def test_every_layer_is_what_its_equation_says(form, rank, heads):
    batch = (B,) if rank == 3 else ()
    query, key, value = random(*batch, QUERIES, DIM), random(*batch, KEYS, KEY_DIM), random(*batch, KEYS, KEY_DIM)
    weights = {
        "w_query": random(DIM, heads * HEAD_DIM), "w_key": random(KEY_DIM, heads * HEAD_DIM),
        "w_value": random(KEY_DIM, heads * VALUE_DIM), "w_output": random(heads * VALUE_DIM, DIM),
        "w_decoder": random(UNITS, 2 * DIM),
    }  # fmt: skip
    written = {torch.Tensor: lambda x: x, np.ndarray: torch.Tensor.numpy, list: torch.Tensor.tolist}[form]
    steps = regard.explain(
        *map(written, (query, key, value)), **{name: written(w) for name, w in weights.items()}, heads=heads
    )
    dtype = torch.float32 if form is list else torch.float64

    rows = [x if rank == 3 else x[None] for x in (query, key, value)]
    names = ("w_query", "w_key", "w_value")
    q, k, v = (heads_of(x @ weights[name], heads) for x, name in zip(rows, names, strict=True))
    attended = torch.softmax(q @ k.mT / HEAD_DIM**0.5, dim=-1)
    joined = torch.cat([(attended @ v)[:, head] for head in range(heads)], dim=-1)
    projected = joined @ weights["w_output"]
    both = torch.cat([rows[0], projected], dim=-1)
    expected = {
        "query_input": rows[0], "key_input": rows[1], "value_input": rows[2], "query": q, "key": k, "value": v,
        "scores": q @ k.mT, "weights": attended, "output": attended @ v, "projected": projected,
        "state_and_context": both, "decoder_output": torch.tanh(both @ weights["w_decoder"].T),
    }  # fmt: skip
    if heads > 1:
        expected["concatenated"] = joined
    for name, tensor in expected.items():
        torch.testing.assert_close(steps[name], tensor.reshape(steps[name].shape).to(dtype), msg=name)
        for batch_row in range(B if rank == 3 else 1):
            for head in range(heads):
                rows_of = tensor[batch_row] if tensor.dim() == 3 else tensor[batch_row, head]
                torch.testing.assert_close(steps.matrix(name, batch_row, head), rows_of.to(dtype), msg=name)
    assert steps["decoder_output"].shape == (*batch, QUERIES, UNITS)
    assert ("concatenated" in steps.step_names) == (heads > 1)
    assert torch.equal(steps["w-query"], weights["w_query"].to(dtype))


def test_one_input_is_shown_once_and_its_labels_name_queries_and_keys():
    x, weight = random(QUERIES, DIM), random(DIM, 2 * HEAD_DIM)
    steps = regard.explain(x, w_query=weight, w_key=weight, w_value=weight, heads=2).labelled(["le", "chat", "dort"])
    assert steps.step_names[:4] == ("input", "W_query", "W_key", "W_value")
    for name, rows in (("input", steps.row_labels("input")), ("weights", steps.column_labels("weights"))):
        assert rows == ["le", "chat", "dort"], name
    assert not steps.before[0].values.requires_grad
    names = [(step.name, step.head) for step in steps.matrix_steps("concatenated, input, weights", head=None)]
    assert names == [("input", None), ("weights", 0), ("weights", 1), ("concatenated", None)]


def test_the_layers_are_differentiable():
    x, weight, decoder = random(QUERIES, DIM), random(DIM, HEAD_DIM), random(UNITS, DIM + HEAD_DIM)
    inputs = [tensor.requires_grad_() for tensor in (x, weight, decoder)]

    def final(x, weight, decoder):
        return regard.explain(x, w_query=weight, w_key=weight, w_value=weight, w_decoder=decoder)["decoder output"]

    assert torch.autograd.gradcheck(final, inputs)


def test_a_decoder_has_the_state_and_the_context_of_the_seed():
    annotations = [[3, 12, 45], [59, 2, 5], [1, 43, 5], [4, 3, 45.3]]
    w_decoder = [[0.02, -0.01, 0.03, 0.01, 0.02, -0.01], [-0.03, 0.02, 0.01, 0.04, -0.02, 0.01]]
    steps = regard.explain([5, 1, 20], annotations, score="dot", w_decoder=w_decoder)
    torch.testing.assert_close(
        steps["state_and_context"], torch.tensor([[5, 1, 20, 3.88080, 4.07283, 45.26424]]), atol=1e-5, rtol=0
    )
    torch.testing.assert_close(steps["decoder_output"], torch.tensor([[0.3431, 0.5345]]), atol=5e-5, rtol=0)


def test_chosen_steps_and_colours(capsys):
    steps = regard.explain([5, 1, 20], [[3, 12, 45], [59, 2, 5]], score="dot").labelled(["state"], ["h1", "h2"])
    steps.print(["Weights", "weighted-values"], decimals=2)
    printed = capsys.readouterr().out
    assert [line for line in printed.splitlines() if line[:1].isdigit()] == [
        "1. weights [1×2]: normalized over the keys", "2. weighted values [2×3]: weight × value, for each query and key"
    ]  # fmt: skip
    assert steps.arithmetic(0, "scores").splitlines()[1:] == [
        "  h1: 5·3 + 1·12 + 20·45 = 927", "  h2: 5·59 + 1·2 + 20·5 = 397"
    ]  # fmt: skip

    one = steps.figure("query", color_map="Purples", transposed=True)
    (axes,) = one.axes
    assert axes.images[0].get_array().shape == (3, 1)
    assert axes.images[0].get_cmap().name == "Purples"
    assert [text.get_text() for text in axes.texts] == ["5", "1", "20"]
    turned = steps.figure("weights", transposed=True)
    assert "normalized over the keys" in [text.get_text() for text in turned.findobj(Text)]
    two = steps.figure("key, output", color_map={"key": "Oranges"})
    assert [axes.images[0].get_cmap().name for axes in two.axes] == ["Oranges", "amount"]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda steps: steps.figure(batch=9), ArgumentError, "batch must be from 0 to 0 and head from 0 to 1"),
        (lambda steps: steps.matrix("weights", 0, -1), ArgumentError, "head from 0 to 1; they are 0 and -1"),
        (lambda steps: steps.to_json(steps="wieghts"), UnknownNameError, "did you mean 'weights'"),
        (lambda steps: steps.print("masked"), UnknownNameError, "unknown step 'masked'"),
        (lambda steps: steps.figure(color_map={"wieghts": "Blues"}), UnknownNameError, "did you mean 'weights'"),
        (lambda steps: steps.figure("weights", color_map="Orange"), UnknownNameError, "did you mean 'Oranges'"),
    ],
)  # fmt: skip
def test_steps_colours_and_slices_that_do_not_exist(call, error, message):
    with pytest.raises(error, match=message):
        call(regard.explain(random(QUERIES, 4), heads=2))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"w_query": random(5, 2)}, ShapeError, "w_query must have a row for each of the 4 features of query"),
        ({"w_output": random(3, 2)}, ShapeError, "w_output must have a row for each of the 4 features of output"),
        ({"w_decoder": random(2, 3)}, ShapeError, r"w_decoder must be \[units, 8\]"),
        ({"w_decoder": random(8)}, ShapeError, r"w_decoder must be \[units, 8\]"),
        ({"w_key": random(4, 4).float()}, KindError, "w_key must have the dtype of key, torch.float64"),
        ({"w_decoder": random(2, 8).float()}, KindError, "w_decoder must have the dtype of the state"),
        ({"w_value": "text"}, KindError, "w_value must"),
        ({"heads": 3}, ShapeError, "heads must divide the features of query"),
        ({"heads": 0}, ArgumentError, "heads must be at least 1"),
    ],
)  # fmt: skip
def test_explain_refuses_projections_that_do_not_fit(options, error, message):
    with pytest.raises(error, match=message):
        regard.explain(random(QUERIES, 4), **options)


def test_inputs_with_heads_are_not_split_again():
    query = random(1, 2, QUERIES, 4)
    for options in ({"heads": 2}, {"w_query": random(4, 4)}):
        with pytest.raises(ShapeError, match=r"query must be \[length, dim\] or \[batch, length, dim\]"):
            regard.explain(query, **options)
    steps = regard.explain(query, w_output=random(8, 3))
    torch.testing.assert_close(steps["projected"], steps.output.permute(0, 2, 1, 3).reshape(1, 3, 8) @ random(8, 3))
