"""Writes the generated files of the package when hatchling builds a wheel or an editable installation."""

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
        # Where the package is installed already, pip takes its folder out of the path of a build.
        program = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path(sys.argv[2], run_name='__main__')"
        script = root / "docs" / "make_signatures.py"
        subprocess.run([sys.executable, "-B", "-c", program, str(root / "src"), str(script)], check=True)
