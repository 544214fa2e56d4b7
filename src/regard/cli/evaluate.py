"""``regard evaluate``: metrics of a trained translator on a data set."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option


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
    options = EvaluationOptions(
        source_column, target_column, beam, length_penalty, batch_size, limit, threads, device
    )  # fmt: skip
    evaluate_run(run, data, output, options)


@dataclass(frozen=True)
class EvaluationOptions:
    """The options of an evaluation."""

    source_column: str | None = None
    """Column to translate from; None: as in training."""
    target_column: str | None = None
    """Column with the references; None: as in training."""
    beam: int = 5
    """Beam width; 1: greedy search."""
    length_penalty: float = 1.0
    """Exponent of the beam's length normalization."""
    batch_size: int = 64
    """Sentences translated at once."""
    limit: int | None = None
    """Number of pairs to evaluate; None: all."""
    threads: int = 0
    """CPU threads; 0: PyTorch's own number."""
    device: str = "cpu"
    """PyTorch device of the model."""


def evaluate_run(run: Path, data: str, name: str | None, options: EvaluationOptions) -> None:
    """Evaluate a run, write the results into its folder and print them.

    Args:
        run: the run folder.
        data: as `regard.data.sources.open_pairs` takes it.
        name: name of the results in the run folder; None: that of the data.
        options: the options.
    """
    import torch

    from regard.cli.option_names import SEARCH_OPTIONS, options_named
    from regard.training.evaluation import evaluate
    from regard.training.run_folder import RunFolder, write_atomically
    from regard.training.run_pictures import draw_lengths
    from regard.training.trained_translator import TrainedTranslator

    if options.threads:
        torch.set_num_threads(options.threads)
    folder = RunFolder.open(run)
    with options_named(SEARCH_OPTIONS):
        translator = TrainedTranslator(folder, options.device)
    trained_on = translator.config.data
    is_pair_of_files = "," in data and not Path(data).exists()
    columns = (
        options.source_column or (None if is_pair_of_files or trained_on.bundled else trained_on.source_column),
        options.target_column or (None if is_pair_of_files or trained_on.bundled else trained_on.target_column),
    )
    if trained_on.bundled and not any(columns) and data.endswith(".tsv"):
        columns = "english", "spanish"
    with options_named(SEARCH_OPTIONS):
        found = evaluate(
            translator, data, *columns, width=options.beam, length_penalty=options.length_penalty,
            batch_size=options.batch_size, limit=options.limit,
        )  # fmt: skip
    name = name or Path(data.split(",")[0].replace(":", "-")).stem
    found.write(folder.path / f"evaluation-{name}.json")
    text = "".join(translation.text.replace("\n", " ") + "\n" for translation in found.translations)
    write_atomically(folder.path / f"evaluation-{name}.txt", text.encode())
    picture = draw_lengths(folder, found, f"bleu-by-length-{name}")
    rate = "" if found.alignment_error_rate is None else f" · AER {found.alignment_error_rate:.3f}"
    typer.echo(
        f"{data}: {found.pairs} pairs · BLEU {found.bleu:.2f} · chrF {found.chrf:.2f} · "
        f"perplexity {found.perplexity:.2f}{rate}"
    )
    for part in found.by_length:
        typer.echo(f"  {part.label:>6} words: BLEU {part.bleu:6.2f} ({part.pairs} pairs)")
    typer.echo(f"{found.bleu_signature}")
    typer.echo(f"results: {folder.path / f'evaluation-{name}.json'}" + (f" · {picture}" if picture else ""))
