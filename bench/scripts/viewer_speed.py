"""How large the viewer's files are, how soon they show something, and how fast they draw: in a headless Chromium.

    python -m bench.scripts.viewer_speed [--json FILE]

Two documents: 12 layers × 12 heads × 128 tokens, carried whole; and 100,000 tokens from a source of tiles.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

from regard.records import AttentionRecord, Document, TokenAxis
from regard.viewer import View

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from viewer_documents import planted

LAYERS, HEADS, TOKENS = 12, 12, 128

WATCH = """
window.tasks = [];
new PerformanceObserver((list) => window.tasks.push(
  ...list.getEntries().map((task) => [task.startTime, task.duration])))
  .observe({ type: 'longtask', buffered: true });
window.firstFrame = new Promise((done) => {
  const look = () => {
    const stage = document.getElementById('viewer')?.shadowRoot?.getElementById('stage');
    if (stage?.getAttribute('aria-busy') === 'false') done(performance.now());
    else requestAnimationFrame(look);
  };
  look();
});
"""

FRAMES = """
async (step) => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const canvas = document.getElementById('viewer').shadowRoot.querySelector('canvas');
  const scroll = canvas.parentElement;
  const box = canvas.getBoundingClientRect();
  const move = (x, y) => canvas.dispatchEvent(new PointerEvent('pointermove', {
    clientX: box.left + x, clientY: box.top + y, bubbles: true, pointerType: 'mouse', pointerId: 1 }));
  const times = [];
  let before = await frame();
  for (let count = 0; count < 90; count += 1) {
    if (step === 'hover') move(200 + 5 * count, 160 + 3 * count);
    else scroll.scrollTo(300 + 6 * count, 300 + 4 * count);
    const now = await frame();
    times.push(now - before);
    before = now;
  }
  return times;
}
"""


def layers() -> Document:
    """Weights as trained models have them: some heads look at one key, some around the query, some everywhere."""
    random = np.random.default_rng(0)
    tokens = TokenAxis(tuple(f"token{number}" for number in range(TOKENS)))
    distance = np.abs(np.arange(TOKENS)[:, None] - np.arange(TOKENS)[None, :])
    records = []
    for layer in range(LAYERS):
        kind = random.random((HEADS, 3, 1, 1)) * np.array([6.0, 0.5, 2.0])[None, :, None, None]
        scores = kind[:, 0] * (np.arange(TOKENS) == 0) - kind[:, 1] * distance
        scores = scores + kind[:, 2] * random.standard_normal((HEADS, TOKENS, TOKENS))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        records.append(AttentionRecord(f"layer.{layer}", layer, "self", tokens, tokens, weights.astype(np.float32)))
    return Document("12 layers, 12 heads, 128 tokens", tuple(records))


def measure(browser, view: View, folder: Path, views: tuple[str, ...]) -> dict:
    """Bytes, milliseconds until the first picture, milliseconds a frame, long tasks after that, bytes of the heap."""
    place = view.save(folder / "view.html")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.add_init_script(WATCH)
    page.goto(place.as_uri())
    found = {"bytes": place.stat().st_size, "first_paint_ms": page.evaluate("window.firstFrame")}
    page.wait_for_timeout(1500)
    loaded = page.evaluate("performance.now()")
    for name in views:
        page.evaluate("(name) => document.getElementById('viewer').regardView.show(name)", name)
        page.wait_for_timeout(400)
        for step in ("hover", "pan"):
            if step == "pan" and name in ("alignment", "long"):
                for _ in range(4):
                    page.get_by_role("button", name="Zoom in").click()
            found[f"{name}_{step}_ms"] = statistics.median(page.evaluate(FRAMES, step))
    tasks = page.evaluate("window.tasks")
    found["longest_task_ms"] = max((duration for _, duration in tasks), default=0)
    found["longest_task_after_load_ms"] = max((duration for start, duration in tasks if start > loaded), default=0)
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    usage = session.send("Runtime.getHeapUsage")
    found["heap_bytes"] = int(
        usage["usedSize"] + usage.get("embedderHeapUsedSize", 0) + usage.get("backingStorageSize", 0)
    )
    page.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    cases = {
        "12 × 12 × 128": (View(layers()), ("alignment", "heads", "model", "text")),
        "100,000 tokens": (planted(), ("long",)),
    }
    results = {}
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for name, (view, views) in cases.items():
            results[name] = measure(browser, view, Path(folder), views)
            print(name)
            for figure, value in results[name].items():
                print(f"  {figure:28} {value:12,.1f}" if figure.endswith("_ms") else f"  {figure:28} {value:12,}")
        browser.close()
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
