#!/usr/bin/env bash
# torch 2.13.0 (CPU): FlexAttention that is not compiled ignores the blocks that a BlockMask lists; compiled, it obeys them.
#
# `BlockMask.from_kv_blocks(numbers, indices)` lists for each block of queries the blocks of keys that it sees; `mask_mod` is
# optional. One guesses that compiling changes nothing but time. Without compilation only `mask_mod` counts, and without one
# every query sees every key. (The compiled call needs a C++ compiler.)
#
# Seen: not compiled: to dense 2.4e-06, to blocks 0.45 · compiled: to dense 0.45, to blocks 0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
TORCHINDUCTOR_CACHE_DIR="$folder/cache" "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

torch.manual_seed(0)
x = torch.randn(1, 2, 256, 16)
own_block = BlockMask.from_kv_blocks(
    torch.tensor([[[1, 1]]], dtype=torch.int32), torch.tensor([[[[0, 1], [1, 0]]]], dtype=torch.int32), BLOCK_SIZE=128
)
visible = torch.block_diag(torch.ones(128, 128), torch.ones(128, 128)).bool()
dense, blocks = scaled_dot_product_attention(x, x, x), scaled_dot_product_attention(x, x, x, attn_mask=visible)
with torch.no_grad():
    plain = flex_attention(x, x, x, block_mask=own_block)
    compiled = torch.compile(flex_attention)(x, x, x, block_mask=own_block)
found = [float((a - b).abs().max()) for a in (plain, compiled) for b in (dense, blocks)]
print("not compiled: to dense {:.2g}, to blocks {:.2g} · compiled: to dense {:.2g}, to blocks {:.2g}".format(*found))
assert found[0] < 1e-5 < 0.1 < found[1] and found[3] < 1e-5 < 0.1 < found[2]
PYTHON
