"""``regard evaluate``: the metrics of the field, on any data set."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option


def command(
    run: Annotated[Path, Argument(help="Run folder, e.g. runs/translate-bahdanau.")],
    data: Annotated[str, Argument(help="Pairs, in any form that regard train translate takes.")],
    source_column: Annotated[str | None, Option(help="Column to translate from. Default: as in training.")] = None,
    target_column: Annotated[str | None, Option(help="Column with the references. Default: as in training.")] = None,
    beam: Annotated[int, Option(help="Hypotheses of the beam; 1: greedy.")] = 5,
    length_penalty: Annotated[float, Option(help="Exponent of the beam's length normalization, 0 or more.")] = 1.0,
    batch_size: Annotated[int, Option(help="Sentences translated at once.")] = 64,
    limit: Annotated[int | None, Option(help="Pairs; evaluate only the first so many. Default: all.")] = None,
    threads: Annotated[int, Option(help="CPU threads; 0: as many as PyTorch takes.")] = 0,
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
    evaluate_run(
        run, data, source_column, target_column, output,
        beam=beam, length_penalty=length_penalty, batch_size=batch_size, limit=limit, threads=threads, device=device,
    )  # fmt: skip


def evaluate_run(
    run: Path,
    data: str,
    source_column: str | None,
    target_column: str | None,
    name: str | None,
    *,
    beam: int = 5,
    length_penalty: float = 1.0,
    batch_size: int = 64,
    limit: int | None = None,
    threads: int = 0,
    device: str = "cpu",
) -> None:
    """Evaluate a run, write the results into its folder and print them."""
    import torch

    from regard.training.evaluation import evaluate
    from regard.training.run_folder import RunFolder, write_atomically
    from regard.training.run_pictures import draw_lengths
    from regard.training.trained_translator import TrainedTranslator

    if threads:
        torch.set_num_threads(threads)
    folder = RunFolder.open(run)
    translator = TrainedTranslator(folder, device)
    trained_on = translator.config.data
    is_pair_of_files = "," in data and not Path(data).exists()
    columns = (
        source_column or (None if is_pair_of_files or trained_on.bundled else trained_on.source_column),
        target_column or (None if is_pair_of_files or trained_on.bundled else trained_on.target_column),
    )
    if trained_on.bundled and not any(columns) and data.endswith(".tsv"):
        columns = "english", "spanish"
    found = evaluate(
        translator,
        data,
        *columns,
        width=beam,
        length_penalty=length_penalty,
        batch_size=batch_size,
        limit=limit,
    )
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
