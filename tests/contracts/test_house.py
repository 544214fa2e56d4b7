"""The house as DESIGN.md draws it: which room may import which, what each exports, what importing costs."""

import ast
import importlib
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "regard"
FILES = sorted(SOURCE.rglob("*.py"))
NO_ROOMS = ("__init__.py", "__main__.py", "__pycache__", "py.typed")


def rooms() -> dict[str, int]:
    """Each room's floor, as the drawing in DESIGN.md has it; 0 is the lowest."""
    drawing = re.search(r"## Rooms.*?```\n(.*?)```", (ROOT / "DESIGN.md").read_text(), re.S).group(1)
    lines = [re.split(r"\s{2,}", line)[0] for line in drawing.strip().splitlines()]
    return {room: floor for floor, line in enumerate(lines) for room in line.split(" · ")}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(file: Path):
    """Every module of regard that the file imports, lazily or not."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "regard":
            if node.module == "regard":
                yield from (f"regard.{alias.name}" for alias in node.names)
            else:
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "regard")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_only_go_down(file):
    floors = rooms()
    parts = file.relative_to(SOURCE).with_suffix("").parts
    if parts in (("__init__",), ("__main__",)):
        return
    own = parts[0]
    assert own in floors, f"{own} is not in the drawing of DESIGN.md"
    for module in imports(file):
        other = room_of(module)
        if module in ("regard", "regard.__version__"):
            assert own == "cli", f"{own} imports {module}, which is no room"
        elif other != own:
            assert floors[other] < floors[own], f"{own} imports {module}: rooms only import what is below them"


@pytest.mark.parametrize(
    "room", ["biases", "explanations", "normalizers", "pictures", "positions", "scores", "training", "watching"]
)
def test_files_of_a_room_import_in_one_direction(room):
    """No cycle between the files of a room, lazy imports included."""
    folder = SOURCE / room
    imported = {}
    for file in folder.glob("[!_]*.py"):
        modules = (module.split(".") for module in imports(file))
        imported[file.stem] = {parts[2] for parts in modules if parts[1:2] == [room] and len(parts) > 2}
    while imported:
        lowest = {name for name, below in imported.items() if not below & imported.keys()}
        assert lowest, f"a cycle in {room}: {sorted(imported)}"
        imported = {name: below for name, below in imported.items() if name not in lowest}


def test_training_knows_no_task():
    """The loop imports neither a kind of data nor a model, and names no metric or file of a task."""
    for file in (SOURCE / "training").glob("*.py"):
        modules = set(imports(file))
        assert not {module for module in modules if module.startswith("regard.data")}, file.name
        assert {module for module in modules if module.startswith("regard.models")} <= {"regard.models.checkpoint"}
        code = ast.parse(file.read_text())
        names = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(code) if isinstance(node, ast.Attribute)}
        of_a_task = {name for name in names if re.search("bleu|chrf|tokenizer_|translat", name, re.IGNORECASE)}
        assert not of_a_task, f"{file.name}: {of_a_task}"


def test_every_room_is_drawn_and_exists():
    existing = {path.stem for path in SOURCE.iterdir() if path.name not in NO_ROOMS}
    assert existing == set(rooms())


@pytest.mark.parametrize(
    "room",
    ["", ".scores", ".normalizers", ".masks", ".biases", ".positions", ".attention", ".nn", ".pictures", ".watching"],
)
def test_exports(room):
    """``__all__`` names what exists, once, and nothing public is left out."""
    module = importlib.import_module(f"regard{room}")
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name == name.strip("_")


def test_the_binding_names():
    import regard

    for room, names in {
        "": "attend observe explain plan load watch Readings Observed Explanation Plan "
        "scores normalizers masks biases positions nn",
        "scores": "Dot ScaledDot Cosine Distance General Additive MLP Location LocationAware SoftCap Modified",
        "normalizers": "softmax sparsemax sigmoid entmax softmax_with_sink hard local_gaussian",
        "masks": "causal window lengths documents prefix dilated where keep ignore",
        "biases": "Bias DiagonalBias TensorBias SummedBias alibi RelativeBias RelativePosition",
        "positions": "Sinusoidal Learned Rotary alibi RelativeBias RelativePosition",
        "nn": "Attention MultiheadAttention MultiHeadAttention",
    }.items():
        module = getattr(regard, room) if room else regard
        missing = set(names.split()) - set(module.__all__)
        assert not missing, f"regard.{room} lacks {missing}"
    assert regard.nn.MultiHeadAttention is regard.nn.MultiheadAttention


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_every_module_says_what_it_is(file):
    assert ast.get_docstring(ast.parse(file.read_text())), "a module without a docstring"


def test_names_are_imported_when_they_are_used():
    """PEP 562: ``import regard`` imports nothing; every form of import finds every public name."""
    code = (
        "import sys, regard\n"
        "assert 'torch' not in sys.modules and 'regard.attention' not in sys.modules\n"
        "assert set(regard.__all__) <= set(dir(regard))\n"
        "from regard import scores, attend\n"
        "import regard.masks\n"
        "assert regard.masks.causal and regard.attend is attend and scores is regard.scores\n"
        "for name in regard.__all__: assert getattr(regard, name) is vars(regard)[name]\n"
        "assert regard.errors.RegardError and regard.models\n"
        "assert not hasattr(regard, 'nonsense')\n"
        "import pydoc; assert 'attend' in pydoc.render_doc(regard)\n"
    )
    subprocess.check_call([sys.executable, "-c", code])


def test_importing_brings_no_heavy_part():
    """No JIT compiler, web server, plotting library or model hub (contract 9), and nothing of ours that needs one."""
    code = (
        "import sys, torch; before = set(sys.modules); import regard; "
        "[getattr(regard, name) for name in regard.__all__]; "
        "print('torch._dynamo' in sys.modules); "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    has_compiler, names = subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()
    new = set(names.split())
    assert "regard" in new
    heavy = {"numba", "triton", "matplotlib", "lightning", "datasets", "tokenizers", "transformers", "huggingface_hub",
             "sacrebleu", "pandas", "pyarrow", "rich", "cyclopts", "pydantic", "starlette", "uvicorn",
             "yaml", "scipy"}  # fmt: skip
    assert not new & heavy
    assert has_compiler == "False"


def test_importing_reads_no_environment():
    code = (
        "import os, torch\n"
        "class Watched(dict):\n"
        "    def __getitem__(self, key): seen.append(key); return super().__getitem__(key)\n"
        "    def get(self, key, default=None): seen.append(key); return super().get(key, default)\n"
        "seen = []\n"
        "os.environ = Watched(os.environ)\n"
        "import regard\n"
        "for name in regard.__all__: getattr(regard, name)\n"
        "print(*[key for key in seen if key.upper().startswith('REGARD')])"
    )
    assert not subprocess.check_output([sys.executable, "-c", code], text=True).split()


@pytest.mark.slow
def test_importing_costs_little():
    """`import regard` takes at most 1.2 times `import torch` (processor time in one process; median of fresh ones)."""
    code = (
        "import time\n"
        "start = time.process_time(); import torch\n"
        "middle = time.process_time(); import regard\n"
        "print((time.process_time() - start) / (middle - start))"
    )
    ratios = [float(subprocess.check_output([sys.executable, "-c", code], text=True)) for _ in range(3)]
    assert statistics.median(ratios) <= 1.2


def test_the_readme_tree_is_the_tree():
    """Every folder and file that the README's tree names exists, and every room is in it."""
    tree = re.search(r"```\n(src/regard/\n.*?)```", (ROOT / "README.md").read_text(), re.S).group(1)
    folders: list[str] = []
    named = set()
    for line in tree.splitlines():
        name = line.strip().split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        folders[depth:] = [name]
        path = "".join(folders) if name.endswith("/") else "".join(folders[:-1]) + name
        assert (ROOT / path).exists(), f"the README names {path}, which does not exist"
        named.add(path.rstrip("/"))
    for room in rooms():
        assert f"src/regard/{room}" in named or f"src/regard/{room}.py" in named


def test_nothing_names_a_private_place():
    """No path of some machine and no registry's host in what is committed."""
    files = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    forbidden = re.compile(r"/work" + r"/|/root" + r"/|https?://(pypi|files\.pythonhosted|registry)\.")
    for name in files:
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".txt", ".yaml", ".json") and path.exists():
            found = forbidden.search(path.read_text(encoding="utf-8"))
            assert not found, f"{name}: {found.group()}"
