"""``regard export``: a trained run for other programs."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast

from cyclopts import Parameter

from regard.cli.option_errors import options_named
from regard.cli.option_types import ModelThreads, Run, use_threads
from regard.errors import ArgumentError, RunError
from regard.files.platforms import quoted

Format = Annotated[
    str | None,
    Parameter(
        help="Needed: torch (torch.export programs, which load without regard), onnx, or hf (a folder of Hugging Face "
        "transformers)."
    ),
]
Output = Annotated[
    Path | None,
    Parameter(
        name=["--output", "-o"],
        help="A new folder. Default: RUN-onnx, RUN-torch or RUN-hf; of a run on the hub, in the working directory.",
    ),
]
Overwrite = Annotated[bool, Parameter(help="Replace an export in this folder.")]
Int8 = Annotated[bool, Parameter(name="--int8", help="onnx: weights of 8 bits; says what that saves and loses.")]


def command(
    run: Run,
    /,
    to: Format = None,
    *,
    output: Output = None,
    overwrite: Overwrite = False,
    int8: Int8 = False,
    threads: ModelThreads = 0,
) -> None:
    """Write a trained run for other programs, and compare what they compute with the model.

    A classifier, a segmenter or a language model becomes one program; a model that writes a text, an encoder and a
    step of the decoder. export.json says what they take. If a model cannot be exported, the message says why.
    """
    from regard.training.run_folder import RunFolder

    if to is None:
        raise ArgumentError("--to needs a value: onnx, torch or hf; see regard export --help")
    to = to.lower()
    use_threads(threads)
    folder = RunFolder.open(run)
    from regard.exports.export import size_text
    from regard.tasks import registry
    from regard.training.hub import is_hub_address

    def report(line: str) -> None:
        print(f"regard: exporting {line}", file=sys.stderr)

    with options_named({"to": "--to", "int8": "--int8"}), _folder_options():
        trained = registry.of_run(folder).load(folder)
        source = Path(folder.path.name if is_hub_address(run) else run).absolute()
        target = source.with_name(f"{source.name}-{to}") if output is None else output
        exported = trained.export(cast(Any, to), _short(target), overwrite=overwrite, int8=int8, report=report)
    print("\n".join(exported.lines))
    width = max(map(len, exported.files))
    for name in exported.files:
        print(f"  {name:<{width}}  {size_text((exported.folder / name).stat().st_size)}")
    print(f"written: {exported.folder}")
    print(f"next: python -c {quoted(exported.usage)}")


@contextmanager
def _folder_options() -> Iterator[None]:
    """Replaces the arguments in the message about a folder that is not empty by the options of the command."""
    try:
        yield
    except RunError as error:
        text = str(error).replace("with overwrite=True", "with --overwrite")
        raise RunError(text.replace("another folder with folder", "another folder with --output")) from error


def _short(path: Path) -> Path:
    """Returns the path as it is typed from the working directory, where that is inside of it."""
    return path.relative_to(Path.cwd()) if path.is_absolute() and path.is_relative_to(Path.cwd()) else path
