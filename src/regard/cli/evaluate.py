"""``regard evaluate``: metrics of a trained translator on a data set."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from regard.cli.option_names import SEARCH_OPTIONS, options_named
from regard.tasks.translate.config import EvaluationConfig


def command(
    run: Annotated[Path, Argument(help="Run folder, e.g. runs/translate-bahdanau.")],
    data: Annotated[str, Argument(help="Pairs, in a form that regard train translate accepts.")],
    source_column: Annotated[str | None, Option(help="Column to translate from. Default: as in training.")] = None,
    target_column: Annotated[str | None, Option(help="Column with the references. Default: as in training.")] = None,
    beam: Annotated[int, Option(help="Beam width; 1: greedy search.")] = 5,
    length_penalty: Annotated[float, Option(help="Exponent of the beam's length normalization, 0 or more.")] = 1.0,
    batch_size: Annotated[int, Option(help="Sentences translated at once.")] = 64,
    limit: Annotated[int | None, Option(help="Number of pairs to evaluate, from the first. Default: all.")] = None,
    threads: Annotated[int, Option(help="CPU threads; 0: PyTorch's own number.")] = 0,
    device: Annotated[str, Option(help="cpu, cuda, cuda:1, mps, ...")] = "cpu",
    output: Annotated[
        str | None,
        Option(help="Name of the results in the run folder. Default: that of the data."),
    ] = None,
) -> None:
    """Measure a trained translator: BLEU, chrF, perplexity, BLEU by source length, alignment error rate.

    Writes RUN/evaluation-NAME.json (with the signatures of sacreBLEU), RUN/evaluation-NAME.txt (the translations) and
    RUN/pictures/bleu-by-length-NAME.png. The alignment error rate is measured if the data has a column 'alignment'.
    """
    if threads:
        import torch

        torch.set_num_threads(threads)
    with options_named(SEARCH_OPTIONS):
        options = EvaluationConfig(source_column, target_column, beam, length_penalty, batch_size, limit)
    evaluate_run(run, data, output, options, device)


def evaluate_run(run: Path, data: str, name: str | None, options: EvaluationConfig, device: str = "cpu") -> None:
    """Evaluate a run, write the results into its folder and print them.

    Args:
        run: the run folder.
        data: a data set, in any form that the task takes.
        name: name of the results in the run folder; None: that of the data.
        options: the options of the task.
        device: PyTorch device of the model.
    """
    from regard.tasks.registry import load

    with options_named(SEARCH_OPTIONS):
        trained = load(str(run), device)
        found = trained.evaluate_with(data, options)
    name = name or Path(data.split(",")[0].replace(":", "-")).stem
    paths = found.write(trained.folder, name)
    for line in found.lines():
        typer.echo(line)
    typer.echo("results: " + " · ".join(map(str, paths)))
