"""The code of docs/en/how-to/layers.md runs."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "en" / "how-to" / "layers.md").read_text(encoding="utf-8")


def test_code_of_the_page_runs():
    named = {}
    for code in re.findall(r"```(?:\{code-cell\} )?python\n(.*?)```", PAGE, re.S):
        exec(compile(code, "docs/en/how-to/layers.md", "exec"), named)
    assert named["first"].shape == (3, 7, 16)
