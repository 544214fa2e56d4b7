"""The walk in a browser: its stations, sums that open, sliders, the keyboard, and calculations that are fetched."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import regard
import viewer_documents as documents
from regard import models, normalizers, watching
from regard.records import Document
from regard.viewer import View, module_path, payload, steps_record
from regard.viewer.view import views_of

MODULE = Path(__file__).parents[2] / "viewer" / "modules" / "normalizers.js"


def test_normalizers_are_those_of_regard(pages):
    """Each normalizer of the walk against PyTorch's float64 of the package, with hidden keys and blind rows."""
    generator = torch.Generator().manual_seed(0)
    rows = 3 * torch.randn(40, 7, generator=generator, dtype=torch.float64)
    rows[torch.rand(40, 7, generator=generator) < 0.3] = -torch.inf
    rows[0] = -torch.inf
    rows[1, :] = 0.5
    rows[2] *= 200
    cases = [
        ("softmax", {}, normalizers.softmax),
        ("softmax_with_sink", {"sink": 0.7}, normalizers.softmax_with_sink(0.7)),
        ("sparsemax", {}, normalizers.sparsemax),
        *(("entmax", {"alpha": alpha}, normalizers.entmax(alpha)) for alpha in (1.05, 1.3, 1.5, 1.9, 2.0)),
        ("sigmoid", {"bias": -1.1}, normalizers.Sigmoid(-1.1)),
    ]
    with pages.opened() as page:
        found = page.evaluate(
            """async ([text, cases, rows]) => {
              const { normalized } = await import(`data:text/javascript,${encodeURIComponent(text)}`);
              const numbers = rows.map((row) => Float64Array.from(row, (one) => (one === null ? -Infinity : one)));
              const weights = (name, row, parameters) => [...normalized(name, row, parameters).weights];
              return cases.map(([name, parameters]) => numbers.map((row) => weights(name, row, parameters)));
            }""",
            [
                MODULE.read_text("utf-8"),
                [case[:2] for case in cases],
                [[None if one == -np.inf else one for one in row] for row in rows.tolist()],
            ],
        )
    for (name, parameters, normalizer), weights in zip(cases, found, strict=True):
        error = (torch.tensor(weights, dtype=torch.float64) - normalizer(rows)).abs().max().item()
        assert error < 1e-9, (name, parameters, error)


def weights_of_table(shown, numbers):
    """The weights that the table of the row lists, by their labels."""
    lines = [
        line.locator("th, td:not(.share)").all_inner_texts()
        for line in shown.station("weights").locator("tbody tr").all()
    ]
    return {line[0]: numbers(line[-1].replace("0", "0.0", 1) if line[-1] == "0" else line[-1])[0] for line in lines}


def slide(shown, name, value):
    shown.page.get_by_label(name).evaluate(
        "(one, value) => { one.value = value; one.dispatchEvent(new Event('input', { bubbles: true })); }", str(value)
    )
    shown.settle()


def test_sliders_and_choices_compute_what_they_say(show, numbers):
    record, explanation = documents.steps()
    shown = show(View(record))
    shown.click(row=3, column=1)
    scores, value = explanation.scores[0, 0], explanation.value[0, 0]
    causal = torch.ones(4, 4, dtype=torch.bool).tril()

    def check(normalizer, scale=3**-0.5, temperature=1.0, visible=causal):
        masked = (scores * scale).masked_fill(~visible, -torch.inf)
        expected = normalizer(masked / temperature)
        found = weights_of_table(shown, numbers)
        assert [found[word] for word in ("This", "is", "a", "book")] == pytest.approx(expected[3].tolist(), abs=6e-5)
        output = expected[3] @ value
        cells = shown.station("output").locator(".cell.query").evaluate_all("all => all.map((one) => one.title)")
        assert numbers(" ".join(cells)) == pytest.approx(output.tolist(), abs=6e-5)

    check(normalizers.softmax)
    shown.page.get_by_role("button", name="What if?").click()
    restore = shown.page.get_by_role("button", name="As the model does it")
    assert restore.is_disabled()
    slide(shown, "Temperature", 0.5)
    check(normalizers.softmax, temperature=10**0.5)
    assert shown.page.locator(".ghost").count() == 4
    assert "Temperature 3.162" in shown.call("svg")
    slide(shown, "Scale of the score", np.log10(3**-0.5) + 0.7)
    check(normalizers.softmax, temperature=10**0.5, scale=3**-0.5 * 10**0.7)
    restore.click()
    shown.settle()
    check(normalizers.softmax)
    assert shown.page.locator(".ghost").count() == 0
    for name, normalizer in (
        ("sparsemax", normalizers.sparsemax),
        ("sigmoid", normalizers.sigmoid),
        ("entmax", normalizers.entmax(1.5)),
    ):
        shown.page.get_by_label("Normalizer").select_option(name)
        shown.settle()
        check(normalizer)
    slide(shown, "Alpha", 1.25)
    check(normalizers.entmax(1.25))
    shown.page.get_by_label("Mask").select_option("none")
    shown.settle()
    shown.click(row=1, column=3)
    expected = normalizers.entmax(1.25)(scores[1] * 3**-0.5)
    found = weights_of_table(shown, numbers)
    assert [found[word] for word in ("This", "is", "a", "book")] == pytest.approx(expected.tolist(), abs=6e-5)
    assert shown.call("state")["trial"] == {"normalizer": "entmax", "alpha": 1.25, "mask": "none"}


def test_every_number_opens_into_its_sum(show, numbers):
    """By keyboard: components of the output into weight × value, of a query into input × W; both add up."""
    generator = torch.Generator().manual_seed(2)
    text, *weights = (torch.randn(*shape, generator=generator) for shape in [(3, 5)] + [(5, 3)] * 3)
    one = regard.explain(text, w_query=weights[0], w_key=weights[1], w_value=weights[2])
    shown = show(View(one, ["This", "is", "book"]))
    for station, name, terms in (("output", "output", 3), ("vectors", "query", 5)):
        cell = shown.station(station).get_by_role("button", name=f"{name} of “⁨").nth(1)
        cell.focus()
        shown.press("Enter")
        assert cell.get_attribute("aria-expanded") == "true"
        lines = [
            line.locator("td:not(.share)").last.inner_text()
            for line in shown.station(station).locator(".opened tr").all()[1:]
        ]
        products = [numbers(line)[0] for line in lines]
        assert len(products) == terms + 1
        assert sum(products[:-1]) == pytest.approx(products[-1], abs=2e-3)
        assert products[-1] == pytest.approx(numbers(cell.get_attribute("title"))[0], abs=1e-3)
        shown.press("Enter")
        assert shown.station(station).locator(".opened").count() == 0


def test_the_stations_by_keyboard(show):
    shown = show(View(documents.steps()[0]), reduced_motion="reduce")
    node = shown.page.locator(".strip button")
    count = node.count()
    question = shown.page.locator(".sentence").inner_text()
    assert question.endswith(f"Why? {count} steps.")
    node.first.focus()
    for place in range(1, count):
        shown.press("ArrowRight")
        assert node.nth(place).get_attribute("aria-current") == "step"
        assert shown.page.locator(".strip .done").count() == place
        assert shown.page.locator(".station .says").text_content() == shown.readout
        assert shown.page.locator(".sentence").inner_text() == question
    shown.press("ArrowRight", "ArrowLeft")
    assert shown.call("state")["station"] == "output"
    shown.page.get_by_label("Token that is looked at").select_option("3")
    shown.settle()
    assert shown.call("state")["kept"]["column"] == 3


def test_a_calculation_is_fetched_for_the_head_that_is_chosen(browser):
    """With fetchSteps the walk follows layer and head, asks once for each, and says why there is none."""
    record, _ = documents.causal(heads=2)
    assert "walk" not in views_of(Document("x", (record,)))
    generator = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(1, 2, len(record.queries), 4, generator=generator) for _ in range(3))
    one = regard.explain(query, key, value, mask="causal").labelled(record.queries.labels, record.keys.labels)
    asked = []

    def steps(number, head):
        asked.append((number, head))
        if asked == [(0, 0), (0, 1)]:
            raise ValueError("the text is gone")
        return payload(Document("x", (), (steps_record(one, head=head, name=f"fetched {head}"),)))["steps"][0]

    page = browser.new_page(viewport={"width": 1000, "height": 800})
    page.expose_function("steps", steps)
    page.set_content('<div id="viewer" style="height:700px"></div>')
    given = json.dumps(payload(Document("x", (record,))))
    options = "{ selection: { record: 0, head: 0 }, fetchSteps: (...head) => window.steps(...head) }"
    start = f"mount(document.getElementById('viewer'), {given}, {options});"
    page.add_script_tag(type="module", content=f"{module_path().read_text('utf-8')}\n{start}")
    page.get_by_role("tab", name="Walk").click()
    page.locator(".station").first.wait_for()
    assert asked == [(0, 0)]
    page.get_by_label("Head", exact=True).select_option("1")
    page.get_by_text("cannot be shown").first.wait_for()
    assert "the text is gone" in page.locator(".readout").text_content()
    for head, calls in (("0", 2), ("1", 3), ("0", 3)):
        page.get_by_label("Head", exact=True).select_option(head)
        page.locator(f"canvas[aria-label*='layer 0, head {head}']").wait_for()
        assert len(asked) == calls
    page.close()


def test_the_walk_says_what_wrote_the_parts_of_a_score(show):
    torch.manual_seed(0)
    model = models.LanguageModel(models.LanguageModelConfig(31, context=8, hidden=12, layers=2, heads=2)).eval()
    words = ["the", "cat", "sat", "on", "the", "mat"]
    with torch.no_grad(), regard.watch(model, read="view", inputs=True) as seen:
        model(torch.tensor([[3, 4, 5, 6, 3, 7]]))
    shown = show(View(seen, words, view="walk", steps=[(1, 1)], layer=1, head=1))
    shown.click(row=4, column=1)
    parts = watching.explain_weight(seen, 1, 1, 4, 1)
    table = shown.station("sources")
    text = table.inner_text().replace("\N{MINUS SIGN}", "-")
    assert (
        table.locator("tfoot").inner_text().replace("≈", "").split()[-2:]
        == [f"{parts.score:.4f}".replace("-", "\N{MINUS SIGN}")] * 2
    )
    for source, of_query, of_key in zip(parts.sources, parts.of_query, parts.of_key, strict=True):
        label = {"embedding": "embedding of the word"}.get(source.kind, source.label)
        row = next(line for line in text.splitlines() if line.startswith(f"{label}\t"))
        assert [float(number) for number in row.split("\t")[1:3]] == pytest.approx([of_query, of_key], abs=6e-4)
    assert "counts most in the score" in table.locator(".says").text_content()
    without = View(seen, words, view="walk", steps=[(0, 0)]).document.steps[0]
    assert without.parts.of_key.sum(0) == pytest.approx(without.matrices["scaled"], abs=1e-6)
    with torch.no_grad(), regard.watch(model, read="view", keep=True) as seen:
        model(torch.tensor([[3, 4, 5, 6, 3, 7]]))
    shown = show(View(seen, words, view="walk", steps=[(1, 1)]))
    assert shown.page.locator(".station[data-station=sources]").count() == 0


def test_hostile_words_stay_text(show):
    names = list(documents.HOSTILE)
    length = len(names)
    query, key, value = torch.randn(3, 1, 1, length, 3, generator=torch.Generator().manual_seed(6))
    shown = show(View(regard.explain(query, key, value), names))
    shown.click(row=1, column=0)
    slide(shown, "Temperature", -0.5)
    root = "document.getElementById('viewer').shadowRoot"
    assert shown.page.evaluate(f"[...{root}.querySelectorAll('script, img, iframe')].length") == 0
    assert shown.page.title() != "run"
    assert "onerror" in shown.station("vectors").inner_text()
    ElementTree.fromstring(shown.call("svg"))


@pytest.fixture(scope="module")
def translations():
    """A model with two layers of two heads of its own text, causal and not, watched with what they computed from."""
    torch.manual_seed(3)
    model = models.LanguageModel(models.LanguageModelConfig(31, context=8, hidden=12, layers=2, heads=2)).eval()
    with torch.no_grad(), regard.watch(model, keep=True) as seen:
        model(torch.tensor([[3, 4, 5, 6, 3, 7]]))
    return seen


def test_every_kept_head_walks_at_the_pair_that_the_pattern_shows(show, numbers, translations):
    words = ["the", "cat", "sat", "on", "the", "mat"]
    view = View(translations, words, layer=1, head=0)
    shown = show(view)
    for record, head, row in ((1, 0, 5), (0, 1, 3), (1, 1, 4)):
        shown.show("pattern", record=record, head=head, queries=[row])
        shown.page.get_by_role("tab", name="Walk").click()
        shown.settle()
        weights = view.document.records[record].weights[head, row]
        assert shown.call("state")["kept"] == {"row": row, "column": int(weights.argmax())}
        assert shown.page.locator(".walk h2").inner_text() == f"layer {record}, head {head}"
        found = [line.locator("td:not(.share)").last for line in shown.station("weights").locator("tbody tr").all()]
        told = sorted(numbers(" ".join(cell.inner_text() for cell in found)), reverse=True)
        expected = sorted((round(float(one), 4) for one in weights if one >= 5e-5), reverse=True)
        assert told[: len(expected)] == pytest.approx(expected, abs=1e-9)


def test_a_head_that_the_file_does_not_carry_is_said_with_what_to_write(show, translations):
    shown = show(View(translations, list("abcdef"), view="walk", layer=1, head=1, budget_bytes=4000))
    assert shown.page.locator(".walk h2").inner_text() == "layer 1, head 1"
    shown.page.get_by_label("Layer", exact=True).select_option("0")
    shown.settle()
    assert "steps=[(0, 1)]" in shown.page.locator(".sentence").inner_text()
    assert "steps=[(0, 1)]" in shown.readout
    shown.page.get_by_label("Layer", exact=True).select_option("1")
    shown.settle()
    assert shown.page.locator(".station").count() == 1


@pytest.mark.parametrize(("width", "height"), [(1440, 900), (900, 800), (400, 860), (320, 640)])
def test_strip_and_next_stay_in_view_and_one_card_is_open_at_each_station(show, width, height):
    shown = show(View(documents.steps()[0]), size=(width, height), reduced_motion="reduce")
    count = shown.page.locator(".strip button").count()
    for place in range(count):
        assert shown.page.locator(".station").count() == 1
        for name in (".strip", ".steps-buttons .primary"):
            box = shown.page.locator(name).bounding_box()
            assert box["y"] >= 0, (place, name)
            assert box["y"] + box["height"] <= height, (place, name)
        card = shown.page.locator(".station").bounding_box()
        strip = shown.page.locator(".strip").bounding_box()
        assert strip["y"] + strip["height"] <= card["y"] + 1 < height, place
        entry = shown.page.locator(".strip [aria-current]").bounding_box()
        assert entry["x"] >= -1, place
        assert entry["x"] + entry["width"] <= width + 1, place
        assert shown.page.evaluate(
            """() => {
              const { shadowRoot } = document.getElementById('viewer');
              return [...shadowRoot.querySelectorAll('.walk, .walk *:not(.strip *)')].every(
                (one) => one.getBoundingClientRect().right <= innerWidth + 1);
            }"""
        )
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
        if place < count - 1:
            shown.page.locator(".steps-buttons .primary").click()
            shown.settle()
            assert shown.page.locator(".station .says").text_content() == shown.readout


def test_printed_calculations_come_out_with_their_printed_numbers(show):
    """Each "=" between printed numbers; the softmax is of the scores themselves, and its settings are folded."""
    shown = show(View(documents.steps()[0], view="walk"))
    shown.click(row=3, column=1)

    def check(text):
        number = r"\(?(−?\d+(?:\.\d+)?)\)?"
        for one, sign, other, equal, result in re.findall(rf"{number} ([÷×+]) {number} ([=≈]) {number}", text):
            a, b = (float(each.replace("−", "-")) for each in (one, other))
            value = {"÷": a / b if b else 0, "×": a * b, "+": a + b}[sign]
            digits = len(result.partition(".")[2])
            assert (equal == "=") == (f"{value:.{digits}f}" == result.replace("−", "-")), (one, sign, other, result)
        return len(re.findall("[=≈]", text))

    assert check(shown.station("scale").inner_text()) >= 2
    shown.call("show", "walk", {"station": "weights"})
    text = shown.station("weights").inner_text()
    assert check(text) >= 3
    power = re.search(r"exp\((−?[\d.]+)\) [=≈] ([\d.]+)", text)
    assert float(power[2]) == pytest.approx(np.exp(float(power[1].replace("−", "-"))), rel=1e-3)
    settings = shown.page.locator(".settings")
    assert settings.is_hidden()
    for is_open in (True, False):
        shown.page.get_by_role("button", name="What if?").click()
        assert settings.is_visible() == is_open


@pytest.mark.parametrize("width", [1440, 900, 400, 320])
def test_query_stands_above_key_on_one_scale_with_the_products_that_count_most(show, width):
    """Eight numbers of each list at first, on one scale; no pair is hidden, so there is no mask."""
    query, key, value = torch.randn(3, 1, 1, 4, 32, generator=torch.Generator().manual_seed(4))
    value *= 3
    shown = show(View(regard.explain(query, key, value), list("abcd"), view="walk"), size=(width, 860))
    row, column = 2, 1
    shown.call("show", "walk", {"kept": {"row": row, "column": column}})
    shown.settle()
    cells = shown.station("vectors").locator(".cell")
    boxes = cells.evaluate_all(
        """all => all.map((one) => {
          const [list, dim] = one.dataset.out.split(' ');
          const { x, y } = one.getBoundingClientRect();
          const [marked, isCut] = [one.classList.contains("marked"), one.scrollWidth > one.clientWidth];
          return { list, dim: Number(dim), x, y, marked, isCut };
        })"""
    )
    lists = {name: {one["dim"]: one for one in boxes if one["list"] == name} for name in ("query", "key", "value")}
    products = (query[0, 0, row] * key[0, 0, column]).abs()
    assert set(lists["query"]) == set(lists["key"]) == set(products.topk(8).indices.tolist())
    assert set(lists["value"]) == set(range(8))
    assert not any(one["isCut"] for one in boxes)
    outlined = {dim for dim, one in lists["query"].items() if one["marked"]}
    assert outlined == set(products.topk(3).indices.tolist())
    for dim, one in lists["query"].items():
        assert lists["key"][dim]["x"] == one["x"]
        assert lists["key"][dim]["y"] > one["y"]
    largest = max(
        each[0, 0, place].abs().max().item() for each, place in ((query, row), (key, column), (value, column))
    )
    assert f"+{largest:.2f}" in shown.station("vectors").locator(".signs-key").inner_text()
    shown.page.locator(".numbers .fold").first.click()
    assert shown.station("vectors").locator(".cell.query").count() == 32
    names = shown.page.locator(".strip button").evaluate_all("all => all.map((one) => one.dataset.goes)")
    assert "mask" not in names
    for name in names:
        shown.station(name)
        if width >= 900:
            assert shown.page.locator(".columns").is_visible() == (names.index(name) >= names.index("weights")), name
