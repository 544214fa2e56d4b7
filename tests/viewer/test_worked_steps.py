"""The record of a worked calculation has the numbers of the explanation."""

import numpy as np
import pytest
import torch

import regard
from regard.errors import ArgumentError, KindError
from regard.viewer import steps_record


def explanation(**options):
    generator = torch.Generator().manual_seed(3)
    query, key, value = (torch.randn(2, 3, length, 5, generator=generator) for length in (7, 11, 11))
    return regard.explain(query, key, value, **options)


def test_the_numbers_of_one_head():
    one = explanation(mask=regard.masks.causal())
    record = steps_record(one, batch=1, head=2)
    for name, matrix in record.matrices.items():
        assert np.array_equal(matrix, getattr(one, name)[1, 2].double().numpy())
    assert list(record.matrices) == ["query", "key", "value", "scores", "scaled", "masked", "weights", "output"]
    assert (record.score, record.normalizer, record.head) == ("dot", "softmax", 2)
    assert record.key_labels[:2] == ("k0", "k1")


def test_other_scores_and_normalizers_are_not_called_dot_and_softmax():
    assert steps_record(explanation(score="distance")).score == "score"
    assert steps_record(explanation(normalizer="sparsemax")).normalizer == "normalizer"


def test_bad_arguments():
    with pytest.raises(KindError):
        steps_record(3)
    with pytest.raises(ArgumentError):
        steps_record(explanation(), head=3)


def test_the_repr_of_a_record_counts_its_queries_and_keys():
    record = steps_record(regard.explain([1, 2], [[1, 0], [0, 1]]))
    assert repr(record) == "StepsRecord('head 0', 1 query, 2 keys)"
