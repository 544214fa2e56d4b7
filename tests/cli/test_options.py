"""The options of every command: none is lost, each has help, and the help shows them as they are."""

import re

import pytest

from regard.cli.commands import COMMANDS, build

OPTIONS = {
    "demo": "--short --run --runs --overwrite --threads --seed",
    "explain": "--query --key --value --input --w-query --w-key --w-value --w-output --w-decoder --w-score --dim "
    "--head-dim --seed --positions --heads --score --scale --cap --normalizer --temperature --alpha --sink --mask "
    "--labels --query-labels --row --head --steps --decimals --color-map --title --picture --dpi --json",
    "train translate": "--train --data --validation --test --source-column --target-column --lowercase --bundled "
    "--tokenizer --vocabulary --max-length --attention --score --scope --window --input-feeding --no-input-feeding "
    "--hard-estimator --architecture --embedding --hidden --encoder-layers --decoder-layers --readout --dropout --tied "
    "--label-smoothing --scheduled-sampling --tokens-per-batch --optimizer --learning-rate --weight-decay --schedule "
    "--warmup --plateau-patience --clip --epochs --max-minutes --patience --validate-every --validation-pairs "
    "--checkpoint-minutes --checkpoint-steps --seed --run --runs --resume --overwrite --tensorboard --precision "
    "--threads --accelerator --device --devices --strategy --logger --init-from --config --print-config --dry-run",
    "evaluate": "--source-column --target-column --beam --length-penalty --batch-size --limit --threads --device "
    "--output",
    "predict": "--file --beam --length-penalty --replace-unknown --pictures --merge-words --json --batch-size "
    "--threads --device",
    "push": "--private --message --checkpoints",
    "export": "--to --output --overwrite --int8 --threads",
    "bench": "--task --long --lengths --list --from --quick --threads --repeats --memory --no-memory --json --page "
    "--pictures --compare",
    "cache": "--clear --warm --dtype",
    "doctor": "--json --device --seconds",
    "serve": "--port --open --no-browser --language --threads --device",
    "view": "--output --view --theme --language --attention --head --steps --threads --device",
}
"""Command → the options that it has had, by the names that scripts of users have."""


def arguments_of(command):
    """The arguments of a command as Cyclopts reads them."""
    app = build(command.split())
    for name in command.split():
        app = app[name]
    return app.assemble_argument_collection(parse_docstring=True)


def test_every_command_is_listed():
    assert {command.split()[0] for command in OPTIONS} == set(COMMANDS)


@pytest.mark.parametrize("command", OPTIONS)
def test_no_option_is_lost(command):
    names = {name for argument in arguments_of(command) for name in (*argument.names, *argument.negatives)}
    assert not set(OPTIONS[command].split()) - names


@pytest.mark.parametrize("command", OPTIONS)
def test_every_option_has_help(command):
    for argument in arguments_of(command):
        if argument.parse and not argument.children:
            assert argument.parameter.help, f"{argument.name} of {command} has no help"


@pytest.mark.parametrize("command", OPTIONS)
def test_every_option_is_in_the_help(run_command, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "200")
    code, output, _ = run_command(*command.split(), "--help")
    assert code == 0
    for name in OPTIONS[command].split():
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", output), name


def test_the_help_keeps_words_in_brackets(run_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert "[target][source]" in run_command("predict", "--help")[1]


def test_the_help_of_a_configuration_names_options(run_command, monkeypatch):
    """A docstring in a configuration names another field; the help names its option."""
    monkeypatch.setenv("COLUMNS", "200")
    output = " ".join(run_command("train", "translate", "--help")[1].replace("│", " ").split())
    assert "only --checkpoint-minutes decides" in output
    assert "checkpoint_minutes" not in output


def test_commands_without_arguments_show_their_help(run_command):
    for command in ([], ["train"], ["--help"], ["-h"], ["train", "--help"]):
        code, output, error = run_command(*command)
        assert (code, error) == (0, "")
        assert "Usage: regard" in output
