import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = ["regard", "regard.models", "regard.nn"]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_names_its_imports_for_type_checkers_and_for_python_alike(package):
    module = importlib.import_module(package)
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    conditional = next(node for node in tree.body if isinstance(node, ast.If)).body
    imported = {alias.name: node.module for node in conditional for alias in node.names}
    assert imported.keys() == set(module.__all__) <= set(dir(module))
    for name, origin in imported.items():
        other = importlib.import_module(origin)
        expected = getattr(other, name, None) or importlib.import_module(f"{origin}.{name}")
        assert getattr(module, name) is expected
        assert vars(module)[name] is expected  # later uses do not look for it


@pytest.mark.parametrize("package", PACKAGES)
def test_an_unknown_name_is_an_attribute_error(package):
    module = importlib.import_module(package)
    for name in ("nonsense", "_private"):
        with pytest.raises(AttributeError, match=f"module '{package}' has no attribute '{name}'"):
            getattr(module, name)


def test_a_model_loads_no_other_model(tmp_path):
    """A translator is made, saved and loaded."""
    code = f"""
import sys
from regard.models import TransformerTranslator, TranslatorConfig, load_model, save_model
from regard.models.checkpoint import MODELS

config = TranslatorConfig(7, 7, architecture="transformer", hidden=4, heads=1, encoder_layers=1, decoder_layers=1)
save_model({str(tmp_path)!r}, TransformerTranslator(config))
load_model({str(tmp_path)!r})
others = {{f"regard.models.{{module}}" for name, (module, *_) in MODELS.items() if name != "transformer_translator"}}
assert not others & sys.modules.keys(), others & sys.modules.keys()
unused = ("regard.models.vision.", "regard.models.speech.", "regard.nn.feature_gates", "regard.nn.dual_attention")
assert not [name for name in sys.modules if name.startswith(unused)]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
