"""Joins the viewer's modules when hatchling builds a wheel or an editable installation of regard."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JoinedViewer(BuildHookInterface):
    """Writes `src/regard/viewer/viewer.js` before the files of the wheel are collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        runpy.run_path(str(Path(self.root) / "viewer" / "join.py"))["write"]()
