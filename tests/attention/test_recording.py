"""Recording what runs: the weights of each call, in their order, and no bit of an output changes."""

import torch

import regard
from regard.attention.execution import recorded_calls, recording


def test_recording_changes_no_bit_and_ends_with_its_context():
    query, key, value = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7), torch.randn(2, 3, 11, 13)
    arguments = {"normalizer": "sparsemax", "mask": regard.masks.window(3, 2)}
    expected = regard.attend(query, key, value, **arguments)
    readings = regard.observe(query, key, value, read=regard.Readings(entropy=True), **arguments)
    with recorded_calls() as calls:
        assert torch.equal(regard.attend(query, key, value, **arguments), expected)
        again = regard.observe(query, key, value, read=regard.Readings(entropy=True), **arguments)
        assert torch.equal(again.output, readings.output)
        assert torch.equal(again.entropy, readings.entropy)
        attended = regard.attend_with_weights(query, key, value, **arguments)
        with recorded_calls() as inner:
            regard.attend(query, key, value)
        assert recording() is calls
    assert recording() is None
    regard.attend(query, key, value)
    assert (len(calls), len(inner)) == (3, 1)
    for call in calls:
        assert torch.equal(call.weights, attended.weights)
        assert not call.weights.requires_grad


def test_recorded_weights_are_those_before_dropout_and_take_no_random_numbers():
    query = torch.randn(1, 2, 5, 7)

    def run():
        torch.manual_seed(3)
        return regard.observe(query, query, query, dropout=0.5).output

    expected = run()
    with recorded_calls() as calls:
        assert torch.equal(run(), expected)
    torch.testing.assert_close(calls[0].weights.sum(-1), torch.ones(1, 2, 5))
