"""How long a written text may be follows from the training data, in every task that writes about an input."""

import numpy as np
import pytest

import regard
from regard.models.configs import FREE_TOKENS, TranslatorConfig
from regard.tasks.outputs.text import length_ratio


class Lengths:
    """Training examples, as far as their lengths count."""

    def __init__(self, inputs, targets):
        self.values = np.array(inputs), np.array(targets)

    def lengths(self):
        return self.values


@pytest.mark.parametrize(
    ("inputs", "targets"),
    [([10] * 50, [40] * 50), ([30, 10, 60] * 9, [10, 4, 17] * 9), ([3] * 5, [2] * 5), ([1, 500], [200, 100])],
)
def test_every_training_text_may_be_written(inputs, targets):
    config = TranslatorConfig(9, 9, length_ratio=length_ratio(Lengths(inputs, targets)))
    for annotations, tokens in zip(inputs, targets, strict=True):
        assert config.longest(annotations) >= tokens
    mean = sum(targets) / sum(inputs)
    assert config.longest(10_000) >= 10_000 * mean, "an input that is longer than all training inputs"


def test_the_length_ratio_is_close_to_that_of_the_data():
    config = TranslatorConfig(9, 9, length_ratio=length_ratio(Lengths([100] * 99, [20] * 99)))
    assert config.longest(100) <= 1.2 * 20 + FREE_TOKENS


def test_frames_are_counted_as_annotations():
    one, four = (length_ratio(Lengths([100, 80], [90, 70]), reduction) for reduction in (1, 4))
    assert four == pytest.approx(4 * one, rel=1e-3)


def test_models_of_earlier_versions_keep_their_bound():
    assert TranslatorConfig(9, 9).longest(7) == 2 * 7 + 10


def test_a_new_translator_writes_no_more(own_cache):
    pairs = [("a b c d e f g h " * 5, "x y"), ("h g f e d c b a " * 5, "y x")] * 15
    run = regard.train(
        "translate", pairs, tokenizer="word", embedding=6, hidden=8, epochs=1, quiet=True, threads=1,
    )  # fmt: skip
    assert run.model.config.length_ratio < 0.2
    assert len(run.predict(["a b c d e f g h " * 5], beam=1)[0].target_tokens) <= 0.2 * 40 + FREE_TOKENS
