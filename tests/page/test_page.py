"""The page in a real browser: typing, quick edits, comparing, worked steps, the keyboard, accessibility."""

import re
import shutil
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

import regard
from page_servers import Echo, serving
from regard.page.models import open_models
from regard.page.offers import find_offers
from regard.page.reading import ServedModel

SENTENCE = "My sister gives the old book to her friend."
HOSTILE = (
    "</script><img src=x onerror=\"document.title='run'\"> \u202egnp {{7*7}} ${1} \U0001f98a 'quotes\" <b>bold</b>"
)


FOCUSED = """() => {
  let element = document.activeElement;
  while (element.shadowRoot?.activeElement) element = element.shadowRoot.activeElement;
  return (element.getAttribute("aria-label") ?? element.innerText ?? "").trim() || element.tagName;
}"""
"""The name of what has the focus, in the page or in the viewer."""


class Tab:
    """A tab of the browser on the page of a server; console errors, failed scripts and foreign requests are errors."""

    def __init__(self, pages, opened, client, ready=".pane", size=(1100, 800), **context):
        self.errors, self.requests = [], []
        listeners = {
            "console": lambda message: message.type == "error" and self.errors.append(message.text),
            "pageerror": lambda error: self.errors.append(str(error)),
            "request": lambda request: self.requests.append(request.url),
        }
        self.page = opened.enter_context(pages.opened(*size, listeners, **context))
        self.page.goto(client.address)
        self.page.wait_for_selector(ready)

    def answers(self, pane=0):
        return self.page.locator(".pane").nth(pane).locator(".answer-text").all_inner_texts()

    def wait_for(self, answer, pane=0):
        found = self.page.locator(".pane").nth(pane).locator(".answer-text")
        found.filter(has_text=answer).wait_for(timeout=60_000)
        self.settle()

    def settle(self):
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('.pane')].every((pane) => pane.ariaBusy !== 'true')", timeout=60_000
        )


@pytest.fixture
def open_tab(pages):
    """Opens tabs, and sees at the end that no error came and that nothing else was asked for anything."""
    tabs = []

    with ExitStack() as opened:

        def make(client, pages=pages, **options):
            tabs.append(Tab(pages, opened, client, **options))
            tabs[-1].client = client
            return tabs[-1]

        yield make
    for tab in tabs:
        # The server ends before its tabs, whose last requests it may not answer.
        assert not [error for error in tab.errors if "ERR_CONNECTION" not in error]
        assert all(url.startswith((tab.client.address, "blob:", "data:")) for url in tab.requests), tab.requests


@pytest.fixture
def expected(run_of):
    return lambda name: regard.load(run_of(name)).predict([SENTENCE])[0]


def test_typing_shows_the_answer_and_its_attention(open_tab, run_of, expected):
    with serving(*open_models([run_of("bahdanau")])) as client:
        tab = open_tab(client)
        page = tab.page
        assert page.evaluate("document.activeElement.id") == "text"
        page.keyboard.type(SENTENCE)
        tab.wait_for(expected("bahdanau").text)
        viewer = page.locator(".view > div")
        assert page.evaluate("element => element.regardView.state().view", viewer.element_handle()) == "pattern"
        labels = page.evaluate(
            "() => document.querySelector('.view > div').shadowRoot.querySelector('canvas').getAttribute('aria-label')"
        )
        assert labels == "Pattern: layer 0 · one head"
        page.fill("#text", "")
        page.locator(".answer-text").wait_for(state="detached")
        assert page.locator(".view > div").count() == 0


def test_only_the_last_of_quick_edits_shows(open_tab):
    model = Echo()
    with serving(model) as client:
        tab = open_tab(client)
        page = tab.page
        page.evaluate(
            "() => { window.shown = [];"
            " new MutationObserver(() => shown.push(document.querySelector('.answer').innerText))"
            ".observe(document.querySelector('.answer'), {childList: true, subtree: true, characterData: true}); }"
        )
        page.fill("#text", "wait")
        assert model.started.wait(30)
        for text in ("one", "two", "three"):
            page.fill("#text", text)
            page.wait_for_timeout(250)  # longer than the page waits for another key
        model.release.set()
        tab.wait_for("three")
        page.wait_for_timeout(200)
        assert tab.answers() == ["three"]
        assert {line.splitlines()[-1] for line in page.evaluate("shown") if line.strip()} == {"three"}
        assert (model.texts[0], model.texts[-1]) == ("wait", "three")


def test_an_error_is_shown_and_the_next_text_is_read(open_tab):
    with serving(Echo()) as client:
        tab = open_tab(client)
        tab.page.fill("#text", "Hello")
        tab.wait_for("Hello")
        tab.page.fill("#text", "fail <b>now</b>")
        alert = tab.page.get_by_role("alert").filter(has_text="the model failed")
        alert.wait_for()
        assert alert.inner_text() == "the model failed (RuntimeError: no weights for fail <b>now</b>)"
        assert tab.answers() == []  # no answer to another text stands beside it
        tab.page.fill("#text", "a" * 10_001)
        tab.page.get_by_role("alert").filter(has_text="10,001 characters").wait_for()
        tab.page.fill("#text", "Again")
        tab.wait_for("Again")
        assert tab.page.locator(".error:visible").count() == 0
        tab.errors[:] = [error for error in tab.errors if "status of" not in error]  # the browser's own lines


def test_a_server_that_has_ended_is_told(open_tab):
    with serving(Echo()) as client:
        tab = open_tab(client)
        tab.page.fill("#text", "Hello")
        tab.wait_for("Hello")
    tab.page.fill("#text", "after")
    tab.page.get_by_role("alert").filter(has_text="does not answer").wait_for()


def test_two_models_read_one_text(open_tab, run_of, expected):
    with serving(*open_models([run_of("bahdanau"), run_of("transformer")])) as client:
        tab = open_tab(client)
        page = tab.page
        assert page.locator(".pane").count() == 2
        page.fill("#text", SENTENCE)
        tab.wait_for(expected("bahdanau").text, 0)
        tab.wait_for(expected("transformer").text, 1)
        boxes = [page.locator(".pane").nth(place).bounding_box() for place in (0, 1)]
        assert boxes[0]["y"] == boxes[1]["y"]
        assert boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
        page.locator(".pane-head select").nth(1).select_option(label="bahdanau")
        tab.wait_for(expected("bahdanau").text, 1)
        page.get_by_role("button", name="Remove").nth(1).click()
        assert page.locator(".pane").count() == 1
        assert page.evaluate("document.activeElement !== document.body")


def test_one_model_reads_two_texts(open_tab):
    with serving(Echo()) as client:
        tab = open_tab(client)
        page = tab.page
        page.fill("#text", "first")
        tab.wait_for("first")
        page.get_by_role("button", name="Compare").click()
        assert page.locator(".pane textarea:visible").count() == 2
        page.locator(".pane textarea").nth(1).fill("second")
        tab.wait_for("second", 1)
        assert tab.answers(0) == ["first"]
        page.get_by_label("One text for all").check()
        tab.wait_for("first", 1)
        page.fill("#text", "both")
        tab.wait_for("both", 0)
        tab.wait_for("both", 1)


def test_an_example_can_be_tried(open_tab, run_of):
    with serving(*open_models([run_of("bahdanau")])) as client:
        tab = open_tab(client)
        (model,) = client.ask("models").json["models"]
        examples = [one["text"] for one in model["examples"]]
        assert tab.page.locator("#examples .example-text").all_inner_texts() == examples
        tab.page.locator("#examples button").nth(1).click()
        tab.page.locator(".answer-text").wait_for()
        assert tab.page.input_value("#text") == examples[1]
        assert tab.page.locator("#examples button").nth(1).get_attribute("aria-pressed") == "true"
        tab.page.fill("#text", "Something else.")
        tab.page.locator("#examples").wait_for(state="hidden")


def test_hostile_text_is_only_shown(open_tab, run_of):
    class Hostile(Echo):
        facts = placeholder = HOSTILE

    echo = Hostile(HOSTILE)
    with serving(echo, *open_models([run_of("bahdanau")])) as client:
        tab = open_tab(client)
        page = tab.page
        page.fill("#text", HOSTILE)
        tab.wait_for("gnp")
        page.wait_for_timeout(500)
        assert tab.answers() == [HOSTILE]
        assert page.locator(".pane option").first.inner_text() == HOSTILE
        assert page.locator("main img").count() == page.locator("main b").count() == 0
        assert page.title() == "models · regard"
        page.fill("#text", "x" * 5000)
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_keyboard_alone_does_everything(open_tab, run_of, expected):
    with serving(*open_models([run_of("transformer")])) as client:
        tab = open_tab(client)
        page = tab.page
        press = page.keyboard.press

        def focused():
            return page.evaluate(FOCUSED)

        def tab_to(name):
            for _ in range(60):
                press("Tab")
                if focused().startswith(name):
                    return
            raise AssertionError(f"no {name}")

        page.keyboard.type(SENTENCE)
        tab.wait_for(expected("transformer").text)
        tab_to("Pattern")
        press("ArrowRight")
        press("Enter")
        state = page.evaluate("() => document.querySelector('.view > div').regardView.state().view")
        assert state == "lines"
        for _ in range(60):
            if focused() == "Compare":
                break
            press("Shift+Tab")
        press("Enter")
        assert page.locator(".pane").count() == 2
        page.keyboard.type("!")
        tab_to("Remove")
        press("Enter")
        assert page.locator(".pane").count() == 1
        page.wait_for_timeout(400)
        tab.settle()


@pytest.mark.parametrize("look", ["light", "dark", "forced"])
def test_axe_finds_nothing_serious_on_the_page(open_tab, run_of, expected, look):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    options = {"color_scheme": "dark" if look == "dark" else "light"}
    if look == "forced":
        options["forced_colors"] = "active"
    with serving(Echo(), *open_models([run_of("classify"), run_of("transformer")])) as client:
        tab = open_tab(client, **options)
        page = tab.page

        def check(place):
            found = axe.Axe().run(page).response["violations"]
            serious = [(one["id"], one["nodes"][0]["html"][:200]) for one in found
                       if one["impact"] in ("serious", "critical")]  # fmt: skip
            assert not serious, (place, serious)

        check("empty")
        page.fill("#text", SENTENCE)
        tab.wait_for(expected("transformer").text, 2)
        check("answers")
        page.get_by_label("One text for all").uncheck()
        page.locator(".pane textarea").first.fill("fail")
        page.get_by_role("alert").filter(has_text="the model failed").wait_for()
        check("own texts, an error")
        tab.errors[:] = [error for error in tab.errors if "status of 500" not in error]


@pytest.mark.parametrize("font", ["pages", "wide_pages"])
@pytest.mark.parametrize("width", [320, 640])
def test_narrow_windows_and_large_text(open_tab, run_of, expected, width, font, request):
    """320 pixels is also a window of 640 at 200 %: everything is in reach without scrolling sideways."""
    with serving(*open_models([run_of("transformer"), run_of("bahdanau")])) as client:
        tab = open_tab(client, request.getfixturevalue(font), size=(width, 640))
        page = tab.page
        page.fill("#text", SENTENCE)
        tab.wait_for(expected("transformer").text)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_reduced_motion_moves_nothing(open_tab):
    model = Echo()
    with serving(model) as client:
        tab = open_tab(client, reduced_motion="reduce")
        tab.page.fill("#text", "wait")
        assert model.started.wait(30)
        assert tab.page.evaluate("document.getAnimations().length") == 0
        model.release.set()
        tab.wait_for("wait")


def shown(page, pane=0):
    """What the viewer of a pane shows."""
    return page.evaluate("pane => document.querySelectorAll('.pane .view > div')[pane].regardView.state()", pane)


def shadow(page, element, pane=0):
    """An element of the viewer of a pane."""
    return page.locator(".pane .view > div").nth(pane).locator(element)


@pytest.mark.parametrize("kind", ["run", "pretrained"])
def test_the_walk_fetches_the_calculation_of_the_head_that_is_shown(open_tab, run_of, folder_of, kind):
    """Its weights are those of the record, whatever layer, head and text; sliders work; an error is a text."""
    (model,) = open_models([run_of("transformer") if kind == "run" else folder_of("next token")])
    text, other = ("My sister gives the book.", "My sister sees it.") if kind == "run" else ("the quick fox", "a dog .")
    with serving(model) as client:
        tab = open_tab(client)
        page = tab.page
        page.fill("#text", text)
        shadow(page, "canvas").wait_for(timeout=60_000)
        page.get_by_role("tab", name="Walk").click()

        def check(text, layer, head):
            name = f"of the weights of layer {layer}, head {head}"
            shadow(page, ".stations").wait_for(timeout=60_000)
            records = model.read(text).document.records
            record = shown(page)["record"]
            query = len(records[record].queries) - 1
            shadow(page, ".walk-pair select.query").select_option(str(query))
            page.wait_for_function(
                "row => document.querySelector('.pane .view > div').regardView.state().kept?.row === row", arg=query
            )
            page.wait_for_timeout(200)
            assert (records[record].layer, shown(page)["head"]) == (layer, head), name
            columns = shadow(page, ".columns .column").evaluate_all("all => all.map((one) => one.title)")
            found = [float(label.split()[-2]) / 100 for label in columns]
            assert found == pytest.approx(records[record].weights[head, query].tolist(), abs=0.01), name  # "< 1 %"

        page.get_by_label("Layer", exact=True).select_option(index=1)
        page.get_by_label("Head", exact=True).select_option("1")
        check(text, 1, 1)
        page.get_by_label("Head", exact=True).select_option("0")
        check(text, 1, 0)
        page.fill("#text", other)
        page.wait_for_timeout(300)
        tab.settle()
        check(other, 1, 0)
        shadow(page, ".strip [data-goes=weights]").click()
        before = shadow(page, "[data-station=weights] tbody").inner_text()
        page.get_by_label("Temperature").evaluate(
            "(one) => { one.value = 0.7; one.dispatchEvent(new Event('input', { bubbles: true })); }"
        )
        page.wait_for_timeout(200)
        assert shadow(page, "[data-station=weights] tbody").inner_text() != before
        page.route("**/steps", lambda route: route.fulfill(status=422, json={"error": "no <b>steps</b> here"}))
        page.get_by_label("Head", exact=True).select_option("1")
        shadow(page, ".walk").get_by_text("no <b>steps</b> here").wait_for()
        tab.errors[:] = [error for error in tab.errors if "status of 422" not in error]


@pytest.mark.parametrize("kind", ["run", "pretrained"])
def test_a_written_token_is_marked_and_shows_what_it_attended_to(open_tab, run_of, folder_of, kind):
    (model,) = open_models([run_of("language-char") if kind == "run" else folder_of("next token")])
    text = "the fox"
    document = model.read(text).document
    axis = document.records[1].queries
    assert 0 < axis.generated < len(axis) - 1
    with serving(model) as client:
        tab = open_tab(client)
        page = tab.page
        page.fill("#text", text)
        shadow(page, "canvas").wait_for(timeout=60_000)
        page.evaluate("""() => document.querySelector('.view > div').regardView
            .show('words', {record: 1, head: 1, words: false, hideSpecial: false})""")
        page.set_viewport_size({"width": 1100, "height": 1400})
        page.wait_for_timeout(500)
        view = "document.querySelector('.view > div').regardView"
        assert "written by the model" in page.evaluate(f"() => {view}.svg()")
        box = page.evaluate(f"row => {view}.locate({{side: 'query', row}})", axis.generated + 1)
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_timeout(300)
        assert shown(page)["locked"] == [axis.generated + 1]
        weights = document.records[1].weights[1, axis.generated + 1]
        told = re.sub("[\u2066-\u2069]", "", shadow(page, ".shares").inner_text())
        assert f"{axis.tokens[weights.argmax()]} {weights.max():.2f}" in re.sub("[“”]", "", told)


def test_old_attention_is_named_and_not_taken_for_the_new_texts(open_tab, run_of):
    class Slow(ServedModel):
        task, facts, placeholder, release = "slow", "a run that waits", "A text", threading.Event()

        def __init__(self, inner):
            self.inner, self.name, self.path = inner, "slow", inner.path

        def _read(self, text):
            assert "second" not in text or self.release.wait(30)
            return self.inner.read(text)

    slow = Slow(open_models([run_of("transformer")])[0])
    with serving(slow) as client:
        tab = open_tab(client)
        page = tab.page
        page.fill("#text", "My first text.")
        page.locator(".view canvas").first.wait_for(timeout=60_000)
        tab.settle()
        assert not page.locator(".stale-note").is_visible()
        page.fill("#text", "My second text.")
        page.locator(".stale-note").wait_for()
        assert page.locator(".stale-note").inner_text() == "Attention of: My first text."
        assert page.evaluate("Number(getComputedStyle(document.querySelector('.view')).opacity)") < 0.6
        slow.release.set()
        page.locator(".stale-note").wait_for(state="hidden", timeout=60_000)
        assert page.evaluate("getComputedStyle(document.querySelector('.view')).opacity") == "1"


def test_linked_panes_share_and_their_difference_is_a_minus_b(open_tab, run_of):
    texts = ["My sister gives the old book.", "My sister gives the red book."]
    with serving(*open_models([run_of("transformer")])) as client:
        tab = open_tab(client)
        page = tab.page
        page.fill("#text", texts[0])
        page.locator(".view canvas").first.wait_for(timeout=60_000)
        page.get_by_role("button", name="Compare").click()
        page.locator(".pane textarea").nth(1).fill(texts[1])
        page.locator(".pane .view canvas").nth(1).wait_for(timeout=60_000)
        tab.settle()

        def set_first(**state):
            view = "document.querySelectorAll('.pane .view > div')[0].regardView"
            page.evaluate(f"state => {view}.show(state.view, state)", {"view": "lines", **state})
            page.wait_for_timeout(400)

        set_first(record=1, head=1, scale="root")
        assert [shown(page, 1)[name] for name in ("view", "record", "head", "scale")] == ["lines", 1, 1, "root"]
        set_first(view="walk", kept={"row": 2, "column": 1})
        page.locator(".pane .view .stations").nth(1).wait_for(timeout=60_000)
        assert shown(page, 1)["kept"] == {"row": 2, "column": 1}
        boxes = [page.locator(".pane .more").nth(pane).bounding_box() for pane in (0, 1)]
        assert boxes[0]["y"] == boxes[1]["y"]  # a menu never stands in a line of its own
        found = page.evaluate("""() => {
          const view = document.querySelector('.difference .view > div').regardView;
          view.show('difference', {row: 2, column: 1});
          view.locate({row: 2, column: 1});
          return view.state();
        }""")
        assert (found["head"], found["other"]) == (1, {"record": 1, "head": 1})
        one, other = (regard.load(run_of("transformer")) for _ in range(2))
        weights = []
        for trained, text in ((one, texts[0]), (other, texts[1])):
            document = trained.document(trained.predict([text])[0])
            weights.append(document.records[1].weights[1])
        legend = page.evaluate("() => document.querySelector('.difference .view > div').regardView.svg()")
        largest = abs(weights[0] - weights[1]).max()  # texts of one length are compared place by place
        ends = [float(number) for number in re.findall(r">\+(0\.\d+)<", legend)]
        assert ends[-1] == pytest.approx(float(largest), abs=0.006)
        page.get_by_label("Linked").uncheck()
        set_first(record=1, head=0)
        assert shown(page, 1)["head"] == 1


def test_an_address_opens_what_was_seen_and_back_undoes(open_tab, run_of, expected):
    models = [run_of("transformer"), run_of("bahdanau")]
    with serving(*open_models(models)) as client:
        tab = open_tab(client)
        page = tab.page
        page.get_by_role("button", name="Remove").nth(1).click()
        page.fill("#text", SENTENCE)
        tab.wait_for(expected("transformer").text)
        selection = {"record": 3, "head": 1, "hideSpecial": True, "locked": [1]}
        page.evaluate(
            "selection => document.querySelector('.view > div').regardView.show('heads', selection)", selection
        )
        page.wait_for_timeout(800)
        address = page.url
        other = open_tab(client)
        other.page.goto("about:blank")
        other.page.goto(address)
        other.wait_for(expected("transformer").text)
        other.page.wait_for_timeout(300)
        seen = shown(other.page)
        assert {"view": "lines", **selection} == {name: seen[name] for name in ("view", *selection)}
        assert other.page.locator(".pane").count() == 1
        page.locator(".pane-head select").select_option(label="bahdanau")
        tab.wait_for(expected("bahdanau").text)
        page.wait_for_timeout(600)
        page.go_back()
        tab.wait_for(expected("transformer").text)
        assert page.input_value("#text") == SENTENCE


HOSTILE_ADDRESSES = (
    "#model=x&text=%FF%00&see=pattern.-1.9e9.linear", "#see=%3Cimg%3E.0.0.linear&text=<img src=x onerror=alert(1)>",
    "#model=transformer&see=view%3Dconstructor%26record%3D99999%26head%3D9%26scale%3Dx%26locked%3D[5,999]&example=9",
    "#" + "&" * 9000, "#text=%u1",
)  # fmt: skip


def test_hostile_addresses_do_nothing(open_tab, run_of):
    with serving(*open_models([run_of("transformer")])) as client:
        tab = open_tab(client)
        for fragment in HOSTILE_ADDRESSES:
            tab.page.goto("about:blank")
            tab.page.goto(client.address + fragment)
            tab.page.wait_for_selector(".pane")
            tab.page.wait_for_timeout(500)
            tab.settle()
            assert tab.page.locator("main img").count() == 0, fragment
            assert tab.page.locator("#failure").is_hidden(), fragment
            tab.page.fill("#text", "My sister gives the book.")
            tab.page.locator(".view canvas").wait_for(timeout=60_000)


def test_offered_models_are_listed_and_opened_by_a_click(open_tab, run_of, tmp_path):
    for name in ("bahdanau", "classify"):
        shutil.copytree(run_of(name), tmp_path / name)
    offers = find_offers(tmp_path, tmp_path / "none")
    with serving(*offers.models) as client:
        tab = open_tab(client, ready="#model-list button")
        page = tab.page
        assert [model.loaded for model in offers.models] == [False, False]
        page.evaluate("""() => new MutationObserver(() => {
          const told = document.querySelector('.message')?.innerText;
          if (told === 'Loading bahdanau …') document.body.dataset.told = 'loading';
        }).observe(document.querySelector('#panes'), {childList: true, subtree: true, characterData: true})""")
        page.locator("#model-list button", has_text="bahdanau").first.click()
        page.locator("#examples button").first.click()
        page.wait_for_function("document.body.dataset.told === 'loading'")
        page.locator(".view canvas").wait_for(timeout=60_000)
        assert [model.name for model in offers.models if model.loaded] == ["bahdanau"]
        tab.settle()
        page.get_by_role("button", name="All models").click()
        page.locator("#model-list button").first.wait_for()
        assert page.locator(".pane").count() == 0


def test_a_model_that_was_offered_is_compared_with_itself_on_another_text(open_tab, run_of, tmp_path):
    """Whatever else is in memory: nobody chose it here."""
    for name in ("bahdanau", "transformer"):
        shutil.copytree(run_of(name), tmp_path / name)
    offers = find_offers(tmp_path, tmp_path / "none")
    for model in offers.models:
        model.load()
    with serving(*offers.models) as client:
        tab = open_tab(client, ready="#model-list button")
        page = tab.page
        page.locator("#model-list button", has_text="bahdanau").first.click()
        page.fill("#text", "My sister.")
        page.locator(".view canvas").wait_for(timeout=60_000)
        page.locator("#add").click()
        assert page.locator(".pane textarea").first.input_value() == "My sister."
        page.locator(".pane textarea:visible").nth(1).fill("My brother.")
        page.locator(".pane .view canvas").nth(1).wait_for(timeout=60_000)
        assert page.locator(".pane-head select").evaluate_all(
            "all => all.map((one) => one.selectedOptions[0].text)"
        ) == ["bahdanau", "bahdanau"]


def test_every_name_of_an_answer_is_in_both_languages(open_tab):
    """Those of all tasks and of models of Hugging Face."""
    from regard.page import pretrained_model
    from regard.tasks import registry

    names = set(re.findall(r'Answer\("([^"]+)"', Path(pretrained_model.__file__).read_text("utf-8")))
    names |= set(re.findall(r'(?:label|choice)="([^"]+)"', Path(pretrained_model.__file__).read_text("utf-8")))
    for task in map(registry.find, registry.BUILT_IN_TASKS):
        names |= {task.answer_name, task.choice_name} - {""}
    with serving(Echo()) as client:
        tab = open_tab(client, locale="zh-CN")
        shown = tab.page.evaluate(
            """async (names) => {
              const { answerElements } = await import('./static/answer.js');
              return names.map((label) => answerElements({ label, text: 'x', ranked: [], notes: [] })[0].innerText);
            }""",
            sorted(names),
        )
    assert len(names) > 8
    assert all(re.search("[\u4e00-\u9fff]", text) for text in shown), dict(zip(sorted(names), shown, strict=True))


def test_the_page_speaks_chinese_where_the_browser_does(open_tab, run_of):
    with serving(Echo(), *open_models([run_of("transformer")])) as client:
        tab = open_tab(client, locale="zh-CN")
        page = tab.page
        page.fill("#text", SENTENCE)
        tab.wait_for(SENTENCE)
        page.locator(".view canvas").first.wait_for(timeout=60_000)
        tab.settle()
        assert page.evaluate("document.documentElement.lang") == "zh"
        own = page.locator("body > header p, label[for=text], #add, .remove, #tools label").all_inner_texts()
        assert len(own) == 7
        assert all(re.search("[\u4e00-\u9fff]", text) for text in own), own
        page.get_by_role("button", name="English").click()
        assert page.locator("#add").inner_text() == "Add another"
        assert page.locator(".view canvas").first.is_visible()


def test_two_tabs_do_not_replace_each_other(open_tab):
    model = Echo()
    with serving(model) as client:
        first, second = open_tab(client), open_tab(client)
        first.page.fill("#text", "wait")
        assert model.started.wait(30)
        second.page.fill("#text", "second")
        threading.Timer(0.5, model.release.set).start()
        second.wait_for("second")
        first.wait_for("wait")


def test_an_image_is_chosen_tried_and_read(open_tab, image_run):
    """A file input instead of the text; the answer is that of the run; the view is an image."""
    path = image_run("caption-soft")
    trained = regard.load(path)
    with serving(*open_models([path])) as client:
        tab = open_tab(client)
        page = tab.page
        assert not page.locator("#input").is_visible()
        assert page.evaluate("document.activeElement.id") == "file"
        assert page.locator("#input-file label").inner_text() == "Image"
        assert "Choose an image" in page.locator(".message").inner_text()
        assert page.locator("#examples img").count() == 4
        page.set_input_files("#file", path / "corpus" / "test-3.png")
        tab.wait_for(trained.predict([path / "corpus" / "test-3.png"])[0].answer_text)
        assert page.locator(".view canvas").count()
        page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": b"no image"})
        page.locator(".error").filter(has_text="is not an image that can be read").wait_for(timeout=60_000)
        tab.errors.clear()  # the browser logs the status 422


def test_a_model_of_texts_and_one_of_images_side_by_side(open_tab, run_of, image_run):
    with serving(*open_models([run_of("bahdanau"), image_run("images-vit")])) as client:
        tab = open_tab(client)
        page = tab.page
        assert page.locator("#input").is_visible()
        assert page.locator("#input-file").is_visible()
        page.locator("#examples .thumbnail").first.click()
        page.locator("#examples .example-text").first.click()
        found = regard.load(image_run("images-vit")).predict([image_run("images-vit") / "corpus" / "test-1.png"])[0]
        tab.wait_for(found.answer_text, pane=1)
        page.locator(".pane").nth(0).locator(".answer-text").wait_for(timeout=60_000)


def test_the_language_of_the_command_is_that_of_the_page(open_tab):
    with serving(Echo(), language="zh") as client:
        tab = open_tab(client, locale="en-US")
        tab.page.get_by_role("button", name="English").wait_for()
        assert tab.page.evaluate("document.documentElement.lang") == "zh"
