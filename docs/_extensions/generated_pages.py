"""The pages that a build makes, and how it writes them. It imports the standard library alone, for `docs/build.py`."""

from pathlib import Path

ROOT = Path(__file__).parents[2]


def generated() -> list[Path]:
    """What there is of the pages and folders in docs that a build makes: .gitignore names them."""
    patterns = [line for line in (ROOT / ".gitignore").read_text("utf-8").splitlines() if "docs/" in line]
    return [
        path
        for pattern in patterns
        for path in ROOT.glob(pattern.strip("/"))
        if path.is_dir() or not pattern.endswith("/")
    ]


def write_page(path: Path, text: str) -> None:
    """Writes a page, unless it is as it was: Sphinx reads again what is newer."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
