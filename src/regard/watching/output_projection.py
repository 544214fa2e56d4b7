"""The output projection behind the heads of an attention module, as one matrix for each head."""

from torch import Tensor, nn

from regard.errors import ArgumentError

PLACES = (
    "out_proj", "o_proj", "c_proj", "output_proj", "out_lin", "o", "wo", "dense", "proj", "to_out", "to_out.0", "out",
    "linear_out", "W_O", "output",
)  # fmt: skip
"""Names of the projection in the module of the attention."""

SIBLING_PLACES = ("output.dense", "output.o_proj", "out_proj", "o_proj", "output")
"""Names of the projection in the module around it (BERT: ``attention.self`` and ``attention.output.dense``)."""


def output_projection(model: nn.Module, name: str) -> nn.Module:
    """The module that projects the heads of the attention ``name``.

    Raises:
        ArgumentError: none is found under its usual names.
    """
    around = name.rpartition(".")[0]
    for start, places in ((name, PLACES), (around, SIBLING_PLACES)):
        for place in places:
            found = _submodule(model, f"{start}.{place}" if start else place)
            if found is not None and getattr(getattr(found, "weight", None), "ndim", 0) == 2:
                return found
    raise ArgumentError(f"no output projection of {name!r} was found; it is looked for as {', '.join(PLACES)}")


def heads_of_projection(projection: nn.Module, heads: int, value_dim: int, name: str) -> Tensor:
    """The projection's weight by heads, ``[heads, value_dim, features]``.

    Raises:
        ArgumentError: it does not take the heads side by side.
    """
    weight = projection.weight
    assert isinstance(weight, Tensor)
    # Conv1D of GPT-2 multiplies by its weight, Linear by the transpose of its own.
    matrix = weight if type(projection).__name__ == "Conv1D" else weight.t()
    if matrix.shape[0] != heads * value_dim:
        raise ArgumentError(
            f"the output projection of {name!r} takes {matrix.shape[0]} features; its {heads} heads of {value_dim} "
            f"give {heads * value_dim}"
        )
    return matrix.detach().unflatten(0, (heads, value_dim))


def _submodule(model: nn.Module, path: str) -> nn.Module | None:
    module: nn.Module | None = model
    for part in path.split("."):
        module = None if module is None else module._modules.get(part)
    return module
