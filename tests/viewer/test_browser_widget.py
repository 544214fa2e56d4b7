"""The widget's module in a browser, driven through what anywidget gives a module: a model and an element."""

import json

import pytest

import viewer_documents as documents
from regard.viewer import View, tile_payload

PAGE = """<!DOCTYPE html><meta charset="utf-8"><style>div { height: 420px }</style>
<div id="one"></div><div id="two"></div>
<script type="module">
const { default: source } = await import(URL.createObjectURL(new Blob([ESM], { type: "text/javascript" })));
class Model {
  constructor(values) { this.values = values; this.handlers = []; this.sent = []; }
  get(name) { return this.values[name]; }
  set(name, value) { this.values[name] = value; this.emit(`change:${name}`); }
  on(name, handler) { this.handlers.push([name, handler]); }
  off(name, handler) { this.handlers = this.handlers.filter(([one, other]) => one !== name || other !== handler); }
  emit(name, ...given) { for (const [one, handler] of [...this.handlers]) if (one === name) handler(...given); }
  send(message) { this.sent.push(message); }
}
window.models = {};
window.dispose = {};
window.start = async (id, values) => {
  const model = window.models[id] = new Model(values);
  window.dispose[id] = await source.render({ model, el: document.getElementById(id) });
};
window.ready = true;
</script>"""


@pytest.fixture
def page(pages, tmp_path):
    pytest.importorskip("anywidget")
    from regard.viewer.widget import widget

    module = widget(documents.alignment()[0])._esm
    place = tmp_path / "widget.html"
    text = json.dumps(str(module)).replace("</", "<\\/").replace("<!--", "<\\!--")
    place.write_text(PAGE.replace("ESM", text, 1), encoding="utf-8")
    complaints = []
    listeners = {
        "pageerror": lambda error: complaints.append(str(error)),
        "console": lambda message: complaints.append(message.text) if message.type == "error" else None,
    }
    with pages.opened(900, 900, listeners, offline=True) as opened:
        opened.goto(place.as_uri())
        opened.wait_for_function("window.ready")
        yield opened
    assert not complaints


def start(page, name, record, **options):
    view = View(record, **options)
    values = {"payload": view.payload(), "options": view.options(), "height": 400}
    page.evaluate("([name, values]) => window.start(name, values)", [name, values])
    page.locator(f"#{name} [role=tabpanel][aria-busy=false]").wait_for()


def state(page, name):
    return page.evaluate(f"document.getElementById('{name}').regardView.state()")


def test_two_widgets_are_apart(page):
    start(page, "one", documents.alignment()[0])
    start(page, "two", documents.causal()[0], view="lines")
    assert (state(page, "one")["view"], state(page, "two")["view"]) == ("pattern", "lines")
    page.locator("#one canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.locator("#one .readout", has_text="q0").wait_for()
    assert state(page, "one")["locked"] == [0]
    assert state(page, "two")["locked"] == []
    assert page.locator("#two .readout").text_content() == ""


def test_a_new_payload_is_shown(page):
    start(page, "one", documents.alignment()[0])
    title = page.locator("#one h2").text_content()
    payload = View(documents.causal()[0]).payload()
    page.evaluate("payload => window.models.one.set('payload', payload)", payload)
    page.locator("#one h2", has_text=documents.causal()[0].name).wait_for()
    assert page.locator("#one h2").text_content() != title


def test_exact_tiles_come_from_the_kernel(page):
    record, weights = documents.tiled(length=300)
    start(page, "one", record, budget_bytes=0, head="mean")
    page.locator("#one canvas").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    answered = 0
    while "exact;" not in page.locator("#one .readout").text_content():
        page.wait_for_function("count => window.models.one.sent.length > count", arg=answered)
        message = page.evaluate("count => window.models.one.sent[count]", answered)
        answered += 1
        number, q0, q1, k0, k1 = message["tile"]
        assert number == 0
        answer = {"id": message["id"], "tile": tile_payload(record, (q0, q1), (k0, k1))}
        page.evaluate("answer => window.models.one.emit('msg:custom', answer)", answer)
        page.wait_for_timeout(100)
    text = page.locator("#one .readout").text_content()
    value = float(text.split(": ")[1].split()[0].replace("−", "-"))
    assert value == pytest.approx(weights[:, int(text.split()[1]), 0].mean().item(), abs=5e-5)
    # Each question that has its answer is forgotten.
    sent, heard = page.evaluate(
        "[models.one.sent.length, models.one.handlers.filter(([name]) => name === 'msg:custom').length]"
    )
    assert heard == sent - answered


def test_a_disposed_widget_leaves_nothing(page):
    start(page, "one", documents.alignment()[0])
    start(page, "two", documents.alignment()[0])
    page.evaluate("window.dispose.one()")
    assert page.evaluate("window.models.one.handlers.length") == 0
    assert page.locator("#one canvas").count() == 0
    page.evaluate("window.models.one.set('payload', null)")  # goes nowhere
    page.locator("#two canvas").focus()
    page.keyboard.press("ArrowRight")
    page.locator("#two .readout", has_text="q0").wait_for()
