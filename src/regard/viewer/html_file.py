"""A payload → one HTML file that is complete, and whose policy allows it to load and send nothing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.records.html_document import html_document

PAGE_STYLE = (
    "html,body{margin:0;height:100%}body{background:Canvas;color:CanvasText}"
    "#viewer{height:100vh;height:100dvh}noscript{display:block;padding:1em;font:1rem system-ui,sans-serif}"
    "@media print{#viewer{height:auto}}"
)

START_SCRIPT = """
const regardInput = JSON.parse(document.getElementById("input").textContent);
mount(document.getElementById("viewer"), regardInput.payload, { ...regardInput.options, address: true });
"""


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

    The payload is a block of JSON without ``<``, ``>`` or ``&``, so that no text can end the block; scripts and styles
    run only if they have the hash that the policy names, and nothing can be loaded.
    """
    body = (
        '<main id="viewer"></main>\n<noscript>This view of attention weights needs JavaScript.</noscript>\n'
        f'<script type="application/json" id="input">{inert_json({"payload": payload, "options": options})}</script>\n'
    )
    script, language = "\n" + module_text() + START_SCRIPT, options.get("language", "en")
    return html_document(str(payload["title"]), PAGE_STYLE, body, script=script, language=language)


def inert_json(value: Any) -> str:
    """Returns JSON in ASCII, without characters that have a meaning in HTML."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
