#!/usr/bin/env bash
# jax 0.10.2 and mlx 0.32.4 (CPU): a query that may see no key gets the mean of the values that are hidden from it.
#
# One guesses 0 or NaN, which PyTorch's functions give. Both add the lowest finite number to hidden scores, so that a row of
# nothing else is uniform. In JAX it is so with `mask` and with `key_value_seq_lengths` of 0, and the gradient of the hidden
# values is not 0, whereas a query beyond `query_seq_lengths` does get 0. In MLX it is so with a mask of bools, and with
# mask="causal" for queries that come before the first key, since causal masks align the ends there.
#
# Seen: jax mask [0.2 0.2 0.2 0.2 0.2], gradient 0.6 · length 0 [0.2 0.2 0.2 0.2 0.2] · query beyond its length 0.0
#       mlx mask [2. 2. 2.] · causal, 5 queries and 3 keys [1. 1. 0. 0.5 1.]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet jax==0.10.2 jaxlib==0.10.2 'mlx[cpu]==0.32.4'
"$folder/venv/bin/python" - <<'PYTHON'
import jax
import jax.numpy as jnp
import mlx.core as mx
import numpy as np

query, key = (jnp.asarray(np.random.default_rng(0).normal(size=(1, n, 1, 5)), jnp.float32) for n in (3, 5))
value = jnp.eye(5)[None, :, None]  # the output is the row of weights
hidden = jnp.zeros((1, 1, 3, 5), bool)
attend = jax.nn.dot_product_attention


def rows(**options):
    return np.asarray(attend(query, key, value, **options))[0, :, 0].round(3)


gradient = jax.grad(lambda value: attend(query, key, value, mask=hidden).sum())(value)
masked, empty = rows(mask=hidden), rows(key_value_seq_lengths=jnp.array([0]))
beyond = rows(query_seq_lengths=jnp.array([1]))[1:]
print("jax mask", masked[0], "gradient", round(float(gradient.max()), 3), "· length 0", empty[0], "· beyond", beyond.max())
assert (masked == 0.2).all() and (empty == 0.2).all() and (beyond == 0).all() and abs(gradient - 0.6).max() < 1e-6

zeros = lambda n: mx.zeros((1, 2, n, 8))
numbers = lambda n: mx.broadcast_to(mx.arange(n)[None, None, :, None].astype(mx.float32), (1, 2, n, 8))
fused = mx.fast.scaled_dot_product_attention
masked = np.array(fused(zeros(3), zeros(5), numbers(5), scale=1.0, mask=mx.zeros((3, 5), dtype=mx.bool_)))[0, 0, :, 0]
causal = np.array(fused(zeros(5), zeros(3), numbers(3), scale=1.0, mask="causal"))[0, 0, :, 0]
print("mlx mask", masked, "· causal, 5 queries and 3 keys", causal)
assert (masked == 2).all() and (causal == [1, 1, 0, 0.5, 1]).all()
PYTHON
