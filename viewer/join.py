"""Joins the viewer's modules into the one file that the package ships: ``python viewer/join.py``.

The modules use named imports alone, their names differ, and their imports make no circle. So they are joined by writing
each one below those that it imports, without its lines of import and its words ``export``; `EXPORTED` is exported.
Lines of comments and indentation stay behind, since each saved file has the viewer in it.

Git ignores the joined file: the build of a wheel or of an editable installation writes it (`hatch_build.py`), and so do
``make`` and the tests. Its first line has the digest of its sources, by which `regard.viewer` refuses a file that
differs from them.
"""

import hashlib
import os
import re
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent
MODULES = ROOT / "modules"
SHIPPED = ROOT.parent / "src" / "regard" / "viewer" / "viewer.js"
HEAD = "// The viewer, joined from the modules in viewer/modules by viewer/join.py: change those. Sources: {digest}\n"

IMPORT = re.compile(r'^import \{[^}]*\} from "([^"]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:const|let|function|class) )", re.MULTILINE)
NAMES = re.compile(
    r"^(?:export )?(?:async )?(?:const|let|function|class) (?:\[([^\]]+)\]|\{([^}]+)\}|([\w$]+))", re.MULTILINE
)


EXPORTED = ("addressOf", "mount", "percent", "say", "speak", "stateOf")
"""What the shipped file exports: the viewer, its words and percents, and a state as a part of an address."""


def read_modules() -> dict[Path, str]:
    """The text of each module, by its path."""
    return {path.resolve(): path.read_text(encoding="utf-8") for path in sorted(MODULES.rglob("*.js"))}


def in_order(modules: dict[Path, str]) -> list[Path]:
    """Each module below those that it imports; ValueError if it imports another file, CycleError on a circle."""
    imported = {
        path: [(path.parent / name).resolve() for name in IMPORT.findall(text)] for path, text in modules.items()
    }
    for path, others in imported.items():
        for other in others:
            if other not in modules:
                raise ValueError(f"{path.name} imports {other.name}, which is no module of the viewer")
    return list(TopologicalSorter(imported).static_order())


def check_names(modules: dict[Path, str]) -> None:
    """ValueError if two modules have one name for different things."""
    owners: dict[str, Path] = {}
    for path, text in modules.items():
        for groups in NAMES.findall(text):
            for name in re.split(r",\s*", "".join(groups).strip()):
                if owners.setdefault(name, path) != path:
                    raise ValueError(f"{path.name} and {owners[name].name} both have the name {name}")


def sources_digest() -> str:
    """The SHA-256 of the joiner and the modules, as `regard.viewer.html_file` computes it in a checkout."""
    sources = [Path(__file__), *sorted(MODULES.rglob("*.js"))]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()


def without_comments(text: str) -> str:
    """The text without lines of comments, blank lines and indentation, but for those of texts in backquotes."""
    lines = []
    in_text = in_comment = False
    for line in text.splitlines():
        words = line.strip()
        if in_text:
            lines.append(line)
        elif in_comment or words.startswith("/*"):
            if "*/" in words and not words.endswith("*/"):
                raise ValueError(f"a comment of its own lines must end its line: {words}")
            in_comment = not words.endswith("*/")
            continue
        elif words and not words.startswith("//"):
            lines.append(words)
        else:
            continue
        in_text ^= line.count("`") % 2 == 1
    return "\n".join(lines)


def joined() -> str:
    """The text of the shipped file."""
    modules = read_modules()
    check_names(modules)
    parts = []
    for path in in_order(modules):
        body = IMPORT.sub("", modules[path]).replace("// @ts-check\n", "", 1)
        if re.search(r"^import\b", body, re.MULTILINE):
            raise ValueError(f'{path.name} must import as import {{ name }} from "./module.js"; on one line or several')
        body = EXPORT.sub(lambda found: "", body)
        parts.append(f"// {path.relative_to(MODULES.resolve()).as_posix()}\n{without_comments(body)}\n")
    return HEAD.format(digest=sources_digest()) + "\n" + "\n".join(parts) + f"\nexport {{ {', '.join(EXPORTED)} }};\n"


def write() -> None:
    """Writes the shipped file if it is missing or has another text; a reader never meets a part of it."""
    text = joined()
    if SHIPPED.is_file() and SHIPPED.read_text(encoding="utf-8") == text:
        return
    partial = SHIPPED.with_name(f"{SHIPPED.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8", newline="\n")
    partial.replace(SHIPPED)


if __name__ == "__main__":
    write()
