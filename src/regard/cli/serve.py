"""``regard serve``: a local page that shows models' answers to a typed text, and their attention."""

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from regard.cli.option_errors import options_named
from regard.cli.option_types import Device, Language, ModelThreads, between, use_threads
from regard.errors import ArgumentError
from regard.names.counted import counted

if TYPE_CHECKING:
    from regard.page.reading import ServedModel

PORT = 8765

Models = Annotated[
    list[str] | None,
    Parameter(
        help="Run folders, hf://OWNER/NAME of runs, or folders of Hugging Face models; several are compared. Default: "
        "the runs in --runs and the models in the Hugging Face cache, each of which is loaded when it is chosen.",
        negative=(),
    ),
]
Runs = Annotated[Path, Parameter(help="Folder whose runs are offered if no model is named.")]
Port = Annotated[int, Parameter(validator=between(0, 65535), help="Port on this machine; 0: any that is free.")]
Open = Annotated[
    bool | None,
    Parameter(
        name="--open", negative="--no-browser", help="Open the page in the browser. Default: if there is a desktop."
    ),
]


def command(
    models: Models = None,
    /,
    *,
    runs: Runs = Path("runs"),
    port: Port = PORT,
    open_page: Open = None,
    language: Language = None,
    threads: ModelThreads = 0,
    device: Device = "cpu",
) -> None:
    """Serve a local page: type a text, and see the models' answers and their attention.

    The page can be opened only on this machine. Its address, with a secret token, is printed; Ctrl-C ends it.

    regard serve

    regard serve runs/demo

    regard serve runs/none runs/bahdanau runs/transformer --port 0
    """
    from regard.page.server import PageServer, listen, require_server

    require_server()
    use_threads(threads)
    # The port is opened before the models are loaded, so that a port in use is reported at once.
    with closing(listen(port)) as listening:
        from regard.page.models import open_models

        with options_named({"device": "--device"}):
            opened = open_models(models, device) if models else offered_models(runs, device)
        server = PageServer(opened, listening, language)

        def ready() -> None:
            print(f"regard: {server.address}\nregard: Ctrl-C ends the page", flush=True)
            if has_desktop() if open_page is None else open_page:
                import webbrowser

                webbrowser.open(server.address)

        server.run(ready)
    print("regard: the page is closed", file=sys.stderr, flush=True)
    if server.busy:
        # A computation cannot be stopped, and PyTorch's threads must not outlive the interpreter.
        sys.stdout.flush()
        os._exit(0)


def offered_models(runs: Path, device: str) -> "list[ServedModel]":
    """Returns the models on this machine and prints them; without any, prints what to do and ends the command."""
    from regard.page.offers import find_offers, hub_cache

    if runs.exists() and not runs.is_dir():
        raise ArgumentError(
            f"--runs must be a folder of run folders; {str(runs)[:200]!r} is a file: write regard serve --runs "
            "runs, or name one run: regard serve runs/demo"
        )
    cache = hub_cache()
    offers = find_offers(runs, cache, device)
    for line in offers.left_out:
        print(f"regard: not offered: {line}", file=sys.stderr)
    if not offers.models:
        none = f"no finished run in {runs}" if runs.is_dir() else f"there is no folder {runs}"
        lines = (
            f"there is no model to show: {none}, and none with safetensors in {cache}",
            "to train a small translator (some minutes):   regard demo",
            "to open a folder of a model:                  regard serve path/to/folder",
            "to download one, which is then offered here:  hf download sentence-transformers/all-MiniLM-L6-v2",
        )
        for line in lines:
            print(f"regard: {line}", file=sys.stderr)
        sys.exit(2)
    print(f"regard: {counted(len(offers.models), 'model')} found; each is loaded when it is chosen")
    return [*offers.models]


def has_desktop() -> bool:
    """Whether this terminal belongs to a desktop with a browser."""
    if not sys.stdout.isatty():
        return False
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
