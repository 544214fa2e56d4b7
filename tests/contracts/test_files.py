"""What somebody else made is opened by `regard.files.regular`, and the paths of a run come from its folder."""

import ast

import pytest

from sources import FILES, SOURCE, parsed

OWN = {
    "files/atomic.py": "its own temporary file",
    "data/corpus_files.py": "a temporary file of an AtomicFile",
    "cli/prediction_file.py": "a checked file, and a temporary file of an AtomicFile",
    "data/cache.py": "a temporary file of an AtomicFile, and a checked file",
    "data/parquet.py": "a checked file",
    "data/speech/sounds.py": "a checked file",
    "exports/torch_programs.py": "a temporary file of an AtomicFile",
    "models/checkpoint.py": "a temporary file of an AtomicFile, and a checked file",
    "models/vision/backbones.py": "a checked file",
    "training/checkpoints.py": "an opened file",
    "training/run_lock.py": "/proc",
    "watching/head_survey.py": "a temporary file of an AtomicFile",
    "watching/survey_state.py": "a temporary file of an AtomicFile, and a lock",
    "tasks/stored_data.py": "a new file in a folder of its own",
    "kernels/": "its own cache, which it checks itself, and its own sources",
    "viewer/html_file.py": "a file of the package",
}
"""File or folder of the package → what it opens by itself."""

LIBRARIES = {"load", "safe_open", "load_file", "ParquetFile", "memmap"}
"""What opens the file of a given name, in NumPy, PyTorch, safetensors and Arrow."""


def opens_by_name(node):
    """Whether a call opens a file by itself: ``open(...)``, a method of a path, or a library's function."""
    if isinstance(node.func, ast.Name):
        return node.func.id == "open"
    if not isinstance(node.func, ast.Attribute):
        return False
    name, owner = node.func.attr, ast.unparse(node.func.value)
    first = node.args[0] if node.args else None
    is_mode = isinstance(first, ast.Constant) and isinstance(first.value, str) and set(first.value) <= set("rwxab+t")
    return (
        name in ("read_text", "read_bytes", "write_text", "write_bytes")
        or (name == "open" and (is_mode or not node.args))
        or (name in LIBRARIES and owner in ("np", "torch", "safetensors", "safetensors.torch", "pyarrow.parquet"))
    )


def test_files_are_opened_by_one_mechanism():
    opening = set()
    for file in FILES:
        name = file.relative_to(SOURCE).as_posix()
        own = next((own for own in OWN if name == own or (own.endswith("/") and name.startswith(own))), None)
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.Call) and opens_by_name(node):
                assert own, f"{name}, line {node.lineno}: {ast.unparse(node)}"
                opening.add(own)
    assert opening == OWN.keys(), f"nothing is opened by {OWN.keys() - opening}"


@pytest.mark.parametrize("room", ["training", "tasks", "page", "cli"])
def test_the_paths_of_a_run_come_from_its_folder(room):
    """``folder.path / name`` is a path that nobody checked; `RunFolder.file` and `RunFolder.tree` check it."""
    for file in (file for file in FILES if file.is_relative_to(SOURCE / room)):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                owner = ast.unparse(node.left)
                assert not owner.endswith(("folder.path", ").path")), (
                    f"{file.name}, line {node.lineno}: {ast.unparse(node)}"
                )
