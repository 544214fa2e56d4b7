"""``regard train translate``: trains a translator on parallel text."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from regard.cli.option_names import options_named
from regard.errors import ArgumentError
from regard.tasks.translate.config import DataConfig, EvaluationConfig, ModelConfig, TranslationTrainingConfig
from regard.tasks.translate.task import TASK
from regard.training.config import RunConfig

data_option = partial(Option, rich_help_panel="Data")
model_option = partial(Option, rich_help_panel="Model")
training_option = partial(Option, rich_help_panel="Training")
place_option = partial(Option, rich_help_panel="Run folder and machine")

# The options that may change with --resume: the length of the run, and the machine.
RESUMABLE = (
    "epochs", "max_minutes", "patience", "checkpoint_minutes", "checkpoint_steps", "threads", "accelerator", "devices",
    "strategy", "logger",
)  # fmt: skip


def command(
    ctx: typer.Context,
    train: Annotated[
        str | None,
        data_option(
            "--train",
            "--data",
            help="Training pairs: a .tsv, .csv, .jsonl or .parquet file, two aligned text files as 'a.de,b.en', a"
            " Hugging Face data set 'owner/name', or 'bundled' for the generated English-Spanish corpus.",
        ),
    ] = None,
    validation: Annotated[
        str | None,
        data_option(
            help="Validation pairs, in any of these forms. Default: the last 500 training pairs (at most a tenth).",
        ),
    ] = None,
    test: Annotated[
        str | None,
        data_option(help="Test pairs, translated with a beam of 5 when training is over. Default: none."),
    ] = None,
    source_column: Annotated[
        str | None,
        data_option(help="Column to translate from. Default: the first of a table with two columns."),
    ] = None,
    target_column: Annotated[
        str | None,
        data_option(help="Column to translate to. Default: the second of a table with two columns."),
    ] = None,
    lowercase: Annotated[
        bool,
        data_option("--lowercase", help="Turn all text into lower case, references included."),
    ] = False,
    bundled: Annotated[
        int, data_option(help="Number of pairs of the generated corpus to train on, instead of --train.")
    ] = 0,
    tokenizer: Annotated[str, data_option(help="bpe (sub-words), word or char.")] = "bpe",
    vocabulary: Annotated[int, data_option(help="Largest size of each side's vocabulary, in tokens.")] = 8000,
    max_length: Annotated[
        int, data_option(help="Largest number of tokens of each side; longer training pairs are left out.")
    ] = 100,
    attention: Annotated[str, model_option(help="none, bahdanau, luong or hard.")] = "bahdanau",
    score: Annotated[
        str | None,
        model_option(
            help="additive (concat), dot, scaled_dot, general or location. Default: additive for bahdanau and "
            "hard, general for luong.",
        ),
    ] = None,
    scope: Annotated[str, model_option(help="luong: global, local-m or local-p.")] = "global",
    window: Annotated[int, model_option(help="luong, local scopes: half-width in source tokens.")] = 10,
    input_feeding: Annotated[
        bool,
        model_option(
            "--input-feeding/--no-input-feeding",
            help="luong: the attentional vector is an input of the next step.",
        ),
    ] = True,
    hard_estimator: Annotated[str, model_option(help="hard: reinforce or straight_through.")] = "reinforce",
    cell: Annotated[str, model_option(help="lstm or gru.")] = "lstm",
    embedding: Annotated[int, model_option(help="Features of an embedded token.")] = 256,
    hidden: Annotated[int, model_option(help="Features of an annotation and of a decoder state; even.")] = 512,
    encoder_layers: Annotated[int, model_option(help="Layers of the encoder.")] = 1,
    decoder_layers: Annotated[int, model_option(help="Layers of the decoder.")] = 1,
    readout: Annotated[str, model_option(help="tanh or maxout.")] = "tanh",
    dropout: Annotated[float, model_option(help="Dropout rate, 0 to below 1.")] = 0.3,
    tied: Annotated[
        str,
        model_option(
            help="Embeddings that share their weights: none, target (with the output) or all (needs one "
            "vocabulary size on both sides).",
        ),
    ] = "target",
    label_smoothing: Annotated[
        float, training_option(help="Probability that is distributed over all words, 0 to below 1.")
    ] = 0.1,
    scheduled_sampling: Annotated[
        float,
        training_option(help="Probability that a step reads the predicted word, 0 to below 1."),
    ] = 0.0,
    tokens_per_batch: Annotated[int, training_option(help="Target tokens of a batch, padding included.")] = 2000,
    optimizer: Annotated[str, training_option(help="adam or adamw.")] = "adamw",
    learning_rate: Annotated[float, training_option(help="Peak learning rate.")] = 1e-3,
    weight_decay: Annotated[
        float,
        training_option(help="Decoupled weight decay of adamw, for each unit of learning rate."),
    ] = 0.0,
    schedule: Annotated[
        str,
        training_option(
            help="constant, inverse_sqrt, cosine, linear (the last two decay to 0 over --epochs) or plateau (halves).",
        ),
    ] = "constant",
    warmup: Annotated[int, training_option(help="Steps of linear warmup.")] = 0,
    plateau_patience: Annotated[int, training_option(help="plateau: validations without a better loss.")] = 2,
    clip: Annotated[float, training_option(help="Largest norm of the gradient; 0: not clipped.")] = 1.0,
    epochs: Annotated[int, training_option(help="Epochs after which training ends.")] = 20,
    max_minutes: Annotated[float, training_option(help="Minutes after which training ends; 0: no limit.")] = 0.0,
    patience: Annotated[
        int,
        training_option(help="Validations without a better BLEU after which training ends; 0: never."),
    ] = 5,
    validate_every: Annotated[int, training_option(help="Steps between validations; 0: after each epoch.")] = 0,
    validation_pairs: Annotated[int, training_option(help="Pairs that each validation translates; 0: all.")] = 0,
    checkpoint_minutes: Annotated[
        float,
        training_option(help="Minutes between checkpoints; each validation also writes one."),
    ] = 5.0,
    checkpoint_steps: Annotated[
        int, training_option(help="Steps between checkpoints; 0: only --checkpoint-minutes decides.")
    ] = 0,
    seed: Annotated[int, training_option(help="Seed of weights, order and dropout.")] = 1,
    run: Annotated[str | None, place_option(help="Name of the run. Default: translate-<attention>.")] = None,
    runs: Annotated[Path, place_option(help="Folder that holds the run folders.")] = Path("runs"),
    resume: Annotated[
        bool,
        place_option(
            "--resume",
            help="Continue an interrupted run with its own options (--epochs, --max-minutes, --patience and "
            "the machine may change).",
        ),
    ] = False,
    overwrite: Annotated[bool, place_option("--overwrite", help="Delete the run of that name first.")] = False,
    tensorboard: Annotated[
        bool,
        place_option("--tensorboard", help="Write TensorBoard logs besides metrics.csv."),
    ] = False,
    precision: Annotated[str, place_option(help="32, bf16-mixed or 16-mixed.")] = "32",
    threads: Annotated[int, place_option(help="CPU threads; 0: PyTorch's own number.")] = 0,
    accelerator: Annotated[str, place_option("--accelerator", "--device", help="auto, cpu, gpu, mps, ...")] = "auto",
    devices: Annotated[str, place_option(help="A number of devices, a list of indices '0,1', or auto.")] = "auto",
    strategy: Annotated[str, place_option(help="Lightning's strategy for several devices: auto or ddp.")] = "auto",
) -> None:
    """Train a recurrent translator, with or without attention.

    Writes runs/NAME/ with the best model, tokenizers, metrics, samples, checkpoints and pictures. An interrupted run
    continues with --resume.
    """
    given = locals()
    given["logger"] = "tensorboard" if tensorboard else ""
    if train == "bundled":
        given["train"], given["bundled"] = None, bundled or 20_000
    elif bundled and train is None:
        pass
    elif bundled:
        raise ArgumentError("--train and --bundled exclude each other; give one of them")
    name = run or f"translate-{attention}"
    if resume:
        with options_named(OPTIONS):
            trained = resume_run(runs / name, _typed(ctx, given))
        finish(trained, test)
        return
    if given["train"] is None and not given["bundled"]:
        raise ArgumentError(
            "there is nothing to train on; give --train FILE, or --bundled 20000 for the bundled corpus"
        )
    with options_named(OPTIONS):
        config = RunConfig(
            TASK.name, _pick(DataConfig, given), _pick(ModelConfig, given), _pick(TranslationTrainingConfig, given)
        )
        trained = start_run(runs / name, config, overwrite)
    finish(trained, test)


OPTIONS = {
    field.name: f"--{field.name.replace('_', '-')}"
    for kind in (DataConfig, ModelConfig, TranslationTrainingConfig)
    for field in dataclasses.fields(kind)
}
"""Field of a configuration → option."""


def start_run(path: Path, config: RunConfig[Any, Any, Any], overwrite: bool) -> Any:
    """Train in a new run folder; returns a ``TrainedRun``."""
    from regard.training.run import is_child, train
    from regard.training.run_folder import RunFolder

    folder = RunFolder.begun(path, overwrite) if is_child() else RunFolder.create(path, overwrite)
    return train(TASK, config, folder)


def resume_run(path: Path, typed: dict[str, Any]) -> Any:
    """Continue a run; ``typed`` has the options that the user gave with ``--resume``."""
    from regard.training.run import train
    from regard.training.run_folder import RunFolder

    folder = RunFolder.open(path)
    config = folder.read_config(TASK)
    parts = (config.training, config.data, config.model)
    for name, value in typed.items():
        old = next((getattr(part, name) for part in parts if name in type(part).__dataclass_fields__), value)
        if old != value and name not in RESUMABLE:
            raise ArgumentError(
                f"--{name.replace('_', '-')} is {old!r} in this run and cannot become {value!r} with --resume; "
                "leave it out, or start another run"
            )
    changes = {name: value for name, value in typed.items() if name in RESUMABLE}
    training = dataclasses.replace(config.training, **changes)
    if training.epochs != config.training.epochs and training.schedule in ("cosine", "linear"):
        raise ArgumentError(f"--epochs must stay {config.training.epochs} with --schedule {training.schedule}")
    return train(TASK, dataclasses.replace(config, training=training), folder, resume=True)


def finish(trained: Any, test: str | None) -> None:
    """Print the result of a training, draw its curves, and evaluate it on the test data if there are any."""
    from regard.training.run import is_child
    from regard.training.run_session import continue_with
    from regard.training.signal_handler import stopped_line

    if is_child():  # only the first process of a distributed run prints
        return
    folder, progress = trained.folder, trained.progress
    if trained.interrupted:
        typer.echo(stopped_line(trained.interrupted, progress.step, continue_with(folder.path, "translate")), err=True)
        raise typer.Exit(128 + trained.interrupted)
    typer.echo(
        f"{progress.finished}; best validation {TASK.metrics[0].text(progress.best or 0.0)} "
        f"at step {progress.best_step} · {folder.path}"
    )
    for picture in TASK.report(folder):
        typer.echo(f"curves: {picture}")
    data = test or TASK.test_data(folder, folder.read_config(TASK))
    if data:
        from regard.cli.evaluate import evaluate_run

        evaluate_run(folder.path, data, "test", EvaluationConfig())


def _typed(ctx: typer.Context, given: dict[str, Any]) -> dict[str, Any]:
    # The options that the user typed, without those that select the run.
    place = ("run", "runs", "resume", "overwrite", "test")
    return {
        "logger" if name == "tensorboard" else name: given["logger" if name == "tensorboard" else name]
        for name in ctx.params
        if name not in place and str(getattr(ctx.get_parameter_source(name), "name", "")) == "COMMANDLINE"
    }


def _pick(kind: type[Any], given: dict[str, Any]) -> Any:
    names = [field.name for field in dataclasses.fields(kind) if field.name in given]
    return kind(**{name: given[name] for name in names})
