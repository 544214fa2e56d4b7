"""Data in memory: every container gives the rows that it holds, or one line that says what to give."""

import io
import logging

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest
import torch
from PIL import Image

import regard
from regard.errors import ArgumentError, DataError, KindError
from regard.tasks import registry
from regard.tasks.stored_data import prepared, store

TEXTS, LABELS = ["a fine film", "a dull one", "fine", "dull"], ["good", "bad", "good", "bad"]
PAIRS = list(zip(TEXTS, LABELS, strict=True))
FRAME = pd.DataFrame({"text": TEXTS, "label": LABELS})
TABLE = pa.table({"text": TEXTS, "label": LABELS})
NAMES = datasets.ClassLabel(names=["bad", "good"])
FEATURES = datasets.Features({"text": datasets.Value("string"), "label": NAMES})
NUMBERED = datasets.Dataset.from_dict({"text": TEXTS, "label": [1, 0, 1, 0]}, features=FEATURES)


class Numbered(torch.utils.data.Dataset):
    """A data set of PyTorch that does not end with an IndexError."""

    def __len__(self):
        return len(TEXTS)

    def __getitem__(self, number):
        return TEXTS[number % 4], LABELS[number % 4]


def transform(batch):
    return {"text": [text.upper() for text in batch["text"]], "label": ["x"] * len(batch["text"])}


FORMS = {
    "two lists": lambda: (TEXTS, LABELS),
    "pairs": lambda: PAIRS,
    "generator": lambda: iter(PAIRS),
    "generators": lambda: ((text for text in TEXTS), (label for label in LABELS)),
    "columns": lambda: {"text": TEXTS, "label": LABELS},
    "other columns": lambda: {"id": range(4), "label": LABELS, "text": TEXTS},
    "arrays": lambda: (np.array(TEXTS), np.array(LABELS)),
    "array": lambda: np.array(PAIRS),
    "array of objects": lambda: np.array(PAIRS, object),
    "structured array": lambda: np.array(
        [(label, text) for text, label in PAIRS], [("label", "U9"), ("text", "U20")]
    ),
    "series": lambda: (FRAME["text"], FRAME["label"]),
    "pandas": lambda: FRAME,
    "pandas with an index": lambda: FRAME.set_axis(["w", "x", "y", "z"]),
    "pandas with a named index": lambda: FRAME.assign(id=[4, 3, 2, 1]).set_index("id"),
    "pandas with categories": lambda: FRAME.astype({"label": "category"}),
    "pandas without names": lambda: pd.DataFrame(PAIRS),
    "pandas with dates and arrays": lambda: FRAME.assign(day=pd.Timestamp("2026-11-28"), vector=[np.zeros((2, 2))] * 4),
    "arrow": lambda: TABLE,
    "arrow in chunks": lambda: pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
    "arrow with a dictionary": lambda: pa.table({"text": TEXTS, "label": pa.array(LABELS).dictionary_encode()}),
    "arrow batch": lambda: TABLE.to_batches()[0],
    "arrow reader": lambda: TABLE.to_reader(),
    "arrow data set": lambda: pa.dataset.dataset(TABLE),
    "arrow columns": lambda: (TABLE["text"], TABLE["label"].combine_chunks()),
    "arrow of a data set": lambda: NUMBERED.data.table,
    "data set": lambda: NUMBERED,
    "data set as numpy": lambda: NUMBERED.with_format("numpy"),
    "data set as torch": lambda: NUMBERED.with_format("torch", columns=["label"]),
    "data set as pandas": lambda: NUMBERED.with_format("pandas"),
    "data set as arrow": lambda: NUMBERED.with_format("arrow"),
    "streamed data set": lambda: NUMBERED.to_iterable_dataset(),
    "streamed data set as numpy": lambda: NUMBERED.to_iterable_dataset().with_format("numpy"),
    "columns of a data set": lambda: (_column("text"), _column("label")),
    "columns of a data set by name": lambda: {"text": _column("text"), "label": _column("label")},
    "rows of a data set": lambda: NUMBERED.cast_column("label", datasets.Value("string")).map(
        lambda row: {"label": ["bad", "good"][int(row["label"])]}
    ),
    "data set of PyTorch": Numbered,
    "part of one": lambda: torch.utils.data.Subset(Numbered(), range(4)),
    "several": lambda: torch.utils.data.ConcatDataset([torch.utils.data.Subset(Numbered(), [n]) for n in range(4)]),
    "polars": lambda: _polars().DataFrame({"text": TEXTS, "label": LABELS}),
    "polars with categories": lambda: _polars().DataFrame({"text": TEXTS, "label": LABELS}).with_columns(
        _polars().col("label").cast(_polars().Categorical)
    ),
    "polars, lazy": lambda: _polars().LazyFrame({"text": TEXTS, "label": LABELS}),
    "columns of polars": lambda: (_polars().Series(TEXTS), _polars().Series(LABELS)),
}  # fmt: skip
"""What gives the same rows in another container."""


def _column(name):
    column = NUMBERED[name]
    if isinstance(column, list):
        pytest.skip("datasets before 4 give a column as a list, which knows no names of classes")
    return column


def _polars():
    return pytest.importorskip("polars")


@pytest.fixture(autouse=True)
def _cache(own_cache):
    """The data sets of a test are cached in its own folder."""


def stored(task, data, folder, options=None, columns=()):
    """The rows that a task reads of data in memory."""
    kind = registry.find(task)
    path, data = prepared(kind, data, folder / "train", "train", options or {})
    store(kind, data, folder / "train", "train", options or {})
    return kind.input.open(path, columns, type("Data", (), {"lowercase": False}))


def labelled(data, folder):
    rows = stored("classify", data, folder, columns=("text", "label"))
    return list(zip(rows["source"], rows["target"], strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_every_container_gives_its_rows(form, tmp_path):
    assert labelled(FORMS[form](), tmp_path) == PAIRS


@pytest.mark.parametrize("numbers", [list, np.array, torch.tensor, lambda numbers: np.array(numbers, np.int8)])
def test_numbers_of_classes_that_a_data_set_makes_itself_are_numbers(numbers, tmp_path):
    """datasets 5.2: a transform may give arrays, whose elements are no numbers of Python."""

    def made(batch):
        return {**batch, "label": numbers([number if number else -1 for number in batch["label"]])}

    data = NUMBERED.select([0, 2, 1]).with_transform(made)
    assert labelled(data, tmp_path) == [(TEXTS[0], "good"), (TEXTS[2], "good")]


def test_rows_that_a_data_set_makes_itself_are_those_that_it_makes(tmp_path):
    assert labelled(NUMBERED.with_transform(transform), tmp_path) == [(text.upper(), "x") for text in TEXTS]


NULLS = {
    "None": [("a", "x"), (None, "x"), ("b", None), ("c", "y")],
    "NaN": [("a", "x"), (float("nan"), "x"), ("b", np.float64("nan")), ("c", "y")],
    "NA": [("a", "x"), (pd.NA, "x"), ("b", pd.NaT), ("c", "y")],
    "empty": [("a", "x"), (" ", "x"), ("b", ""), ("c", "y")],
    "dictionaries": [{"text": "a", "label": "x"}, {"label": "x"}, {"text": "b", "label": None},
                     {"text": "c", "label": "y"}],
    "pandas": pd.DataFrame({"text": ["a", None, "b", "c"], "label": ["x", "x", np.nan, "y"]}),
    "pandas' objects": pd.DataFrame({"text": ["a", None, "b", "c"], "label": ["x", "x", np.nan, "y"]}, dtype=object),
    "pandas' categories": pd.DataFrame({"text": ["a", None, "b", "c"], "label": ["x", "x", None, "y"]}).astype(
        {"label": "category"}
    ),
    "arrow": pa.table({"text": ["a", None, "b", "c"], "label": ["x", "x", None, "y"]}),
    "data set": datasets.Dataset.from_dict({"text": ["a", None, "b", "c"], "label": ["x", "x", None, "y"]}),
    "classes": datasets.Dataset.from_dict(
        {"text": ["a", None, "b", "c"], "label": [0, 0, -1, 1]},
        features=datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["x", "y"])}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", NULLS)
def test_null_rows_in_memory_are_left_out_and_counted(form, tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="regard"):
        assert labelled(NULLS[form], tmp_path) == [("a", "x"), ("c", "y")]
    assert "left out 2 rows (1 without 'text', 1 without 'label'): " in caplog.text


def test_numbers_with_nulls_stay_whole_numbers(tmp_path):
    """pandas turns whole numbers beside a null into floats."""
    for kind in (None, "Int64"):
        frame = pd.DataFrame({"text": ["a", "b", "c"], "label": pd.Series([1, None, 2], dtype=kind)})
        assert labelled(frame, tmp_path) == [("a", "1"), ("c", "2")]


def test_texts_without_a_value_are_left_out_counted_and_said(tmp_path, caplog):
    texts = ["one", None, "two", float("nan")]
    for data in (texts, {"text": texts}, pd.DataFrame({"text": texts}), pa.table({"text": ["one", None, "two", None]})):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="regard"):
            assert [file.read_text() for file in stored("language", data, tmp_path)] == ["one", "two"]
        assert [record.getMessage() for record in caplog.records] == ["train: left out 2 rows without text; 2 are left"]


def test_translations_are_objects_with_a_text_for_each_language(tmp_path):
    pairs = [{"de": "Ja", "en": "Yes"}, {"de": "Nein", "en": "No"}]
    features = datasets.Features({"translation": datasets.Translation(["de", "en"]), "id": datasets.Value("int64")})
    data = datasets.Dataset.from_dict({"translation": pairs, "id": [7, 8]}, features=features)
    for form in (data, data.to_iterable_dataset(), data.data.table, data.to_list(), data.to_pandas()):
        rows = stored("translate", form, tmp_path, columns=("translation.de", "translation.en"))
        assert list(rows["target"]) == ["Yes", "No"]
    rows = stored("translate", data.remove_columns("id"), tmp_path, columns=(None, None))
    assert list(rows["source"]) == ["Ja", "Nein"]


@pytest.mark.parametrize("kind", [datasets.DatasetDict, datasets.IterableDatasetDict, dict])
def test_several_parts_are_not_one_table(kind, tmp_path):
    parts = {"train": NUMBERED, "test": NUMBERED}
    if kind is datasets.IterableDatasetDict:
        parts = {name: part.to_iterable_dataset() for name, part in parts.items()}
    for task in ("classify", "language"):
        with pytest.raises(ArgumentError, match=r"train has the parts 'train', 'test'; give .* as data\['train'\]"):
            stored(task, kind(parts), tmp_path)
    with pytest.raises(ArgumentError, match="train has the parts 'a'"):
        stored("classify", {"a": FRAME}, tmp_path)


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (pd.concat([FRAME, FRAME["text"]], axis=1), ArgumentError, "train has two columns 'text'; rename one"),
        (pd.DataFrame([["a", "b"]], columns=[("a", "b"), ("c", "d")]), KindError, "columns named by texts"),
        (FRAME.assign(text=pd.Timestamp("2026-11-28")), KindError, r"train\[0\]: text must be text"),
        (FRAME["text"], KindError, r"train\[0\] must be a dictionary"),
        (TABLE["text"], KindError, r"train\[0\] must be a dictionary"),
        (torch.utils.data.DataLoader(Numbered(), batch_size=2), DataError, "must be text; it is a list"),
    ],
)  # fmt: skip
def test_data_in_memory_that_are_no_table_are_named(data, error, words, tmp_path):
    with pytest.raises(error, match=words) as refused:
        labelled(data, tmp_path)
    assert len(str(refused.value).splitlines()) == 1


def test_a_lazy_frame_that_cannot_be_collected_is_named(tmp_path):
    frame = _polars().LazyFrame({"text": TEXTS, "label": LABELS}).select("none")
    with pytest.raises(DataError, match=r"train: the LazyFrame cannot be collected \("):
        labelled(frame, tmp_path)


def test_classes_of_a_data_set_train_by_their_names():
    options = {"epochs": 1, "threads": 1, "quiet": True, "accelerator": "cpu", "architecture": "none", "embedding": 8}
    data = datasets.concatenate_datasets([NUMBERED] * 5)
    run = regard.train("classify", data, validation=NUMBERED, **options)
    assert run.labels.names == ("bad", "good")
    assert run.evaluate(NUMBERED.to_iterable_dataset()).by_label[0].label == "bad"


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


PIXELS = [np.full((6, 7, 3), 40 * number, np.uint8) for number in range(3)]


def image_forms(folder):
    """Images of a data set in memory: decoded or not, with bytes or in files; and as other libraries have them."""
    paths = []
    for number, pixels in enumerate(PIXELS):
        paths.append(str(folder / f"{number}.png"))
        Image.fromarray(pixels).save(paths[-1])
    features = datasets.Features({"image": datasets.Image(), "label": NAMES})
    of_bytes = [{"bytes": png(pixels), "path": None} for pixels in PIXELS]
    for images in (of_bytes, paths):
        data = datasets.Dataset.from_dict({"image": images, "label": [0, 1, 0]}, features=features)
        yield from (data, data.cast_column("image", datasets.Image(decode=False)), data.to_iterable_dataset())
        yield from (data.data.table, data.with_format("numpy"), data.to_pandas().assign(label=["bad", "good", "bad"]))
        data.to_parquet(folder / "a.parquet")
        yield str(folder / "a.parquet")
    yield [(png(pixels), label) for pixels, label in zip(PIXELS, ["bad", "good", "bad"], strict=True)]


def test_images_that_are_not_decoded(tmp_path):
    for data in image_forms(tmp_path):
        if isinstance(data, str):
            rows = registry.find("images").input.open(data, (), None)
        else:
            rows = stored("images", data, tmp_path / "stored")
        assert [row.texts[0] for row in rows] == ["bad", "good", "bad"]
        for row, pixels in zip(rows, PIXELS, strict=True):
            assert np.array_equal(row.picture.pixels(), pixels)


def test_masks_of_a_data_set_keep_their_numbers(tmp_path):
    """A grey PNG of 2 bits: `datasets` 5.2.0 decodes it with Pillow, which spreads its levels over 0 to 255."""
    from data.images.test_class_maps import png as grey_png

    classes = np.arange(42).reshape(6, 7) % 4
    mask = {"bytes": grey_png(classes, 2), "path": None}
    features = datasets.Features({"image": datasets.Image(), "mask": datasets.Image()})
    images = [{"bytes": png(PIXELS[0]), "path": None}]
    data = datasets.Dataset.from_dict({"image": images, "mask": [mask]}, features=features)
    data.to_parquet(tmp_path / "a.parquet")
    found = [registry.find("segment").input.open(str(tmp_path / "a.parquet"), (), None)]
    for number, form in enumerate((data, data.to_iterable_dataset(), data.data.table)):
        found += [stored("segment", form, tmp_path / str(number))]
    with Image.open(io.BytesIO(mask["bytes"])) as image:
        found.append(stored("segment", [(PIXELS[0], image)], tmp_path / "stored"))
    for (row,) in found:
        assert np.array_equal(row.load().classes, classes)
        assert np.array_equal(row.load().pixels, PIXELS[0])


@pytest.mark.parametrize("image_column", ["image", "scan"])
def test_a_row_that_lacks_its_image_is_left_out(image_column, tmp_path, caplog):
    """Its label or its captions are no image, whichever row it is and whatever else the row has."""
    image = PIXELS[0]
    targets = [("images", "label", "a"), ("caption", "captions", ["one", "two"]), ("caption", "caption", "one")]
    for number, (task, target, value) in enumerate([*targets, ("segment", "mask", image[..., 0])]):
        whole = {image_column: image, target: value, "id": 1}
        for place, rows in enumerate(([whole, {target: value, "id": 2}], [{target: value}, whole])):
            caplog.clear()
            with caplog.at_level(logging.WARNING, logger="regard"):
                assert len(stored(task, rows, tmp_path / f"{number}{place}")) == 1
            assert "left out 1 row without" in caplog.text
        with pytest.raises(ArgumentError, match=f"train has no column image; it has {target}"):
            stored(task, [{target: value}], tmp_path / f"{number}")


def test_images_without_a_value_are_left_out(tmp_path, caplog):
    features = datasets.Features({"image": datasets.Image(), "label": NAMES})
    images = [{"bytes": png(PIXELS[0]), "path": None}, None, {"bytes": png(PIXELS[2]), "path": None}]
    data = datasets.Dataset.from_dict({"image": images, "label": [1, 0, -1]}, features=features)
    data.to_parquet(tmp_path / "a.parquet")
    for form in (data, data.data.table, None):
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="regard"):
            if form is None:
                rows = registry.find("images").input.open(str(tmp_path / "a.parquet"), (), None)
            else:
                rows = stored("images", form, tmp_path / "stored")
        assert [row.texts for row in rows] == [("good",)]
        assert "left out 2 rows without 'image' and 'label'; 1 are left" in caplog.text
