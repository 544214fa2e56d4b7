"""A whole HTML document, whose policy allows nothing but its own style and script: it loads and sends nothing."""

import base64
import hashlib
import html

LANGUAGE_TAGS = {"en": "en", "zh": "zh-Hans"}


def html_document(
    title: str, style: str, body: str, *, script: str = "", inserted: str = "", language: str = "en"
) -> str:
    """Returns a document: scripts and styles run only if they have the hash that its content security policy names.

    Args:
        title: any text.
        style: the style sheet; attributes ``style`` in the body have no effect.
        body: the HTML of the body, in which all texts are escaped.
        script: an ES module at its end; "": none.
        inserted: the text of a script that the module inserts; "": none.
        language: ``"en"`` or ``"zh"``.
    """
    hashes = " ".join(f"'{_hash(text)}'" for text in (script, inserted) if text)
    sources = f"script-src {hashes}; " if hashes else ""
    policy = (
        f"default-src 'none'; {sources}style-src '{_hash(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    module = f'<script type="module">{script}</script>\n' if script else ""
    return (
        f'<!DOCTYPE html>\n<html lang="{LANGUAGE_TAGS[language]}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{html.escape(plain(title)[:200] or 'regard')}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n{body}{module}</body>\n</html>\n"
    )


def iframe(page: str, height: int, title: str) -> str:
    """Returns a page inside another one, in a sandbox: its script runs, and cannot access the page around it."""
    return (
        f'<iframe sandbox="allow-scripts allow-downloads" title="{html.escape(plain(title)[:200])}" '
        f'style="width:100%;height:{height}px;border:0" srcdoc="{html.escape(page)}"></iframe>'
    )


def plain(text: str) -> str:
    """Returns a text in one line, without control characters and lone surrogates."""
    return "".join(c if c.isprintable() else " " for c in text).encode("utf-8", "replace").decode("utf-8").strip()


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
