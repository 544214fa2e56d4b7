"""The implementations as columns of the tables: order, headings, and line styles of the plots."""

OWN_COLUMNS = {name: f"regard-{name}" for name in ("reference", "cpu", "sdpa", "tiled", "linear", "flex", "triton")}
"""The columns of regard's own backends, by the name of the backend. They show whether the planner's choice is right."""

COLUMNS = {
    "regard": "regard",
    **{column: f"regard on {name}" for name, column in OWN_COLUMNS.items()},
    "eager": "eager PyTorch",
    "compile": "torch.compile",
    "sdpa": "SDPA",
    "keras": "Keras 3",
    "entmax": "entmax",
    "jax": "JAX",
    "onnxruntime": "onnxruntime",
    "x-transformers": "x-transformers",
    "openvino": "OpenVINO",
    "flex": "FlexAttention",
    "transformers": "transformers",
}
"""The columns in their order, and their headings."""

CPU_COLUMNS = {"regard-cpu", "keras", "jax", "onnxruntime", "openvino"}
"""The implementations that are measured on CPUs alone."""

ACCELERATOR_COLUMNS = {"regard-flex", "regard-triton"}
"""The implementations that are measured on accelerators alone."""

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
    "openvino": ("#0072B2", "h", "--"),
    "flex": ("#009E73", "*", "--"),
    "transformers": ("#D55E00", "d", "--"),
}
"""Color, marker and line style of each implementation but regard's own backends, which are not plotted: the colors of
Okabe and Ito, and two more colors with other line styles."""
