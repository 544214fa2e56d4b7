"""PyTorch's own samples of its Transformer modules, run by ours: constructors, calls, layouts, masks and gradients."""

import ast
import importlib.util
import itertools
from copy import deepcopy
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn as torch_nn
from torch.nn import functional as F

from module_cases import first_output
from regard import nn
from regard.errors import KindError

NUMBERS = {
    "MultiheadAttention": (64, 64),
    "Transformer": (64, 64),
    "TransformerDecoderLayer": (67, 67),
    "TransformerEncoder": (35, 39),
    "TransformerEncoderLayer": (35, 39),
}
"""Samples of each module in evaluation and in training, so that none is skipped unseen."""

AMBIGUOUS = 16
"""Samples of `TransformerEncoder` with a bool tensor as ``mask``, which PyTorch and regard read in opposite ways: ours
refuses it, and takes the same tensor as ``src_mask``, the name that it has in all other modules of PyTorch."""


NAMES = {
    "FunctionInput",
    "ModuleInput",
    "no_batch_dim_reference_fn",
    "no_batch_dim_reference_mha",
    *(f"module_inputs_torch_nn_{name}" for name in NUMBERS),
}


@cache
def definitions() -> dict[str, Any]:
    """The functions of PyTorch's `module_db` that make the samples.

    They are read from the file alone: its import changes global flags of PyTorch, and needs a package for tests.
    """
    spec = importlib.util.find_spec("torch.testing._internal.common_modules")
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    tree.body = [part for part in tree.body if getattr(part, "name", None) in NAMES]
    assert len(tree.body) == len(NAMES)
    scope: dict[str, Any] = {
        "F": F,
        "freeze_rng_state": partial(torch.random.fork_rng, devices=[]),
        "itertools": itertools,
        "make_tensor": torch.testing.make_tensor,
        "partial": partial,
        "deepcopy": deepcopy,
        "torch": torch,
        "wraps": wraps,
    }
    exec(compile(tree, spec.origin, "exec"), scope)
    return scope


def samples(name: str, training: bool) -> list[Any]:
    """The samples, the same at each call."""
    torch.manual_seed(0)
    return definitions()[f"module_inputs_torch_nn_{name}"](None, "cpu", torch.float64, True, training)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:Support for mismatched")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", NUMBERS)
def test_every_sample_gives_what_pytorch_gives(name, training, monkeypatch):
    classes, theirs = (getattr(torch_nn, name), getattr(nn, name)), samples(name, training)
    # The samples of an encoder make the layer that it repeats by this name.
    monkeypatch.setattr(torch_nn, "TransformerEncoderLayer", nn.TransformerEncoderLayer)
    ours, refused = samples(name, training), 0
    assert len(ours) == NUMBERS[name][training]
    for number, pair in enumerate(zip(theirs, ours, strict=True)):
        factory = {} if name == "TransformerEncoder" else {"dtype": torch.float64}
        modules = [
            kind(*sample.constructor_input.args, **sample.constructor_input.kwargs, **factory).train(training)
            for kind, sample in zip(classes, pair, strict=True)
        ]
        modules[1].load_state_dict(modules[0].state_dict())
        call = pair[1].forward_input
        if name == "TransformerEncoder" and call.kwargs.get("mask") is not None:
            with pytest.raises(KindError, match="write src_mask=mask if True hides"):
                modules[1](*call.args, **call.kwargs)
            call.kwargs["src_mask"] = call.kwargs.pop("mask")
            refused += 1
        results = [
            module(*one.forward_input.args, **one.forward_input.kwargs)
            for module, one in zip(modules, pair, strict=True)
        ]
        torch.testing.assert_close(results[1], results[0], msg=lambda text, number=number: f"{number}: {text}")
        if pair[1].reference_fn is not None:  # for many: what the sample gives with a batch of one
            reference = pair[1].reference_fn(modules[1], *call.args, **call.kwargs)
            torch.testing.assert_close(results[1], reference)
        if not training:
            continue
        gradients = [
            torch.autograd.grad(
                first_output(result).pow(3).sum(), [*one.forward_input.args, *module.parameters()], allow_unused=True
            )
            for module, one, result in zip(modules, pair, results, strict=True)
        ]
        torch.testing.assert_close(gradients[1], gradients[0])
    assert refused == (AMBIGUOUS if name == "TransformerEncoder" else 0)
