"""Builds the site into build/site: English, then Chinese, which refers to the English pages."""

import os
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
SITE = DOCS.parent / "build" / "site"
LANGUAGES = {"en": "en", "zh": "zh_CN"}


def build(folder: str, options: list[str]) -> None:
    arguments = ["-b", "html", "-W", "--keep-going", "-j", "2", "-c", str(DOCS), "-D", f"language={LANGUAGES[folder]}"]
    arguments += ["-d", str(DOCS.parent / "build" / "doctrees" / folder), *options, str(DOCS / folder), str(SITE / folder)]
    environment = {**os.environ, "REGARD_DOCS_LANGUAGE": LANGUAGES[folder]}
    subprocess.run([sys.executable, "-m", "sphinx", *arguments], check=True, env=environment)


if __name__ == "__main__":
    for folder in LANGUAGES:
        build(folder, sys.argv[1:])
