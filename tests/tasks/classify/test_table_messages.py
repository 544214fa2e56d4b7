"""What a training says of its tables: once, and every column that is not read."""

import pytest

ROWS = "".join(f"件名{number},これは{'良い' if number % 2 else '悪い'}です,{number % 2},x\n" for number in range(40))
TABLE = "件名,本文,カテゴリ,担当\n" + ROWS


@pytest.fixture(autouse=True)
def _cache(own_cache):
    """The data sets of a test are cached in its own folder."""


def test_a_training_says_of_each_table_once_what_it_leaves_out(tmp_path, run_command, caplog):
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text(TABLE + "件名,,1,x\n", encoding="utf-8")
    test.write_text(TABLE + "件名,本文です,,x\n", encoding="utf-8")
    code, _, error = run_command(
        "train", "classify", train, "--test", test, "--runs", tmp_path, "--run", "x", "--epochs", 1, "--hidden", 4,
        "--threads", 1,
    )  # fmt: skip
    assert code == 0, error
    left_out = f"{train}: left out 1 row without '本文': line 42; 40 are left"
    assert caplog.messages.count(left_out) == 1
    assert caplog.messages.count(f"{test}: left out 1 row without 'カテゴリ': line 42; 40 are left") == 1
    unused = [message for message in caplog.messages if "not used: " in message]
    assert len(unused) == 1, unused
    assert unused[0].startswith(f"{train}: not used: '件名', '担当' (to read several columns as one text")
    assert "table['本文'] = table['件名'] + ' ' + table['本文'] in pandas" in unused[0]
