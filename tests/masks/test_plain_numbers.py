"""A mask made of one number hides what a list and a tensor of that number hide: on every backend, for every score."""

import pytest
import torch

import regard
from backends import EVERY, accepts, assert_same, measure
from cases import B, D, H, K, Q, problem
from covering import covering
from regard import masks, nn, scores

ONE, TWO = 4, 3

FORMS = {
    "number": lambda value: value,
    "list": lambda value: [value] * B,
    "tensor": lambda value: torch.full((B,), value),
    "integer of NumPy": lambda value: torch.tensor(value).numpy()[()],
}
MASKS = {
    "lengths": lambda form: masks.lengths(form(ONE)),
    "lengths of all": lambda form: masks.lengths(form(K)),
    "lengths of none": lambda form: masks.lengths(form(0)),
    "both lengths": lambda form: masks.lengths(form(ONE), form(TWO)),
    "prefix": lambda form: masks.prefix(form(TWO)),
    "causal": lambda form: masks.causal(offset=form(TWO)),
    "causal lengths": lambda form: masks.causal() & masks.lengths(form(ONE)),
    "window": lambda form: masks.window(2, 1, offset=form(1)),
    "not": lambda form: ~masks.lengths(form(TWO)) | masks.prefix(form(1)),
}
CALLS = {
    "softmax": {},
    "additive": {"score": scores.Additive(torch.linspace(-1, 1, D, dtype=torch.float64))},
    "sparsemax": {"normalizer": "sparsemax"},
    "features": {"score": scores.Features("elu"), "normalizer": "ratio"},
    "products": {"score": "dot", "normalizer": "identity"},
    "decay": {
        "score": scores.Decayed("dot", torch.tensor([-0.3, -0.1, 0.0], dtype=torch.float64)),
        "normalizer": "identity",
    },
}


@covering(mask=MASKS, form=FORMS, call=CALLS)
def test_a_number_hides_as_its_pairs_do(mask, form, call):
    inputs, arguments = problem(), CALLS[call]
    made = MASKS[mask](FORMS[form])
    pairs = MASKS[mask](FORMS["tensor"]).allows(regard.plan(*inputs).candidates.problem.grid)
    expected = measure("reference", inputs, mask=masks.keep(pairs), **arguments)
    for backend in EVERY:
        if accepts(backend, inputs, mask=made, **arguments):
            got = measure(backend, inputs, mask=made, **arguments)
            assert_same(got, expected, 1e-9, 1e-9, f"{backend} {mask} {form} {call}")


LAYERS = {
    "encoder layer": lambda: nn.TransformerEncoderLayer(D + 1, H, 5, batch_first=True),
    "encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(D + 1, H, 5, batch_first=True), 2),
    **{
        name: lambda name=name: nn.LayerConfig(D + 1, H, feedforward=5, attention=name).encoder_layer()
        for name in ("multihead", "differential", "latent", "gated", "linear", "retention", "native_sparse", "indexed")
    },
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_takes_a_number_as_a_tensor(name):
    torch.manual_seed(1)
    layer, x = LAYERS[name]().double().eval(), torch.randn(B, Q, D + 1, dtype=torch.float64)
    expected = layer(x, mask=masks.lengths(torch.full((B,), TWO)))[:, :TWO]
    for form in ("number", "list"):
        got = layer(x, mask=masks.lengths(FORMS[form](TWO)))[:, :TWO]
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9, msg=f"{name} {form}")
