"""What a viewer leaves behind on its page: nothing."""

import json

import viewer_documents as documents
from regard.viewer import module_path, payload

ROUNDS = """async (rounds) => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const shown = async (view) => {
    const stage = view.shadowRoot.getElementById('stage');
    for (let frames = 0; frames < 2 || stage.getAttribute('aria-busy') !== 'false'; frames += 1) await frame();
  };
  for (let round = 0; round < rounds; round += 1) {
    const place = document.createElement('div');
    place.style.height = '500px';
    document.body.append(place);
    const view = mount(place, payload, { address: true });
    view.onChange(() => place.id);
    await shown(place);
    const names = [...place.shadowRoot.querySelectorAll('[role=tab]')].map((tab) => tab.id.slice(4));
    view.show(names[round % names.length]);
    if (round % 2) await shown(place); // or destroyed while it is being built
    view.update(payload);
    view.destroy();
    place.remove();
  }
  await frame();
}"""

CLASSES = ("HTMLCanvasElement", "ShadowRoot", "ResizeObserver", "MediaQueryList", "AbortController", "AudioContext")


def test_viewers_that_were_destroyed_leave_nothing(browser):
    """Elements, observers and listeners after 26 more viewers are those after the first few."""
    document = documents.everything()
    page = browser.new_page()
    page.route("http://page.test/**", lambda route: route.fulfill(body="<!doctype html>", content_type="text/html"))
    page.goto("http://page.test/")
    given = json.dumps(payload(document)).replace("</", "<\\/")
    page.add_script_tag(
        type="module",
        content=module_path().read_text(encoding="utf-8") + f"\nObject.assign(window, {{ mount, payload: {given} }});",
    )
    page.wait_for_function("Boolean(window.payload)")
    session = page.context.new_cdp_session(page)

    def counts(classes=CLASSES):
        session.send("HeapProfiler.collectGarbage")
        found = {}
        for name in classes:
            prototype = session.send("Runtime.evaluate", {"expression": f"{name}.prototype"})["result"]["objectId"]
            objects = session.send("Runtime.queryObjects", {"prototypeObjectId": prototype})["objects"]["objectId"]
            answer = session.send(
                "Runtime.callFunctionOn",
                {"objectId": objects, "functionDeclaration": "function () { return this.length; }"},
            )
            found[name] = answer["result"]["value"]
            session.send("Runtime.releaseObject", {"objectId": objects})
        for name in ("window", "document", "document.body"):
            target = session.send("Runtime.evaluate", {"expression": name})["result"]["objectId"]
            found[name] = len(session.send("DOMDebugger.getEventListeners", {"objectId": target})["listeners"])
        return found

    def settled():
        # The browser may keep a canvas for some frames more; what leaks it never releases.
        for _ in range(20):
            if not counts(CLASSES[:1])["HTMLCanvasElement"]:
                break
            page.evaluate("() => new Promise((done) => requestAnimationFrame(done))")
        return counts()

    page.evaluate(ROUNDS, 8)
    first = settled()
    page.evaluate(ROUNDS, 26)
    assert settled() == first
    page.close()
