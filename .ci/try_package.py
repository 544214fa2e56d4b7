"""Tries regard where it is installed without extras; `try_package` runs this."""

import sys
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

import torch

import regard
from regard.viewer import View, module_path

assert Path(regard.__file__).is_relative_to(sys.prefix), regard.__file__

# Modules of the extras, one or more of each.
PARTS = ("lightning", "datasets", "tokenizers", "pydantic", "matplotlib", "PIL", "soundfile", "starlette",
         "timm", "tensorboard", "transformers", "anywidget", "jax", "pytest")  # fmt: skip
installed = [name for name in PARTS if find_spec(name)]
assert not installed, f"not installed without extras: {installed}"
assert any("extra ==" in requirement for requirement in requires("regard") or ())
assert find_spec("numba") is not None, "the fused kernels come with regard"
assert find_spec("bench") is None, "the benchmark is not part of the package"

query, key, value = (torch.randn(2, 3, 5, 8, requires_grad=True) for _ in range(3))
for backend in ("auto", "reference", "tiled", "sdpa"):
    output = regard.attend(query, key, value, mask=regard.masks.causal(), backend=backend)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(output, expected)
output = regard.attend(query, key, value, score=regard.scores.Additive(torch.randn(8)), normalizer="sparsemax")
output.sum().backward()
assert query.grad is not None
assert query.grad.isfinite().all()
seen = regard.observe(query, key, value, read=regard.Readings(entropy=True, top_k=2))
assert seen.entropy is not None
print(regard.explain(query[0, 0], key[0, 0], value[0, 0]))
plan = regard.plan(query, key, value, normalizer="sparsemax")
assert "not installed" not in plan.reasons.get("cpu", ""), plan
print(plan)
# The wheel has the viewer's program, which the build joins; a page carries it.
program = module_path().read_text("utf-8")
assert "function mount(" in program
assert 'id="module"' in View(torch.eye(3), ["a", "b", "c"]).to_html()
