"""How large the viewer's files are, how soon they show something, and how fast they draw: in a headless Chromium.

    python -m bench.scripts.viewer_speed [--json FILE]

12 layers × 12 heads × 128 tokens, carried whole; a calculation of 128 tokens; 100,000 tokens from a source of tiles;
and how long 24 layers × 16 heads × 512 tokens take to save."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import regard
from regard.records import AttentionRecord, Document, TokenAxis
from regard.viewer import View, steps_record

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
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
  const root = document.getElementById('viewer').shadowRoot;
  const canvas = root.querySelector('canvas');
  const scroll = canvas.parentElement;
  const box = canvas.getBoundingClientRect();
  const at = (kind, x, y, more) => canvas.dispatchEvent(new kind.type(kind.name, {
    clientX: box.left + x, clientY: box.top + y, bubbles: true, cancelable: true, ...more }));
  const pointer = { type: PointerEvent, name: 'pointermove' };
  const wheel = { type: WheelEvent, name: 'wheel' };
  const moves = {
    hover: (count) => at(pointer, 200 + 5 * count, 160 + 3 * count, { pointerType: 'mouse', pointerId: 1 }),
    pan: (count) => scroll.scrollTo(300 + 6 * count, 300 + 4 * count),
    zoom: (count) => at(wheel, 400, 300, { ctrlKey: true, deltaY: count < 30 ? 30 : -30 }),
    slide: (count) => {
      const slider = root.querySelector('input[type=range]');
      slider.value = String(Number(slider.min) + (count / 90) * (slider.max - slider.min));
      slider.dispatchEvent(new Event('input', { bubbles: true }));
    },
  };
  const times = [];
  let before = await frame();
  for (let count = 0; count < 90; count += 1) {
    moves[step](count);
    const now = await frame();
    times.push(now - before);
    before = now;
  }
  times.push(await frame() - before);
  return times;
}
"""

ZOOMED = ("pattern", "long")


def layers(layers: int = LAYERS, heads: int = HEADS, tokens: int = TOKENS) -> Document:
    """Weights as trained models have them: some heads look at one key, some around the query, some everywhere."""
    random = np.random.default_rng(0)
    axis = TokenAxis(tuple(f"token{number}" for number in range(tokens)))
    positions = np.arange(tokens)
    distance = np.abs(positions[:, None] - positions[None, :])
    records = []
    for layer in range(layers):
        kind = random.random((heads, 3, 1, 1)) * np.array([6.0, 0.5, 2.0])[None, :, None, None]
        scores = kind[:, 0] * (positions == 0) - kind[:, 1] * distance
        scores = scores + kind[:, 2] * random.standard_normal((heads, tokens, tokens))
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        records.append(AttentionRecord(f"layer.{layer}", layer, "self", axis, axis, weights.astype(np.float32)))
    return Document(f"{layers} layers, {heads} heads, {tokens} tokens", tuple(records))


def calculation() -> View:
    """One head of 128 tokens with 64 dimensions, step by step."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 1, TOKENS, 64, generator=generator) for _ in range(3))
    return View(steps_record(regard.explain(query, key, value)))


def saving(folder: Path) -> dict:
    """Seconds until 24 layers × 16 heads × 512 tokens are a file, and its bytes."""
    document = layers(24, 16, 512)
    start = time.perf_counter()
    place = View(document).save(folder / "large.html")
    return {"save_ms": 1000 * (time.perf_counter() - start), "bytes": place.stat().st_size}


def work(session) -> float:
    """Milliseconds that the page's thread has worked."""
    return (
        1000 * {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}["TaskDuration"]
    )


def measure(browser, view: View, folder: Path, views: tuple[str, ...]) -> dict:
    """Bytes, milliseconds until the first picture, milliseconds a frame, long tasks after that, bytes of the heap.

    Frames are the median and the longest of a step, and the page's own work, which other programs do not change.
    """
    place = view.save(folder / "view.html")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.add_init_script(WATCH)
    page.goto(place.as_uri())
    found = {"bytes": place.stat().st_size, "first_paint_ms": page.evaluate("window.firstFrame")}
    page.wait_for_timeout(1500)
    loaded = page.evaluate("performance.now()")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    longest = 0.0
    for name in views:
        page.evaluate("(name) => document.getElementById('viewer').regardView.show(name)", name)
        page.wait_for_timeout(400)
        for step in (
            ("hover", "slide") if name == "walk" else ("hover", "zoom", "pan") if name in ZOOMED else ("hover", "pan")
        ):
            before = work(session)
            times = page.evaluate(FRAMES, step)
            found[f"{name}_{step}_ms"] = statistics.median(times)
            found[f"{name}_{step}_longest_ms"] = max(times)
            found[f"{name}_{step}_work_ms"] = (work(session) - before) / len(times)
            longest = max(longest, *times)
    found["longest_frame_ms"] = longest
    tasks = page.evaluate("window.tasks")
    found["longest_task_ms"] = max((duration for _, duration in tasks), default=0)
    found["longest_task_after_load_ms"] = max((duration for start, duration in tasks if start > loaded), default=0)
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
        "12 × 12 × 128": (View(layers()), ("pattern", "lines", "grid", "words")),
        "calculation, 128 tokens": (calculation(), ("walk",)),
        "100,000 tokens": (planted(), ("long",)),
    }
    results = {}
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for name, (view, views) in cases.items():
            results[name] = measure(browser, view, Path(folder), views)
        browser.close()
        results["24 × 16 × 512"] = saving(Path(folder))
    for name, figures in results.items():
        print(name)
        for figure, value in figures.items():
            print(f"  {figure:28} {value:12,.1f}" if figure.endswith("_ms") else f"  {figure:28} {value:12,}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
