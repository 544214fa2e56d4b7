"""Divides the two speech corpora of docs/en/understand/results.md into training, validation and test tables.

    python -m bench.scripts.speech_parts fsdd FOLDER/train.tsv OUTPUT
    python -m bench.scripts.speech_parts an4 FOLDER/train.tsv OUTPUT

``fsdd`` (spoken digits, files named DIGIT_SPEAKER_NUMBER.wav) writes ``train.tsv``, ``validation.tsv`` (3 recordings of
each speaker and digit) and ``test.tsv`` (5 of each); and, of these recordings, ``joined-validation.tsv`` and
``joined-test.tsv``, whose sounds are 3 to 7 digits that are joined at random, without a pause, in ``OUTPUT/joined``.
``an4`` writes ``test.tsv`` (95 random utterances) and ``train.tsv`` (the others, of which a training holds out what it
validates on). The parts depend on ``--seed`` alone. Nothing of the corpora is copied but into OUTPUT.
"""

import argparse
import csv
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import soundfile

TEST_EACH, VALIDATION_EACH = 5, 3
SHORTEST, LONGEST = 3, 7
AN4_TEST = 95

Row = tuple[str, str]


def read(table: Path) -> list[Row]:
    """The absolute path and the text of each row."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    return [(str((table.parent / path).resolve()), text) for path, text in rows]


def write(path: Path, rows: list[Row]) -> None:
    lines = [f"{sound}\t{text}\n" for sound, text in [("audio", "text"), *rows]]
    path.write_text("".join(lines), encoding="utf-8")
    print(f"{path}: {len(rows)} rows")


def fsdd(rows: list[Row], output: Path, draws: random.Random, joined: int) -> None:
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        digit, speaker, _ = Path(row[0]).stem.split("_")
        groups[digit, speaker].append(row)
    parts: dict[str, list[Row]] = {"test": [], "validation": [], "train": []}
    for _, group in sorted(groups.items()):
        draws.shuffle(group)
        parts["test"] += group[:TEST_EACH]
        parts["validation"] += group[TEST_EACH : TEST_EACH + VALIDATION_EACH]
        parts["train"] += group[TEST_EACH + VALIDATION_EACH :]
    for part, chosen in parts.items():
        write(output / f"{part}.tsv", sorted(chosen))
    (output / "joined").mkdir(exist_ok=True)
    for part, count in (("validation", joined // 2), ("test", joined)):
        found = []
        for number in range(count):
            chosen = draws.choices(parts[part], k=draws.randint(SHORTEST, LONGEST))
            sounds = [soundfile.read(sound, dtype="int16") for sound, _ in chosen]
            path = output / "joined" / f"{part}-{number:04d}.wav"
            soundfile.write(path, np.concatenate([samples for samples, _ in sounds]), sounds[0][1])
            found.append((str(path.resolve()), " ".join(text for _, text in chosen)))
        write(output / f"joined-{part}.tsv", found)


def an4(rows: list[Row], output: Path, draws: random.Random) -> None:
    order = sorted(rows)
    draws.shuffle(order)
    write(output / "test.tsv", order[:AN4_TEST])
    write(output / "train.tsv", order[AN4_TEST:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", choices=("fsdd", "an4"))
    parser.add_argument("table", type=Path, help="the table of the corpus: columns of paths and of texts")
    parser.add_argument("output", type=Path, help="folder of the parts; created if it does not exist")
    parser.add_argument(
        "--joined", type=int, default=500, help="joined test sounds (default: 500; half for validation)"
    )
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    rows, draws = read(given.table), random.Random(given.seed)
    if given.corpus == "fsdd":
        fsdd(rows, given.output, draws, given.joined)
    else:
        an4(rows, given.output, draws)


if __name__ == "__main__":
    main()
