#!/usr/bin/env bash
# torch 2.13.0: a global forward hook sees an output that the model never gets.
#
# One guesses that `register_module_forward_hook`, which profilers and recorders use, sees what a module returns. It runs
# before the module's own forward hooks, so that what one of these returns in its place is not seen.
#
# Seen: the global hook sees [1.0, 1.0], the caller gets [0.0, 0.0]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import torch

seen = []
module = torch.nn.Identity()
module.register_forward_hook(lambda module, inputs, output: output * 0)
torch.nn.modules.module.register_module_forward_hook(lambda module, inputs, output: seen.append(output.tolist()))
given = module(torch.ones(2)).tolist()
print("the global hook sees", seen[0], "the caller gets", given)
assert seen == [[1.0, 1.0]] and given == [0.0, 0.0]
PYTHON
