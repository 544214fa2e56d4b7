"""Builds the site into build/site: English, then Chinese, which refers to the English pages.

::

    python docs/build.py            warnings are errors
    python docs/build.py --draft    warnings are printed
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent
BUILD = DOCS.parent / "build"
LANGUAGES = {"en": "en", "zh": "zh_CN"}


def build(folder: str, is_draft: bool) -> None:
    arguments = ["-b", "html", "-q", "-j", "2", "-c", str(DOCS), "-D", f"language={LANGUAGES[folder]}"]
    arguments += [] if is_draft else ["-W", "--keep-going"]
    arguments += ["-d", str(BUILD / "doctrees" / folder), str(DOCS / folder), str(BUILD / "site" / folder)]
    environment = {**os.environ, "REGARD_DOCS_LANGUAGE": LANGUAGES[folder]}
    subprocess.run([sys.executable, "-m", "sphinx", *arguments], check=True, env=environment)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draft", action="store_true", help="warnings do not end the build with an error")
    options = parser.parse_args()
    for folder in LANGUAGES:
        build(folder, options.draft)
