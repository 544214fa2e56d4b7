"""What heads do, as the viewer says: as `regard.survey` and loops over pairs say; and how the grid is sorted by it."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import regard
import viewer_documents as documents
from regard.errors import ArgumentError, KindError, ShapeError
from regard.models import LanguageModel, LanguageModelConfig
from regard.records import AttentionRecord, Document, TokenAxis
from regard.viewer import View, module_path, payload
from regard.watching import HeadStatistics

IDS = [2, 5, 9, 6, 5, 9, 7, 5, 11, 6, 5, 9, 1]
SPECIAL = [2, 1]


@pytest.fixture
def inside(pages):
    """Runs a function of the module's own names on the decoded records of a document."""

    def run(document, names, function):
        text = module_path().read_text(encoding="utf-8").replace("\nexport { ", f"\nexport {{ {names}, ")
        source = f"data:text/javascript;base64,{base64.b64encode(text.encode()).decode()}"
        return page.evaluate(
            f"""async ([source, given]) => {{
              const {{ AttentionData, Axis, ...all }} = await import(source);
              const axes = given.axes.map((entry) => new Axis(entry));
              const records = given.records.map((entry, at) =>
                new AttentionData(entry, at, axes, given.masks, given.records));
              for (const record of records) await record.decode();
              return ({function})(records, all);
            }}""",
            [source, json.loads(json.dumps(payload(document)))],
        )

    with pages.opened() as page:
        yield run


STATISTICS = (
    "(records, { statisticsOf }) => records.map((r) => [...Array(r.heads).keys()].map((h) => statisticsOf(r, h)))"
)


def test_statistics_are_those_of_a_survey(inside):
    torch.manual_seed(3)
    model = LanguageModel(LanguageModelConfig(12, context=16, hidden=24, layers=2, heads=3)).eval()
    for parameter in model.parameters():
        parameter.data.mul_(3)
    found = regard.survey(model, [IDS], special=SPECIAL)
    ids = torch.tensor([IDS])
    with regard.watch(model, read=regard.Readings(weights=True)) as watched, torch.no_grad():
        model(ids)
    axis = TokenAxis(tuple(map(str, IDS)), tuple(token in SPECIAL for token in IDS))
    statistics = inside(View(watched, axis).document, "AttentionData, Axis, statisticsOf", STATISTICS)
    for head in found.heads:
        one = statistics[head.layer][head.head]
        seen = {name: pattern["share"] for name, pattern in one["patterns"].items() if name in head.values}
        seen |= {"entropy": one["entropy"], "relative_entropy": one["relativeEntropy"]}
        assert len(seen) == 15
        for name, value in seen.items():
            assert value == pytest.approx(head.values[name], abs=2e-5, nan_ok=True), (head, name)


def test_patterns_and_chance_are_those_of_loops_over_pairs(inside):
    """`near`, the parts of a word, one key for all; and what uniform attention over visible keys would give."""
    texts = ("[CLS]", "un", "##see", "##n", "the", "a", "the", "un", "##do", "[SEP]")
    words = (range(1), range(1, 4), range(4, 5), range(5, 6), range(6, 7), range(7, 9), range(9, 10))
    special = tuple(text.startswith("[") for text in texts)
    axis = TokenAxis(texts, special, words)
    visible = np.tril(np.ones((10, 10), bool)) | (np.random.default_rng(0).random((10, 10)) < 0.5)
    weights = documents.attention(2, 10, 10, visible=visible, sharpness=3.0).numpy()
    record = AttentionRecord("x", 0, "self", axis, axis, weights, visible)
    (statistics,) = inside(Document("x", (record,)), "AttentionData, Axis, statisticsOf", STATISTICS)
    word = [number for number, span in enumerate(words) for _ in span]
    queries = [query for query in range(10) if not special[query]]
    related = {
        "near": lambda q, k: abs(q - k) <= 2 and not special[k],
        "same_word": lambda q, k: q != k and word[q] == word[k],
        "first": lambda q, k: k == 0,
        "offset +1": lambda q, k: k == q + 1 and not special[k],
        "same_token": lambda q, k: q != k and texts[q] == texts[k],
    }
    for head, one in enumerate(statistics):
        for name, belongs in related.items():
            keys = {q: [k for k in range(10) if visible[q, k] and belongs(q, k)] for q in queries}
            over = [q for q in queries if keys[q] or name not in ("same_word", "same_token")]
            if name == "offset +1":
                over = [q for q in queries if q + 1 < 10 and not special[q + 1]]
            share = sum(weights[head, q, keys[q]].sum() for q in over) / len(over)
            chances = [len(keys[q]) / visible[q].sum() for q in over]
            spread = sum(chance * (1 - chance) for chance in chances) ** 0.5 / len(over)
            pattern = one["patterns"][name]
            assert pattern["queries"] == len(over)
            assert [pattern["share"], pattern["chance"], pattern["spread"]] == pytest.approx(
                [share, sum(chances) / len(chances), spread], abs=2e-5
            )
        received = weights[head][queries].mean(0)
        best = max((k for k in range(1, 10) if not special[k]), key=lambda k: received[k])
        assert one["patterns"]["one_key"]["key"] == best
        assert one["patterns"]["one_key"]["share"] == pytest.approx(received[best], abs=2e-5)


def test_a_survey_names_and_sorts_the_grid(show):
    axis = TokenAxis(tuple("abcdefgh"))
    layers = [documents.attention(2, 8, 8, seed=layer).numpy() for layer in (0, 1)]
    heads = [
        HeadStatistics(f"m{layer}", layer, "self", head, {"offset -1": share, "first": 0.1, "loss": loss})
        for (layer, head), share, loss in zip(
            ((0, 0), (0, 1), (1, 0), (1, 1)), (0.2, 0.7, 0.9, float("nan")), (0.5, -0.1, 2.0, 0.25), strict=True
        )
    ]
    view = View(layers, axis, survey=heads, view="grid")
    shown = show(view)
    assert "over the surveyed texts: previous token 70 %" in shown.hover(row=0, column=1).replace("\u00a0", " ")
    assert "the loss changes by +2.0000" in shown.hover(row=1, column=0)
    shown.show("grid", order="loss")
    places = {
        (row, column): shown.call("locate", {"row": row, "column": column}) for row in (0, 1) for column in (0, 1)
    }
    assert sorted(places, key=lambda head: (places[head]["y"], places[head]["x"])) == [(1, 0), (0, 0), (1, 1), (0, 1)]
    shown.show("grid", order="does")
    places = {head: shown.call("locate", {"row": head[0], "column": head[1]}) for head in places}
    assert sorted(places, key=lambda head: (places[head]["y"], places[head]["x"]))[:2] == [(1, 0), (0, 1)]
    assert "offset -1" not in view.payload()["records"][1]["statistics"][1]


def test_one_scale_for_all_maps(show):
    """The map of a head with small weights is pale where all maps have one scale, and full where each has its own."""
    axis = TokenAxis(tuple("abcdefghijklmnop"))
    sharp, flat = np.eye(16, dtype=np.float32), np.full((16, 16), 0.4 / 14, np.float32)
    flat[:, 7:9] = 0.3
    shown = show(View(AttentionRecord("x", 0, "self", axis, axis, np.stack([sharp, flat])), view="grid"))
    colors = {}
    for chosen in ("each", "one"):
        shown.show("grid", range=chosen)
        colors[chosen] = [shown.pixel(*shown.middle({"row": 0, "column": 1})), shown.call("svg")]
    assert "one scale for all maps, up to 1.0000" in colors["one"][1]
    assert "each map’s scale ends above" in colors["each"][1]
    assert sum(colors["one"][0]) > sum(colors["each"][0]) + 100


def test_a_survey_of_another_model_is_refused():
    weights = documents.attention(2, 4, 4).numpy()
    heads = [HeadStatistics("m", 3, "self", head, {"first": 0.5}) for head in (0, 1)]
    with pytest.raises(ArgumentError, match="of the same model"):
        View(weights, range(4), survey=heads)
    with pytest.raises(ArgumentError, match="must have the 2 heads"):
        View(weights, range(4), survey=[replace(heads[0], layer=0)])
    with pytest.raises(KindError, match=r"regard\.survey"):
        View(weights, range(4), survey=[{"first": 0.5}])
    axis = TokenAxis(tuple("abcd"))
    with pytest.raises(ShapeError, match="one for each head"):
        AttentionRecord("x", 0, "self", axis, axis, weights, statistics=({},))
