"""``regard train``: one command a task; its options are the fields of the task's configurations."""

from cyclopts import App

from regard.tasks import registry

FILES = (
    "Writes runs/NAME/ with the best model, metrics, samples, checkpoints and pictures. An interrupted run continues "
    "with --resume."
)

app = App(name="train", help="Train a model on your own data.")

for _order, (_name, _summary) in enumerate(registry.names().items()):
    # The module creates the command of a task when it is called, so that no other task is imported.
    app.command(f"regard.cli.train_commands:{_name}", name=_name, help=f"{_summary}\n\n{FILES}", sort_key=_order)
