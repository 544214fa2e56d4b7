"""A payload → one HTML file that is complete, and whose policy allows it to load and send nothing."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.records.html_document import html_document
from regard.viewer.encoding import packed

PAGE_STYLE = (
    "html,body{margin:0;height:100%}body{background:Canvas;color:CanvasText}"
    "#viewer{height:100vh;height:100dvh}noscript{display:block}noscript,p{padding:1em;font:1rem system-ui,sans-serif}"
    "@media print{#viewer{height:auto}}"
)

NO_SCRIPT = 'This view of attention weights needs JavaScript. <span lang="zh-Hans">此注意力视图需要 JavaScript。</span>'
OLD_BROWSER = (
    "This browser is too old for this page: it cannot unpack it (DecompressionStream is missing). "
    '<span lang="zh-Hans">此浏览器版本过旧，无法解压本页（缺少 DecompressionStream）。</span>'
)

START_SCRIPT = """
const followLanguage = () => { document.documentElement.lang = languageTag(); };
onSpeak(followLanguage);
const regardInput = JSON.parse(document.getElementById("input").textContent);
mount(document.getElementById("viewer"), regardInput.payload, { ...regardInput.options, address: true });
followLanguage();
"""

LOADER = """
if (typeof DecompressionStream === "undefined") {
  document.getElementById("old-browser").hidden = false;
} else {
  const binary = atob(document.getElementById("module").textContent);
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place += 1) bytes[place] = binary.charCodeAt(place);
  const script = document.createElement("script");
  script.type = "module";
  script.textContent = await new Response(
    new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  document.body.append(script);
}
"""
"""Inserts the script that a page has compressed. The policy names the hash of its text, so that no other can run."""


def module_path() -> Path:
    """Returns the path of the viewer's ES module, which exports ``mount(element, payload, options)``.

    The module imports nothing. An installed package has it. In a checkout it is built, by ``make viewer`` or the
    installation of the checkout.

    Raises:
        DataError: in a checkout, the file is missing or was written from other sources.

    Example:
        >>> from regard import viewer
        >>> path = viewer.module_path()
        >>> path.name, "function mount(element, payload, options" in path.read_text("utf-8")
        ('viewer.js', True)
    """
    path = Path(__file__).with_name("viewer.js")
    sources = Path(__file__).parents[3] / "viewer"
    if (sources / "join.py").is_file():
        _check_joined(path, sources)
    return path


def _check_joined(path: Path, sources: Path) -> None:
    """Raises DataError if the first line of the joined module lacks the digest that its sources in a checkout have."""
    files = [sources / "join.py", *sorted((sources / "modules").rglob("*.js"))]
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
    first = ""
    if path.is_file():
        with path.open(encoding="utf-8") as lines:
            first = lines.readline()
    if digest not in first:
        state = f"differs from the modules in {sources / 'modules'}" if first else "is missing"
        raise DataError(f"{path} {state}; write it with: python {sources / 'join.py'} (or make viewer)")


def module_text() -> str:
    """Returns the source of the viewer's ES module."""
    return module_path().read_text(encoding="utf-8")


def html_page(payload: dict[str, Any], options: dict[str, Any]) -> str:
    """Returns a whole page: the module, the payload, and a content security policy that allows these alone.

    The module is compressed, and a loader inserts it. The payload is a block of JSON without ``<``, ``>`` or ``&``, so
    that no text can end the block; scripts and styles run only if they have the hash that the policy names, and nothing
    can be loaded.
    """
    script = module_text() + START_SCRIPT
    body = (
        f'<noscript>{NO_SCRIPT}</noscript>\n<p id="old-browser" hidden>{OLD_BROWSER}</p>\n<main id="viewer"></main>\n'
        f'<script type="application/json" id="input">{inert_json({"payload": payload, "options": options})}</script>\n'
        f'<script type="text/plain" id="module">{_compressed(script)}</script>\n'
    )
    language = "zh" if options.get("language") == "zh" else "en"
    return html_document(str(payload["title"]), PAGE_STYLE, body, script=LOADER, inserted=script, language=language)


@lru_cache(maxsize=1)
def _compressed(script: str) -> str:
    """Returns a script as pages carry it: the same bytes each time, compressed once."""
    return packed(script.encode("utf-8"))


def inert_json(value: Any) -> str:
    """Returns JSON in ASCII, without characters that have a meaning in HTML."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
