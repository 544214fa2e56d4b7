"""The code of docs/layers.md runs."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "layers.md").read_text(encoding="utf-8")


def test_code_of_the_page_runs():
    named = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        exec(compile(code, "docs/layers.md", "exec"), named)
    assert named["first"].shape == (3, 7, 16)
