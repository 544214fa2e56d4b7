"""Compares trained translators: BLEU, chrF and BLEU by source length, as a table and a picture.

    python -m bench.scripts.compare_runs EVALUATION NAME=RUN [NAME=RUN ...] [--picture FILE]

EVALUATION is the name of the evaluation that `regard evaluate` wrote into each RUN, e.g. `test_2016_flickr`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from regard.pictures import bleu_by_length, save


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evaluation", help="name of the evaluated data")
    parser.add_argument("runs", nargs="+", metavar="NAME=RUN", help="run folders")
    parser.add_argument("--least", type=int, default=10, help="leave out bins with fewer sentences")
    parser.add_argument("--picture", type=Path, help="BLEU by source length, .png or .svg")
    arguments = parser.parse_args()
    runs = {name: Path(path) for name, path in (run.split("=", 1) for run in arguments.runs)}
    found = {
        name: json.loads((run / f"evaluation-{arguments.evaluation}.json").read_text()) for name, run in runs.items()
    }
    first = next(iter(found.values()))
    bins = [_words(part) for part in first["by_length"] if part["pairs"] >= arguments.least]
    print(_row(["attention", "BLEU", "chrF", "perplexity", "minutes", *(f"{words} words" for words in bins)]))
    print(_row(["---"] * (5 + len(bins))))
    series = {}
    for name, evaluation in found.items():
        by_length = {_words(part): part["bleu"] for part in evaluation["by_length"]}
        series[name] = [by_length[words] for words in bins]
        figures = [f"{evaluation[key]:.2f}" for key in ("bleu", "chrf", "perplexity")]
        print(_row([name, *figures, f"{_minutes(runs[name]):.0f}", *(f"{bleu:.1f}" for bleu in series[name])]))
    counts = [part["pairs"] for part in first["by_length"] if part["pairs"] >= arguments.least]
    print(_row(["sentences", *[""] * 4, *map(str, counts)]))
    if arguments.picture:
        save(bleu_by_length(bins, series, counts), arguments.picture)


def _words(part: dict[str, Any]) -> str:
    return f"{part['shortest']}–{part['longest']}"


def _minutes(run: Path) -> float:
    """Minutes of training and validation of a run."""
    header, *rows = (run / "metrics.csv").read_text().split()
    last: dict[str, Any] = dict(zip(header.split(","), rows[-1].split(","), strict=True))
    return float(last["seconds"]) / 60


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
