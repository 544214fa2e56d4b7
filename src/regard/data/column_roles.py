"""The choice of the columns that a task reads from a table: by options, by usual names, by the content of cells.

A column that the user names is read; else the one with a default name; else the only one with a usual name, or the only
one whose cells are files of the right kind, and a message reports that choice. If none of these exists, a `ColumnError`
names the options, with a guess by the content of the columns.
"""

import logging
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from regard.data.class_folders import FEATURE_SUFFIX, IMAGE_SUFFIXES, SOUND_SUFFIXES
from regard.data.records import (
    Records,
    Say,
    StoredFile,
    check_different,
    is_null,
    label_text,
    listed_names,
    missing_column,
    nearest_column,
    quoted_names,
    shortened,
)
from regard.errors import ColumnError, DataError

log = logging.getLogger("regard")

SAMPLED_ROWS, SAMPLED_FILE_ROWS = 10_000, 100
"""Rows whose cells are looked at, at most; and of a table that holds files."""

FEWEST_ROWS = 20
"""In fewer rows, labels need not repeat."""

LARGEST_SHARE = 0.5
"""A column of labels has at most so many different values for each row."""

_FILES = {
    kind: re.compile(rf"({'|'.join(map(re.escape, suffixes))})$", re.IGNORECASE)
    for kind, suffixes in (("image", IMAGE_SUFFIXES), ("sound", (*SOUND_SUFFIXES, FEATURE_SUFFIX)))
}
_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}( .*)?|\d{1,2}:\d{2}(:\d{2})?"
)
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d+)*|\.\d+)([eE][+-]?\d+)?%?")
_CODE = re.compile(r"(?=.*\d)[A-Za-z0-9_.:/#-]+|https?://\S+|[^@\s]+@[^@\s]+\.\w+")
_CODES = re.compile(r"(\s*\d[\w.:/#-]*)+")  # such as alignments, 0-0 1-2
_PART = re.compile(r"[\W_]+|(?<=[a-z])(?=[A-Z])")
_IDS = frozenset(
    re.findall(r"\w+", "id ids uuid guid nr no num number index idx key date time timestamp created updated at on by")
)
"""Last words of the names of columns that are neither texts nor labels."""

_TEXTS = (
    "text texts sentence sentences review reviews message messages comment comments tweet post body content document "
    "description utterance 文本 内容 正文 评论 句子 テキスト 本文 文章 内容文 텍스트 내용 ข้อความ texto texte"
)
_LABELS = (
    "label labels class classes category categories sentiment target intent topic emotion tag genre rating stars y "
    "标签 类别 分类 情感 ラベル カテゴリ カテゴリー 分類 라벨 분류 หมวดหมู่ kategorie klasse categoría etiqueta catégorie"
)
_IMAGES = "image images img picture pictures photo photos path file filename filepath imagepath"
_SOUNDS = "audio sound sounds recording wav path file filename filepath audiopath features"

Content = Literal["text", "label", "image", "mask", "sound"]

_BY_CERTAINTY = "image", "sound", "mask", "text", "label"

_MOST_LABELS = 5  # columns in a message
_LONGEST_LABEL = 30  # characters, where labels are too few to repeat


@dataclass(frozen=True)
class Role:
    """What a task reads in a column.

    Attributes:
        option: the option that names the column.
        holds: what the column has, for messages: ``"the texts"``.
        content: what its cells are.
        defaults: default names, of which the first that a table has is read without a message.
        usual: other names; a column with one of them is read if it is the only one.
        by_position: whether the column may be the first or the second of two columns of any names.
    """

    option: str
    holds: str
    content: Content
    defaults: tuple[str, ...]
    usual: frozenset[str] = frozenset()
    by_position: bool = False

    @property
    def field(self) -> str:
        """The field of the option."""
        return self.option.removeprefix("--").replace("-", "_")


def _folded(name: str) -> str:
    """Returns a name without case, spaces and punctuation."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", name).casefold())


def _role(option: str, holds: str, content: Content, default: str, usual: str, by_position: bool = False) -> Role:
    """Returns a role whose names are separated by spaces."""
    names = frozenset(map(_folded, f"{default} {usual}".split()))
    return Role(option, holds, content, tuple(default.split()), names, by_position)


TEXT = _role("--text-column", "the texts", "text", "text", _TEXTS)
LABEL = _role("--label-column", "the labels", "label", "label", _LABELS)
SOURCE = _role("--source-column", "the sources", "text", "source", "src sourcetext original", by_position=True)
TARGET = _role("--target-column", "the targets", "text", "target", "tgt trg targettext translation", by_position=True)
ARTICLE = _role(
    "--article-column", "the articles", "text", "article",
    "article articles text document documents body content story dialogue 正文 文章 本文 内容", by_position=True,
)  # fmt: skip
SUMMARY = _role(
    "--summary-column", "the summaries", "text", "summary",
    "summary summaries highlights abstract headline title tldr 摘要 标题 要約 タイトル", by_position=True,
)  # fmt: skip
IMAGE = _role("--image-column", "the images", "image", "image", _IMAGES)
CAPTION = _role("--text-column", "the captions", "text", "captions caption", f"alt alttext title {_TEXTS}")
MASK = _role("--mask-column", "the class maps", "mask", "mask", "masks label labels annotation segmentation labelmap")
SOUND = _role("--sound-column", "the sounds", "sound", "sound audio", _SOUNDS, by_position=True)
SPOKEN_TEXT = _role(
    "--text-column", "the texts", "text", "text", f"transcript transcription transcriptions {_TEXTS}", by_position=True
)  # fmt: skip
HEARD_LABEL = _role(
    "--label-column", "the labels", "label", "label", f"text word command event {_LABELS}", by_position=True
)
PAIR = SOURCE, TARGET

Roles = tuple[Role, Role]


def expecting(roles: Roles, names: Sequence[str | None]) -> Roles:
    """Returns the roles of data that should have the columns ``names`` of other data, such as those of a training."""
    first, second = (
        one if name is None else replace(one, defaults=(name, *one.defaults), by_position=False)
        for one, name in zip(roles, names, strict=True)
    )
    return first, second


def choose_columns(
    records: Records, roles: Roles, named: Sequence[str | None] = (None, None), say: Say = log.warning
) -> tuple[str, str]:
    """Returns the columns of a table that a task reads: those that the user named, or else those that fit the roles.

    ``say`` gets a line for the user about a remark on the table, about a column that was chosen by a usual name, and
    about names of columns that may be a row. Raises ColumnError if a column does not exist, or cannot be told, and
    DataError if there are no rows, or two columns have one name.
    """
    where, names = records.header, [name for name in records.columns if name]
    if not records.columns:
        raise DataError(f"{records.name}: there are no rows; check the file")
    check_different(where, names)
    if records.remark:
        say(f"{records.name}: {records.remark}")
    for one, name in zip(roles, named, strict=True):
        if name is not None and not has_column(records, name):
            known = {other.field: column for other, column in zip(roles, named, strict=True)}
            known[one.field] = nearest_column(name, _names(records))
            raise _with_guesses(missing_column(records, name), records, roles, known)
    chosen = _chosen(records, roles, named)
    columns = [name for name, _ in chosen]
    if None not in columns:
        for one, (name, reason) in zip(roles, chosen, strict=True):
            if reason:
                say(f"{where}: {one.holds} are read in the column {shortened(name)}, {reason} ({one.option})")
        return chosen[0][0], chosen[1][0]  # pyright: ignore[reportReturnType]
    if _are_positional(records, roles, named):
        if records.doubt:
            say(f"{where}: {records.doubt}")
        return names[0], names[1]
    if records.advice:
        raise DataError(f"{where}: {records.advice}")
    known = {one.field: name for one, name in zip(roles, columns, strict=True)}
    said = " and ".join(f"with {one.option} which column has {one.holds}" for one in roles if known[one.field] is None)
    error = DataError(f"{where}: say {said} (columns: {quoted_names(_names(records))})")
    raise _with_guesses(error, records, roles, known)


def chosen_columns(records: Records, roles: Roles, named: Sequence[str | None]) -> dict[str, tuple[str, str]]:
    """Returns field → column and reason, for the columns that neither the user nor a default name has determined; empty
    if a column cannot be determined, or if the order of the columns decides."""
    chosen = _chosen(records, roles, named)
    if any(name is None for name, _ in chosen):
        return {}
    return {
        one.field: (name, reason)
        for one, (name, reason) in zip(roles, chosen, strict=True)
        if name is not None and reason
    }


def unused_columns(records: Records, roles: Roles, named: Sequence[str | None]) -> str:
    """Names the columns of a table that a task does not read, in a line for the user; "" if there are none."""
    used = choose_columns(records._replace(remark=""), roles, named, say=lambda _: None)
    unused = [name for name in _names(records) if not any(f"{name}.".startswith(f"{one}.") for one in used)]
    if not unused:
        return ""
    line = f"{records.name}: not used: {listed_names([repr(name) for name in unused])}"
    texts = _Cells(records).possible(unused, "text") if roles[0].content == "text" else []
    if not texts:
        return line
    other, first = texts[0], used[0]
    joined = f"table[{first!r}] = table[{other!r}] + ' ' + table[{first!r}]"
    return f"{line} (to read several columns as one text, join them in the table: {joined} in pandas)"


def columns_are_determined(records: Records, roles: Roles) -> bool:
    """Whether default names, usual names or files determine both columns; inputs other than texts must be files."""
    names, content = [name for name, _ in _chosen(records, roles, (None, None))], roles[0].content
    if names[0] is None or names[1] is None:
        return False
    return content == "text" or _Cells(records).are_files(names[0], content)


def input_column(records: Records, roles: Roles, named: str | None = None) -> str:
    """Returns the column of the inputs in a table to predict, which need not have a column of targets; raises
    ColumnError if it does not exist, or cannot be told."""
    where, names, cells = records.header, _names(records), _Cells(records)
    one = replace(roles[0], option="--column")
    if named is not None:
        if has_column(records, named):
            return named
        nearest = nearest_column(named, names)
        raise ColumnError(f"{missing_column(records, named)}", {one.field: nearest} if nearest else {})
    default = _default(records, one)
    if default is not None:
        return default
    if not names and not records.columns:
        raise DataError(f"{records.name}: there are no rows; check the file")
    column, reason = _by_name_or_content(names, one, roles[1], cells)
    possible = cells.possible(names, one.content)
    if column is None and not records.advice:
        if len(names) == 1 or (len(names) == 2 and roles[0].by_position):
            if records.doubt:
                log.warning(f"{where}: {records.doubt}")
            return names[0]
        if len(possible) == 1:
            column, reason = possible[0], f"the only one that can have {one.holds}"
    if column is not None:
        log.warning(f"{where}: {one.holds} are read in the column {shortened(column)}, {reason} ({one.option})")
        return column
    guess = cells.best(names, one.content)
    suggestion = "" if guess is None else f"; by their content: {one.option} {shortened(guess)}"
    said = f"say with {one.option} which column has the inputs (columns: {quoted_names(names)}){suggestion}"
    guesses = {} if guess is None or records.advice else {one.field: guess}
    raise ColumnError(f"{where}: {records.advice or said}", guesses)


def has_column(records: Records, name: str) -> bool:
    """Whether a table has a column, or an object of this name."""
    return any(one == name or one.startswith(f"{name}.") for one in (*records.columns, *records.others))


def _chosen(records: Records, roles: Roles, named: Sequence[str | None]) -> list[tuple[str | None, str]]:
    """Returns the column of each role, or None, and why it was chosen; "" where the user or a default names it."""
    chosen = [(name or _default(records, one), "") for one, name in zip(roles, named, strict=True)]
    if all(name is not None for name, _ in chosen) or _are_positional(records, roles, named):
        return chosen
    cells = _Cells(records)
    for number, one in enumerate(roles):
        if chosen[number][0] is None:
            free = [name for name in _names(records) if name not in (chosen[0][0], chosen[1][0])]
            chosen[number] = _by_name_or_content(free, one, roles[1 - number], cells)
    if records.advice:  # the cells of what is no table tell nothing
        return chosen
    for number, one in enumerate(roles):
        left = [name for name in _names(records) if name != chosen[1 - number][0]]
        is_told = one.by_position or one.content != "text"
        if is_told and chosen[number][0] is None and chosen[1 - number][0] is not None and len(left) == 1:
            best = cells.best(left, one.content)
            chosen[number] = (best, "" if best is None else "the only other one")
    return chosen


def _are_positional(records: Records, roles: Roles, named: Sequence[str | None]) -> bool:
    """Whether the only two columns have the roles in their order; not if names or files say they are exchanged."""
    names = [name for name in records.columns if name]
    if len(names) != 2 or tuple(named) != (None, None) or records.advice or not all(one.by_position for one in roles):
        return False
    first, second = (
        any(_is_usual(name, one) or name in one.defaults for name, one in zip(names, pair, strict=True))
        for pair in (roles, roles[::-1])
    )
    kind = roles[0].content
    if kind == "sound" and not first and not second:
        cells = _Cells(records)
        second = cells.are_files(names[1], kind) and not cells.are_files(names[0], kind)
    return first or not second


def _default(records: Records, one: Role) -> str | None:
    """Returns the column of a default name; in what seems to be no table, an object counts only as a scene."""
    names = [name for name in one.defaults if has_column(records, name)]
    may_be_object = not records.advice or one.content == "image"
    return next((name for name in names if may_be_object or name in _names(records)), None)


def _by_name_or_content(names: list[str], one: Role, other: Role, cells: "_Cells") -> tuple[str | None, str]:
    """Returns the only column that can be meant, and why."""
    if one.content in ("image", "sound") and other.content != "mask" and not cells.advice:
        files = [name for name in names if cells.are_files(name, one.content)]
        if len(files) == 1:
            return files[0], f"the only one of {one.content} files"
        names = files or names
    usual = [name for name in names if _is_usual(name, one) and cells.can_be(name, one.content)]
    exact = [name for name in usual if _folded(name) in one.usual]
    if exact:
        usual = exact
    return (usual[0], "by its name") if len(usual) == 1 else (None, "")


def guessed_columns(records: Records, roles: Roles, known: Mapping[str, str | None]) -> dict[str, str]:
    """Guesses each role's column by the names and the content of the columns; {} if one cannot be guessed. ``known``
    has the columns that need no guess: field → column or None."""
    chosen = _chosen(records, roles, [known[one.field] for one in roles])
    guesses = {one.field: name for one, (name, _) in zip(roles, chosen, strict=True) if name is not None}
    cells, names = _Cells(records), _names(records)
    # Files are told most surely, and labels last, of the columns that are left.
    for one in sorted(roles, key=lambda one: _BY_CERTAINTY.index(one.content)):
        if one.field not in guesses:
            best = cells.best([name for name in names if name not in guesses.values()], one.content)
            if best is None:
                return {}
            guesses[one.field] = best
    if roles == PAIR and [name for name, _ in chosen] == [None, None]:  # the longer one need not be the source
        return dict(zip(guesses, sorted(guesses.values(), key=names.index), strict=True))
    return {one.field: guesses[one.field] for one in roles}


def _with_guesses(error: DataError, records: Records, roles: Roles, known: Mapping[str, str | None]) -> ColumnError:
    """Returns an error of columns with the options that may be right; arguments as in `guessed_columns`."""
    guesses = guessed_columns(records, roles, known)
    if not guesses:
        return ColumnError(str(error))
    inputs, predicted = roles
    labels: dict[str, int] = {}
    if predicted.content == "label" and known[predicted.field] is None:
        labels = _Cells(records).labels([name for name in _names(records) if name != guesses[inputs.field]])
    if len(labels) < 2:
        said = " ".join(f"{one.option} {shortened(guesses[one.field])}" for one in roles)
        return ColumnError(f"{error}; by their content: {said}", guesses)
    # The number of its values does not show whether a column holds the labels.
    shown = list(labels)[:_MOST_LABELS]
    values = ", ".join(f"{shortened(name)} with {labels[name]} different values" for name in shown)
    said = f"{inputs.option} {shortened(guesses[inputs.field])}, and {predicted.option} is one of {values}"
    return ColumnError(
        f"{error}; by their content: {said}", choices=[{**guesses, predicted.field: name} for name in shown]
    )


def _names(records: Records) -> list[str]:
    return [name for name in (*records.columns, *records.others) if name]


def _is_usual(name: str, one: Role) -> bool:
    """Whether a name, or its last word, is usual: ``"Review Text"``, ``"mask_path"``."""
    words = [_folded(word) for word in _PART.split(name) if word]
    last = [word for word in words if word not in ("path", "file", "name", "column")][-1:]
    return _folded(name) in one.usual or (len(words) > 1 and bool(one.usual & {*last, words[-1]}))


def input_of_row(row: Mapping[str, Any], one: Role) -> str | None:
    """Returns the column of a row in memory that has an image or a sound, by its cell and its name, or None."""
    usual = [name for name in row if isinstance(name, str) and _is_usual(name, one)]
    files = [
        name for name, value in row.items()
        if (_FILES[one.content].search(value.strip()) if isinstance(value, str) else _is_content(value))
    ]  # fmt: skip
    return next(iter([*(name for name in files if name in usual), *files, *usual]), None)


def _is_content(value: Any) -> bool:
    """Whether a cell is an image or a sound itself: that of a Parquet file, an array, an image of Pillow, bytes."""
    if isinstance(value, Mapping):
        return value.keys() in ({"bytes", "path"}, {"array", "sampling_rate"}, {"array", "sampling_rate", "path"})
    return isinstance(value, (StoredFile, bytes)) or hasattr(value, "getexif") or getattr(value, "ndim", 0) > 0


class _Cells:
    """The first cells of a table's columns, which are read when they are needed."""

    def __init__(self, records: Records):
        self._records, self.advice = records, records.advice
        self._read: dict[str, list[Any]] | None = None

    def _of(self, name: str) -> list[Any]:
        """Returns the cells of a column that have a value."""
        if self._read is None:
            names = _names(self._records)
            self._read = {one: [] for one in names}
            for row in self._rows(names):
                for one, cells in self._read.items():
                    value = row.get(one)
                    if not is_null(value) and not (isinstance(value, str) and not value.strip()):
                        cells.append(value)
        return self._read[name]

    def _rows(self, names: list[str]) -> Iterator[Mapping[str, Any]]:
        most = SAMPLED_ROWS
        try:
            for number, (_, row) in enumerate(self._records.rows(names)):
                if any(isinstance(value, StoredFile) for value in row.values()):
                    most = SAMPLED_FILE_ROWS
                if number >= most:
                    return
                yield row
        except DataError:  # the reader of the table says so
            return

    def _texts(self, name: str) -> list[str]:
        values = (" ".join(map(str, one)) if isinstance(one, list) else one for one in self._of(name))
        return [text for value in values if (text := label_text(value))]

    def are_files(self, name: str, kind: str) -> bool:
        """Whether the cells are files of a kind, or name some."""
        cells = self._of(name)
        return bool(cells) and all(
            _FILES[kind].search(one.strip()) if isinstance(one, str) else _is_content(one) for one in cells
        )

    def _mostly(self, name: str, pattern: "re.Pattern[str]") -> bool:
        texts = self._texts(name)
        return bool(texts) and sum(pattern.fullmatch(text) is not None for text in texts) >= 0.9 * len(texts)

    def can_be(self, name: str, content: Content) -> bool:
        """Whether the cells do not contradict what the name says."""
        cells, texts = self._of(name), self._texts(name)
        if content == "mask":
            return self.are_files(name, "image")
        if content == "label":
            return len(texts) == len(cells) and (len(texts) < FEWEST_ROWS or self._repeats(texts))
        return not self._mostly(name, _NUMBER)

    def best(self, names: list[str], content: Content) -> str | None:
        """Returns the column that most probably has a content; None if no column can have it."""
        possible = self.possible(names, content)
        if content == "text":
            return max(possible, key=self._mean_length, default=None)
        if content == "label":
            counts = self.labels(possible)
            return min(counts, key=counts.__getitem__, default=None)
        return next(iter(possible), None)

    def possible(self, names: Sequence[str], content: Content) -> list[str]:
        """Returns the columns that can have a content; of those of texts, the ones that seldom repeat, if any."""
        if content in ("image", "sound", "mask"):
            return [name for name in names if self.are_files(name, "image" if content == "mask" else content)]
        if content == "label":
            return list(self.labels(names))
        words = [
            name for name in names
            if self._texts(name) and not self._is_no_text(name)
            and not any(self._mostly(name, one) for one in (_NUMBER, _CODE, _CODES))
        ]  # fmt: skip
        return [name for name in words if len(set(self._texts(name))) >= 0.3 * len(self._texts(name))] or words

    def labels(self, names: Sequence[str]) -> dict[str, int]:
        """Returns the columns that may be labels, with the number of their different values."""
        possible = [name for name in names if self._texts(name) and not self._is_no_text(name)]
        return {name: len(set(self._texts(name))) for name in possible if self._can_be_label(name)}

    def _can_be_label(self, name: str) -> bool:
        texts = self._texts(name)
        if any(isinstance(one, list) for one in self._of(name)) or len(set(texts)) < 2:
            return False
        return self._repeats(texts) or (len(texts) < FEWEST_ROWS and max(map(len, texts)) <= _LONGEST_LABEL)

    def _is_no_text(self, name: str) -> bool:
        """Whether a column is an identifier, a date or a file."""
        words = [word for word in _PART.split(name) if word]
        last = _folded(words[-1]) if words else ""
        return last in _IDS or self._mostly(name, _DATE) or any(self.are_files(name, kind) for kind in _FILES)

    def _mean_length(self, name: str) -> float:
        texts = self._texts(name)
        return sum(map(len, texts)) / len(texts)

    @staticmethod
    def _repeats(texts: Sequence[str]) -> bool:
        return len(set(texts)) <= LARGEST_SHARE * len(texts)
