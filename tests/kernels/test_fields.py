"""A kernel's inputs and readings are told once: schema, record and filling follow from their records."""

from typing import Annotated, NamedTuple

import numpy as np
import pytest
import torch

pytest.importorskip("numba", reason="kernels are compiled by Numba")

from regard.kernels.cpu import kernel_arguments, operators
from regard.kernels.cpu.kernel_arguments import (
    DIFFERENTIABLE,
    FORMATS,
    LAYOUT,
    READINGS,
    SIZES,
    Items,
    KernelInputs,
    ReadingOptions,
    Strides,
    Tensor,
)
from regard.kernels.cpu.launch import fill_arguments, named_arguments, packed


class Unknown(NamedTuple):
    """A record with a type that no operator has."""

    name: bytes


class Simple(NamedTuple):
    """A record that no kernel knows."""

    given: Annotated[Tensor, Strides(("batch", "row")), DIFFERENTIABLE]
    other: Annotated[Tensor | None, Strides(("row",), prefix="shared", repeats=False)] = None
    ratio: float = 0.5
    flag: bool = False


def written(record):
    """The numbers that are written of a record, by name."""
    names = tuple(kernel_arguments.layout_of(type(record)))
    numbers = [None] * len(names)
    kernel_arguments.Writer(type(record), {name: position for position, name in enumerate(names)}).write(
        record, numbers
    )
    return {name: number for name, number in zip(names, numbers, strict=True) if number is not None}


def test_a_line_in_a_record_is_all_that_a_field_needs():
    assert kernel_arguments.schema_of(Simple) == "Tensor given, Tensor? other, float ratio, bool flag"
    assert kernel_arguments.differentiable(Simple) == ("given",)
    assert kernel_arguments.layout_of(Simple) == {
        "given": "q", "given_batch": "q", "given_row": "q", "grad_given": "q",
        "other": "q", "shared_row": "q", "ratio": "d", "flag": "q",
    }  # fmt: skip
    given, other = torch.empty(1, 3, 5), torch.empty(1, 7)
    assert written(Simple(given, other)) == {
        "given": given.data_ptr(), "given_batch": 0, "given_row": 5,
        "other": other.data_ptr(), "shared_row": 7, "ratio": 0.5, "flag": False,
    }  # fmt: skip
    assert not {"other", "shared_row"} & set(written(Simple(given)))


def test_fields_without_an_operator_type_are_refused():
    with pytest.raises(KeyError):
        kernel_arguments.fields_of(Unknown)


def test_items_of_a_list_have_names():
    assert written(ReadingOptions(pooled=[5, 7]))["pooled_columns"] == 7
    assert "pooled_columns" not in written(ReadingOptions())
    assert isinstance(next(f.items for f in kernel_arguments.fields_of(ReadingOptions) if f.name == "pooled"), Items)


def test_operators_take_the_fields_of_their_records():
    inputs, options = KernelInputs._fields, ReadingOptions._fields
    assert tuple(argument.name for argument in operators.attend._schema.arguments) == inputs
    assert tuple(argument.name for argument in operators.read._schema.arguments) == (*inputs, *options)
    backward = tuple(argument.name for argument in operators.attend_backward._schema.arguments)
    assert backward == ("grad_output", "grad_weights", "statistics", "saved_weights", *inputs)


def test_the_record_has_every_field():
    names = LAYOUT.names
    assert names is not None
    assert names == tuple(FORMATS)
    # Tasks are counted at the record's own address.
    assert names[0] == "counter"
    assert {*kernel_arguments.layout_of(KernelInputs), *kernel_arguments.layout_of(ReadingOptions)} <= set(names)
    assert {reading.name for reading in READINGS} <= set(names)
    assert {f"grad_{name}" for name in operators.GRADIENTS} <= set(names)


def test_every_number_is_in_its_place_of_the_record():
    query, value, bias = torch.randn(2, 6, 5, 7), torch.randn(2, 3, 11, 13), torch.zeros(6, 15)
    inputs = KernelInputs(query, torch.randn(2, 3, 11, 7), value, bias=bias, diagonal=True, dropout=0.25, temperature=4)
    numbers = fill_arguments(inputs, 17, 19, output=23)
    record = np.frombuffer(packed(numbers), LAYOUT)[0]
    assert {name: record[name] for name in SIZES} == {
        "batch": 2, "heads": 6, "kv_heads": 3, "queries": 5, "keys": 11, "dim": 7, "value_dim": 13,
        "block": 17, "chunks": 19, "runs": 1,
    }  # fmt: skip
    assert [record[name] for name in ("query", "bias", "output")] == [query.data_ptr(), bias.data_ptr(), 23]
    assert [record[f"bias_{axis}"] for axis in ("batch", "head", "row", "key")] == [0, 15, 0, 1]
    assert [record[f"span_{axis}"] for axis in ("batch", "head", "row", "run")] == [0] * 4
    start = torch.zeros(2, 1, 5, 3, dtype=torch.int32)
    several = np.frombuffer(packed(fill_arguments(inputs._replace(start=start, stop=start))), LAYOUT)[0]
    assert several["runs"] == 3
    assert [several[f"span_{axis}"] for axis in ("batch", "head", "row", "run")] == [15, 0, 3, 1]
    assert [record[name] for name in ("dropout_scale", "threshold", "inverse_temperature")] == [4 / 3, 2**30, 0.25]
    assert [record[name] for name in ("counter", "sink", "mask", "key_transposed")] == [0] * 4


def test_a_number_that_the_record_does_not_have_is_refused():
    with pytest.raises(KeyError):
        named_arguments(unknown=1)
