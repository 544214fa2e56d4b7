"""Builds the site into build/site: English, then Chinese, which refers to the English pages.

::

    python docs/build.py            warnings are errors; pages whose cells did not change are not run again
    python docs/build.py --draft    warnings are printed
    python docs/build.py --fresh    everything anew: each page is run
    python docs/build.py --open     the site in the browser afterwards, where there is one
"""

import argparse
import os
import shutil
import subprocess
import sys
import webbrowser
from pathlib import Path

from _extensions.generated_pages import generated

DOCS = Path(__file__).parent
BUILD = DOCS.parent / "build"
LANGUAGES = {"en": "en", "zh": "zh_CN"}


def build(folder: str, is_draft: bool) -> None:
    """Builds one language; all of it anew where the last build did not end well, since what it left is unknown."""
    unfinished = BUILD / "doctrees" / f"{folder}.unfinished"
    # More processes than cores: a page that starts its kernel leaves a core to another one.
    processes = str(2 * (os.cpu_count() or 1))
    arguments = ["-b", "html", "-q", "-j", processes, "-c", str(DOCS)]
    arguments += [] if is_draft else ["-W", "--keep-going"]
    arguments += ["-E", "-a"] if unfinished.exists() else []
    arguments += ["-d", str(BUILD / "doctrees" / folder), str(DOCS / folder), str(BUILD / "site" / folder)]
    # The kernels that run the cells do not read the user's own configuration of IPython.
    kernels = {"IPYTHONDIR": str(BUILD / "ipython"), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, "REGARD_DOCS_LANGUAGE": LANGUAGES[folder], **kernels}
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    unfinished.touch()
    subprocess.run([sys.executable, "-m", "sphinx", *arguments], check=True, env=environment)
    if not is_draft:
        unfinished.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draft", action="store_true", help="warnings do not end the build with an error")
    parser.add_argument("--fresh", action="store_true", help="removes what an earlier build made, and runs each page")
    parser.add_argument("--open", action="store_true", help="opens the site in the browser")
    options = parser.parse_args()
    if options.fresh:
        remove_built()
    for folder in LANGUAGES:
        try:
            build(folder, options.draft)
        except subprocess.CalledProcessError:
            sys.exit(f"docs/{folder} was not built: the messages above say why")
    site = BUILD / "site" / "index.html"
    shutil.copyfile(DOCS / "languages.html", site)
    print(site)
    if options.open and not os.environ.get("CI") and has_display():
        webbrowser.open(site.as_uri())


def remove_built() -> None:
    """Removes what a build makes: the site, what Sphinx keeps, and the generated pages."""
    for path in (BUILD / "site", BUILD / "doctrees", BUILD / "cells", *generated()):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def has_display() -> bool:
    """Whether a browser could show a window: a server's text browser would take over the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


if __name__ == "__main__":
    main()
