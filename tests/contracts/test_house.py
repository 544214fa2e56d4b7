"""The house as DESIGN.md draws it: which room may import which, what each exports, what importing costs."""

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sources import FILES, SOURCE, parsed

ROOT = Path(__file__).parents[2]
NO_ROOMS = ("__init__.py", "__main__.py", "__pycache__", "py.typed")


def rooms() -> dict[str, int]:
    """Each room's floor, as the drawing in DESIGN.md has it; 0 is the lowest. An indented line continues a floor."""
    drawing = re.search(r"## Rooms.*?```text\n(.*?)```", (ROOT / "DESIGN.md").read_text("utf-8"), re.S).group(1)
    floors: dict[str, int] = {}
    floor = -1
    for line in drawing.splitlines():
        floor += not line.startswith(" ")
        floors |= dict.fromkeys(re.split(r"\s{2,}", line.strip())[0].split(" · "), floor)
    return floors


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(file: Path):
    """Every module of regard that the file imports, lazily or not."""
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "regard":
            if node.module == "regard":
                yield from (f"regard.{alias.name}" for alias in node.names)
            else:
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "regard")


def forbidden_imports(file: Path, floors: dict[str, int]):
    """Each import of the file that does not go down, as a line of a message."""
    parts = file.relative_to(SOURCE).with_suffix("").parts
    if parts in (("__init__",), ("__main__",)):
        return
    own, name = parts[0], file.relative_to(SOURCE)
    if own not in floors:
        yield f"{name}: {own} is not in the drawing of DESIGN.md"
        return
    for module in imports(file):
        other = room_of(module)
        if module in ("regard", "regard.__version__"):
            if own != "cli":
                yield f"{name} imports {module}, which is no room"
        elif other != own and floors[other] >= floors[own]:
            yield f"{name} imports {module}: rooms only import what is below them"


def test_imports_only_go_down():
    floors = rooms()
    offenders = [line for file in FILES for line in forbidden_imports(file, floors)]
    assert not offenders, "\n".join(offenders)


def test_mechanisms_import_nothing_of_training():
    """The border that DESIGN.md draws: scores … watching, pictures, records and viewer need no side of training."""
    design = (ROOT / "DESIGN.md").read_text("utf-8")
    sentence = re.search(r"side of training, of which it imports\s+nothing:(.*?)\.", design, re.S).group(1)
    training_side = set(re.findall(r"`(\w+)`", sentence))
    assert len(training_side) == 8
    assert training_side <= set(rooms())
    offenders = [
        f"{file.relative_to(SOURCE)} imports {module}"
        for file in FILES
        if file.parent != SOURCE and file.relative_to(SOURCE).parts[0] not in training_side
        for module in imports(file)
        if room_of(module) in training_side
    ]
    assert not offenders, "\n".join(offenders)


def test_at_most_six_files_stand_at_the_top():
    assert len([file for file in FILES if file.parent == SOURCE]) <= 6


def test_training_knows_no_task():
    """The loop imports neither a kind of data nor a model, and names no metric or file of a task."""
    for file in (SOURCE / "training").glob("*.py"):
        modules = set(imports(file))
        assert not {module for module in modules if module.startswith("regard.data")}, file.name
        assert {module for module in modules if module.startswith("regard.models")} <= {"regard.models.checkpoint"}
        code = parsed(file)
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
def test_every_room_exports_its_public_names_once(room):
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


def test_every_module_says_what_it_is():
    silent = [str(file.relative_to(SOURCE)) for file in FILES if not ast.get_docstring(parsed(file))]
    assert not silent, f"modules without a docstring: {', '.join(silent)}"


IMPORTING = """
import json, os, sys

class Watched(dict):
    def __getitem__(self, key):
        read.append(key)
        return super().__getitem__(key)

    def get(self, key, default=None):
        read.append(key)
        return super().get(key, default)

def imported(before):
    return sorted({name.split(".")[0] for name in set(sys.modules) - before})

read, environment = [], os.environ
os.environ, before = Watched(environment), set(sys.modules)
import regard
first = sorted(set(sys.modules) - before)
os.environ = environment
import torch
os.environ, before = Watched(environment), set(sys.modules) - {name for name in sys.modules if "regard" in name}
assert set(regard.__all__) <= set(dir(regard))
from regard import scores, attend
import regard.masks
assert regard.masks.causal and regard.attend is attend and scores is regard.scores
for name in regard.__all__:
    assert getattr(regard, name) is vars(regard)[name]
regard.nn.LayerConfig
new, compiler = imported(before), "torch._dynamo" in sys.modules
import regard.models.configs
docstrings = "docstring_parser" in sys.modules
assert regard.errors.RegardError and regard.models
assert not hasattr(regard, "nonsense")
os.environ = environment
import pydoc
assert "attend" in pydoc.render_doc(regard)
print(json.dumps({"read": read, "first": first, "new": new, "compiler": compiler, "docstrings": docstrings}))
"""


@pytest.fixture(scope="module")
def importing():
    """What happens in a fresh process that imports regard in every form, and uses each public name."""
    return json.loads(subprocess.check_output([sys.executable, "-c", IMPORTING], text=True))


def test_names_are_imported_when_they_are_used(importing):
    """PEP 562: ``import regard`` imports nothing; every form of import finds every public name."""
    first = {name for name in importing["first"] if name.split(".")[0] not in sys.stdlib_module_names}
    assert first == {"regard", "regard.names", "regard.names.lazy_names"}


def test_an_import_reads_no_source(importing):
    assert not importing["docstrings"]


def test_importing_brings_no_heavy_part(importing):
    """No JIT compiler, web server, plotting library or model hub (contract 9): no package but PyTorch and NumPy."""
    new = set(importing["new"])
    assert "regard" in new
    assert new - sys.stdlib_module_names <= {"regard", "torch", "numpy"}
    assert not importing["compiler"]


def test_one_module_decides_which_copies_do_not_block():
    """Apple's GPUs read a temporary tensor late, and the CPU would read a copy from a device early."""
    named = {
        file.relative_to(SOURCE).as_posix()
        for file in FILES
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call) and any(keyword.arg == "non_blocking" for keyword in node.keywords)
    }
    assert named == {"tracing/transforms.py"}


def test_importing_reads_no_environment(importing):
    assert not [name for name in importing["read"] if name.upper().startswith("REGARD")]


def test_the_tree_of_the_folders_is_the_tree():
    """Every folder that the tree of the page on folders names exists, and every folder inside of a room is in it."""
    page = (ROOT / "docs/en/understand/folders.md").read_text("utf-8")
    tree = re.search(r"```text\n(src/regard/\n.*?)```", page, re.S).group(1)
    folders: list[str] = []
    named = set()
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        folders[depth:] = [line.split()[0]]
        named.add("".join(folders).rstrip("/"))
        assert (ROOT / "".join(folders)).is_dir(), f"the page on folders names {''.join(folders)}, which does not exist"
    inside = {file.parent.relative_to(ROOT).as_posix() for file in FILES if len(file.relative_to(SOURCE).parts) > 2}
    assert not inside - named, f"the page on folders lacks {inside - named}"


def test_the_design_has_three_pages():
    lines = (ROOT / "DESIGN.md").read_text("utf-8").splitlines()
    assert len(lines) <= 165, "details belong to a page in docs/en/understand"
    assert max(map(len, lines)) <= 120


def test_files_that_the_design_names_exist():
    """Names of Python files in DESIGN.md and in the pages that explain the code; the end of a path is enough."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "*.py"]
    names = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    existing = [f"/{name}" for name in names if (ROOT / name).exists()]
    gone = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "DESIGN.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs/en/understand").rglob("*.md"))
        for name in re.findall(r"(?<![\w/.-])[\w/-]+\.py\b", path.read_text("utf-8"))
        if not any(file.endswith(f"/{name}") for file in existing)
    ]
    assert not gone, "\n".join(gone)


def test_a_page_cites_each_benchmark_script():
    """What nobody cites answers no question any more; a part of a cited script is imported or started by it."""
    files = [*(ROOT / "docs/en").rglob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "Makefile"]
    texts = "\n".join(file.read_text("utf-8") for file in files)
    scripts = {file.stem: file.read_text("utf-8") for file in (ROOT / "bench/scripts").glob("[!_]*.py")}
    cited = {name for name in scripts if re.search(rf"bench[./]scripts[./]{name}\b", texts)}
    parts = {name for name in scripts if any(f"bench.scripts.{name}" in scripts[script] for script in cited - {name})}
    assert not scripts.keys() - cited - parts


def test_nothing_names_a_private_place():
    """No path of some machine and no registry's host in what is committed."""
    files = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    forbidden = re.compile(r"/work" + r"/|/root" + r"/|https?://(pypi|files\.pythonhosted|registry)\.")
    for name in files:
        path = ROOT / name
        if path.suffix in (".py", ".md", ".toml", ".txt", ".yaml", ".json") and path.exists():
            found = forbidden.search(path.read_text(encoding="utf-8"))
            assert not found, f"{name}: {found.group()}"


def test_no_written_page_is_committed():
    """What examples write stays out: pages and pictures are sources of the site and the page, or its pictures."""
    names = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    written = [name for name in names if Path(name).suffix in (".html", ".png", ".svg", ".pdf", ".npz", ".pt")]
    homes = ("docs/_templates/", "docs/languages.html", "docs/pictures/", "src/regard/page/static/")
    written += [name for name in names if "/" not in name and Path(name).suffix in (".json", ".csv", ".wav")]
    assert not [name for name in written if not name.startswith(homes)]
