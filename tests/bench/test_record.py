"""Records: what is written is what is read, and what is shown of it."""

import io
import json
import math
from dataclasses import replace

import pytest
from rich.console import Console

from bench import cells, record
from bench.limits import Peaks
from bench.measurement import Measurement, Spread
from bench.page import NOT_EXPLAINED, page
from bench.quantity import in_bytes, in_count, in_seconds, three_digits
from bench.record import CurveRecord, Record, TaskRecord
from bench.report import comparison, report
from bench.task import Work
from bench.tasks import find
from regard.errors import DataError

PEAKS = Peaks(2e11, 1e10, 4e9, 3e10)


def make_record(**more):
    """A record of one row with every state that a cell can have."""
    work = Work(4e8, 3e7, 1e6, 1e6, "so it is counted")
    results = {
        "regard": Measurement(
            "measured", backend="tiled", seconds=Spread(0.01, 0.009, 0.011, 11), ratio=1.0, first=0.3,
            extra_bytes=3 << 20, resident_bytes=300 << 20, alone=0.02, errors={"output": 1e-7, "gradient of key": 2e-6},
        ),
        "eager": Measurement("measured", seconds=Spread(0.3, 0.3, 0.3, 1), ratio=17.0, errors={"output": None}),
        "compile": Measurement("failed", "RuntimeError: no | compiler"),
        "sdpa": Measurement("skipped", "would need about 9 GiB", expected_bytes=9 * 2.0**30),
        "keras": Measurement("absent", "keras is not installed", note="AdditiveAttention"),
    }  # fmt: skip
    row = TaskRecord(
        "additive", "additive, 1×1×1024×64", "Additive score", "A sentence.", {"queries": 1024}, work,
        PEAKS.limit(work), results,
    )  # fmt: skip
    curve = CurveRecord(
        "additive", "Additive", {"regard": {64: 1e-4, 256: 1e-3}, "eager": {64: 2e-4}}, {"eager": "slow"}
    )
    return Record(**{"quick": False, "peaks": PEAKS, "absent": {"keras": "keras is not installed"},
                     "tasks": [row], "curves": [curve], "complete": True, **more})  # fmt: skip


def shown(renderable):
    console = Console(width=200, file=io.StringIO())
    console.print(renderable)
    return console.file.getvalue()


def test_a_saved_record_loads_unchanged(tmp_path):
    given = make_record()
    given.save(tmp_path / "bench.json")
    assert Record.load(tmp_path / "bench.json") == given
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


def test_numbers_that_json_lacks_are_null():
    row = make_record().tasks[0]
    results = {"regard": replace(row.results["regard"], first=math.nan, errors={"output": math.inf})}
    text = make_record(tasks=[replace(row, results=results)]).to_json()
    found = json.loads(text)["tasks"][0]["results"]["regard"]
    assert found["first"] is None
    assert found["errors"] == {"output": None}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "tasks": 3}', "3", '{"format": 0}'])
def test_a_foreign_file_is_no_record(text, tmp_path):
    path = tmp_path / "foreign.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"foreign\.json"):
        Record.load(path)


def test_files_that_cannot_be_read_or_written(tmp_path):
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    for name in ("missing.json", "bytes.json"):
        with pytest.raises(DataError, match=name):
            Record.load(tmp_path / name)
    with pytest.raises(DataError, match="cannot write"):
        make_record().save(tmp_path / "missing" / "bench.json")


def test_versions_and_absence_are_recorded(monkeypatch):
    monkeypatch.setattr(record, "absence", lambda column: f"{column} is away" if column == "jax" else None)
    found = Record(True, PEAKS)
    assert found.absent == {"jax": "jax is away"}
    peers = {"keras", "entmax", "jax", "onnxruntime", "openvino", "transformers", "x-transformers"}
    assert {"regard", "python", "torch", *peers} == set(found.versions)
    assert found.machine["threads"] >= 1
    assert not found.complete


def test_the_limit_is_that_of_the_scarcest_resource():
    assert PEAKS.limit(Work(4e11, 1e10, 4e9, 3e10)) == pytest.approx(2.0)
    assert PEAKS.limit(Work(2e10, 0, 0, 3e10)) == pytest.approx(1.0)
    row = make_record().tasks[0]
    assert row.fraction("regard") == pytest.approx(row.limit / 0.01)
    assert row.fraction("compile") is None
    assert row.fraction("jax") is None


def test_cells_of_a_table_show_time_memory_and_error():
    results = make_record().tasks[0].results
    assert cells.time_cell(results["regard"]) == ["10.0 ms", "±10 %", "tiled"]
    assert cells.time_cell(results["eager"]) == ["300 ms", "1 run", "17.0×"]
    assert cells.time_cell(results["keras"]) == ["absent"]
    assert cells.time_cell(None) == [cells.NOT_OFFERED]
    assert cells.time_cell(replace(results["regard"], seconds=None)) == ["20.0 ms once"]
    assert cells.memory_and_error(results["regard"]) == ["3.00 MiB", "2e-06"]
    assert cells.memory_and_error(results["eager"]) == ["not finite"]
    assert cells.memory_and_error(results["sdpa"]) == ["about 9.00 GiB, not run"]
    assert cells.memory_and_error(None) == [cells.NOT_OFFERED]


@pytest.mark.parametrize("show", [lambda record: shown(report(record)), page], ids=["terminal", "page"])
def test_nothing_is_hidden(show):
    text = show(make_record())
    for words in ("10.0 ms", "17.0×", "tiled", "absent", "failed", "skipped", "no", "keras is not installed",
                  "would need about 9 GiB", "AdditiveAttention", "3.00 MiB", "not finite", "≥ 20.0×", "short: 15",
                  "aim"):  # fmt: skip
        assert words in text, words
    assert "nterrupted" not in text
    assert "nterrupted" in show(make_record(complete=False))
    assert "not checked" in show(make_record(quick=True))


def test_the_page_is_well_formed():
    text = page(make_record(), [("Additive", "pictures/curve-additive.png")])
    assert "![Additive](pictures/curve-additive.png)" in text
    assert "additive, eager PyTorch: slow" in text
    assert "regard bench --json" in text
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    assert len(tables) == 4
    for rows in tables:
        widths = {line.replace("\\|", "").count("|") for line in rows if line.startswith("|")}
        assert len(widths) == 1
    assert "{" not in text


def test_the_page_says_how_far_what_is_short_and_why():
    given = make_record()
    found = page(given)
    section = found[found.index("### Requirements that are not met") :]
    wanted = "- **additive**: times as fast as eager PyTorch: 17.0×, required ≥ 20.0×, 15 % below; of the"
    assert wanted in section
    assert find(["additive"])[0].limited_by in section
    row = given.tasks[0]
    results = {**row.results, "eager": replace(row.results["eager"], ratio=20.0)}
    met = make_record(tasks=[replace(row, results=results, limit=0.006)])
    assert "not met" not in page(met)
    # A task that is short without a known reason is there as well.
    unknown = replace(row, name="window", results={**row.results, "sdpa": replace(row.results["eager"], ratio=2.0)})
    assert NOT_EXPLAINED in page(make_record(tasks=[unknown]))


def test_a_comparison_divides_new_by_old():
    old, new = make_record(), make_record()
    faster = replace(new.tasks[0].results["regard"], seconds=Spread(0.004, 0.004, 0.004, 3))
    new.tasks[0] = replace(new.tasks[0], results={**new.tasks[0].results, "regard": faster})
    text = shown(comparison(old, new))
    assert "0.400×" in text
    assert "1.00×" in text
    assert "different machines" not in text
    other = make_record(machine={**old.machine, "threads": 997})
    assert "different machines" in shown(comparison(other, new))
    resized = make_record(tasks=[replace(old.tasks[0], sizes={"queries": 3})])
    assert "0.400×" not in shown(comparison(resized, new))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [(in_seconds(0.0123), "12.3 ms"), (in_seconds(3.0), "3.00 s"), (in_seconds(4.5e-6), "4.50 µs"),
     (in_seconds(2e-8), "20.0 ns"), (in_seconds(-2e-5), "-20.0 µs"), (in_seconds(math.inf), "—"),
     (in_bytes(1 << 20), "1.00 MiB"), (in_bytes(17), "17 B"), (in_bytes(5 << 30), "5.00 GiB"),
     (in_bytes(1536), "1.50 KiB"),
     (in_count(6.71e7), "67.1 M"), (in_count(0), "0"), (in_count(2.5e12), "2.50 T"),
     (three_digits(0.0456), "0.0456"), (three_digits(1234), "1234"), (three_digits(0), "0")],
)  # fmt: skip
def test_quantities_are_written_with_three_digits(given, wanted):
    assert given == wanted
