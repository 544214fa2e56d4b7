"""Writes the generated files of the package when hatchling builds a wheel or an editable installation."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GeneratedFiles(BuildHookInterface):
    """Writes the joined viewer and the stub of `regard.train` and `regard.load`, before files are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        runpy.run_path(str(root / "viewer" / "join.py"))["write"]()
        paths = [str(root / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        subprocess.run(
            [sys.executable, "-B", str(root / "docs" / "make_signatures.py")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            check=True,
        )
