"""Normalizers whose weights depend on more than their row: `Normalizer.couples`."""

import pytest
import torch

import regard
from backends import ON_CPU
from cases import MASKS, problem
from regard import normalizers
from regard.errors import BackendError


class OverQueries(normalizers.Normalizer):
    couples = "queries"

    def forward(self, scores, dim=-1):
        return normalizers.softmax(scores, dim - 1)


@pytest.mark.parametrize("mask", ["none", "where", "lengths", "nobody"])
def test_only_whole_grids_run_what_couples_queries(mask):
    inputs = problem()
    arguments = {"normalizer": OverQueries(), "mask": MASKS[mask]()}
    plan = regard.plan(*inputs, **arguments)
    assert plan.backend == "reference"
    for backend in set(ON_CPU) - {"reference"}:
        assert "depends on all queries" in plan.reasons[backend]
        with pytest.raises(BackendError, match="depends on all queries"):
            regard.attend(*inputs, backend=backend, **arguments)
    observed = regard.observe(*inputs, read=regard.Readings(weights=True, tile=((1, 3), (2, 5))), **arguments)
    torch.testing.assert_close(observed.weights @ inputs[2], observed.output)
    torch.testing.assert_close(observed.tile, observed.weights[:, :, 1:3, 2:5])


def test_a_hidden_number_that_is_not_finite_reaches_no_weight_of_coupled_queries():
    query, key, value = problem()
    arguments = {"normalizer": OverQueries(), "mask": MASKS["where"]()}
    expected = regard.attend_with_weights(query, key, value, **arguments)
    bad = value.clone()
    bad[:, :, 3] = torch.nan
    output, weights = regard.attend_with_weights(query, key, bad, **arguments)
    sees = arguments["mask"].dense(regard.shapes.Grid.of(query, key))[..., 3]
    torch.testing.assert_close(weights, expected.weights)
    assert torch.equal(output.isnan().any(-1), sees.expand_as(output[..., 0]))
    torch.testing.assert_close(output[~sees], expected.output[~sees])
