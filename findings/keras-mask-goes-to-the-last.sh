#!/usr/bin/env bash
# keras 3.15.1 (backend jax 0.10.2): of two multi-head layers that read one masked embedding, one attends to padding; which
# one depends on whether the layers are called or joined to a functional model.
#
# One guesses that both get the mask of `Embedding(mask_zero=True)`, or that the same one loses it in both ways. A multi-head
# layer takes the mask off the tensor that it reads. When layers are called, the second one finds none. A functional model
# calls them in another order than that in which they were written, and there the first one attends to padding.
#
# Seen: called     first 0.0    second 0.4
#       functional first 0.4    second 0.0      (the share of attention that two padded tokens of five get)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet keras==3.15.1 jax==0.10.2 jaxlib==0.10.2
KERAS_BACKEND=jax "$folder/venv/bin/python" - <<'PYTHON'
import keras
import numpy as np
from keras import layers

tokens = np.array([[1, 2, 3, 0, 0]])


def two_layers(embedded):
    """The weights of two layers, made and called one after the other; their scores are 0."""
    return [
        layers.MultiHeadAttention(1, 4, kernel_initializer="zeros")(embedded, embedded, return_attention_scores=True)[1]
        for _ in range(2)
    ]


def on_padding(weights):
    return [round(float(np.asarray(each)[0, 0, 0, 3:].sum()), 3) for each in weights]


called = on_padding(two_layers(layers.Embedding(10, 8, mask_zero=True)(tokens)))
given = keras.Input((5,), dtype="int32")
model = keras.Model(given, two_layers(layers.Embedding(10, 8, mask_zero=True)(given)))
functional = on_padding(model(tokens))
for name, (first, second) in {"called": called, "functional": functional}.items():
    print(f"{name:10} first {first:<6} second {second}")
assert called == [0.0, 0.4] and functional == [0.4, 0.0], (called, functional)
PYTHON
