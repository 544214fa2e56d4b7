"""The contenders as columns: their order, their headings, and how their lines are drawn."""

OWN = {name: f"regard-{name}" for name in ("reference", "cpu", "sdpa", "tiled")}
"""The columns of regard's own backends, by the name of the backend: no rivals, but what its planner chooses from."""

COLUMNS = {
    "regard": "regard",
    **{column: f"regard on {name}" for name, column in OWN.items()},
    "eager": "eager PyTorch",
    "compile": "torch.compile",
    "sdpa": "SDPA",
    "keras": "Keras 3",
    "entmax": "entmax",
    "jax": "JAX",
    "onnxruntime": "onnxruntime",
    "x-transformers": "x-transformers",
}
"""The columns in their order, and their headings."""

LINES = {
    "regard": ("#0072B2", "o", "-"),
    "eager": ("#D55E00", "s", "-"),
    "compile": ("#009E73", "^", "-"),
    "sdpa": ("#000000", "X", "-"),
    "keras": ("#CC79A7", "D", "-"),
    "entmax": ("#56B4E9", "v", "-"),
    "jax": ("#E69F00", "P", "-"),
    "onnxruntime": ("#6E6E6E", "<", "--"),
    "x-transformers": ("#8C564B", ">", ":"),
}
"""Colour, marker and style of each but regard's own backends, which no picture shows: the colours of Okabe and Ito, and
two more that differ in style as well."""
