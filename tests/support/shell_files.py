"""Files of each task, as the README and the pages name them, for the tests of their shell lines."""

import json
import math
import shlex
import shutil
import wave
from pathlib import Path

import numpy as np
from PIL import Image

EXAMPLES = 20  # the fewest of which two are held out for validation
WORDS = ("the", "old", "red", "house", "is", "not", "far", "from", "my", "green", "garden")


def sentence(number):
    return " ".join(WORDS[(number * step + step) % len(WORDS)] for step in (1, 3, 4, 7))


def write_table(path, columns, rows):
    lines = ["\t".join(columns), *("\t".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_json_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def write_image(path, seed, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (16, 24, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)


def write_sound(path, frequency):
    path.parent.mkdir(parents=True, exist_ok=True)
    wave_form = np.sin(2 * math.pi * frequency / 8000 * np.arange(2400))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes((wave_form * 9000).astype("<i2").tobytes())


def translate_files(folder):
    rows = [(sentence(number), sentence(number + 1).upper()) for number in range(EXAMPLES)]
    write_table(folder / "train.tsv", ("spa", "eng"), rows)
    write_table(folder / "val.tsv", ("spa", "eng"), rows[::5])
    return folder / "val.tsv", sentence(3)


def language_files(folder):
    for name in ("books/one.txt", "books/old/two.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(" ".join(map(sentence, range(300))) + "\n", encoding="utf-8")
    return folder / "books" / "one.txt", "the old"


def classify_files(folder):
    rows = [(sentence(number), ("good", "bad")[number % 2]) for number in range(EXAMPLES)]
    return write_table(folder / "reviews.tsv", ("text", "label"), rows), sentence(3)


def summarize_files(folder):
    rows = [{"article": f"{sentence(n)} {sentence(n + 1)}", "summary": sentence(n)} for n in range(EXAMPLES)]
    return write_json_lines(folder / "articles.jsonl", rows), sentence(3)


def caption_files(folder):
    rows = [{"image": f"pictures/{n}.png", "captions": [sentence(n), sentence(n + 1)]} for n in range(EXAMPLES)]
    for number, row in enumerate(rows):
        write_image(folder / row["image"], number)
    return write_json_lines(folder / "captions.jsonl", rows), folder / rows[0]["image"]


def images_files(folder):
    for number in range(EXAMPLES):
        # Photographs of all kinds: grey, with transparency, with the suffixes of cameras.
        name, mode = (("a.JPG", "RGB"), ("b.png", "RGBA"), ("c.png", "L"), ("d.jpeg", "L"))[number % 4]
        write_image(folder / "photos" / ("cat", "dog")[number % 2] / f"{number}{name}", number, mode)
    return folder / "photos", folder / "photos" / "cat" / "0a.JPG"


def segment_files(folder):
    streets = folder / "streets" / "train"
    (streets / "labels").mkdir(parents=True)
    for number in range(EXAMPLES):
        write_image(streets / "images" / f"{number}.jpg", number)
        classes = np.full((16, 24), (0, 2, 11)[number % 3], np.uint8)  # 1 occurs nowhere
        classes[:8] = number % 4
        kind = (np.uint8, np.uint16)[number % 2]
        Image.fromarray(classes.astype(kind)).save(streets / "labels" / f"{number}.png")
    return streets, streets / "images" / "0.jpg"


def sound_files(folder, table, texts):
    for number in range(EXAMPLES):
        write_sound(folder / "sounds" / f"{number}.wav", 300 + 200 * (number % 2))
    rows = [(f"sounds/{number}.wav", texts[number % 2]) for number in range(EXAMPLES)]
    return write_table(folder / table, ("audio", "text"), rows), folder / "sounds" / "0.wav"


def transcribe_files(folder):
    return sound_files(folder, "speech.tsv", ("zero one", "two"))


def sounds_files(folder):
    return sound_files(folder, "digits.tsv", ("0", "1"))


SMALL = {
    "translate": "--tokenizer word --hidden 8",
    "language": "--tokenizer char --hidden 8 --heads 2 --layers 1 --context 16 --steps-per-epoch 2 --held-out 200",
    "classify": "--hidden 8 --embedding 6",
    "summarize": "--hidden 8 --embedding 6 --min-count 1",
    "caption": "--hidden 8 --embedding 6 --grid 8 --stages 2 --image-size 16 --max-length 5",
    "images": "--hidden 8 --heads 2 --layers 1 --image-size 16 --patch 8",
    "segment": "--channels 8 --levels 2 --blocks 1 --decoder-channels 8",
    "transcribe": "--rate 8000 --hidden 8 --pyramid-layers 1 --embedding 6 --decoder-hidden 8 --score-features 5",
    "sounds": "--rate 8000 --hidden 8 --pyramid-layers 1",
}
"""Options of each task that make a training short."""


def short_arguments(line: str) -> list[str]:
    """The arguments of a line; of a training on the CPU, with the options that make it short where it has no others."""
    _, *arguments = shlex.split(line, comments=True)
    if arguments[0] == "train":
        short = iter(f"{SMALL[arguments[1]]} --epochs 1 --threads 1 --accelerator cpu".split())
        arguments += [word for pair in zip(short, short, strict=True) if pair[0] not in arguments for word in pair]
    return arguments


def prepare(folder: Path) -> None:
    """Files of all tasks, by the names that the lines of the pages use."""
    for task in SMALL:
        globals()[f"{task}_files"](folder)
    copies = {
        "test.tsv": "val.tsv", "validation.tsv": "val.tsv", "test.jsonl": "articles.jsonl",
        "scenes": "pictures", "streets/val": "streets/train",
    }  # fmt: skip
    for name, original in copies.items():
        source, target = folder / original, folder / name
        shutil.copytree(source, target) if source.is_dir() else shutil.copyfile(source, target)
    np.save(folder / "query.npy", np.eye(3, 4))
    (folder / "key.json").write_text(json.dumps(np.eye(5, 4).tolist()), encoding="utf-8")
    write_image(folder / "photo.jpg", 0)
    (folder / "texts.txt").write_text("".join(f"{sentence(number)}\n" for number in range(3)), encoding="utf-8")
    vectors = "".join(f"{word}{' 0.1' * 100}\n" for word in WORDS)
    (folder / "glove.6B.100d.txt").write_text(vectors, encoding="utf-8")
    write_image(folder / "photos" / "square" / "0.png", 0)
    (folder / "streets" / "val" / "images" / "0.jpg").unlink()
    write_image(folder / "streets" / "val" / "images" / "0.png", 0)
