"""``regard demo``: trains a small translator and shows its attention weights, in a few minutes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from regard.cli.option_types import Language, Seed, Threads
from regard.cli.run_configuration import check_name
from regard.errors import TrainingError
from regard.files.platforms import quoted
from regard.training.config import RunConfig

if TYPE_CHECKING:
    from regard.tasks.translate import TrainedTranslator, Translation

SENTENCES = (
    "My sister gives the old book to her friend.",
    "The tall girl sees them in the small house.",
    "The happy girl wants to buy a red car.",
)


@Parameter(name="*")
@dataclass(frozen=True)
class DemoOptions:
    """The options of ``regard demo``."""

    short: bool = False
    """Train for less than a minute, with lower goals; for continuous integration."""
    run: str = "demo"
    """Name of the run."""
    runs: Path = Path("runs")
    """Folder that holds the run folders."""
    overwrite: bool = False
    """Replace the run of that name; the new run takes its place when it is complete."""
    threads: Threads = 0
    """CPU threads; 0: PyTorch's own number."""
    seed: Seed = 1
    """Seed of weights, order and dropout."""
    language: Annotated[Language, Parameter(help="Language of the page, en or zh. Default: that of the browser.")] = (
        None
    )


def command(*, options: DemoOptions = DemoOptions()) -> None:
    """Train a small English-Spanish translator on the bundled corpus, and show its attention weights.

    Generates the corpus, trains with Luong's attention for about three minutes on two CPUs, measures BLEU and the
    alignment error rate (AER) on test sentences, translates three sentences, draws their alignments into the run
    folder, and writes a page of them that needs nothing else. Fails if BLEU is below 90 or AER above 0.15.
    """
    import torch

    from regard.cli.training import exit_if_stopped
    from regard.tasks.translate import (
        TASK,
        TrainedTranslator,
        TranslateData,
        TranslationTrainingConfig,
        TranslatorConfig,
    )
    from regard.training.run import train_run
    from regard.training.run_folder import RunFolder

    if options.threads:
        torch.set_num_threads(options.threads)
    config = RunConfig(
        TASK.name,
        data=TranslateData(bundled=20_000 if options.short else 40_000, tokenizer="word", vocabulary=4000),
        training=TranslationTrainingConfig(
            epochs=1 if options.short else 3,
            tokens_per_batch=500,
            learning_rate=4e-3,
            schedule="linear",
            warmup=100,
            patience=0,
            validation_pairs=100,
            seed=options.seed,
            threads=options.threads,
            accelerator="cpu",
        ),
        # Without input feeding the recurrent kernel runs over all target words at once.
        model=TranslatorConfig(attention="luong", input_feeding=False, embedding=128, hidden=256, dropout=0.1),
    )
    least_bleu, most_errors = (5.0, 0.7) if options.short else (90.0, 0.15)
    destination = options.runs / check_name("--run", options.run)
    result = train_run(TASK, config, RunFolder.create(destination, options.overwrite))
    folder = result.folder
    exit_if_stopped(TASK, result)
    translator = TrainedTranslator(TASK, folder)
    evaluation: Any = translator.evaluate()
    files = evaluation.write(folder, "test")
    error_rate = 1.0 if evaluation.alignment_error_rate is None else evaluation.alignment_error_rate
    bleu, chrf = evaluation.bleu, evaluation.chrf
    print(f"test: {evaluation.pairs} pairs · BLEU {bleu:.2f} · chrF {chrf:.2f} · AER {error_rate:.3f}")
    translations: Any = translator.predict(SENTENCES, merge_words=True)
    paths = translator.draw(translations, folder.pictures)
    for translation, path in zip(translations, paths, strict=False):
        print(f"{translation.source}\n  → {translation.text}\n  {path}")
    for path in [*TASK.report(folder), *files]:
        print(f"  {path}")
    print(f"page of the translations: {write_page(translator, translations, options.language)}")
    print(f'now try: regard predict {quoted(str(folder.path))} "{SENTENCES[0]}"')
    print(f"     or: regard serve {quoted(str(folder.path))}")
    if bleu < least_bleu or error_rate > most_errors:
        raise TrainingError(
            f"the demo missed its goals: BLEU {bleu:.2f} (at least {least_bleu}), AER {error_rate:.3f} "
            f"(at most {most_errors})"
        )


def write_page(
    translator: "TrainedTranslator", translations: Sequence["Translation"], language: Language = None
) -> Path:
    """Writes ``pictures/translations.html`` into the run, a self-contained file: each translation, its attention, and
    its worked steps."""
    from regard.records import Document
    from regard.viewer import View

    records, steps, texts = [], [], []
    for number, translation in enumerate(translations, start=1):
        if not translation.text:
            texts.append((str(number), f"{translation.source} →"))
        for attention in translator.attentions(translation):
            name = f"{number}. {translation.text}"
            records.append(replace(attention.record(), name=name))
            steps.append(replace(attention.steps(0), name=name, attention=name))
    title = f"{translator.folder.path.name}: translations and their attention"
    return View(Document(title, tuple(records), tuple(steps), tuple(texts)), language=language).save(
        translator.folder.file("pictures/translations.html")
    )
