"""``regard explain``: what it reads, what it shows, and how it refuses."""

import json
import re
import sys

import numpy as np
import pytest
import torch

import regard
from regard import masks, normalizers, scores
from regard.cli import main

NUMBERS = ["--query", "5 1 20", "--key", "3 12 45; 59 2 5; 1 43 5; 4 3 45.3"]
WEIGHT = torch.tensor([[1.0, 2], [3, 4]], dtype=torch.float64)
DOCUMENTS = torch.tensor([[0, 1]]), torch.tensor([[1, 0, 1]])


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the command in this process: (exit code, standard output, standard error)."""

    def run(*arguments, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "argv", ["regard", "explain", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as exit:
            code = exit.code or 0
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def steps(call):
    """The steps of a calculation by name, as tensors; of the first head where there are several."""

    def run(*arguments):
        code, out, err = call(*arguments, "--json", "-")
        assert code == 0, err
        found = {}
        for step in json.loads(out)["steps"]:
            numbers = [[float(number) for number in row] for row in step["values"]]
            found.setdefault(step["name"], torch.tensor(numbers, dtype=torch.float64))
        return found

    return run


def test_explain_prints_the_steps_of_typed_numbers(call):
    code, out, _ = call(*NUMBERS, "--score", "dot", "--labels", "a,b,c,d", "--query-labels", "state", "--row", 0)
    assert code == 0
    for part in ("4. scores [1×4]", "927", "0.8808", "45.2642", "state → d", "5·3 + 1·12 + 20·45 = 927"):
        assert part in out


def test_rows_may_be_negative_and_have_commas(steps):
    found = steps("--query", "-1, 2e0", "--key", "3,-4;\n5,6")
    assert found["scores"].tolist() == [[-11, 7]]


def test_json_and_npy_files(steps, tmp_path):
    np.save(tmp_path / "query.npy", np.array([[5, 1, 20]], dtype=np.float32))
    (tmp_path / "key.json").write_text("[[3, 12, 45], [59, 2, 5]]")
    found = steps("--query", tmp_path / "query.npy", "--key", tmp_path / "key.json", "--value", "[[1], [2]]")
    assert found["scores"].tolist() == [[927, 397]]
    assert found["output"].tolist() == [[1]]


def test_files_may_have_heads(call, tmp_path):
    query = torch.randn(1, 3, 5, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    np.save(tmp_path / "query.npy", query.numpy())
    code, out, err = call("--query", tmp_path / "query.npy", "--head", 2)
    assert code == 0, err
    assert "\nhead 2" not in out
    assert out.startswith("head 2")
    assert "head 1" not in out


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        (["--score", "cosine"], {"score": scores.Cosine()}),
        (["--score", "cosine", "--scale", "10"], {"score": scores.Cosine(0.1)}),
        (["--score", "distance"], {"score": "distance"}),
        (["--scale", "1/sqrt(7)"], {"score": scores.ScaledDot(7**-0.5)}),
        (["--score", "dot", "--cap", "2"], {"score": scores.SoftCap("dot", 2.0)}),
        (["--score", "general", "--w-score", "1 2; 3 4"], {"score": scores.General(WEIGHT)}),
        (["--normalizer", "sparsemax"], {"normalizer": "sparsemax"}),
        (["--normalizer", "hard"], {"normalizer": "hard"}),
        (["--normalizer", "sigmoid"], {"normalizer": "sigmoid"}),
        (["--normalizer", "entmax", "--alpha", "1.2"], {"normalizer": normalizers.entmax(1.2)}),
        (["--normalizer", "softmax_with_sink", "--sink", "1"], {"normalizer": normalizers.softmax_with_sink(1.0)}),
        (["--temperature", "3"], {"normalizer": lambda scores: (scores / 3).softmax(-1)}),
        (["--mask", "causal"], {"mask": masks.causal()}),
        (["--mask", "window(1, after=0) | prefix(1)"], {"mask": masks.window(1, 0) | masks.prefix(1)}),
        (["--mask", "causal & ~prefix(1)"], {"mask": masks.causal() & ~masks.prefix(1)}),
        (["--mask", "keep([[1, 0, 1], [0, 0, 0]])"], {"mask": torch.tensor([[1, 0, 1], [0, 0, 0]]).bool()}),
        (["--mask", "documents([0, 1], [1, 0, 1])"], {"mask": masks.documents(*DOCUMENTS)}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_options_mean_what_the_library_means(steps, arguments, keywords):
    query = torch.tensor([[0.5, -1], [1, 0.25]], dtype=torch.float64)
    key = torch.tensor([[1.0, 2], [0.5, 0], [-1, 1]], dtype=torch.float64)
    value = torch.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 10]], dtype=torch.float64)
    found = steps(
        "--query", "0.5 -1; 1 0.25", "--key", "1 2; 0.5 0; -1 1", "--value", "1 2 3; 4 5 6; 7 8 10", *arguments
    )
    expected = regard.explain(query, key, value, **keywords)
    torch.testing.assert_close(found["weights"], expected.weights)
    torch.testing.assert_close(found["output"], expected.output)


@pytest.mark.parametrize("score", ["general", "additive", "concat", "mlp", "location"])
def test_scores_with_weights_are_seeded(steps, score):
    arguments = ["--query", "1 2 3", "--key", "1 2 3; 4 5 6", "--score", score]
    first, again, other = (steps(*arguments, "--seed", seed) for seed in (1, 1, 2))
    assert any(name.startswith("score ") for name in first)
    assert torch.equal(first["scores"], again["scores"])
    assert not torch.equal(first["scores"], other["scores"])


@pytest.mark.parametrize(("score", "projected"), [("dot", ""), ("general", "query"), ("additive", "query key")])
def test_a_query_that_the_score_projects_is_called_so(run_command, score, projected):
    code, output, _ = run_command(
        "explain", "--query", "5 1 20", "--key", "3 12 45; 59 2 5", "--score", score, "--row", 0
    )
    assert code == 0
    assert ("what asks, projected by the score (W q)" in output) == ("query" in projected)
    assert ("Query q0, projected by the score (W q)" in output) == ("query" in projected)
    assert ("what it is compared with, projected (U k)" in output) == ("key" in projected)


def test_projections_heads_and_output(steps):
    found = steps(
        "--query", "1 2; 3 4; 5 6", "--key", "1 0; 0 1", "--w-query", "1 0 0 1; 0 1 1 0", "--w-key", "1 0 0 1; 0 1 1 0",
        "--w-value", "1 2 0 1; 0 1 3 0", "--heads", "2", "--w-output", "1; 1; 1; 1",
    )  # fmt: skip
    assert found["query input"].shape == (3, 2)
    assert found["query"].tolist() == [[1, 2], [3, 4], [5, 6]]
    torch.testing.assert_close(found["projected"][:, 0], found["concatenated"].sum(1))


def test_a_sentence_is_the_same_for_a_seed(steps):
    first, again, other = (steps("the cat the dog", "--dim", 7, "--heads", 3, "--seed", seed) for seed in (3, 3, 4))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["input"], other["input"])
    assert torch.equal(first["input"][0], first["input"][2])
    assert first["concatenated"].shape == (4, 9)
    assert first["projected"].shape == (4, 7)


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_tables_fit_the_terminal_and_lose_no_digit(call, columns):
    _, out, _ = call("a longer sentence of seven words here", "--dim", 64, "--head-dim", 33, columns=columns)
    lines = out.splitlines()
    assert max(map(len, lines)) <= columns
    # A cell that was cut off would end in "…" after a digit or a point.
    assert not any(cell[:-1] and cell.endswith("…") for line in lines for cell in line.split())


def test_the_arithmetic_of_a_masked_row(call):
    _, out, _ = call("--query", "1 2; 3 4", "--mask", "causal", "--row", 0)
    assert "hidden from this query: k1" in out
    assert "feature 0: 1·1 + 0·3 = 1" in out


def test_the_arithmetic_of_a_row_that_sees_nothing(call):
    _, out, _ = call("--query", "1 2", "--mask", "prefix(0)", "--row", 0)
    assert "it sees no key" in out


def test_the_arithmetic_claims_only_what_is_so(call):
    _, out, _ = call("--query", "1 2; 3 4", "--score", "distance", "--normalizer", "sparsemax", "--row", 1)
    assert "multiply" not in out
    assert "exp(" not in out
    assert "Weights: the scores, normalized." in out


def test_only_some_steps(call):
    _, out, _ = call("a b", "--steps", "w-query,weighted_values")
    assert "1. W_query" in out
    assert "2. weighted values" in out
    assert "3." not in out


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_explain_writes_pictures(call, tmp_path, suffix, start):
    path = tmp_path / f"steps{suffix}"
    code, _, err = call(*NUMBERS, "--picture", path, "--title", "a title")
    assert code == 0
    assert str(path) in err
    assert path.read_bytes().startswith(start)


def test_explain_writes_the_walk_of_the_chosen_head(call, tmp_path):
    path = tmp_path / "walk.html"
    code, out, err = call("one two three", "--heads", 2, "--head", 1, "--html", path, "--language", "zh")
    assert code == 0
    assert "weights" in out
    assert f"walk: {path}" in err
    start = '<script type="application/json" id="input">'
    content = json.loads(path.read_text("utf-8").partition(start)[2].partition("</script>")[0])
    assert (content["options"]["view"], content["options"]["language"]) == ("walk", "zh")
    assert content["options"]["selection"]["steps"] == 1
    assert content["payload"]["title"] == "one two three"
    assert [steps["keys"] for steps in content["payload"]["steps"]] == [["one", "two", "three"]] * 2


def test_explain_prints_and_draws_positions(call, steps, tmp_path):
    table = steps("--positions", 7, "--dim", 3)["positions"]
    torch.testing.assert_close(table, regard.positions.Sinusoidal(3).table(7, dtype=torch.float64))
    assert call("--positions", 7, "--dim", 3, "--picture", tmp_path / "p.png")[0] == 0
    assert (tmp_path / "p.png").stat().st_size > 1000


def test_json_file_has_every_head_and_no_infinity(call, tmp_path):
    path = tmp_path / "steps.json"
    code, out, _ = call("one two three", "--heads", 2, "--mask", "causal", "--json", path)
    assert code == 0
    assert "weights" in out
    record = json.loads(path.read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert [step["head"] for step in record["steps"] if step["name"] == "weights"] == [0, 1]
    assert "-inf" in str(record)


BAD = {
    "nothing": ([], "nothing to explain"),
    "empty sentence": ([" "], "the sentence is empty"),
    "two sources": (["a b", "--query", "1"], "exclude each other"),
    "input and query": (["--input", "1 2", "--query", "1 2"], "--input stands for"),
    "no query": (["--key", "1 2"], "no queries"),
    "ragged": (["--query", "1 2; 3"], "--query: row 2 has 1 numbers and row 1 has 2"),
    "not a number": (["--query", "1 x"], "--query: 'x' in row 1 is not a number"),
    "nan": (["--query", "1 nan"], "must be finite; row 1, column 2 is NaN"),
    "empty": (["--query", ";"], "--query is empty"),
    "missing file": (["--query", "nowhere.npy"], "cannot read nowhere.npy: No such file"),
    "a folder": (["--query", "folder.npy"], "cannot read folder.npy"),
    "no npy": (["--query", "text.npy"], "text.npy is not a NumPy array of numbers"),
    "pickle": (["--query", "pickle.npy"], "pickle.npy is not a NumPy array of numbers"),
    "bad json": (["--query", "[[1, 2"], "--query: not JSON"),
    "ragged json": (["--query", "[[1, 2], [3]]"], "--query: rows have different lengths"),
    "text in json": (["--query", '[["a"]]'], "must hold numbers; it holds text"),
    "object": (["--query", "object.json"], "must hold numbers"),
    "latin": (["--query", "latin.json"], "not UTF-8"),
    "no numbers": (["--query", "[[]]"], "holds no numbers"),
    "five axes": (["--query", "[[[[[1]]]]]"], "must be [rows, columns] or [1, heads, rows, columns]"),
    "dims": (["--query", "1 2", "--key", "1 2 3"], "dim"),
    "value rows": (["--query", "1 2", "--value", "1; 2"], "value must have key's"),
    "w_query": (["--input", "1 2", "--w-query", "1; 2; 3"], "--w-query must have a row for each"),
    "w_decoder": ([*NUMBERS, "--w-decoder", "1 2"], "--w-decoder must be [units, 6]"),
    "heads": (["--input", "1 2 3", "--heads", "2"], "heads must divide"),
    "no heads": (["a b", "--heads", "0"], "--heads must be at least 1"),
    "score": ([*NUMBERS, "--score", "scaled"], "unknown score 'scaled': here it is --score scaled_dot"),
    "score and scale": ([*NUMBERS, "--score", "scalde", "--scale", "1"], "unknown score"),
    "location_aware": ([*NUMBERS, "--score", "location_aware"], "previous step"),
    "scale": ([*NUMBERS, "--scale", "root"], "--scale must be a number"),
    "scale by zero": ([*NUMBERS, "--scale", "1/0"], "--scale must be a number"),
    "scale of distance": ([*NUMBERS, "--score", "distance", "--scale", "2"], "--scale goes with"),
    "w_score": ([*NUMBERS, "--w-score", "1"], "--w-score goes with"),
    "normalizer": ([*NUMBERS, "--normalizer", "sofmax"], "did you mean 'softmax'?"),
    "alpha": ([*NUMBERS, "--normalizer", "entmax", "--alpha", "1"], "alpha"),
    "alpha of softmax": ([*NUMBERS, "--alpha", "2"], "--alpha goes with"),
    "temperature": ([*NUMBERS, "--temperature", "-1"], "temperature"),
    "mask": ([*NUMBERS, "--mask", "casual"], "unknown mask 'casual'; did you mean 'causal'?"),
    "mask syntax": ([*NUMBERS, "--mask", "causal &"], "cannot be read"),
    "mask code": ([*NUMBERS, "--mask", "window(__import__('os').getpid())"], "cannot be read"),
    "mask arguments": ([*NUMBERS, "--mask", "window(1, 2, 3, 4, 5)"], "window"),
    "mask shape": ([*NUMBERS, "--mask", "keep([[1, 0]])"], "broadcast"),
    "ragged mask": ([*NUMBERS, "--mask", "keep([[1, 0], [1]])"], "--mask"),
    "labels": ([*NUMBERS, "--labels", "a b"], "keys must have 4 labels; got 2"),
    "row": ([*NUMBERS, "--row", "1"], "--row must be from 0 to 0, since queries count from 0; it is 1"),
    "negative row": ([*NUMBERS, "--row", "-1"], "--row must be from 0 to 0, since queries count from 0; it is -1"),
    "head": (["a b", "--head", "1"], "--head must be 'all' or a number from 0 to 0"),
    "steps": (["a b", "--steps", "wieghts"], "did you mean 'weights'?"),
    "idle": ([*NUMBERS, "--dim", "4"], "--dim does not go with numbers"),
    "idle positions": (["--positions", "4", "--score", "dot"], "--score does not go with --positions"),
    "idle labels": (["a b", "--labels", "c d"], "--labels does not go with a sentence"),
    "picture": ([*NUMBERS, "--picture", "x.gif"], "must end in .png, .svg, .pdf"),
    "color map": ([*NUMBERS, "--picture", "x.png", "--color-map", "key=Orange"], "did you mean 'Oranges'?"),
    "color map of a step": ([*NUMBERS, "--picture", "x.png", "--color-map", "kye=Oranges"], "did you mean 'key'?"),
    "color map of positions": (["--positions", "4", "--color-map", "Oranges"], "--color-map does not go with"),
    "picture folder": ([*NUMBERS, "--picture", "nowhere/x.png"], "does not exist"),
    "html": ([*NUMBERS, "--html", "x.htm"], "--html must end in .html; it is 'x.htm'"),
    "html folder": ([*NUMBERS, "--html", "nowhere/x.html"], "cannot write nowhere/x.html"),
    "language of tables": (
        [*NUMBERS, "--language", "zh"],
        "--language is of a page or a picture; give --html or --picture too",
    ),
    "html of positions": (["--positions", "4", "--html", "x.html"], "--html does not go with --positions"),
    "json folder": ([*NUMBERS, "--json", "nowhere/x.json"], "cannot write nowhere/x.json"),
    "no positions": (["--positions", "0"], "--positions must be at least 1"),
    "dpi": ([*NUMBERS, "--picture", "x.png", "--dpi", "1e9"], "for this picture of"),
    "dpi nan": ([*NUMBERS, "--picture", "x.png", "--dpi", "nan"], "dpi must be"),
    "dpi small": ([*NUMBERS, "--picture", "x.png", "--dpi", "1e-9"], "for this picture of"),
    "drawn": (["--positions", "100000", "--dim", "100", "--picture", "x.png"], "at most 4,194,304 numbers"),
    "long mask": ([*NUMBERS, "--mask", "~" * 5000 + "causal"], "--mask '" + "~" * 60 + "…'"),
    "dims of a sentence": (["a b", "--dim", "1000000000"], "--dim 1000000000"),
    "heads of a sentence": (["a b", "--heads", "1000000"], "--heads must be at most 1000"),
    "sizes of a sentence": (["a b", "--dim", "100000", "--head-dim", "100000"], "more than the 20,000,000"),
    "too many": (["--positions", "100000", "--dim", "100000"], "at most"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_gets_one_line(call, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "text.npy").write_text("1 2 3")
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "object.json").write_text('{"a": 1}')
    (tmp_path / "latin.json").write_bytes(b"[1, \xff]")
    code, _, err = call(*arguments)
    assert code == 2
    assert err.count("\n") == 1
    assert err.startswith("regard: error: ")
    assert message in err


def test_additive_scores_show_their_units(call, steps):
    arguments = ["--query", "1 2", "--key", "3 4; 0 1", "--score", "concat"]
    found = steps(*arguments)
    units = (found["query"][:, None] + found["key"]).flatten(0, 1)
    torch.testing.assert_close(found["sum"], units)
    torch.testing.assert_close(found["tanh"], units.tanh())
    torch.testing.assert_close(found["scores"], (units.tanh() @ found["unit weights"].T).T)
    code, out, _ = call(*arguments, "--row", 0, "--steps", "sum,unit-weights")
    assert code == 0
    assert "Scores: each unit times its weight in" in out


@pytest.mark.parametrize(
    ("option", "name", "line"),
    [
        ("score", "bahdanau", "here it is --score additive"),
        ("score", "dot product", "here it is --score dot"),
        ("score", "cos", "here it is --score cosine"),
        ("score", "linear", 'explain(query, key, value, score=scores.Features("elu"), normalizer="ratio")'),
        ("normalizer", "hardmax", "here it is --normalizer hard"),
        ("normalizer", "softmax1", "here it is --normalizer softmax_with_sink"),
        ("normalizer", "tsallis", "here it is --normalizer entmax"),
        ("normalizer", "gumbel", 'regard.explain(query, key, value, normalizer=normalizers.hard("gumbel"))'),
        ("normalizer", "relu", "regard.explain(query, key, value, normalizer=lambda scores: scores.relu())"),
    ],
)
def test_a_name_elsewhere_is_answered_with_the_option(call, option, name, line):
    code, _, error = call(*NUMBERS, f"--{option}", name)
    assert code != 0
    assert line in error


def test_a_sentence_without_spaces_is_split_and_says_so_in_one_line(call):
    code, output, error = call("他拿起帽子并检查了它")
    assert code == 0
    assert re.fullmatch(r"\d+ words in the sentence: it has no spaces [^\n]*\n", error)
    words = int(error.split()[0])
    assert words > 4
    assert f"input [{words}×5]" in output
    code, output, error = call("This is book", "--json", "-")
    assert (code, error) == (0, "")
