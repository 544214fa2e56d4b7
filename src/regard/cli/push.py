"""``regard push``: uploads a trained run to the Hugging Face hub."""

from typing import Annotated

from cyclopts import Parameter

from regard.cli.option_errors import options_named

Run = Annotated[str, Parameter(help="Run folder, e.g. runs/translate-bahdanau.")]
Repository = Annotated[str, Parameter(help="Name of the repository on the hub: OWNER/NAME.")]
Private = Annotated[bool, Parameter(help="Make a new repository private; nothing is uploaded to a public one.")]
Message = Annotated[
    str | None, Parameter(help="Message of the commit. Default: one that names the run.", allow_leading_hyphen=True)
]
Checkpoints = Annotated[bool, Parameter(help="Upload the checkpoints too, which are larger than the model.")]


def command(
    run: Run,
    repository: Repository,
    /,
    *,
    private: Private = False,
    message: Message = None,
    checkpoints: Checkpoints = False,
) -> None:
    """Upload a trained run to the Hugging Face hub: its model, what the model needs, its card and its metrics.

    Paths of this machine are not uploaded. The run is then loaded by hf://OWNER/NAME, in every command and in Python.

    regard push runs/translate-bahdanau alice/english-spanish --private
    """
    from regard.tasks import registry
    from regard.training.hub_upload import push
    from regard.training.run_folder import RunFolder

    folder = RunFolder.open(run)
    with options_named({"message": "--message"}):
        url, names, note = push(
            registry.of_run(folder), folder, repository, private=private, message=message, checkpoints=checkpoints
        )
    print(f"pushed {', '.join(names)} to {url}")
    if note:
        print(note)
    print(f'load it with: regard.load("hf://{repository}")')
