"""Pictures of predictions: each is that of its view, with the same sentence."""

import numpy as np
import pytest
import torch

from regard import View
from regard.data.images.pictures import InputImage
from regard.tasks.caption import Caption
from regard.tasks.classify import Classification
from regard.tasks.copied_spans import CopiedSpan
from regard.tasks.images import ImageLabel
from regard.tasks.inputs.sound import HeardSound
from regard.tasks.outputs.label import PlainLabel
from regard.tasks.outputs.next_token import Continuation
from regard.tasks.sounds import SoundLabel
from regard.tasks.summarize import Summary
from regard.tasks.transcribe import Transcription
from regard.tasks.translate import Translation

WEIGHTS = torch.tensor([[0.8, 0.1, 0.1, 0.0], [0.1, 0.5, 0.3, 0.1], [0.1, 0.2, 0.1, 0.6]])
SOURCE, TARGET = ["▁the", "▁cat", "s", "▁sleep"], ["▁les", "▁chat", "s"]
SIDES = {
    "source": "the cats sleep", "text": "les chats", "weights": WEIGHTS, "source_tokens": SOURCE,
    "target_tokens": TARGET, "source_words": [range(1), range(1, 3), range(3, 4)],
    "target_words": [range(1), range(1, 3)],
}  # fmt: skip
IMAGE = InputImage("a.png", *[np.zeros((8, 8, 3), np.uint8)] * 2, (0, 0, 8, 8), 1.0)
SOUND = HeardSound("a.wav", np.ones((8, 4), np.float32), 0.01, 2)
PROBABILITIES = {"cat": 0.75, "dog": 0.25}


@pytest.mark.parametrize(
    "prediction",
    [
        Translation(**SIDES, merge_words=True),
        Summary(**SIDES, merge_words=True),
        Transcription(SOUND, "les chats", -1.0, TARGET, SIDES["target_words"], ["les", "chats"], WEIGHTS),
        Caption(IMAGE, "les chats", -1.0, TARGET, SIDES["target_words"], WEIGHTS.numpy(), (2, 2)),
        ImageLabel(IMAGE, "cat", PROBABILITIES, WEIGHTS[0].numpy(), (2, 2)),
        SoundLabel(SOUND, "cat", PROBABILITIES, WEIGHTS),
        Classification("a b c d", "cat", PROBABILITIES, list("abcd"), [], WEIGHTS),
        Continuation("a", "b", -1.0, False, (), (1, 2, 3), 0, ("a", "b", "c"), WEIGHTS[:, :3]),
    ],
    ids=lambda one: type(one).__name__,
)
def test_the_figure_of_a_prediction_says_what_its_view_says(prediction):
    own, view = prediction.figure(), View(prediction).figure()
    said = [text.get_text() for text in own.texts if text.get_text()]
    assert said == [text.get_text() for text in view.texts if text.get_text()]
    assert any("%" in text or "attention" in text for text in said)
    assert [len(axes.images) for axes in own.axes] == [len(axes.images) for axes in view.axes]


def test_a_prediction_without_weights_has_no_figure():
    assert Translation(source="a", text="b", target_tokens=["b"]).figure() is None
    assert Summary(**{**SIDES, "weights": None}).figure() is None
    assert Classification("", "cat", PROBABILITIES, [], [], WEIGHTS[:, :0]).figure() is None
    assert PlainLabel("a", "cat", PROBABILITIES).figure() is None


@pytest.mark.parametrize(
    ("merge", "rows", "columns"),
    [(True, ["les", "[chats]"], ["the", "cats", "sleep"]), (False, ["▁les", "[▁chat]", "[s]"], SOURCE)],
)
def test_a_summary_shows_words_or_tokens_and_brackets_what_is_copied(merge, rows, columns):
    copied = [CopiedSpan("chats", 4, 9, range(1, 3), range(1, 3), 1, 1)]
    axes = Summary(**SIDES, merge_words=merge, copied=copied).figure().axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == rows
    assert [label.get_text() for label in axes.get_xticklabels()] == columns


def test_the_figure_of_a_long_prediction_is_a_map():
    weights = torch.full((5, 500), 1 / 500)
    tokens = [f"t{number}" for number in range(500)]
    long = Translation(source="long", text="a", weights=weights, source_tokens=tokens, target_tokens=list("abcde"))
    axes = long.figure().axes[0]
    assert not {label.get_text() for label in axes.get_xticklabels()} & set(tokens)
    assert axes.images
