"""The model card of a run: ``README.md``, whose front matter the Hugging Face hub reads.

Names of files, columns and options may be foreign and are escaped; of a path, only the last part is shown.
"""

import dataclasses
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.exports.formats import FORMATS
from regard.files.atomic import write_atomically
from regard.files.platforms import quoted
from regard.files.regular import LARGEST_TEXT, read_text
from regard.training.card_seal import CARD, is_own_card, sealed
from regard.training.config import RunConfig, read_yaml, yaml_text
from regard.training.hub import is_hub_address
from regard.training.manifest import Manifest, ManifestFile, sha256
from regard.training.metrics import Metric, comparison_with_rule
from regard.training.run_folder import RunFolder
from regard.training.task import Task
from regard.training.training_facts import TrainingFacts, finite_number

LICENSES = """
apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m
afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5
cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0
cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0
cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0
lgpl lgpl-2.1 lgpl-3.0 isc lppl-1.3c ms-pl mpl-2.0 odc-by odbl openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense
zlib pddl unknown
""".split()  # noqa: SIM905 (a list of strings takes a page)
"""The licences that the hub knows by an identifier; any other is stated as ``other``, with its name."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:[\w.-]+)?")
_FILE_SUFFIX = re.compile(r"\.(tsv|csv|jsonl?|parquet|txt|gz|[a-z]{2})$", re.IGNORECASE)

# Options that have a line of their own, or that concern the machine.
_OMITTED_OPTIONS = {
    "train", "validation", "test", "license", "seed", "init_from", "logger", "threads", "accelerator", "devices",
    "nodes", "strategy", "checkpoint_minutes", "checkpoint_steps",
}  # fmt: skip
# Options that name data or runs; every other text is shown as it is.
_FILE_OPTIONS = {"train", "validation", "test", "word_vectors", "init_from", "backbone_weights"}
_MOST_FILES = 5  # files of a part of the data that are listed one by one


def write_card(task: Task, folder: RunFolder, evaluation: str | None = None) -> Path | None:
    """Writes or renews the model card of a run, with ``evaluation``, one of the best model that has just been written,
    if any. Returns None if nothing was written, since the run has no model or no facts, or its ``README.md`` is
    foreign."""
    facts = TrainingFacts.read(folder.facts)
    if facts is None or not folder.model.is_file():
        return None
    if evaluation is not None:
        facts = dataclasses.replace(facts, evaluations={**facts.evaluations, evaluation: _model_sum(folder)})
        facts.write(folder.facts)
    path = folder.file(CARD)
    if path.exists() and not is_own_card(path):
        return None
    write_atomically(path, card(task, folder))
    return path


def card(task: Task, folder: RunFolder, address: str | None = None) -> bytes:
    """Returns the model card of a run, with the address to load it by, such as ``"hf://owner/name"``; None: its path
    from where the training ran, or only the name of its folder if it is elsewhere, so that the card names no folder of
    the machine."""
    config, facts = folder.read_config(task), TrainingFacts.read(folder.facts) or TrainingFacts()
    where = _path_from_training(folder) if address is None else ""
    address = address or where or folder.path.name
    data_sets = hub_data_sets(dataclasses.asdict(config.data), folder.manifest)
    results = _validation(task, folder, config, facts, data_sets) + _evaluations(task, folder, data_sets)
    name = visible(address.removeprefix("hf://").rpartition("/")[2])
    lines = [
        *("---", yaml_text(_front_matter(task, config, name, results, data_sets)).rstrip("\n"), "---", ""),
        *(f"# {escaped(name)}", "", f"{escaped(_summary(task, config))} Trained with regard.", ""),
        *("## Model", "", *_model_lines(task, config, facts), ""),
        *("## Data", "", *_data_lines(folder, config, facts, data_sets), ""),
        *("## Training", "", *_training_lines(folder, config, facts), ""),
        *("## Metrics", "", *_metric_lines(results), *_scale_lines(task, facts, results), ""),
        *("## Use", "", *_use_lines(task, address, where, facts.exports), ""),
        *("## Limits", "", *_limit_lines(config), ""),
    ]
    return sealed(("\n".join(lines) + "\n").encode("utf-8", "backslashreplace"))


# The parts of a card


def _path_from_training(folder: RunFolder) -> str:
    """Returns the path of a run as typed where its training began; "" if it is not below that folder."""
    began_in, path = folder.manifest.read().began_in, Path(os.path.abspath(folder.path))
    return path.relative_to(began_in).as_posix() if began_in and path.is_relative_to(began_in) else ""


def _summary(task: Task, config: Any) -> str:
    """Returns the purpose of the model of a run and, if the task has several, its architecture."""
    architecture, attention = (getattr(config.model, name, None) for name in ("architecture", "attention"))
    if not isinstance(architecture, str):
        return task.summary
    with_attention = f" and the attention {attention}" if isinstance(attention, str) and attention != "none" else ""
    return f"{task.summary.split(':')[0].rstrip('.')}, by the architecture {architecture}{with_attention}."


class _Result(NamedTuple):
    """The value of a metric for the best model on some data."""

    data: str
    part: str
    metric: Metric
    value: float


def _front_matter(
    task: Task, config: RunConfig, name: str, results: list[_Result], data_sets: Collection[str]
) -> dict[str, Any]:
    content: dict[str, Any] = {"library_name": "regard"}
    if task.hub_task:
        content["pipeline_tag"] = task.hub_task
    content["tags"] = ["regard", "attention", *dict.fromkeys(filter(None, (task.name, task.hub_task)))]
    if license := visible(config.training.license or ""):
        known = license.lower() in LICENSES
        content |= {"license": license.lower()} if known else {"license": "other", "license_name": license}
    base = config.training.init_from or ""
    if is_hub_address(base):
        content["base_model"] = public_name(base).removeprefix("hf://").partition("@")[0]
    source = getattr(config.data, "train", None)
    if isinstance(source, str) and (name_on_hub := source.partition(":")[0]) in data_sets:
        content["datasets"] = [name_on_hub]
    index = []
    for data in dict.fromkeys((one.data, one.part) for one in results):
        metrics = [
            {"type": one.metric.name, "name": one.metric.label, "value": round(one.value, 6)}
            for one in results
            if (one.data, one.part) == data
        ]
        dataset = {"name": data[0], "type": data[0], "split": data[1]}
        index.append(
            {"task": {"type": task.hub_task or task.name, "name": task.name}, "dataset": dataset, "metrics": metrics}
        )
    if index:
        content["model-index"] = [{"name": name, "results": index}]
    return content


def _model_lines(task: Task, config: RunConfig, facts: TrainingFacts) -> list[str]:
    lines = [f"- Task: {escaped(task.name)}"]
    if facts.model:
        variant = task.run_name(config)
        lines.append(f"- Architecture: {escaped(facts.model + (f' ({variant})' if variant != task.name else ''))}")
    if facts.parameters:
        lines.append(f"- Parameters: {facts.parameters:,}")
    return lines + _option_table(config.model)


def _data_lines(folder: RunFolder, config: RunConfig, facts: TrainingFacts, data_sets: Collection[str]) -> list[str]:
    lines = [f"- Sizes: {escaped(facts.description)}"] if facts.description else []
    recorded = folder.manifest.read().data
    for part, label in (("train", "Training"), ("validation", "Validation"), ("test", "Test")):
        if not isinstance(source := getattr(config.data, part, None), str):
            continue
        files = recorded.get(part, ())
        if 0 < len(files) <= _MOST_FILES:
            details = ", ".join(f"{one.bytes:,} bytes, SHA-256 {escaped(one.sha256[:12])}…" for one in files)
        else:
            details = f"{len(files):,} files, {sum(one.bytes for one in files):,} bytes" if files else ""
        lines.append(f"- {label}: {escaped(public_name(source, data_sets))}{f' ({details})' if details else ''}")
    if getattr(config.data, "bundled", 0):
        lines.append(f"- Training: {config.data.bundled:,} examples that regard generated")
    return (lines or ["- The run does not say."]) + _option_table(config.data)


def _training_lines(folder: RunFolder, config: RunConfig, facts: TrainingFacts) -> list[str]:
    lines = []
    if facts.steps:
        epochs = f"{facts.epochs:g} {'epoch' if facts.epochs == 1 else 'epochs'}"
        length = f"{facts.steps:,} steps, {epochs}, {facts.seconds / 60:.1f} minutes"
        lines.append(f"- Length: {length} ({escaped(facts.finished or 'interrupted')})")
        lines.append(f"- Hardware: {escaped(facts.hardware)}")
    lines.append(f"- Seed: {config.training.seed}")
    if config.training.init_from is not None:
        lines.append(f"- Started from the model: {escaped(public_name(config.training.init_from))}")
    versions = read_yaml(folder.config).get("versions")
    if isinstance(versions, dict) and versions:
        lines.append("- Versions: " + ", ".join(escaped(f"{name} {version}") for name, version in versions.items()))
    return lines + _option_table(config.training)


def _metric_lines(results: list[_Result]) -> list[str]:
    if not results:
        return ["The model has not been measured."]
    rows = [
        f"| {escaped(data)} ({escaped(part)}) | {escaped(metric.label)} | {value:.{metric.digits}f} |"
        for data, part, metric, value in results
    ]
    return ["| data | metric | value |", "|---|---|---:|", *rows]


def _scale_lines(task: Task, facts: TrainingFacts, results: list[_Result]) -> list[str]:
    """Returns an empty line and a line on how good a simple rule is on the validation data."""
    metric = task.metrics[0]
    value = next((one.value for one in results if (one.part, one.metric) == ("validation", metric)), None)
    if not facts.baseline or value is None:
        return []
    rule = f"{escaped(facts.baseline['rule'])}, has {escaped(metric.text(facts.baseline['value']))}"
    remark = comparison_with_rule(metric, value, facts.baseline["value"], facts.finished)
    return ["", f"A simple rule on the same validation data, {rule}{f': {remark}' if remark else ''}."]


def _use_lines(task: Task, address: str, where: str, exports: Sequence[str]) -> list[str]:
    """Returns example calls and commands that load the run by ``address``; ``where`` is that, if it is a path relative
    to where the training ran, and ``exports`` are the formats of which the model has an export."""
    example = {"text": "A text.", "image": "picture.png", "sound": "sound.wav"}[task.input_kind]
    name = visible(address)
    if where:
        place = "From the folder in which the training ran"
    else:
        place = "Anywhere" if is_hub_address(address) else f"From the folder that holds {escaped(name)}"
    formats = [to for to in FORMATS if to in exports]
    others = f"  # or {', or '.join(formats[1:])}: for programs without regard" if formats[1:] else ""
    return [
        f"{place}:",
        "",
        "```python",
        "import regard  # in a clone of its repository: pip install '.[train]'",
        "",
        f"run = regard.load({name!r})",
        f"print(run.predict([{example!r}])[0])",
        "```",
        "",
        "```sh",
        f"regard predict {quoted(name)} {quoted(example)}",
        f"regard evaluate {quoted(name)} DATA  # DATA: other data in the form of the training data",
        *([f"regard export {quoted(name)} --to {formats[0]}{others}"] if formats else []),
        "```",
    ]


def _limit_lines(config: RunConfig) -> list[str]:
    lines = ["- The metrics hold for data like those above; on other data the model may be worse."]
    if isinstance(longest := getattr(config.data, "max_length", None), int) and longest:
        lines.append(f"- Texts of more than {longest:,} tokens were cut or left out in training.")
    lines += [
        "- The model was not tested for bias, and the data were not searched for personal information.",
        "- Attention weights show how much of each input entered an output. They do not prove why it was chosen.",
    ]
    if not config.training.license:
        lines.append("- No licence is stated. Ask the author before you use the model elsewhere.")
    return lines


def _option_table(section: Any) -> list[str]:
    """Returns an empty line and a table of the options of a section that differ from their defaults."""
    rows = []
    for one in dataclasses.fields(section):
        value = getattr(section, one.name)
        if one.name not in _OMITTED_OPTIONS and value not in (None, "", one.default):
            rows.append(f"| {escaped(one.name)} | {escaped(str(_without_folders(one.name, value)))} |")
    return ["", "| option, unlike its default | value |", "|---|---|", *rows] if rows else []


# Results


def _validation(
    task: Task, folder: RunFolder, config: RunConfig, facts: TrainingFacts, data_sets: Collection[str]
) -> list[_Result]:
    row = next((row for row in folder.read_metrics() if row["step"] == facts.best_step), {})
    source = getattr(config.data, "validation", None) or getattr(config.data, "train", None)
    data = public_name(source, data_sets) if isinstance(source, str) else "generated examples"
    values = {metric.name: row.get(f"val_{metric.name}") for metric in task.metrics}
    return _results(task, data, "validation", values)


def _evaluations(task: Task, folder: RunFolder, data_sets: Collection[str]) -> list[_Result]:
    results = []
    for path in current_evaluations(folder):
        name = path.stem.removeprefix("evaluation-")
        content = json.loads(read_text(path, LARGEST_TEXT))
        if isinstance(content, dict):
            data = content.get("data")
            shown = public_name(data, data_sets) if isinstance(data, str) else name
            results += _results(task, shown, name, content)
    return results


def current_evaluations(folder: RunFolder) -> list[Path]:
    """Returns the evaluations of the best model of a run; those of a model before it are left out."""
    facts = TrainingFacts.read(folder.facts)
    if facts is None or not facts.evaluations:
        return []
    current = _model_sum(folder)
    paths = [folder.file(f"evaluation-{name}.json") for name, model in facts.evaluations.items() if model == current]
    return [path for path in sorted(paths) if _is_json(path)]


def _is_json(path: Path) -> bool:
    try:
        json.loads(read_text(path, LARGEST_TEXT))
    except (OSError, ValueError, RecursionError):  # it was deleted or damaged
        return False
    return True


def _results(task: Task, data: str, part: str, values: Mapping[str, Any]) -> list[_Result]:
    return [
        _Result(data, visible(part), metric, value)
        for metric in task.metrics
        if (value := finite_number(values.get(metric.name))) is not None
    ]


def _model_sum(folder: RunFolder) -> str:
    sums = folder.manifest.read().files.get(folder.model.name)
    return sums[-1] if sums else sha256(folder.model)


# Names that may be shown


def public_name(source: str, data_sets: Collection[str] = ()) -> str:
    """Returns the name of data or of a run without the folders of a machine: a base name, or a name on the hub.

    A comma separates two names. The text after a ``?`` may be a secret and is left out. Only the run's ``data_sets``,
    from `hub_data_sets`, are names on the hub; any other name is that of a file.
    """
    return ",".join(_public_part(part, data_sets) for part in source.split(","))


def _public_part(name: str, data_sets: Collection[str]) -> str:
    name = name.partition("?")[0]
    if is_hub_address(name):
        return visible(re.sub("^hf:/+", "hf://", name))
    if name.partition(":")[0] in data_sets:
        return visible(name)
    return visible(re.split(r"[/\\]", name.rstrip("/\\"))[-1])


def hub_data_sets(data: Mapping[str, Any], manifest: ManifestFile) -> frozenset[str]:
    """Returns the data sets on the hub, ``OWNER/NAME``, that a run was trained on or validated with, by the section
    ``data`` of its configuration. Files in the working directory do not matter: the manifest has the files of local
    data."""
    content = manifest.read()
    if content == Manifest():
        return frozenset()
    sources = {part: data.get(part) for part in ("train", "validation") if part not in content.data}
    return frozenset(
        source.partition(":")[0]
        for source in sources.values()
        if isinstance(source, str) and _HUB_NAME.fullmatch(source) and not _FILE_SUFFIX.search(source)
        if manifest.resolve(source) == source
    )


def visible(text: str) -> str:
    """Returns a text as one line, in which invisible characters are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escaped(text: str) -> str:
    """Returns a text in which every character with a meaning in Markdown is escaped."""
    shown = re.sub(r"([\\`*\[\]<>#|~$&@]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", visible(text))
    return re.sub(r"(?i)www\.", r"www\\.", shown).replace("://", ":\\//")


def published_config(content: Mapping[str, Any], manifest: ManifestFile) -> dict[str, Any]:
    """Returns the content of ``config.yaml`` without the folders of this machine."""
    data = content.get("data")
    data_sets = hub_data_sets(data if isinstance(data, Mapping) else {}, manifest)
    return {
        section: {name: _without_folders(name, value, data_sets) for name, value in fields.items()}
        if isinstance(fields, Mapping)
        else fields
        for section, fields in content.items()
    }


def _without_folders(option: str, value: Any, data_sets: Collection[str] = ()) -> Any:
    """Returns the value of an option, in which names of data and runs have no folders."""
    if isinstance(value, list):
        return [_without_folders(option, one, data_sets) for one in value]
    is_file = option in _FILE_OPTIONS or (option == "classes" and "," not in str(value))  # one class is a file
    return public_name(value, data_sets) if isinstance(value, str) and is_file else value
